#!/bin/sh
# check_plain_build.sh - checks that the operator (src/base, src/math, src/kernel, src/attn) builds without a build system
# or other libraries: runs the compiler command of README.md, and the example program that it builds. $CC is the compiler
# (default: cc).
set -eu
cd "$(dirname -- "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
line=$(grep '^cc .*src/kernel' README.md)
ln -s "$PWD/examples" "$PWD/include" "$PWD/src" "$work"
cd "$work"
# shellcheck disable=SC2329 # called by the command in $line
cc() { command "${CC:-cc}" "$@"; }
eval "$line"
./attention | grep 'token 3 attends to tokens 0..3 with weights 0.000 0.005 0.000 0.995'
