/* simd_avx2.h - the vector operations on AVX2 with FMA: 8 floats. See simd_scalar.h for the description of each
 * operation. */
#ifndef MHA_KERNEL_SIMD_SIMD_AVX2_H
#define MHA_KERNEL_SIMD_SIMD_AVX2_H

typedef float real;
typedef __m256 vf;
typedef __m256 vm;
/* Shape of the register tile: 12 accumulators, 2 vectors of B and a broadcast of A leave 1 of the 16 registers free. */
enum { VL = 8, NV = 2, NR = NV * VL, MR = 6, DECODE_UNITS = 4 };
#define FOR_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define FOR_VECS(X, r) X(r, 1) X(r, 2)

static MHA_INLINE vf v_set1(real x)
{
    return _mm256_set1_ps(x);
}
static MHA_INLINE vf v_load(const real *p)
{
    return _mm256_loadu_ps(p);
}
static MHA_INLINE void v_store(real *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
/* Returns a mask whose first n of 8 lanes are all ones. */
static MHA_INLINE __m256i v_first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static MHA_INLINE vf v_load_n(const real *p, int n)
{
    return _mm256_maskload_ps(p, v_first(n));
}
static MHA_INLINE void v_store_n(real *p, vf x, int n)
{
    _mm256_maskstore_ps(p, v_first(n), x);
}
static MHA_INLINE vf v_load_bytes(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static MHA_INLINE vf v_load_int8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static MHA_INLINE vf v_load_q4(const uint8_t *p, const int high)
{
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const __m256i halves = high ? _mm256_srli_epi32(bytes, 4) : _mm256_and_si256(bytes, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(halves, _mm256_set1_epi32(8)));
}
/* Converts the highest byte of each word. Biased exponents give 2^-7 (1 + fraction / 8) for an exponent of 0, which
 * the minimum corrects to 2^-6 fraction / 8. */
static MHA_INLINE vf v_of_e4m3(__m256i words)
{
    const __m256i sign = _mm256_and_si256(words, _mm256_set1_epi32((int)0x80000000));
    const __m256i bits = _mm256_srli_epi32(_mm256_and_si256(words, _mm256_set1_epi32(0x7f000000)), 4);
    const vf x = _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(120 << 23)));
    const vf least = _mm256_sub_ps(_mm256_add_ps(x, x), _mm256_set1_ps(0x1p-6F));
    const __m256i nan = _mm256_cmpeq_epi32(bits, _mm256_set1_epi32(0x7f00000));
    const vf value = _mm256_blendv_ps(_mm256_min_ps(x, least), _mm256_set1_ps(NAN), _mm256_castsi256_ps(nan));
    return _mm256_or_ps(value, _mm256_castsi256_ps(sign));
}
static MHA_INLINE vf v_load_e4m3(const uint8_t *p)
{
    return v_of_e4m3(_mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)), 24));
}
static MHA_INLINE vf v_load_bf16(const uint16_t *p)
{
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
static MHA_INLINE vf v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static MHA_INLINE vf v_set1_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)*p));
}
static MHA_INLINE void v_store_scales(uint64_t halves, const int n, real *p)
{
    (void)n;
    _mm_storeu_ps(p, _mm_cvtph_ps(_mm_cvtsi64_si128((int64_t)halves)));
    __asm__("" : "+m"(*(real(*)[4])p)); /* the compiler would replace broadcasts from memory by shuffles */
}
static MHA_INLINE void v_store_bf16(uint16_t *p, vf x)
{
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i rounded = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}
static MHA_INLINE void v_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static MHA_INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static MHA_INLINE vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static MHA_INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static MHA_INLINE vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
static MHA_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static MHA_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
static MHA_INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static MHA_INLINE vm v_lt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static MHA_INLINE vm v_eq(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
static MHA_INLINE vf v_select(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}
static MHA_INLINE vf v_abs(vf x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
static MHA_INLINE vf v_copysign(vf x, vf sign)
{
    const __m256 bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, x), _mm256_and_ps(bit, sign));
}
static MHA_INLINE vf v_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static MHA_INLINE vf v_split(vf x, vf *e)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i power = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f400000)), 23);
    *e = _mm256_cvtepi32_ps(power);
    return _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(power, 23)));
}
#define MHA_EXP_TABLE
enum { EXP_BITS = 3 };
static const float EXP_SQUARE = 0.50006479f, EXP_CUBIC = 0.166642979f;
/* Returns 2^n, with the fraction from the table. The integer part of n is added to the exponent bits. The addition also
 * adds the last three bits of n, so these bits have been subtracted from each table entry. The result is not used if x
 * is far below 0 or NaN. */
static MHA_INLINE vf v_exp2(vf index, vf n, vf x, real low)
{
    const __m256i table = _mm256_setr_epi32(0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a,
                                            0x3f7744fd, 0x3f7ac0c7);
    const __m256i bits = _mm256_castps_si256(index), entry = _mm256_permutevar8x32_epi32(table, bits);
    (void)n, (void)x, (void)low;
    return _mm256_castsi256_ps(_mm256_add_epi32(entry, _mm256_slli_epi32(bits, 20)));
}
static MHA_INLINE vf v_fma_unless_below(vf a, vf b, vf c, vf x, real low)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(low), _CMP_LT_OQ), _mm256_fmadd_ps(a, b, c));
}
/* Even and odd 32-bit words, each in a 64-bit lane. The upper half of a lane is arbitrary, because multiplications
 * ignore it. */
typedef struct vw {
    __m256i even, odd;
} vw;
typedef vw vp;
static MHA_INLINE vw w_set1(uint32_t x)
{
    const __m256i all = _mm256_set1_epi64x(x);
    return (vw){all, all};
}
static MHA_INLINE vw w_from(uint32_t x)
{
    const __m256i first = _mm256_set1_epi64x(x);
    return (vw){_mm256_add_epi32(first, _mm256_setr_epi64x(0, 2, 4, 6)),
                _mm256_add_epi32(first, _mm256_setr_epi64x(1, 3, 5, 7))};
}
static MHA_INLINE vw w_xor(vw a, vw b)
{
    return (vw){_mm256_xor_si256(a.even, b.even), _mm256_xor_si256(a.odd, b.odd)};
}
static MHA_INLINE vp w_mul(vw a, vw b)
{
    return (vp){_mm256_mul_epu32(a.even, b.even), _mm256_mul_epu32(a.odd, b.odd)};
}
static MHA_INLINE vw w_low(vp p)
{
    return p;
}
static MHA_INLINE vw w_high(vp p)
{
    return (vw){_mm256_srli_epi64(p.even, 32), _mm256_srli_epi64(p.odd, 32)};
}
static MHA_INLINE vf w_mask(vw a, uint32_t last)
{
    const __m256i words = _mm256_blend_epi32(a.even, _mm256_slli_epi64(a.odd, 32), 0xAA);
    const __m256i most = _mm256_min_epu32(words, _mm256_set1_epi32((int)last));
    const __m256 drops = _mm256_castsi256_ps(_mm256_cmpeq_epi32(words, most));
    return _mm256_and_ps(drops, _mm256_set1_ps(-INFINITY));
}
static MHA_INLINE real v_hsum(vf x)
{
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
static MHA_INLINE real v_hmax(vf x)
{
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* Transposes pairs of elements, then groups of four within each half of a register, then the halves. */
static MHA_INLINE void v_transpose(vf *r)
{
    __m256 t[8], u[8];
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    MHA_UNROLL
    for (int i = 0; i < 2; i++) {
        u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x20);
        r[4 + i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x31);
    }
}

static MHA_INLINE vf v_load_q4_scaled(const uint8_t *p, const int high, vf scale)
{
    return v_mul(v_load_q4(p, high), scale);
}
#define MHA_DECODE_UNITS
static MHA_INLINE vf v_int8_of(vf fours, const int e)
{
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(_mm256_castps_si256(fours), 24 - 8 * e), 24));
}
static MHA_INLINE vf v_e4m3_of(vf fours, const int e)
{
    return v_of_e4m3(_mm256_slli_epi32(_mm256_castps_si256(fours), 24 - 8 * e));
}
/* Inverts the highest bit of each half, which gives the int4 in two's complement. */
static MHA_INLINE vf v_q4_of(vf eights, const int e, vf scale)
{
    const __m256i halves = _mm256_xor_si256(_mm256_castps_si256(eights), _mm256_set1_epi32((int)0x88888888));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(halves, 28 - 4 * e), 28)), scale);
}
static MHA_INLINE vf v_bf16_even(vf pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
static MHA_INLINE vf v_bf16_odd(vf pairs)
{
    return _mm256_and_ps(pairs, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000)));
}
static MHA_INLINE void v_zip(vf *even, vf *odd)
{
    const __m256 low = _mm256_unpacklo_ps(*even, *odd), high = _mm256_unpackhi_ps(*even, *odd);
    *even = _mm256_permute2f128_ps(low, high, 0x20);
    *odd = _mm256_permute2f128_ps(low, high, 0x31);
}

/* Transposes groups of four within each half of a register. */
static MHA_INLINE void v_transpose4(vf *r)
{
    const __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    const __m256 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    r[0] = _mm256_shuffle_ps(a, c, 0x44);
    r[1] = _mm256_shuffle_ps(a, c, 0xee);
    r[2] = _mm256_shuffle_ps(b, d, 0x44);
    r[3] = _mm256_shuffle_ps(b, d, 0xee);
}
/* Load and store 4 columns, combining rows i and 4 + i in one register. */
static MHA_INLINE void v_load_columns(const real *p, int64_t stride, vf *r)
{
    MHA_UNROLL
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + i * stride)),
                                    _mm_loadu_ps(p + (4 + i) * stride), 1);
    v_transpose4(r);
}
static MHA_INLINE void v_load_lanes(const char *p, int64_t stride, vf t[DECODE_UNITS])
{
    const char *k[3] = {p, p + 3 * stride, p + 6 * stride};
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        const real *low = (const real *)(const void *)(k[i / 3] + i % 3 * stride);
        const real *high = (const real *)(const void *)(k[(4 + i) / 3] + (4 + i) % 3 * stride);
        t[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
    }
    v_transpose4(t);
}
static MHA_INLINE void v_load_eights(const char *p, int64_t stride, vf t[4])
{
    v_load_lanes(p, stride, t);
}
static MHA_INLINE void v_store_columns(real *p, int64_t stride, vf *r)
{
    v_transpose4(r);
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        _mm_storeu_ps(p + i * stride, _mm256_castps256_ps128(r[i]));
        _mm_storeu_ps(p + (4 + i) * stride, _mm256_extractf128_ps(r[i], 1));
    }
}

/* Products of 8-bit integers, widened to 16 bits, because the sums of vpmaddubsw saturate. */
typedef __m256i vi, vq;
typedef int16_t dot_left;
enum { DOT_OFFSET = 0, DOT_PARTS = 2 };
static const uint8_t DOT_PLACE[] = {0, 2, 1, 3};
static MHA_INLINE void v_store_dot(dot_left *p, vf x)
{
    const __m256i i = _mm256_cvtps_epi32(x), packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(i, i), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}
static MHA_INLINE vi i_zero(void)
{
    return _mm256_setzero_si256();
}
static MHA_INLINE vi i_begin(const int16_t *sums)
{
    (void)sums;
    return _mm256_setzero_si256();
}
static MHA_INLINE vq i_left(const dot_left *p, const int part)
{
    int32_t pair;
    memcpy(&pair, p + 2 * part, sizeof pair);
    return _mm256_set1_epi32(pair);
}
static MHA_INLINE vq i_weights(const int8_t *p, const int part)
{
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)p);
    return _mm256_srai_epi16(part ? bytes : _mm256_slli_epi16(bytes, 8), 8);
}
/* The barrier keeps the order of sums: gcc 12 would add the products of both parts first, and keep sums in memory. */
static MHA_INLINE vi i_dot(vi sum, vq x, vq w)
{
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
    __asm__("" : "+x"(sum));
    return sum;
}
static MHA_INLINE vi i_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
static MHA_INLINE vf i_reals(vi x)
{
    return _mm256_cvtepi32_ps(x);
}

#endif
