/* kernel_amx.c - attention and the dense product on bf16, and the dense products on int8 and f32, with AMX tiles.
 * kernel_avx512.c contains all other functions and defines the tables. Empty on other architectures. */
#if defined(__x86_64__)
#define MHA_SUFFIX f32_amx
#include "kernel/common.inc"
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,fma"))), \
                                 apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,fma")
#endif
#define MHA_VNNI
#include "kernel/simd/simd_avx512.h"

#include "kernel/simd/simd_amx.h"

#include "kernel/simd/simd_helpers.inc"
#include "kernel/simd/vector_math.inc"

#include "kernel/rows/activations_rounded.inc"

#include "kernel/matmul/bf16_pairs.inc"

#include "kernel/matmul/bf16_amx.inc"
#include "kernel/matmul/bf16_tiles.inc"

#include "kernel/matmul/bf16_in_place.inc" /* uses bf16_tiles.inc */

#include "kernel/attention/softmax_backward_bf16.inc"
#include "kernel/matmul/matmul_amx_results.inc"

#include "kernel/matmul/matmul_amx.inc" /* uses matmul_amx_results.inc */

#include "kernel/matmul/matmul_f32_amx.inc" /* uses the two above and bf16_amx.inc */

/* Groups of a row begin at cache lines, because loading a row of a tile from two lines takes twice as long. */
#define DOT_LEFT_BYTES 64
#include "kernel/matmul/matmul_int8.inc"
#include "kernel/matmul/matmul_int8_amx.inc" /* uses the two above, and bf16_amx.inc */

#define ATTEND_ROWS
#include "kernel/matmul/bf16_table.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int mha__no_amx; /* a translation unit must not be empty */
#endif
