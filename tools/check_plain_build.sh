#!/bin/sh
# check_plain_build.sh - the operator (src/base, src/math, src/kernel, src/attn) needs no build system and no library: the compiler command of
# README.md turns it and an example into a program, and that runs. $CC is the compiler (cc).
set -eu
cd "$(dirname -- "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
line=$(grep '^cc .*src/kernel' README.md)
ln -s "$PWD/examples" "$PWD/include" "$PWD/src" "$work"
cd "$work"
# shellcheck disable=SC2329 # called by the line
cc() { command "${CC:-cc}" "$@"; }
eval "$line"
./attention | grep 'token 3 attends to 0.000 0.005 0.000 0.995'
