#!/bin/sh
# train_builtin.sh - makes the built-in model from nothing: texts, tokenizer, weights; and checks that they are those of
# share/mha/builtin.
#
#     tools/train_builtin.sh OUT    (OUT is a new folder; what is made on the way stays in OUT.work)
#
# MHA is the program (default: build/release/bin/mha), MHA_THREADS how many threads it takes: any number gives the same bits, on
# every x86 CPU that has AVX2 (the cap below sees to that). A run that was stopped goes on where it was.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
mha=${MHA:-$root/build/release/bin/mha}
[ $# = 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$1 work=$1.work
[ ! -e "$out" ] || { echo "train_builtin.sh: $out is there" >&2; exit 2; }
mkdir -p "$work"
export MHA_ISA=avx2

# make FILE ARGUMENT...: texts or rows, once and whole.
make() {
    file=$work/$1
    shift
    [ -e "$file" ] || { python3 "$root/tools/builtin_text.py" "$@" >"$file.part" && mv "$file.part" "$file"; }
}

# lesson FOLDER OPTION...: goes on with a lesson that was stopped.
lesson() {
    folder=$work/$1
    shift
    "$mha" train --resume --beta2 0.99 --seed 1 --save-every 100 -o "$folder" "$@"
}

make texts.txt 1 90000
[ -d "$work/tokenizer" ] || "$mha" tokenizer train --vocab-size 1024 -f "$work/texts.txt" -o "$work/tokenizer"

# Lesson 1: rows of 64 tokens that repeat themselves. Two layers must agree on a way to copy before either is of use, and among
# few tokens they find it soonest. Lesson 2: the same of all tokens that the tokenizer put together. Lesson 3: the texts.
make rows1.bin rows 3 24000 300 64
make rows2.bin rows 4 12000 257 767
lesson 1 --shape "$root/tools/builtin.json" --tokenizer "$work/tokenizer" --tokens "$work/rows1.bin" \
    --batch 32 --length 49 --steps 700 --rate 0.003 --schedule constant --warmup 20 --decay 0.01
lesson 2 --from "$work/1" --tokens "$work/rows2.bin" \
    --batch 32 --length 49 --steps 300 --rate 0.002 --schedule constant --warmup 20 --decay 0.01
lesson 3 --from "$work/2" -f "$work/texts.txt" \
    --batch 16 --length 128 --steps 1200 --rate 0.003 --floor 0.0001 --warmup 50 --decay 0.05 --export "$out"
rm "$out/merges.txt" "$out/vocab.json" "$out/special_tokens_map.json" # tokenizer.json says the same

cd "$out" && sha256sum -c "$root/tools/builtin.sha256"
