/* kernel_avx512.c - the f32 kernels, compiled for AVX-512 F, BW, DQ and VL. Also defines the tables of avx512vnni,
 * avx512bf16 and amx, which add their own products of int8 and of bf16 pairs. Empty on other architectures. */
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
#include "kernel/simd/simd_avx512.h"

#include "kernel/kernels.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif

extern const mha__pairs mha__pairs_f32_avx512bf16, mha__pairs_f32_amx;
extern const mha__pairs_back mha__pairs_back_f32_avx512bf16, mha__pairs_back_f32_amx;
extern const mha__dense mha__dense_pairs_f32_avx512bf16, mha__dense_pairs_f32_amx;
extern const mha__dense mha__dense_int8_f32_avx512vnni, mha__dense_int8_f32_amx;
extern mha__narrow_fn mha__narrow_bf16_f32_avx512bf16, mha__narrow_bf16_f32_amx;
extern mha__product_fn mha__product_split_f32_amx;

#define TABLE mha__kernels_f32_avx512vnni
#define TABLE_ISA "avx512vnni"
#define TABLE_INT8 mha__dense_int8_f32_avx512vnni
#include "kernel/table.inc"

#define TABLE mha__kernels_f32_avx512bf16
#define TABLE_ISA "avx512bf16"
#define TABLE_PAIRS f32_avx512bf16
#define TABLE_INT8 mha__dense_int8_f32_avx512vnni
#include "kernel/table.inc"

#define TABLE mha__kernels_f32_amx
#define TABLE_ISA "amx"
#define TABLE_PAIRS f32_amx
#define TABLE_SPLIT mha__product_split_f32_amx
#define TABLE_INT8 mha__dense_int8_f32_amx
#include "kernel/table.inc"

#define TABLE mha__kernels_f32_amx_bf16 /* for CPUs whose tiles do not multiply bytes */
#define TABLE_ISA "amx"
#define TABLE_PAIRS f32_amx
#define TABLE_SPLIT mha__product_split_f32_amx
#define TABLE_INT8 mha__dense_int8_f32_avx512vnni
#include "kernel/table.inc"
#else
typedef int mha__no_avx512; /* a translation unit must not be empty */
#endif
