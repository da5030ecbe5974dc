/* kernel_avx512.c - the f32 kernels, compiled for AVX-512 F, BW, DQ and VL. Nothing on another machine. */
#if defined(__x86_64__)
#define MHA_SUFFIX f32_avx512
#define MHA_ISA_NAME "avx512"
#include "kernel/common.inc"
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif
#include "kernel/simd_avx512.h"

#include "kernel/kernels.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int mha__no_avx512; /* a translation unit must not be empty */
#endif
