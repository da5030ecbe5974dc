#!/bin/sh
# check_symbols.sh SHARED STATIC [HEADER...] - checks that the libraries export exactly the functions that the headers declare.
#
#   The shared library must export every function declared with MHA_API in the headers (default: all of include/mha except cluster*.h),
#   and nothing else. Other global names of the static library must begin with mha__, so that they cannot clash with names of a program.
set -eu
cd "$(dirname -- "$0")/.."
[ $# -ge 2 ] || {
    echo 'usage: check_symbols.sh SHARED STATIC [HEADER...]' >&2
    exit 2
}
shared=$1 static=$2
shift 2
if [ $# -eq 0 ]; then
    for header in include/mha/*.h; do
        case $header in */cluster*.h) ;; *) set -- "$@" "$header" ;; esac # cluster*.h declare libmha_mpi
    done
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# names LIBRARY [OPTION]: prints the global definitions of LIBRARY, except those of the linker, coverage and sanitizer
# runtimes.
names() {
    nm -P --defined-only --extern-only ${2:+"$2"} "$1" | awk 'NF >= 2 { sub(/@.*/, "", $1); print $1 }' |
        grep -Ev '^(_init|_fini|_edata|_end|__bss_start|__(asan|odr_asan|gcov|llvm)_.*)$' | sort -u
}

# report FILE MESSAGE: prints the message for each name in FILE.
report() {
    [ ! -s "$1" ] || {
        sed "s/\$/: $2/" "$1"
        status=1
    }
}

# extracts mha_version from "MHA_API const char *mha_version(void);"
cat "$@" | grep -v '^#' | tr '\n' ' ' | grep -o 'MHA_API [^;(]*(' | sed 's/.*[ *]\(mha_[a-z0-9_]*\)($/\1/' |
    sort -u >"$work/declared"
names "$shared" -D >"$work/exported"
names "$static" >"$work/static"
[ -s "$work/declared" ] || {
    echo "no MHA_API function found in $*"
    exit 1
}

comm -23 "$work/declared" "$work/exported" >"$work/missing"
report "$work/missing" 'is declared with MHA_API, but not exported'
comm -13 "$work/declared" "$work/exported" >"$work/foreign"
report "$work/foreign" 'is exported, but not declared with MHA_API in a public header'
grep -v '^mha__' "$work/static" | comm -13 "$work/declared" - >"$work/unmarked"
report "$work/unmarked" 'is global in the static library: make it static, or begin its name with mha__'
exit "$status"
