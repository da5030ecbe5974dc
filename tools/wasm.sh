#!/bin/sh
# wasm.sh [--install] - builds build/wasm/live.wasm: the library and web/*.c as one WebAssembly module, for the page of
# `mha live`. The module is reproducible: it depends on the sources and the packages below only. --install compresses it to
# share/mha/live/live.wasm.gz and writes its SHA-256.
#
# Requires Debian's packages clang-16 lld-16 wasi-libc libclang-rt-16-dev-wasm32, and the original sources of
# utf8proc 2.8.0 and pcre2 10.42. These are taken from $MHA_SOURCES (a folder; default: build/wasm), or downloaded with
# `apt-get source --download-only utf8proc pcre2`, and must have the hashes below. Exits 77 if something is missing.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$root/build/wasm
sources=${MHA_SOURCES:-$build}
utf8proc=utf8proc_2.8.0.orig.tar.gz
pcre2=pcre2_10.42.orig.tar.gz
mkdir -p "$build"

missing() {
    echo "skipped: $1"
    exit 77
}

libc=/usr/lib/wasm32-wasi
runtime=/usr/lib/llvm-16/lib/clang/16/lib/wasi/libclang_rt.builtins-wasm32.a
for tool in clang-16 wasm-ld-16; do
    command -v "$tool" >/dev/null || missing "$tool is not installed"
done
[ -e "$libc/crt1-reactor.o" ] || missing "wasi-libc is not installed"
[ -e "$runtime" ] || missing "libclang-rt-16-dev-wasm32 is not installed"

# ---- the two libraries ----
fetch() { # FILE SHA-256 PACKAGE
    [ -e "$sources/$1" ] || (cd "$sources" && apt-get source --download-only "$3" >/dev/null 2>&1) || true
    [ -e "$sources/$1" ] || missing "$1 is not in $sources and cannot be downloaded with apt-get source"
    echo "$2  $sources/$1" | sha256sum --check --quiet
    tar -xzf "$sources/$1" -C "$build"
}
fetch "$utf8proc" a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc utf8proc
fetch "$pcre2" c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f pcre2
pcre2=$build/pcre2-10.42/src
cp "$pcre2/pcre2.h.generic" "$pcre2/pcre2.h"
cp "$pcre2/pcre2_chartables.c.dist" "$pcre2/pcre2_chartables.c"
utf8proc=$build/utf8proc-2.8.0

# ---- compilation ----
flags="--target=wasm32-wasi -nostdlibinc -isystem /usr/include/wasm32-wasi -std=gnu11 -msimd128 -ffp-contract=off
    -fvisibility=hidden -ffunction-sections -fdata-sections -DNDEBUG
    -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -D_WASI_EMULATED_GETPID
    -DUTF8PROC_STATIC -DPCRE2_STATIC -DPCRE2_CODE_UNIT_WIDTH=8 -DSUPPORT_PCRE2_8 -DSUPPORT_UNICODE -DHAVE_STDINT_H
    -DHAVE_INTTYPES_H -DHAVE_MEMMOVE -DLINK_SIZE=2 -DNEWLINE_DEFAULT=2 -DMATCH_LIMIT=10000000 -DMATCH_LIMIT_DEPTH=10000000
    -DHEAP_LIMIT=20000000 -DPARENS_NEST_LIMIT=250 -DMAX_NAME_SIZE=32 -DMAX_NAME_COUNT=10000 -DMAX_VARLOOKBEHIND=255
    -Isrc -Iinclude -Iweb -I$utf8proc -I$pcre2
    -ffile-prefix-map=$root=. -no-canonical-prefixes"
rm -rf "$build/objects"
mkdir -p "$build/objects"
cd "$root"
# Without SUPPORT_JIT, PCRE2's JIT compiler consists of stubs. Programs and files that others include are not compiled.
names=$(cd "$pcre2" && find . -name 'pcre2_*.c' | sed 's|^./||' | grep -Ev 'jit_match|jit_misc|jit_test|pcre2test|pcre2grep|dftables|fuzz|posix|printint|demo|ucptables|substitute')
{
    find src web -name '*.c' | grep -Ev '^src/(train/|heads/|attn/plan/machine_peak)'
    echo src/heads/edit/keep_list.c # numbers of heads
    echo src/heads/data/measure_state.c # which patching can keep
    echo "$utf8proc/utf8proc.c"
    for name in $names; do echo "$pcre2/$name"; done
} | LC_ALL=C sort >"$build/list"
# The kernels of wasm128 are compiled for speed, the rest for size.
compile() {
    case $1 in
    src/kernel/isa/kernel_wasm128.c) level='-O3 -Wall -Wextra -Werror' ;;
    src/* | web/*) level='-Os -Wall -Wextra -Werror' ;;
    *) level='-Os -w' ;;
    esac
    # shellcheck disable=SC2086
    clang-16 $flags $level -c "$1" -o "$build/objects/$(echo "${1#"$build/"}" | tr / _).o"
}
half=$(($(wc -l <"$build/list") / 2))
(head -n "$half" "$build/list" | while read -r file; do compile "$file"; done) &
first=$!
tail -n "+$((half + 1))" "$build/list" | while read -r file; do compile "$file"; done
wait "$first"

wasm-ld-16 "$libc/crt1-reactor.o" "$build"/objects/*.o --entry=_initialize --gc-sections --strip-all -O2 --stack-first \
    -z stack-size=1048576 -L"$libc" -lwasi-emulated-getpid -lc -lm "$runtime" -o "$build/live.wasm"
if [ "${1-}" = --install ]; then
    mkdir -p "$root/share/mha/live"
    cd "$root/share/mha/live"
    gzip -9nc "$build/live.wasm" >live.wasm.gz
    sha256sum live.wasm.gz >live.wasm.gz.sha256
fi
