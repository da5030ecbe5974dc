/* simd_scalar.h - the vector operations in plain C. A vector is one element: float, or double with MHA_DOUBLE.
 *
 * Every simd_*.h defines the same names. The bodies (*.inc) use only these names; the bf16 bodies also use AVX-512:
 *   real, vf, vm      element, vector of VL elements, result of a comparison
 *   MR, NV            register tile of the product: MR rows of NV vectors; NR = NV * VL columns
 *   v_max(a, b)       b if either is NaN
 *   v_fma, v_fnma     a * b + c and c - a * b, fused if the ISA supports it (not here: fmaf of libm would take 50 ns)
 *   v_split           x = m 2^e, m in [3/4, 3/2), for a normal x > 0: returns m, stores e; for x = 0, both are finite
 *   v_exp2_scale      p * 2^n for the exp of x <= 0: exactly 0 if x < low, for any p and n; NaN if x is NaN,
 *                     where p is NaN too
 *   MHA_EXP_TABLE     defined if a table of 2^EXP_BITS powers fits a register; v_exp2_scale is then replaced by
 *                     v_exp2, 2^n from the table for n with EXP_BITS fraction bits, which are the last bits of
 *                     `index` (any value if x < low); v_fma_unless_below, 0 if x < low; EXP_SQUARE and
 *                     EXP_CUBIC (vector_math.inc)
 *   v_transpose       transposes VL vectors of VL elements in place
 *   v_load_columns, v_store_columns   4 columns of VL rows in memory to 4 vectors, and back (overwrites the vectors)
 *   MHA_DECODE_UNITS  defined if the decode kernels read units of 4 bytes and split them in registers:
 *                     v_load_lanes, DECODE_UNITS units of VL rows (stride in bytes) to vectors of one row per lane;
 *                     v_load_eights, 4 units of VL rows in the same way, such as the 4 units of a block of q4_0;
 *                     v_bf16_even, v_bf16_odd, the elements of VL pairs of bf16; v_int8_of, element e of VL fours of
 *                     int8; v_e4m3_of, element e of VL fours of e4m3; v_q4_of, element e of VL eights of q4_0,
 *                     scaled; v_load_q4_scaled, v_load_q4 with a scale; v_zip, even and odd elements back to the
 *                     order of memory
 *   MHA_COPY_HALVES   defined if the ISA has a v_copy_halves that is faster than that of simd_helpers.inc
 *   v_store_scales    the first n of 4 scales from their f16 bits, the first in the lowest 16 bits; may store all 4
 *                     (only for the decode kernels)
 *   vw, vp            VL words of 32 bits, and VL products of two words
 *   w_set1, w_from    x in every lane; x, x + 1 ... in the lanes
 *   w_mul, w_low, w_high   products, and their low and high halves
 *   w_mask            -inf if a word is at most `last`, otherwise 0
 *   v_load_n          n < VL elements, followed by zeros; does not read memory after the elements
 *   dot_left          an element of a quantized row: an integer of -127 to 127, plus DOT_OFFSET
 *   v_store_dot       stores VL integers of -127 to 127 (any elements for NaN) as dot_left
 *   vi, vq            VL sums of 32 bits; operands of i_dot: 4 / DOT_PARTS elements in every lane, as many weights
 *                     per lane
 *   i_left, i_weights operands of i_dot for a part of 4 elements; weight i of a lane is stored at byte DOT_PLACE[i]
 *   i_dot(s, x, w)    s + the products of a part, exact
 *   i_begin(p)        -DOT_OFFSET times the VL int16 at p; 0 without an offset, without reading p
 *   v_load_bf16 ...   VL 16-bit elements, converted as in math/half.h in any floating-point mode; not for double
 */
#ifndef MHA_KERNEL_SIMD_SIMD_SCALAR_H
#define MHA_KERNEL_SIMD_SIMD_SCALAR_H

#include "math/half.h"
#include "math/types/e4m3.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef MHA_DOUBLE
typedef double real;
#else
typedef float real;
#endif
typedef real vf;
typedef bool vm;
typedef uint32_t vw;
typedef uint64_t vp;
#define MHA_NO_DECODE /* decode_scores.inc requires several lanes */
enum { VL = 1, NV = 8, NR = NV * VL, MR = 2 };
#define FOR_ROWS(X) X(1) X(2)
#define FOR_VECS(X, r) X(r, 1) X(r, 2) X(r, 3) X(r, 4) X(r, 5) X(r, 6) X(r, 7) X(r, 8)

static MHA_INLINE vf v_set1(real x)
{
    return x;
}
static MHA_INLINE vf v_load(const real *p)
{
    return *p;
}
static MHA_INLINE void v_store(real *p, vf x)
{
    *p = x;
}
static MHA_INLINE vf v_load_n(const real *p, int n)
{
    (void)p, (void)n;
    return 0;
}
static MHA_INLINE void v_store_n(real *p, vf x, int n)
{
    (void)p, (void)x, (void)n;
}
static MHA_INLINE vf v_load_bytes(const uint8_t *p)
{
    return *p;
}
static MHA_INLINE vf v_add(vf a, vf b)
{
    return a + b;
}
static MHA_INLINE vf v_sub(vf a, vf b)
{
    return a - b;
}
static MHA_INLINE vf v_mul(vf a, vf b)
{
    return a * b;
}
static MHA_INLINE vf v_div(vf a, vf b)
{
    return a / b;
}
static MHA_INLINE vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
static MHA_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return c - a * b;
}
static MHA_INLINE vf v_max(vf a, vf b)
{
    return a > b ? a : b;
}
static MHA_INLINE vm v_lt(vf a, vf b)
{
    return a < b;
}
static MHA_INLINE vm v_eq(vf a, vf b)
{
    return a == b;
}
static MHA_INLINE vf v_select(vm m, vf a, vf b)
{
    return m ? a : b;
}
static MHA_INLINE vw w_set1(uint32_t x)
{
    return x;
}
static MHA_INLINE vw w_from(uint32_t x)
{
    return x;
}
static MHA_INLINE vw w_xor(vw a, vw b)
{
    return a ^ b;
}
static MHA_INLINE vp w_mul(vw a, vw b)
{
    return (uint64_t)a * b;
}
static MHA_INLINE vw w_low(vp p)
{
    return (uint32_t)p;
}
static MHA_INLINE vw w_high(vp p)
{
    return (uint32_t)(p >> 32);
}
static MHA_INLINE vf w_mask(vw a, uint32_t last)
{
    return a <= last ? -(real)INFINITY : 0;
}
static MHA_INLINE real v_hsum(vf x)
{
    return x;
}
static MHA_INLINE real v_hmax(vf x)
{
    return x;
}
static MHA_INLINE void v_transpose(vf *r)
{
    (void)r;
}
static MHA_INLINE void v_load_columns(const real *p, int64_t stride, vf *r)
{
    (void)stride;
    for (int i = 0; i < 4; i++)
        r[i] = p[i];
}
static MHA_INLINE void v_store_columns(real *p, int64_t stride, const vf *r)
{
    (void)stride;
    for (int i = 0; i < 4; i++)
        p[i] = r[i];
}

#ifndef MHA_DOUBLE
static MHA_INLINE vf v_load_int8(const int8_t *p)
{
    return *p;
}
static MHA_INLINE vf v_load_q4(const uint8_t *p, const int high)
{
    return (real)((*p >> 4 * high & 15) - 8);
}
static MHA_INLINE vf v_load_e4m3(const uint8_t *p)
{
    return mha__e4m3_to_f32(*p);
}
static MHA_INLINE vf v_load_bf16(const uint16_t *p)
{
    return mha__bf16_to_f32(*p);
}
static MHA_INLINE vf v_load_f16(const uint16_t *p)
{
    return mha__f16_to_f32(*p);
}
static MHA_INLINE void v_store_bf16(uint16_t *p, vf x)
{
    *p = mha__f32_to_bf16(x);
}
static MHA_INLINE void v_store_f16(uint16_t *p, vf x)
{
    *p = mha__f32_to_f16(x);
}
#endif

#ifdef MHA_DOUBLE
#define MHA_LIBM 1 /* exp, tanh and erfc come from libm (vector_math.inc) */
#define LOG_REAL log
#else
static MHA_INLINE vf v_abs(vf x)
{
    return fabsf(x);
}
static MHA_INLINE vf v_copysign(vf x, vf sign)
{
    return copysignf(x, sign);
}
/* Rounds to nearest even for |x| < 2^22: at 1.5 * 2^23 the spacing of floats is 1. (rintf is a function call on
 * baseline x86-64.) */
static MHA_INLINE vf v_round(vf x)
{
    const float shift = 12582912.0f;
    return (x + shift) - shift;
}
static MHA_INLINE vf v_split(vf x, vf *e)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int32_t power = (bits - 0x3f400000) >> 23; /* an arithmetic shift on every supported compiler */
    bits -= power * (1 << 23);
    *e = (float)power;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static MHA_INLINE vf v_exp2_scale(vf p, vf n, vf x, real low)
{
    if (x < low) return 0;
    if (x != x) return x;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}
#endif

#ifndef MHA_DOUBLE
typedef int8_t dot_left;
typedef int32_t vi;
typedef const int8_t *vq;
enum { DOT_OFFSET = 0, DOT_PARTS = 1 };
static const uint8_t DOT_PLACE[] = {0, 1, 2, 3};
static MHA_INLINE void v_store_dot(dot_left *p, vf x)
{
    *p = x == x ? (int8_t)x : 0;
}
static MHA_INLINE vi i_zero(void)
{
    return 0;
}
static MHA_INLINE vi i_begin(const int16_t *sums)
{
    (void)sums;
    return 0;
}
static MHA_INLINE vq i_left(const dot_left *p, const int part)
{
    (void)part;
    return p;
}
static MHA_INLINE vq i_weights(const int8_t *p, const int part)
{
    (void)part;
    return p;
}
static MHA_INLINE vi i_dot(vi sum, vq x, vq w)
{
    return sum + x[0] * w[0] + x[1] * w[1] + x[2] * w[2] + x[3] * w[3];
}
static MHA_INLINE vi i_add(vi a, vi b)
{
    return a + b;
}
static MHA_INLINE vf i_reals(vi x)
{
    return (vf)x;
}
#endif

#endif
