#!/bin/sh
# train_builtin.sh - trains the built-in model: generates the texts, trains tokenizer and weights, and checks that all
# files equal those of share/mha/builtin.
#
#     tools/builtin/train_builtin.sh OUT    (OUT must not exist; intermediate files stay in OUT.work)
#
# MHA is the program (default: build/release/bin/mha), and MHA_THREADS is its number of threads. The files are bitwise
# identical for any number of threads on every x86 CPU with AVX2, because MHA_ISA is set to avx2. An interrupted run
# resumes.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
mha=${MHA:-$root/build/release/bin/mha}
[ $# = 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$1 work=$1.work
[ ! -e "$out" ] || { echo "train_builtin.sh: OUT must not exist (got $out)" >&2; exit 2; }
mkdir -p "$work"
export MHA_ISA=avx2

# make FILE ARGUMENT...: generates a file of texts or token rows, unless it exists; an interrupted call leaves no file.
make() {
    file=$work/$1
    shift
    [ -e "$file" ] || { python3 "$root/tools/builtin/builtin_text.py" "$@" >"$file.part" && mv "$file.part" "$file"; }
}

# stage FOLDER OPTION...: runs a stage of the training, or resumes it.
stage() {
    folder=$work/$1
    shift
    "$mha" train --resume --beta2 0.99 --seed 1 --save-every 100 -o "$folder" "$@"
}

make texts.txt 1 90000
[ -d "$work/tokenizer" ] || "$mha" tokenizer train --vocab-size 1024 -f "$work/texts.txt" -o "$work/tokenizer"

# Stage 1: repeated rows of 64 distinct tokens. Two layers must cooperate to copy, and before they do, neither layer
# reduces the loss. Few distinct tokens reduce the number of steps that this takes. Stage 2: repeated rows of all tokens
# that BPE merged. Stage 3: the texts.
make rows1.bin rows 3 24000 300 64
make rows2.bin rows 4 12000 257 767
stage 1 --shape "$root/tools/builtin/builtin.json" --tokenizer "$work/tokenizer" --tokens "$work/rows1.bin" \
    --batch 32 --length 49 --steps 700 --rate 0.003 --schedule constant --warmup 20 --decay 0.01
stage 2 --from "$work/1" --tokens "$work/rows2.bin" \
    --batch 32 --length 49 --steps 300 --rate 0.002 --schedule constant --warmup 20 --decay 0.01
stage 3 --from "$work/2" -f "$work/texts.txt" \
    --batch 16 --length 128 --steps 1200 --rate 0.003 --floor 0.0001 --warmup 50 --decay 0.05 --export "$out"
rm "$out/merges.txt" "$out/vocab.json" "$out/special_tokens_map.json" # tokenizer.json contains the data of these files

cd "$out" && sha256sum -c "$root/tools/builtin/builtin.sha256"
