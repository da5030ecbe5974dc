/* test_base_q4.c - tests q4_0 blocks of rotated rows, and 8-bit floating point: every code, and rounding to nearest. */
#include "math/half.h"
#include "math/types/e4m3.h"
#include "math/types/element.h"
#include "support/check.h"
#include "support/rng.h"
#include <math.h>
#include <string.h>

enum { N = MHA__Q4_BLOCK, MAX = 4 * N, STRIDE = 3 };

static float stored(const mha__q4 *blocks, int64_t i)
{
    return mha__f16_to_f32(blocks[i / N].scale) * (float)mha__q4_at(blocks[i / N].q, (int)(i % N));
}

/* Element (i, j) of the Hadamard matrix is 1 if the number of common bits of i and j is even, otherwise -1. */
static double hadamard(int i, int j)
{
    return __builtin_popcount((unsigned)(i & j)) % 2 ? -1 / sqrt(N) : 1 / sqrt(N);
}

static void test_rotation(void **state)
{
    (void)state;
    rng r = rng_make(1, 1);
    float x[2][MAX + 1], before[2][MAX + 1];
    for (int i = 0; i < 2 * (MAX + 1); i++)
        before[i / (MAX + 1)][i % (MAX + 1)] = (float)rng_normal(&r);
    memcpy(x, before, sizeof x);
    mha__rotate_rows(2, MAX, x[0], MAX + 1);
    for (int row = 0; row < 2; row++)
        for (int i = 0; i < MAX; i++) {
            double want = 0;
            for (int j = 0; j < N; j++)
                want += hadamard(i % N, j) * (double)before[row][i / N * N + j];
            assert_true(fabs((double)x[row][i] - want) < 1e-6);
        }
    mha__rotate_rows(2, MAX, x[0], MAX + 1);
    for (int i = 0; i < 2 * (MAX + 1); i++)
        assert_true(fabsf(x[i / (MAX + 1)][i % (MAX + 1)] - before[i / (MAX + 1)][i % (MAX + 1)]) < 1e-6F);
}

/* The error of a rotated element must be at most half the scale, or one scale at the positive end of the grid, plus the
 * error of the scale in f16. */
static void test_error(void **state)
{
    (void)state;
    rng r = rng_make(1, 2);
    for (int n = 0; n < 1000; n++) {
        float x[MAX * STRIDE], rotated[MAX];
        mha__q4 blocks[4];
        const int64_t count = N * rng_range(&r, 1, 4), stride = rng_range(&r, 1, STRIDE);
        const float size = ldexpf(1, (int)rng_range(&r, -6, 12));
        for (int64_t i = 0; i < count * stride; i++)
            x[i] = size * (float)rng_normal(&r);
        for (int64_t i = 0; i < count; i++)
            rotated[i] = x[i * stride];
        mha__rotate_rows(1, count, rotated, count);
        mha__q4_round_rotated(x, stride, count, blocks);
        for (int64_t i = 0; i < count; i++) {
            const float scale = mha__f16_to_f32(blocks[i / N].scale);
            const float steps = fabsf(stored(blocks, i) - rotated[i]) / fabsf(scale);
            const bool end = mha__q4_at(blocks[i / N].q, (int)(i % N)) == 7;
            assert_true(steps <= (end ? 1.0F : 0.5F) + 8.F / 2048);
        }
    }
}

static void test_edges(void **state)
{
    (void)state;
    float x[2 * N] = {0};
    mha__q4 blocks[2];
    mha__q4_round_rotated(x, 1, N, blocks);
    for (int i = 0; i < N; i++)
        assert_true(stored(blocks, i) == 0);
    for (int bad = 0; bad < 2; bad++) { /* the other block is not affected */
        x[3] = bad ? NAN : -INFINITY, x[N] = 1;
        mha__q4_round_rotated(x, 1, 2 * N, blocks);
        assert_true(isnan(stored(blocks, 0)) && isnan(stored(blocks, N - 1)) && isfinite(stored(blocks, N)));
    }
    for (int i = 0; i < N; i++)
        x[i] = 0.999F * MHA__Q4_END;
    mha__q4_round_rotated(x, 1, N, blocks);
    assert_true(isfinite(stored(blocks, 0)) && stored(blocks, 0) > 5 * MHA__Q4_END);
    assert_int_equal(sizeof(mha__q4), 18);
    assert_int_equal(mha__element_count(MHA_Q4_0, 64), 2);
    assert_int_equal(mha__element_size(MHA_Q4_0), 18);
    assert_int_equal(mha__element_size(MHA_F8_E4M3), 1);
}

/* The value of a code by the definition of the type. */
static double code_value(int code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const double x = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return (code & 0x7f) == 0x7f ? (double)NAN : code & 0x80 ? -x : x;
}

static void test_codes(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        const float x = mha__e4m3_to_f32((uint8_t)code);
        const double want = code_value(code);
        assert_true(isnan(want) ? isnan(x) : (double)x == want && !signbit(x) == !signbit(want));
        assert_int_equal(mha__f32_to_e4m3(x) & 0x7f, code & 0x7f);
        if (!isnan(want)) assert_int_equal(mha__f32_to_e4m3(x), code);
    }
}

/* Values between two codes must be rounded to the nearer one, and halfway values to the even one. */
static void test_rounding(void **state)
{
    (void)state;
    for (int code = 0; code < 0x7e; code++) {
        const double low = code_value(code), high = code_value(code + 1);
        const float half = (float)((low + high) / 2);
        assert_int_equal(mha__f32_to_e4m3(half), code + code % 2);
        assert_int_equal(mha__f32_to_e4m3(nextafterf(half, 0)), code);
        assert_int_equal(mha__f32_to_e4m3(-nextafterf(half, 1000)), (code + 1) | 0x80);
    }
    assert_int_equal(mha__f32_to_e4m3(1e30F), 0x7e);
    assert_int_equal(mha__f32_to_e4m3(-470), 0xfe);
    assert_int_equal(mha__f32_to_e4m3(1e-30F), 0);
    assert_int_equal(mha__f32_to_e4m3(INFINITY), 0x7f);
    assert_int_equal(mha__f32_to_e4m3(-NAN) & 0x7f, 0x7f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rotation), cmocka_unit_test(test_error),
                                       cmocka_unit_test(test_edges), cmocka_unit_test(test_codes),
                                       cmocka_unit_test(test_rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
