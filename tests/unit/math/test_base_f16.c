/* test_base_f16.c - compares the 16-bit types with their definition, implemented with ldexp and a search.
 *
 * Widening is tested for all 65536 patterns. Narrowing is tested at all 65536 values, at the midpoints between adjacent
 * values, and at the f32 neighbors of each midpoint. Rounding gives the same result for all values between these
 * points. */
#include "math/half.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

typedef struct half_type {
    const char *name;
    int exponent_bits, fraction_bits;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
} half_type;

static const half_type f16 = {"f16", 5, 10, mha__f16_to_f32, mha__f32_to_f16};
static const half_type bf16 = {"bf16", 8, 7, mha__bf16_to_f32, mha__f32_to_bf16};

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t infinity_of(const half_type *t)
{
    return (uint16_t)(((1u << t->exponent_bits) - 1) << t->fraction_bits);
}

static bool is_nan_pattern(const half_type *t, uint16_t bits)
{
    return (bits & 0x7FFF) > infinity_of(t);
}

/* Returns the value of a 16-bit pattern. By IEEE 754, it is (-1)^s * 1.f * 2^(e - bias), or (-1)^s * 0.f * 2^(1 - bias)
 * if e is 0. If `unbounded` is true, the pattern of infinity is decoded with its exponent; this is the power of two at
 * which overflow begins. */
static double value_of(const half_type *t, uint16_t bits, bool unbounded)
{
    int bias = (1 << (t->exponent_bits - 1)) - 1;
    int exponent = (bits & 0x7FFF) >> t->fraction_bits;
    double fraction = bits & ((1 << t->fraction_bits) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (bits == infinity_of(t) && !unbounded) return INFINITY;
    if (bits == (infinity_of(t) | 0x8000) && !unbounded) return -INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - t->fraction_bits);
    return sign * ldexp(fraction + ldexp(1, t->fraction_bits), exponent - bias - t->fraction_bits);
}

static void widening_is_exact(const half_type *t)
{
    for (uint32_t pattern = 0; pattern < 65536; pattern++) {
        uint16_t bits = (uint16_t)pattern;
        float got = t->widen(bits);
        double want = value_of(t, bits, false);
        bool ok = is_nan_pattern(t, bits) ? isnan(got) : (double)got == want;
        ok = ok && (bits_of(got) >> 31) == (uint32_t)bits >> 15;
        if (!ok) fail_msg("%s %04X: got %a, expected %a", t->name, bits, (double)got, want);
    }
}

static void round_trip_is_exact(const half_type *t)
{
    uint16_t quiet = (uint16_t)(1u << (t->fraction_bits - 1));
    for (uint32_t pattern = 0; pattern < 65536; pattern++) {
        uint16_t bits = (uint16_t)pattern;
        uint16_t want = is_nan_pattern(t, bits) ? (uint16_t)(bits | quiet) : bits;
        if (t->narrow(t->widen(bits)) != want)
            fail_msg("%s %04X must be unchanged by widening and narrowing (got %04X)", t->name, bits,
                     t->narrow(t->widen(bits)));
    }
}

static void expect(const half_type *t, float value, uint16_t want)
{
    uint16_t got = t->narrow(value);
    if (got != want) fail_msg("%s of %a: got %04X, expected %04X", t->name, (double)value, got, want);
    got = t->narrow(-value);
    if (got != (want | 0x8000))
        fail_msg("%s of %a: got %04X, expected %04X", t->name, -(double)value, got, want | 0x8000);
}

/* Narrowing must round to nearest, ties to even. Positive patterns have the order of their values, and the pattern of
 * infinity follows that of the largest finite value. */
static void narrowing_is_to_nearest_even(const half_type *t)
{
    for (uint16_t low = 0; low < infinity_of(t); low++) {
        uint16_t high = (uint16_t)(low + 1);
        double middle = (value_of(t, low, true) + value_of(t, high, true)) / 2;
        float at = (float)middle; /* the midpoint is exact in f32, which has more significant bits */
        assert_true((double)at == middle);
        expect(t, (float)value_of(t, low, true), low);
        expect(t, nextafterf(at, 0), low);
        expect(t, at, low % 2 == 0 ? low : high);
        expect(t, nextafterf(at, INFINITY), high);
    }
    expect(t, INFINITY, infinity_of(t));
    expect(t, 0x1.FFFFFEp127f, infinity_of(t)); /* FLT_MAX must be rounded to infinity */
    expect(t, 0x1p-149f, 0);
}

static void nan_stays_nan(const half_type *t)
{
    /* signaling and quiet NaN of various payloads must become quiet NaN with the same sign */
    for (uint32_t payload = 1; payload < 0x800000; payload = payload * 2 + 1) {
        for (uint32_t sign = 0; sign < 2; sign++) {
            uint32_t bits = sign << 31 | 0x7F800000 | payload;
            float value;
            memcpy(&value, &bits, sizeof value);
            uint16_t got = t->narrow(value);
            assert_true(is_nan_pattern(t, got));
            assert_int_equal(got >> 15, sign);
            assert_true(got & (1u << (t->fraction_bits - 1)));
        }
    }
}

static void check(const half_type *t)
{
    widening_is_exact(t);
    round_trip_is_exact(t);
    narrowing_is_to_nearest_even(t);
    nan_stays_nan(t);
}

static void f16_is_ieee_binary16(void **state)
{
    (void)state;
    check(&f16);
}

static void bf16_is_the_upper_half_of_f32(void **state)
{
    (void)state;
    check(&bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_is_ieee_binary16),
        cmocka_unit_test(bf16_is_the_upper_half_of_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
