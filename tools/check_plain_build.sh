#!/bin/sh
# check_plain_build.sh - the operator (src/base, src/kernel, src/attn) needs no build system and no library: one compiler
# command turns it and an example into a program, and that runs. $CC is the compiler (cc).
set -eu
cd "$(dirname -- "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -std=gnu11 -O2 -ffp-contract=off -Iinclude -Isrc -o "$work/attention" \
    examples/attention.c src/base/*.c src/kernel/*.c src/attn/*.c -lm -lpthread
"$work/attention"
