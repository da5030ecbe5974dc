/* simd_avx512.h - the vector operations on AVX-512 F, BW, DQ, VL: 16 floats. See simd_scalar.h for the description of
 * each operation. */
#ifndef MHA_KERNEL_SIMD_SIMD_AVX512_H
#define MHA_KERNEL_SIMD_SIMD_AVX512_H

typedef float real;
typedef __m512 vf;
typedef __mmask16 vm;
/* Shape of the register tile: 24 accumulators, 2 vectors of B and a broadcast of A leave 5 of the 32 registers free. */
enum { VL = 16, NV = 2, NR = NV * VL, MR = 12, DECODE_UNITS = 8 };
#define FOR_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define FOR_VECS(X, r) X(r, 1) X(r, 2)

static MHA_INLINE vf v_set1(real x)
{
    return _mm512_set1_ps(x);
}
static MHA_INLINE vf v_load(const real *p)
{
    return _mm512_loadu_ps(p);
}
static MHA_INLINE void v_store(real *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
static MHA_INLINE vf v_load_n(const real *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static MHA_INLINE void v_store_n(real *p, vf x, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}
static MHA_INLINE vf v_load_bytes(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static MHA_INLINE vf v_load_int8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static MHA_INLINE vf v_of_q4(__m512i words)
{
    return _mm512_permutexvar_ps(words, _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7));
}
static MHA_INLINE vf v_load_q4(const uint8_t *p, const int high)
{
    return v_of_q4(_mm512_srli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)), 4 * high));
}
/* Selects from 16 values that are already scaled, so that both halves of a block share one multiplication. */
static MHA_INLINE vf v_load_q4_scaled(const uint8_t *p, const int high, vf scale)
{
    const vf values = _mm512_mul_ps(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7), scale);
    const __m512i words = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4 * high), values);
}
/* Converts the highest byte of each word. Biased exponents give 2^-7 (1 + fraction / 8) for an exponent of 0, which
 * the minimum corrects to 2^-6 fraction / 8. */
static MHA_INLINE vf v_of_e4m3(__m512i words)
{
    const __m512i sign = _mm512_and_si512(words, _mm512_set1_epi32((int)0x80000000));
    const __m512i bits = _mm512_srli_epi32(_mm512_and_si512(words, _mm512_set1_epi32(0x7f000000)), 4);
    const vf x = _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(120 << 23)));
    const vf least = _mm512_sub_ps(_mm512_add_ps(x, x), _mm512_set1_ps(0x1p-6F));
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(bits, _mm512_set1_epi32(0x7f00000));
    const vf value = _mm512_mask_mov_ps(_mm512_min_ps(x, least), nan, _mm512_set1_ps(NAN));
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(value), sign));
}
static MHA_INLINE vf v_load_e4m3(const uint8_t *p)
{
    return v_of_e4m3(_mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)), 24));
}
static MHA_INLINE vf v_load_bf16(const uint16_t *p)
{
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
static MHA_INLINE vf v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static MHA_INLINE vf v_set1_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)*p));
}
#define MHA_COPY_HALVES
static MHA_INLINE void v_copy_halves(uint16_t *to, const uint16_t *from, int n)
{
    _mm256_storeu_si256((__m256i *)to, _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), from));
}
static MHA_INLINE void v_store_scales(uint64_t halves, const int n, real *p)
{
    (void)n;
    _mm_storeu_ps(p, _mm_maskz_cvtph_ps(0xf, _mm_cvtsi64_si128((int64_t)halves)));
    __asm__("" : "+m"(*(real(*)[4])p)); /* the compiler would replace broadcasts from memory by shuffles */
}
/* Stores x as bf16, rounded to nearest even in integer arithmetic, because vcvtneps2bf16 would flush subnormals. */
static MHA_INLINE void v_store_bf16(uint16_t *p, vf x)
{
    const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __m512i rounded = _mm512_mask_mov_epi32(_mm512_srli_epi32(up, 16), nan, quiet);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(rounded));
}
static MHA_INLINE void v_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static MHA_INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static MHA_INLINE vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static MHA_INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static MHA_INLINE vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
static MHA_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static MHA_INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
static MHA_INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static MHA_INLINE vm v_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static MHA_INLINE vm v_eq(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
static MHA_INLINE vf v_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}
static MHA_INLINE vf v_abs(vf x)
{
    return _mm512_abs_ps(x);
}
static MHA_INLINE vf v_copysign(vf x, vf sign)
{
    const __m512 bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, x), _mm512_and_ps(bit, sign));
}
static MHA_INLINE vf v_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static MHA_INLINE vf v_split(vf x, vf *e)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i power = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f400000)), 23);
    *e = _mm512_cvtepi32_ps(power);
    return _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(power, 23)));
}
#define MHA_EXP_TABLE
enum { EXP_BITS = 4 };
static const float EXP_SQUARE = 0.500016212f, EXP_CUBIC = 0.166660741f;
/* Returns 2^n, with the fraction from the table; scalef rounds n down. Returns 0 if x < low, because a subnormal power
 * would take ten times as long. v_fma_unless_below compares the same numbers. */
static MHA_INLINE vf v_exp2(vf index, vf n, vf x, real low)
{
    const __m512 table =
        _mm512_setr_ps(0x1p0f, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fep0f, 0x1.3dea64p0f, 0x1.4bfdaep0f,
                       0x1.5ab07ep0f, 0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f, 0x1.ae89fap0f,
                       0x1.c199bep0f, 0x1.d5818ep0f, 0x1.ea4afap0f);
    const __mmask16 used = _mm512_cmp_ps_mask(x, _mm512_set1_ps(low), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(used, _mm512_permutexvar_ps(_mm512_castps_si512(index), table), n);
}
/* Returns a * b + c, or 0 if x < low. The predicate is not-less-than or unordered, so it includes lanes with a NaN. */
static MHA_INLINE vf v_fma_unless_below(vf a, vf b, vf c, vf x, real low)
{
    return _mm512_maskz_fmadd_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(low), _CMP_NLT_UQ), a, b, c);
}
/* Even and odd 32-bit words, each in a 64-bit lane. The upper half of a lane is arbitrary, because multiplications
 * ignore it. */
typedef struct vw {
    __m512i even, odd;
} vw;
typedef vw vp;
static MHA_INLINE vw w_set1(uint32_t x)
{
    const __m512i all = _mm512_set1_epi64(x);
    return (vw){all, all};
}
static MHA_INLINE vw w_from(uint32_t x)
{
    const __m512i first = _mm512_set1_epi64(x);
    return (vw){_mm512_add_epi32(first, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14)),
                _mm512_add_epi32(first, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15))};
}
static MHA_INLINE vw w_xor(vw a, vw b)
{
    return (vw){_mm512_xor_si512(a.even, b.even), _mm512_xor_si512(a.odd, b.odd)};
}
static MHA_INLINE vp w_mul(vw a, vw b)
{
    return (vp){_mm512_mul_epu32(a.even, b.even), _mm512_mul_epu32(a.odd, b.odd)};
}
static MHA_INLINE vw w_low(vp p)
{
    return p;
}
static MHA_INLINE vw w_high(vp p)
{
    return (vw){_mm512_srli_epi64(p.even, 32), _mm512_srli_epi64(p.odd, 32)};
}
static MHA_INLINE vf w_mask(vw a, uint32_t last)
{
    const __m512i words = _mm512_mask_blend_epi32(0xAAAA, a.even, _mm512_slli_epi64(a.odd, 32));
    const __mmask16 drops = _mm512_cmple_epu32_mask(words, _mm512_set1_epi32((int)last));
    return _mm512_maskz_mov_ps(drops, _mm512_set1_ps(-INFINITY));
}
static MHA_INLINE real v_hsum(vf x)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
static MHA_INLINE real v_hmax(vf x)
{
    return _mm512_reduce_max_ps(x);
}

/* Transposes pairs of elements, then groups of four within each 128-bit lane, then the lanes in two rounds. */
static MHA_INLINE void v_transpose(vf *r)
{
    __m512 t[16], u[16];
    MHA_UNROLL
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        u[4 * i] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        __m512 even0 = _mm512_shuffle_f32x4(u[i], u[4 + i], 0x88), odd0 = _mm512_shuffle_f32x4(u[i], u[4 + i], 0xdd);
        __m512 even1 = _mm512_shuffle_f32x4(u[8 + i], u[12 + i], 0x88);
        __m512 odd1 = _mm512_shuffle_f32x4(u[8 + i], u[12 + i], 0xdd);
        r[i] = _mm512_shuffle_f32x4(even0, even1, 0x88);
        r[4 + i] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
        r[8 + i] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
        r[12 + i] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
    }
}

#define MHA_DECODE_UNITS
static MHA_INLINE vf v_int8_of(vf fours, const int e)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(_mm512_castps_si512(fours), 24 - 8 * e), 24));
}
static MHA_INLINE vf v_e4m3_of(vf fours, const int e)
{
    return v_of_e4m3(_mm512_slli_epi32(_mm512_castps_si512(fours), 24 - 8 * e));
}
static MHA_INLINE vf v_q4_of(vf eights, const int e, vf scale)
{
    return _mm512_mul_ps(v_of_q4(_mm512_srli_epi32(_mm512_castps_si512(eights), 4 * e)), scale);
}
static MHA_INLINE vf v_bf16_even(vf pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
static MHA_INLINE vf v_bf16_odd(vf pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32((int)0xffff0000)));
}
static MHA_INLINE void v_zip(vf *even, vf *odd)
{
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const vf low = _mm512_permutex2var_ps(*even, first, *odd);
    *odd = _mm512_permutex2var_ps(*even, _mm512_add_epi32(first, _mm512_set1_epi32(8)), *odd);
    *even = low;
}

/* Transposes groups of four within each quarter of a register. */
static MHA_INLINE void v_transpose4(vf *r)
{
    const __m512 a = _mm512_unpacklo_ps(r[0], r[1]), b = _mm512_unpackhi_ps(r[0], r[1]);
    const __m512 c = _mm512_unpacklo_ps(r[2], r[3]), d = _mm512_unpackhi_ps(r[2], r[3]);
    r[0] = _mm512_shuffle_ps(a, c, 0x44);
    r[1] = _mm512_shuffle_ps(a, c, 0xee);
    r[2] = _mm512_shuffle_ps(b, d, 0x44);
    r[3] = _mm512_shuffle_ps(b, d, 0xee);
}
/* Load and store 4 columns, combining rows i, 4 + i, 8 + i and 12 + i in one register, which requires half the
 * shuffles of v_transpose. */
static MHA_INLINE void v_load_columns(const real *p, int64_t stride, vf *r)
{
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_castps128_ps512(_mm_loadu_ps(p + i * stride));
        r[i] = _mm512_mask_broadcast_f32x4(r[i], 0x00f0, _mm_loadu_ps(p + (4 + i) * stride));
        r[i] = _mm512_mask_broadcast_f32x4(r[i], 0x0f00, _mm_loadu_ps(p + (8 + i) * stride));
        r[i] = _mm512_mask_broadcast_f32x4(r[i], 0xf000, _mm_loadu_ps(p + (12 + i) * stride));
    }
    v_transpose4(r);
}
static MHA_INLINE void v_load_eights(const char *p, int64_t stride, vf t[4])
{
    const char *k[6];
    MHA_UNROLL
    for (int g = 0; g < 6; g++)
        k[g] = p + 3 * g * stride;
#define ROW(i) _mm_loadu_ps((const real *)(const void *)(k[(i) / 3] + (i) % 3 * stride))
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_castps128_ps512(ROW(i));
        t[i] = _mm512_mask_broadcast_f32x4(t[i], 0x00f0, ROW(4 + i));
        t[i] = _mm512_mask_broadcast_f32x4(t[i], 0x0f00, ROW(8 + i));
        t[i] = _mm512_mask_broadcast_f32x4(t[i], 0xf000, ROW(12 + i));
    }
#undef ROW
    v_transpose4(t);
}
/* Loads and transposes 8 columns: rows i and 4 + i share a register, as do rows 8 + i and 12 + i, so that the last
 * shuffle keeps the order of the rows. Masked loads replace a quarter of the shuffles of v_transpose, and half as many
 * registers are in use. */
static MHA_INLINE void v_load_lanes(const char *p, int64_t stride, vf t[DECODE_UNITS])
{
    const char *k[6];
    vf r[8];
    MHA_UNROLL
    for (int g = 0; g < 6; g++)
        k[g] = p + 3 * g * stride;
    MHA_UNROLL
    for (int i = 0; i < 8; i++) {
        const int low = i % 4 + i / 4 * 8, high = low + 4;
        const __m256 first = _mm256_loadu_ps((const real *)(const void *)(k[low / 3] + low % 3 * stride));
        const __m256 last = _mm256_loadu_ps((const real *)(const void *)(k[high / 3] + high % 3 * stride));
        r[i] = _mm512_mask_broadcast_f32x8(_mm512_castps256_ps512(first), 0xff00, last);
    }
    v_transpose4(r);
    v_transpose4(r + 4);
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    }
}
static MHA_INLINE void v_store_columns(real *p, int64_t stride, vf *r)
{
    v_transpose4(r);
    MHA_UNROLL
    for (int i = 0; i < 4; i++) {
        _mm_storeu_ps(p + i * stride, _mm512_castps512_ps128(r[i]));
        _mm_storeu_ps(p + (4 + i) * stride, _mm512_extractf32x4_ps(r[i], 1));
        _mm_storeu_ps(p + (8 + i) * stride, _mm512_extractf32x4_ps(r[i], 2));
        _mm_storeu_ps(p + (12 + i) * stride, _mm512_extractf32x4_ps(r[i], 3));
    }
}

/* Products of 8-bit integers. With VNNI, one instruction multiplies unsigned elements by weights; without it, both are
 * widened to 16 bits, because the sums of vpmaddubsw saturate. */
typedef __m512i vi, vq;
#ifdef MHA_VNNI
typedef uint8_t dot_left;
enum { DOT_OFFSET = 128, DOT_PARTS = 1 };
static const uint8_t DOT_PLACE[] = {0, 1, 2, 3};
static MHA_INLINE void v_store_dot(dot_left *p, vf x)
{
    const __m512i bytes = _mm512_add_epi32(_mm512_cvtps_epi32(x), _mm512_set1_epi32(DOT_OFFSET));
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(bytes));
}
static MHA_INLINE vi i_begin(const int16_t *sums)
{
    const __m512i wide = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)sums));
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(wide, 7));
}
static MHA_INLINE vq i_left(const dot_left *p, const int part)
{
    int32_t bytes;
    (void)part;
    memcpy(&bytes, p, sizeof bytes);
    return _mm512_set1_epi32(bytes);
}
static MHA_INLINE vq i_weights(const int8_t *p, const int part)
{
    (void)part;
    return _mm512_loadu_si512(p);
}
/* Uses inline assembly, because gcc 12 copies the operands and results of the intrinsic through memory. */
static MHA_INLINE vi i_dot(vi sum, vq x, vq w)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
}
#else
typedef int16_t dot_left;
enum { DOT_OFFSET = 0, DOT_PARTS = 2 };
static const uint8_t DOT_PLACE[] = {0, 2, 1, 3};
static MHA_INLINE void v_store_dot(dot_left *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(x)));
}
static MHA_INLINE vi i_begin(const int16_t *sums)
{
    (void)sums;
    return _mm512_setzero_si512();
}
static MHA_INLINE vq i_left(const dot_left *p, const int part)
{
    int32_t pair;
    memcpy(&pair, p + 2 * part, sizeof pair);
    return _mm512_set1_epi32(pair);
}
static MHA_INLINE vq i_weights(const int8_t *p, const int part)
{
    const __m512i bytes = _mm512_loadu_si512(p);
    return _mm512_srai_epi16(part ? bytes : _mm512_slli_epi16(bytes, 8), 8);
}
/* The barrier keeps the order of sums: gcc 12 would add the products of both parts first, and keep sums in memory. */
static MHA_INLINE vi i_dot(vi sum, vq x, vq w)
{
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(x, w));
    __asm__("" : "+v"(sum));
    return sum;
}
#endif
static MHA_INLINE vi i_zero(void)
{
    return _mm512_setzero_si512();
}
static MHA_INLINE vi i_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
static MHA_INLINE vf i_reals(vi x)
{
    return _mm512_cvtepi32_ps(x);
}

#endif
