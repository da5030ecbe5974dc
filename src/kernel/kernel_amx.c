/* kernel_amx.c - attention and the dense product on bf16 with AMX tiles; everything else is that of kernel_avx512.c,
 * which has the table. Nothing on another machine. */
#if defined(__x86_64__)
#define MHA_SUFFIX f32_amx
#include "kernel/common.inc"
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma"))), \
                                 apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
#endif
#include "kernel/simd_avx512.h"

#include "kernel/math.inc"
#include "kernel/verbs.inc"

#include "kernel/pairs.inc"

#include "kernel/pairs_amx.inc"
#include "kernel/pairs_tiles.inc"

#include "kernel/bwd_pairs.inc"
#include "kernel/dense_amx.inc"
#include "kernel/pairs_table.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int mha__no_amx; /* a translation unit must not be empty */
#endif
