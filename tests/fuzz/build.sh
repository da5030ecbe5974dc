#!/bin/sh
# build.sh - builds the fuzz targets for OSS-Fuzz with $CC, $CFLAGS and $LIB_FUZZING_ENGINE. Writes to $OUT one program per target, its
# dictionary, a zip archive of its seeds, and the libraries and data that the programs require. Builds in $WORK (default: $OUT/work) from the
# sources in $SRC/mha or, if these do not exist, in the tree of this script.
#
#   CC=clang CFLAGS='-O2 -fsanitize=address,undefined' LIB_FUZZING_ENGINE=-fsanitize=fuzzer OUT=/tmp/out tests/fuzz/build.sh
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
source=$here/../..
[ ! -e "${SRC:-}/mha/CMakeLists.txt" ] || source=$SRC/mha
: "${OUT:?must be the folder for the programs}"
mkdir -p "$OUT"
OUT=$(CDPATH='' cd -- "$OUT" && pwd)
work=${WORK:-$OUT/work}

cmake -S "$source" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER="${CC:-clang}" \
    -DCMAKE_C_FLAGS="${CFLAGS:--O2}" -DMHA_FUZZ=ON -DMHA_FUZZ_ENGINE="${LIB_FUZZING_ENGINE:--fsanitize=fuzzer}" \
    -DMHA_PROGRAM=OFF -DMHA_TEST_LABELS=fuzz
programs=$(CDPATH='' cd -- "$work" && ls tests/fuzz/*.seeds)
# shellcheck disable=SC2046 # one word for each target
ninja -C "$work" $(for seeds in $programs; do basename "$seeds" .seeds; done)

# pack_seeds TARGET: packs the seeds of a target, from one or more folders, into a zip archive in $OUT.
pack_seeds() {
    name=$1
    all=$(mktemp -d)
    tr ";" "\n" <"$work/tests/fuzz/$name.seeds" | while read -r folder; do
        find "$folder" -maxdepth 1 -type f -exec cp {} "$all" \;
    done
    (cd "$all" && cmake -E tar cf "$OUT/${name}_seed_corpus.zip" --format=zip .)
    rm -rf "$all"
}

mkdir -p "$OUT/lib" "$OUT/data/models" "$OUT/data/hostile"
for seeds in $programs; do
    name=$(basename "$seeds" .seeds)
    cp "$work/tests/fuzz/$name" "$OUT"
    pack_seeds "$name"
    dictionary=$here/dictionaries/${name#fuzz_}.dict
    [ ! -e "$dictionary" ] || cp "$dictionary" "$OUT/$name.dict"
    ldd "$work/tests/fuzz/$name" | awk '/lib(jansson|utf8proc|pcre2-8|popt|cmocka)/ { print $3 }' | xargs -r cp -L -t "$OUT/lib"
done
data=$source/tests/golden/data
cp -R "$data/tokenizer" "$OUT/data"
cp -R "$data/hostile/base" "$OUT/data/hostile"
cp -R "$data/models/bert-mlm-tiny" "$data/models/gemma2-tiny" "$OUT/data/models"
