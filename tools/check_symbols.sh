#!/bin/sh
# check_symbols.sh - check_symbols.sh SHARED STATIC [HEADER...]: what the libraries show is what the headers declare.
#
#   The shared library exports each function that one of the public headers (all of include/mha, without cluster.h) declares with MHA_API, and nothing else.
#   The static library's global names are those, or begin with mha__, so that it meets no name of a program.
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
        case $header in */cluster.h) ;; *) set -- "$@" "$header" ;; esac # cluster.h declares libmha_mpi
    done
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# names LIBRARY [OPTION]: its global definitions, less those that the linker or a coverage or sanitizer runtime makes.
names() {
    nm -P --defined-only --extern-only ${2:+"$2"} "$1" | awk 'NF >= 2 { sub(/@.*/, "", $1); print $1 }' |
        grep -Ev '^(_init|_fini|_edata|_end|__bss_start|__(asan|odr_asan|gcov|llvm)_.*)$' | sort -u
}

# report FILE WHAT: each line of FILE is a name that is wrong.
report() {
    [ ! -s "$1" ] || {
        sed "s/\$/: $2/" "$1"
        status=1
    }
}

# MHA_API const char *mha_version(void);  ->  mha_version
cat "$@" | grep -v '^#' | tr '\n' ' ' | grep -o 'MHA_API [^;(]*(' | sed 's/.*[ *]\(mha_[a-z0-9_]*\)($/\1/' |
    sort -u >"$work/declared"
names "$shared" -D >"$work/exported"
names "$static" >"$work/static"
[ -s "$work/declared" ] || {
    echo "found no MHA_API function in $*"
    exit 1
}

comm -23 "$work/declared" "$work/exported" >"$work/missing"
report "$work/missing" 'declared with MHA_API, but not exported'
comm -13 "$work/declared" "$work/exported" >"$work/foreign"
report "$work/foreign" 'exported, but no public header declares it with MHA_API'
grep -v '^mha__' "$work/static" | comm -13 "$work/declared" - >"$work/unmarked"
report "$work/unmarked" 'global in the static library; make it static or begin it with mha__'
exit "$status"
