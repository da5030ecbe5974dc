/* kernel_amx.c - the kernels of kernel_avx512.c to the bit, and attention on bf16 with AMX tiles. Nothing on another
 * machine. */
#if defined(__x86_64__)
#define MHA_SUFFIX f32_amx
#define MHA_ISA_NAME "amx"
#define MHA_PAIRS "kernel/pairs_amx.inc"
#define MHA_PAIRS_BACK "kernel/bwd_pairs.inc"
#include "kernel/common.inc"
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma"))), \
                                 apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
#endif
#include "kernel/simd_avx512.h"

#include "kernel/kernels.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int mha__no_amx; /* a translation unit must not be empty */
#endif
