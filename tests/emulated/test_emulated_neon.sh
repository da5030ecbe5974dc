#!/bin/sh
# Tests the NEON kernels under qemu: builds tests for 64-bit ARM, with the cmocka.h of this folder, and runs them. These are the kernel
# tests, the test of the random generator, and the property tests whose results depend on the kernels. Other property tests, such as those
# of rejected calls, flags, memory and maps, run only on the host, because their results do not depend on the ISA and emulation is slow.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

cross=${MHA_CROSS_CC:-aarch64-linux-gnu-gcc}
command -v "$cross" >/dev/null 2>&1 || skip "$cross is not installed"
command -v qemu-aarch64 >/dev/null 2>&1 || skip "qemu-aarch64 is not installed"
root=${MHA_CROSS_ROOT:-/usr/aarch64-linux-gnu}

# compile STANDARD OUTPUT FILE...: compiles FILE... to OUTPUT.
compile() {
    standard=$1
    output=$2
    shift 2
    "$cross" "-std=$standard" -O2 -Wall -Wextra -Werror -ffp-contract=off -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
        -I"$here/include" -I"$here/src" -I"$here/tests/emulated" -I"$here/tests" -o "$output" "$@" -lpthread -lm
}
mkdir objects
for file in $(find "$here/src/base" "$here/src/math" "$here/src/attn" "$here/src/kernel" -name "*.c") \
    "$here"/tests/support/reference/ref.c "$here"/tests/support/attn/statistics.c "$here"/tests/support/attn/tensor.c "$here"/tests/support/attn/problem.c "$here"/tests/support/attn/problem_random.c "$here"/tests/support/attn/functions.c "$here"/tests/support/isas.c "$here"/tests/support/masked.c \
    "$here"/tests/support/alloc.c "$here"/tests/support/check.c "$here"/tests/support/attn/paged.c "$here"/tests/support/attn/packed.c "$here"/tests/support/sha256.c \
    "$here"/tests/support/attn/grads.c "$here"/tests/support/reference/grads_ref.c "$here"/tests/support/random_cases.c; do
    case $file in
    */kernel/*) compile gnu11 "objects/$(basename "$file" .c).o" -O3 -c "$file" || exit 1 ;;
    *) compile c11 "objects/$(basename "$file" .c).o" -c "$file" || exit 1 ;;
    esac
done

properties='laws merge stats bits bits_heads bits_layouts poison edges pages packed rows'
for name in $properties random backward differences; do
    compile c11 "$name" "$here/tests/property/attn/test_attn_$name.c" objects/*.o || exit 1
done
for test in "$here"/tests/kernel/test_*.c; do
    case $test in
    *pairs*.c | */test_kernel_split.c) wanted=77 ;; # skipped: the emulated CPU does not support these products
    *) wanted=0 ;;
    esac
    compile gnu11 kernel_test "$test" objects/*.o || exit 1
    expect "$wanted" qemu-aarch64 -L "$root" ./kernel_test
done
compile c11 generator "$here/tests/unit/math/test_base_rng.c" objects/*.o || exit 1
expect 0 qemu-aarch64 -L "$root" ./generator
for name in $properties; do
    expect 0 qemu-aarch64 -L "$root" -E MHA_ISA=neon "./$name"
done
expect 0 qemu-aarch64 -L "$root" -E MHA_ISA=neon ./random --cases 100
has out 'neon: 100 cases'
grep neon: out
expect 0 qemu-aarch64 -L "$root" -E MHA_ISA=neon ./backward --cases 100
has out 'neon: 100 cases'
expect 0 qemu-aarch64 -L "$root" -E MHA_ISA=neon ./differences --cases 20
grep neon: out
finish
