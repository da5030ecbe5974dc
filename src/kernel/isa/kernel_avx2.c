/* kernel_avx2.c - the f32 kernels, compiled for AVX2 with FMA. Empty on other architectures. */
#if defined(__x86_64__)
#define MHA_SUFFIX f32_avx2
#define MHA_ISA_NAME "avx2"
#include "kernel/common.inc"
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include "kernel/simd/simd_avx2.h"

#include "kernel/kernels.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int mha__no_avx2; /* a translation unit must not be empty */
#endif
