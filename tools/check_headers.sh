#!/bin/sh
# check_headers.sh - checks that each public header compiles alone, and when included twice, as C11 and C++17 without
# warnings.
#
# $CC is the C compiler (default: cc), $CXX is the C++ compiler (default: any that is found). Without a C++ compiler,
# C++17 is skipped.
set -eu
cd "$(dirname -- "$0")/.."
status=0

# compile HEADER COMPILER LANGUAGE STANDARD: compiles a file that includes the header twice.
compile() {
    printf '#include "mha/%s"\n#include "mha/%s"\n' "$1" "$1" |
        "$2" -x "$3" "-std=$4" -Wall -Wextra -Wpedantic -Wconversion -Werror -Iinclude -fsyntax-only - || {
        echo "include/mha/$1 does not compile alone as $4"
        status=1
    }
}

cxx=
for name in "${CXX:-}" c++ g++ clang++ clang++-16; do
    command -v "${name:-none}" >/dev/null && cxx=$name && break
done
[ -n "$cxx" ] || echo 'skipped: the public headers as C++17; no C++ compiler is installed'

for path in include/mha/*.h; do
    header=${path##*/}
    compile "$header" "${CC:-cc}" c c11
    [ -z "$cxx" ] || compile "$header" "$cxx" c++ c++17
done
exit "$status"
