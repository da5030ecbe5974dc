/* simd_wasm128.h - the vector operations on the 128-bit vectors of WebAssembly: 4 floats. See simd_scalar.h for the
 * description of each operation. There is no fused multiply-add: the relaxed one gives other bits on other machines. */
#ifndef MHA_KERNEL_SIMD_SIMD_WASM128_H
#define MHA_KERNEL_SIMD_SIMD_WASM128_H

#include "math/half.h"
#include "math/types/e4m3.h"

typedef float real;
typedef v128_t vf;
typedef v128_t vm;
/* Shape of the register tile: 8 accumulators, 2 vectors of B and a broadcast of A. Engines on x86 have 16 registers;
 * 6 x 2, 4 x 3 and 3 x 4 were measured to spill, at 60 % more time. */
enum { VL = 4, NV = 2, NR = NV * VL, MR = 4 };
#define FOR_ROWS(X) X(1) X(2) X(3) X(4)
#define FOR_VECS(X, r) X(r, 1) X(r, 2)

static MHA_INLINE vf v_set1(real x)
{
    return wasm_f32x4_splat(x);
}
static MHA_INLINE vf v_load(const real *p)
{
    return wasm_v128_load(p);
}
static MHA_INLINE void v_store(real *p, vf x)
{
    wasm_v128_store(p, x);
}
static MHA_INLINE vf v_load_n(const real *p, int n)
{
    real part[VL] = {0};
    for (int i = 0; i < n; i++)
        part[i] = p[i];
    return wasm_v128_load(part);
}
static MHA_INLINE void v_store_n(real *p, vf x, int n)
{
    real part[VL];
    wasm_v128_store(part, x);
    for (int i = 0; i < n; i++)
        p[i] = part[i];
}
static MHA_INLINE vf v_load_bytes(const uint8_t *p)
{
    return wasm_f32x4_make(p[0], p[1], p[2], p[3]);
}
static MHA_INLINE vf v_load_int8(const int8_t *p)
{
    return wasm_f32x4_make(p[0], p[1], p[2], p[3]);
}
static MHA_INLINE vf v_load_q4(const uint8_t *p, const int high)
{
    real part[VL];
    for (int i = 0; i < VL; i++)
        part[i] = (real)((p[i] >> 4 * high & 15) - 8);
    return wasm_v128_load(part);
}
static MHA_INLINE vf v_load_e4m3(const uint8_t *p)
{
    return wasm_f32x4_make(mha__e4m3_to_f32(p[0]), mha__e4m3_to_f32(p[1]), mha__e4m3_to_f32(p[2]),
                           mha__e4m3_to_f32(p[3]));
}
static MHA_INLINE vf v_load_bf16(const uint16_t *p)
{
    return wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16);
}
static MHA_INLINE vf v_load_f16(const uint16_t *p)
{
    return wasm_f32x4_make(mha__f16_to_f32(p[0]), mha__f16_to_f32(p[1]), mha__f16_to_f32(p[2]), mha__f16_to_f32(p[3]));
}
static MHA_INLINE vf v_set1_f16(const uint16_t *p)
{
    return wasm_f32x4_splat(mha__f16_to_f32(*p));
}
static MHA_INLINE void v_store_scales(uint64_t halves, const int n, real *p)
{
    for (int i = 0; i < n; i++)
        p[i] = mha__f16_to_f32((uint16_t)(halves >> 16 * i));
}
static MHA_INLINE void v_store_bf16(uint16_t *p, vf x)
{
    real part[VL];
    wasm_v128_store(part, x);
    for (int i = 0; i < VL; i++)
        p[i] = mha__f32_to_bf16(part[i]);
}
static MHA_INLINE void v_store_f16(uint16_t *p, vf x)
{
    real part[VL];
    wasm_v128_store(part, x);
    for (int i = 0; i < VL; i++)
        p[i] = mha__f32_to_f16(part[i]);
}
static MHA_INLINE vf v_add(vf a, vf b)
{
    return wasm_f32x4_add(a, b);
}
static MHA_INLINE vf v_sub(vf a, vf b)
{
    return wasm_f32x4_sub(a, b);
}
static MHA_INLINE vf v_mul(vf a, vf b)
{
    return wasm_f32x4_mul(a, b);
}
static MHA_INLINE vf v_div(vf a, vf b)
{
    return wasm_f32x4_div(a, b);
}
static MHA_INLINE vf v_load_q4_scaled(const uint8_t *p, const int high, vf scale)
{
    return v_mul(v_load_q4(p, high), scale);
}
static MHA_INLINE vf v_fma(vf a, vf b, vf c)
{
    return wasm_f32x4_add(wasm_f32x4_mul(a, b), c);
}
static MHA_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return wasm_f32x4_sub(c, wasm_f32x4_mul(a, b));
}
static MHA_INLINE vf v_max(vf a, vf b)
{
    return wasm_f32x4_pmax(b, a); /* b < a ? a : b; wasm_f32x4_max would return NaN if either operand is NaN */
}
static MHA_INLINE vm v_lt(vf a, vf b)
{
    return wasm_f32x4_lt(a, b);
}
static MHA_INLINE vm v_eq(vf a, vf b)
{
    return wasm_f32x4_eq(a, b);
}
static MHA_INLINE vf v_select(vm m, vf a, vf b)
{
    return wasm_v128_bitselect(a, b, m);
}
static MHA_INLINE vf v_abs(vf x)
{
    return wasm_f32x4_abs(x);
}
static MHA_INLINE vf v_copysign(vf x, vf sign)
{
    return wasm_v128_bitselect(sign, x, wasm_i32x4_splat(INT32_MIN));
}
static MHA_INLINE vf v_round(vf x)
{
    return wasm_f32x4_nearest(x);
}
static MHA_INLINE vf v_split(vf x, vf *e)
{
    const v128_t power = wasm_i32x4_shr(wasm_i32x4_sub(x, wasm_i32x4_splat(0x3f400000)), 23);
    *e = wasm_f32x4_convert_i32x4(power);
    return wasm_i32x4_sub(x, wasm_i32x4_shl(power, 23));
}
/* Returns p * 2^n, with the power of two constructed from its exponent bits. This power may be wrong if x < low,
 * because the result is then 0, or if x is NaN, because p is then NaN. */
static MHA_INLINE vf v_exp2_scale(vf p, vf n, vf x, real low)
{
    const v128_t exponent = wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_splat(127));
    const vf scaled = wasm_f32x4_mul(p, wasm_i32x4_shl(exponent, 23));
    return wasm_v128_andnot(scaled, wasm_f32x4_lt(x, wasm_f32x4_splat(low)));
}
typedef v128_t vw;
typedef struct vp {
    v128_t front, back; /* low and high words alternate */
} vp;
static MHA_INLINE vw w_set1(uint32_t x)
{
    return wasm_u32x4_splat(x);
}
static MHA_INLINE vw w_from(uint32_t x)
{
    return wasm_u32x4_make(x, x + 1, x + 2, x + 3);
}
static MHA_INLINE vw w_xor(vw a, vw b)
{
    return wasm_v128_xor(a, b);
}
static MHA_INLINE vp w_mul(vw a, vw b)
{
    return (vp){wasm_u64x2_extmul_low_u32x4(a, b), wasm_u64x2_extmul_high_u32x4(a, b)};
}
static MHA_INLINE vw w_low(vp p)
{
    return wasm_i32x4_shuffle(p.front, p.back, 0, 2, 4, 6);
}
static MHA_INLINE vw w_high(vp p)
{
    return wasm_i32x4_shuffle(p.front, p.back, 1, 3, 5, 7);
}
static MHA_INLINE vf w_mask(vw a, uint32_t last)
{
    return wasm_v128_and(wasm_u32x4_le(a, wasm_u32x4_splat(last)), wasm_f32x4_splat(-INFINITY));
}
static MHA_INLINE real v_hsum(vf x)
{
    const vf half = wasm_f32x4_add(x, wasm_i32x4_shuffle(x, x, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(half, 0) + wasm_f32x4_extract_lane(half, 1);
}
static MHA_INLINE real v_hmax(vf x)
{
    const vf half = wasm_f32x4_pmax(x, wasm_i32x4_shuffle(x, x, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(wasm_f32x4_pmax(half, wasm_i32x4_shuffle(half, half, 1, 1, 1, 1)), 0);
}
static MHA_INLINE void v_transpose(vf *r)
{
    const vf a = wasm_i32x4_shuffle(r[0], r[1], 0, 4, 2, 6), b = wasm_i32x4_shuffle(r[0], r[1], 1, 5, 3, 7);
    const vf c = wasm_i32x4_shuffle(r[2], r[3], 0, 4, 2, 6), d = wasm_i32x4_shuffle(r[2], r[3], 1, 5, 3, 7);
    r[0] = wasm_i64x2_shuffle(a, c, 0, 2);
    r[1] = wasm_i64x2_shuffle(b, d, 0, 2);
    r[2] = wasm_i64x2_shuffle(a, c, 1, 3);
    r[3] = wasm_i64x2_shuffle(b, d, 1, 3);
}

static MHA_INLINE void v_load_columns(const real *p, int64_t stride, vf *r)
{
    MHA_UNROLL
    for (int i = 0; i < 4; i++)
        r[i] = wasm_v128_load(p + i * stride);
    v_transpose(r);
}
static MHA_INLINE void v_store_columns(real *p, int64_t stride, vf *r)
{
    v_transpose(r);
    MHA_UNROLL
    for (int i = 0; i < 4; i++)
        wasm_v128_store(p + i * stride, r[i]);
}

/* Products of 8-bit integers, widened to 16 bits. */
typedef v128_t vi, vq;
typedef int16_t dot_left;
enum { DOT_OFFSET = 0, DOT_PARTS = 2 };
static const uint8_t DOT_PLACE[] = {0, 2, 1, 3};
static MHA_INLINE void v_store_dot(dot_left *p, vf x)
{
    const v128_t i = wasm_i32x4_trunc_sat_f32x4(x);
    wasm_v128_store64_lane(p, wasm_i16x8_narrow_i32x4(i, i), 0);
}
static MHA_INLINE vi i_zero(void)
{
    return wasm_i32x4_splat(0);
}
static MHA_INLINE vi i_begin(const int16_t *sums)
{
    (void)sums;
    return wasm_i32x4_splat(0);
}
static MHA_INLINE vq i_left(const dot_left *p, const int part)
{
    return wasm_v128_load32_splat(p + 2 * part);
}
static MHA_INLINE vq i_weights(const int8_t *p, const int part)
{
    const v128_t bytes = wasm_v128_load(p);
    return wasm_i16x8_shr(part ? bytes : wasm_i16x8_shl(bytes, 8), 8);
}
static MHA_INLINE vi i_dot(vi sum, vq x, vq w)
{
    return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(x, w));
}
static MHA_INLINE vi i_add(vi a, vi b)
{
    return wasm_i32x4_add(a, b);
}
static MHA_INLINE vf i_reals(vi x)
{
    return wasm_f32x4_convert_i32x4(x);
}

#endif
