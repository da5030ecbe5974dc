/* kernel_avx512vnni.c - the dense product on int8 by VPDPBUSD. kernel_avx512.c contains all other functions and defines
 * the table. Empty on other architectures. */
#if defined(__x86_64__)
#define MHA_SUFFIX f32_avx512vnni
#include "kernel/common.inc"
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma"))), \
                                 apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")
#endif
#define MHA_VNNI
#include "kernel/simd/simd_avx512.h"

#include "kernel/simd/simd_helpers.inc"

#include "kernel/rows/activations_rounded.inc" /* uses simd_helpers.inc */

#include "kernel/matmul/matmul_int8.inc"

const mha__dense FN(mha__dense_int8) = {DENSE_INT8, .map = ROUNDED_MAPS};
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int mha__no_avx512vnni; /* a translation unit must not be empty */
#endif
