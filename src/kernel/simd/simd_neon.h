/* simd_neon.h - the vector operations on NEON of 64-bit ARM: 4 floats. See simd_scalar.h for the description of each
 * operation. */
#ifndef MHA_KERNEL_SIMD_SIMD_NEON_H
#define MHA_KERNEL_SIMD_SIMD_NEON_H

#include "math/half.h"
#include "math/types/e4m3.h"

typedef float real;
typedef float32x4_t vf;
typedef uint32x4_t vm;
/* Shape of the register tile: 24 accumulators, 4 vectors of B and a broadcast of A leave 3 of the 32 registers free. */
enum { VL = 4, NV = 4, NR = NV * VL, MR = 6 };
#define FOR_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define FOR_VECS(X, r) X(r, 1) X(r, 2) X(r, 3) X(r, 4)

static MHA_INLINE vf v_set1(real x)
{
    return vdupq_n_f32(x);
}
static MHA_INLINE vf v_load(const real *p)
{
    return vld1q_f32(p);
}
static MHA_INLINE void v_store(real *p, vf x)
{
    vst1q_f32(p, x);
}
static MHA_INLINE vf v_load_n(const real *p, int n)
{
    real part[VL] = {0};
    for (int i = 0; i < n; i++)
        part[i] = p[i];
    return vld1q_f32(part);
}
static MHA_INLINE void v_store_n(real *p, vf x, int n)
{
    real part[VL];
    vst1q_f32(part, x);
    for (int i = 0; i < n; i++)
        p[i] = part[i];
}
static MHA_INLINE vf v_load_bytes(const uint8_t *p)
{
    const real part[VL] = {p[0], p[1], p[2], p[3]};
    return vld1q_f32(part);
}
static MHA_INLINE vf v_load_int8(const int8_t *p)
{
    const real part[VL] = {p[0], p[1], p[2], p[3]};
    return vld1q_f32(part);
}
static MHA_INLINE vf v_load_q4(const uint8_t *p, const int high)
{
    real part[VL];
    for (int i = 0; i < VL; i++)
        part[i] = (real)((p[i] >> 4 * high & 15) - 8);
    return vld1q_f32(part);
}
static MHA_INLINE vf v_load_e4m3(const uint8_t *p)
{
    const real part[VL] = {mha__e4m3_to_f32(p[0]), mha__e4m3_to_f32(p[1]), mha__e4m3_to_f32(p[2]),
                           mha__e4m3_to_f32(p[3])};
    return vld1q_f32(part);
}
static MHA_INLINE vf v_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static MHA_INLINE vf v_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static MHA_INLINE vf v_set1_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(*p)));
}
static MHA_INLINE void v_store_scales(uint64_t halves, const int n, real *p)
{
    (void)n;
    vst1q_f32(p, vcvt_f32_f16(vcreate_f16(halves)));
}
static MHA_INLINE void v_store_bf16(uint16_t *p, vf x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x), high = vshrq_n_u32(bits, 16);
    const uint32x4_t up = vaddq_u32(bits, vaddq_u32(vandq_u32(high, vdupq_n_u32(1)), vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(high, vdupq_n_u32(0x40));
    vst1_u16(p, vmovn_u32(vbslq_u32(vceqq_f32(x, x), vshrq_n_u32(up, 16), quiet)));
}
/* Stores x as f16, converted element by element, because vcvt_f16_f32 would use the rounding mode of the thread. */
static MHA_INLINE void v_store_f16(uint16_t *p, vf x)
{
    real part[VL];
    vst1q_f32(part, x);
    for (int i = 0; i < VL; i++)
        p[i] = mha__f32_to_f16(part[i]);
}
static MHA_INLINE vf v_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}
static MHA_INLINE vf v_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}
static MHA_INLINE vf v_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}
static MHA_INLINE vf v_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}
static MHA_INLINE vf v_load_q4_scaled(const uint8_t *p, const int high, vf scale)
{
    return v_mul(v_load_q4(p, high), scale);
}
static MHA_INLINE vf v_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
static MHA_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return vfmsq_f32(c, a, b);
}
static MHA_INLINE vf v_max(vf a, vf b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b); /* vmaxq would return NaN if either operand is NaN */
}
static MHA_INLINE vm v_lt(vf a, vf b)
{
    return vcltq_f32(a, b);
}
static MHA_INLINE vm v_eq(vf a, vf b)
{
    return vceqq_f32(a, b);
}
static MHA_INLINE vf v_select(vm m, vf a, vf b)
{
    return vbslq_f32(m, a, b);
}
static MHA_INLINE vf v_abs(vf x)
{
    return vabsq_f32(x);
}
static MHA_INLINE vf v_copysign(vf x, vf sign)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, x);
}
static MHA_INLINE vf v_round(vf x)
{
    return vrndnq_f32(x);
}
static MHA_INLINE vf v_split(vf x, vf *e)
{
    const int32x4_t bits = vreinterpretq_s32_f32(x), power = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32(0x3f400000)), 23);
    *e = vcvtq_f32_s32(power);
    return vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(power, 23)));
}
/* Returns p * 2^n, with the power of two constructed from its exponent bits. This power may be wrong if x < low,
 * because the result is then 0, or if x is NaN, because p is then NaN. */
static MHA_INLINE vf v_exp2_scale(vf p, vf n, vf x, real low)
{
    int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    float32x4_t scaled = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
    return vbslq_f32(vcltq_f32(x, vdupq_n_f32(low)), vdupq_n_f32(0), scaled);
}
typedef uint32x4_t vw;
typedef struct vp {
    uint32x4_t front, back; /* low and high words alternate */
} vp;
static MHA_INLINE vw w_set1(uint32_t x)
{
    return vdupq_n_u32(x);
}
static MHA_INLINE vw w_from(uint32_t x)
{
    const uint32_t lanes[VL] = {x, x + 1, x + 2, x + 3};
    return vld1q_u32(lanes);
}
static MHA_INLINE vw w_xor(vw a, vw b)
{
    return veorq_u32(a, b);
}
static MHA_INLINE vp w_mul(vw a, vw b)
{
    return (vp){vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a), vget_low_u32(b))),
                vreinterpretq_u32_u64(vmull_high_u32(a, b))};
}
static MHA_INLINE vw w_low(vp p)
{
    return vuzp1q_u32(p.front, p.back);
}
static MHA_INLINE vw w_high(vp p)
{
    return vuzp2q_u32(p.front, p.back);
}
static MHA_INLINE vf w_mask(vw a, uint32_t last)
{
    return vbslq_f32(vcleq_u32(a, vdupq_n_u32(last)), vdupq_n_f32(-INFINITY), vdupq_n_f32(0));
}
static MHA_INLINE real v_hsum(vf x)
{
    float32x2_t h = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(vpadd_f32(h, h), 0);
}
static MHA_INLINE real v_hmax(vf x)
{
    return vmaxvq_f32(x);
}
static MHA_INLINE void v_transpose(vf *r)
{
    float32x4x2_t a = vtrnq_f32(r[0], r[1]), b = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

static MHA_INLINE void v_load_columns(const real *p, int64_t stride, vf *r)
{
    MHA_UNROLL
    for (int i = 0; i < 4; i++)
        r[i] = vld1q_f32(p + i * stride);
    v_transpose(r);
}
static MHA_INLINE void v_store_columns(real *p, int64_t stride, vf *r)
{
    v_transpose(r);
    MHA_UNROLL
    for (int i = 0; i < 4; i++)
        vst1q_f32(p + i * stride, r[i]);
}

/* Products of 8-bit integers. Without the instruction sdot, two products are added in 16 bits (at most 2 * 127^2). */
typedef int32x4_t vi;
typedef int8_t dot_left;
typedef int8x16_t vq;
enum { DOT_OFFSET = 0, DOT_PARTS = 1 };
static const uint8_t DOT_PLACE[] = {0, 1, 2, 3};
static MHA_INLINE void v_store_dot(dot_left *p, vf x)
{
    const int16x4_t words = vmovn_s32(vcvtq_s32_f32(x));
    const int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
    memcpy(p, &bytes, VL);
}
static MHA_INLINE vi i_zero(void)
{
    return vdupq_n_s32(0);
}
static MHA_INLINE vi i_begin(const int16_t *sums)
{
    (void)sums;
    return vdupq_n_s32(0);
}
static MHA_INLINE vq i_left(const dot_left *p, const int part)
{
    int32_t bytes;
    (void)part;
    memcpy(&bytes, p, sizeof bytes);
    return vreinterpretq_s8_s32(vdupq_n_s32(bytes));
}
static MHA_INLINE vq i_weights(const int8_t *p, const int part)
{
    (void)part;
    return vld1q_s8(p);
}
static MHA_INLINE vi i_dot(vi sum, vq x, vq w)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, x, w);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(w)), high = vmull_high_s8(x, w);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}
static MHA_INLINE vi i_add(vi a, vi b)
{
    return vaddq_s32(a, b);
}
static MHA_INLINE vf i_reals(vi x)
{
    return vcvtq_f32_s32(x);
}

#endif
