#!/bin/sh
# check_headers.sh - checks that each public header compiles alone, and when included twice, as C11 and C++17 without
# warnings, and that types.h names every struct without the field `size`.
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
        echo "include/mha/$1 must compile alone as $4"
        status=1
    }
}

cxx=
for name in "${CXX:-}" c++ g++ clang++ clang++-16; do
    command -v "${name:-none}" >/dev/null && cxx=$name && break
done
[ -n "$cxx" ] || echo 'skipped: the public headers as C++17, because no C++ compiler is installed'

for path in include/mha/*.h; do
    header=${path##*/}
    compile "$header" "${CC:-cc}" c c11
    [ -z "$cxx" ] || compile "$header" "$cxx" c++ c++17
done

unsized=$(awk '/^typedef struct [a-z0-9_]+ \{/ { name = $3; sized = 0 }
               /^    size_t size;/ { sized = 1 }
               /^\} / { if (name && !sized) print name; name = "" }' include/mha/*.h)
for name in $unsized; do
    grep '^ \*  ' include/mha/types.h | grep -qw "$name" || {
        echo "$name must begin with size, or be named in the conventions of include/mha/types.h"
        status=1
    }
done
exit "$status"
