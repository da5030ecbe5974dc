#!/bin/sh
# test_arm64.sh - the operator on 64-bit ARM: src/base, src/kernel and src/attn for NEON, with the kernel tests and the random
# operator test, cross-compiled and run under an emulator. Skipped (77) without compiler or emulator.
set -eu
cd "$(dirname -- "$0")/../.."
cc=${MHA_ARM64_CC:-aarch64-linux-gnu-gcc}
run=${MHA_ARM64_RUN:-qemu-aarch64}
for tool in "$cc" "$run"; do
    command -v "$tool" >/dev/null || {
        echo "skipped: NEON is not tested: $tool is not installed"
        exit 77
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags='-std=gnu11 -O2 -ffp-contract=off -D_DEFAULT_SOURCE -Wall -Wextra -Werror -static -Iinclude -Isrc -Itests -Itests/arm64'
for source in src/base/*.c src/kernel/*.c src/attn/*.c tests/support/problem.c tests/support/ref.c tests/support/tensor.c \
    tests/support/check.c; do
    # shellcheck disable=SC2086
    "$cc" $flags -c "$source" -o "$work/$(echo "$source" | tr / _).o"
done
build_and_run() {
    # shellcheck disable=SC2086
    "$cc" $flags "$1" "$work"/*.o -o "$work/test" -lm -lpthread
    echo "$1"
    shift
    "$run" "$work/test" "$@"
}
for test in tests/kernel/test_*.c; do
    build_and_run "$test"
done
build_and_run tests/property/test_attn_random.c --cases 150
build_and_run tests/property/test_attn_bits.c
