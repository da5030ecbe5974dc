#!/bin/sh
# check_install.sh - check_install.sh BUILD: what is installed can be used, from wherever it is moved to.
#
# Installs the build folder, moves the result elsewhere, and builds and runs tests/install/consumer.c against it through
# find_package (shared and static) and through pkg-config. $CC is the compiler (cc).
set -eu
cd "$(dirname -- "$0")/.."
[ $# -eq 1 ] || {
    echo 'usage: check_install.sh BUILD' >&2
    exit 2
}
build=$1
grep -q '^CMAKE_INSTALL_\(BIN\|LIB\|INCLUDE\)DIR:PATH=/' "$build/CMakeCache.txt" && {
    echo 'skipped: this build installs to absolute folders, so a trial would write outside of its own'
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc=${CC:-cc}

# quietly COMMAND...: its output only if it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || {
        cat "$work/log"
        echo "failed: $*"
        exit 1
    }
}

quietly cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix"

quietly cmake -S tests/install -B "$work/consumer" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix"
quietly cmake --build "$work/consumer"
"$work/consumer/consumer_mha"
"$work/consumer/consumer_shared"
"$work/consumer/consumer_static"

pc=$(find "$work/prefix" -name mha.pc)
PKG_CONFIG_PATH=${pc%/*}
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir mha)
# shellcheck disable=SC2046 # lists of words
quietly "$cc" -o "$work/consumer_pc" tests/install/consumer.c $(pkg-config --cflags --libs mha) "-Wl,-rpath,$libdir"
"$work/consumer_pc"

[ ! -e "$work/prefix/bin/mha" ] || quietly "$work/prefix/bin/mha" --version
