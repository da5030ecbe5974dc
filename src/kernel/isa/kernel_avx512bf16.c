/* kernel_avx512bf16.c - attention and the dense product on bf16 by VDPBF16PS. kernel_avx512.c contains all other
 * functions and defines the table. Empty on other architectures. */
#if defined(__x86_64__)
#define MHA_SUFFIX f32_avx512bf16
#include "kernel/common.inc"
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma"))), \
                                 apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
#endif
#include "kernel/simd/simd_avx512.h"

/* Returns c + a b on pairs of bf16. Uses inline assembly, because clang 16 crashes on the intrinsic with a broadcast
 * operand. */
static MHA_INLINE vf v_fma_pairs(vf a, vf b, vf c)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
}
#define TILE_FMA v_fma_pairs

/* Returns c + a b, where b is the pair at `p` in every lane. A separate broadcast would occupy a port that products
 * need. */
static MHA_INLINE vf v_fma_pairs_set1(vf a, const real *p, vf c)
{
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(a), "m"(*p));
    return c;
}
#define TILE_FMA_SET1 v_fma_pairs_set1
#define DECODE_REALS_ONLY

#include "kernel/simd/simd_helpers.inc"
#include "kernel/simd/vector_math.inc"

#include "kernel/rows/activations_rounded.inc"

#include "kernel/matmul/register_tile.inc"

#include "kernel/attention/tile_scores.inc" /* uses register_tile.inc */
#include "kernel/attention/tile_values.inc" /* uses register_tile.inc */

#include "kernel/matmul/bf16_pairs.inc"

#include "kernel/matmul/bf16_dot.inc" /* uses bf16_pairs.inc */

#include "kernel/attention/decode_prefetch.inc"

#include "kernel/attention/decode_types.inc"

#include "kernel/attention/decode_products.inc" /* uses decode_types.inc */

#include "kernel/attention/decode_scores.inc" /* uses decode_prefetch.inc and decode_products.inc */

#include "kernel/attention/decode_bf16.inc" /* uses decode_scores.inc */

#include "kernel/attention/softmax_backward_bf16.inc"
#include "kernel/matmul/bf16_table.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int mha__no_avx512bf16; /* a translation unit must not be empty */
#endif
