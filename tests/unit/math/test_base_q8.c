/* test_base_q8.c - tests q8_0 blocks: rounding errors, ties, values out of range, and padding after the end. */
#include "math/half.h"
#include "math/types/element.h"
#include "math/types/q8_0.h"
#include "support/check.h"
#include "support/rng.h"
#include <float.h>
#include <math.h>

static float number(const mha__q8 *blocks, int64_t i)
{
    return mha__f16_to_f32(blocks[i / 32].scale) * blocks[i / 32].q[i % 32];
}

/* The error of an element must be at most half a step plus the error of the scale in f16. For the largest element, the
 * error of the scale is at most 127 * 2^-12 steps. */
static void test_error(void **state)
{
    (void)state;
    rng r = rng_make(1, 1);
    for (int n = 0; n < 3000; n++) {
        enum { MAX = 100, STRIDE = 3 };
        float x[MAX * STRIDE];
        mha__q8 blocks[4];
        const int64_t count = rng_range(&r, 1, MAX), stride = rng_range(&r, 1, STRIDE);
        const float size = ldexpf(1, (int)rng_range(&r, -6, 20));
        for (int64_t i = 0; i < count * stride; i++)
            x[i] = size * (float)rng_normal(&r);
        mha__q8_round(x, stride, count, blocks);
        for (int64_t i = 0; i < (count + 31) / 32 * 32; i++) {
            const float scale = mha__f16_to_f32(blocks[i / 32].scale);
            if (i >= count)
                assert_int_equal(blocks[i / 32].q[i % 32], 0);
            else
                assert_true(fabsf(number(blocks, i) - x[i * stride]) <= (0.5F + 127.F / 4096) * scale);
        }
    }
}

static void test_edges(void **state)
{
    (void)state;
    float x[32] = {0};
    mha__q8 block;
    mha__q8_round(x, 1, 32, &block);
    assert_true(number(&block, 0) == 0 && block.scale == 0);
    x[3] = -127, x[4] = 127, x[5] = 64;
    mha__q8_round(x, 1, 32, &block);
    assert_true(number(&block, 3) == -127 && number(&block, 4) == 127 && number(&block, 5) == 64);
    x[9] = FLT_TRUE_MIN; /* too small to be represented in a block, so it must become 0 */
    mha__q8_round(x + 9, 1, 1, &block);
    assert_true(number(&block, 0) == 0);
    const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
    for (int n = 0; n < 4; n++) {
        x[20] = bad[n];
        mha__q8_round(x, 1, 32, &block);
        assert_true(isnan(number(&block, 0)) && isnan(number(&block, 3)) && isnan(number(&block, 20)));
    }
    assert_int_equal(sizeof(mha__q8), 34);
    assert_int_equal(mha__element_count(MHA_Q8_0, 33), 2);
    assert_int_equal(mha__element_count(MHA_F32, 33), 33);
}

/* With a scale that is a power of two, elements halfway between two multiples must be rounded away from zero. */
static void test_ties(void **state)
{
    (void)state;
    for (int e = -24; e <= 8; e++)
        for (int sign = -1; sign <= 1; sign += 2) {
            float x[32];
            mha__q8 block;
            for (int i = 0; i < 31; i++)
                x[i] = (float)sign * ldexpf((float)i + 0.5F, e);
            x[31] = ldexpf(127, e);
            mha__q8_round(x, 1, 32, &block);
            assert_true(mha__f16_to_f32(block.scale) == ldexpf(1, e));
            for (int i = 0; i < 31; i++)
                assert_int_equal(block.q[i], sign * (i + 1));
            assert_int_equal(block.q[31], 127);
        }
}

/* A subnormal scale can be much less than the largest magnitude / 127; elements must then be limited to +-127. */
static void test_limits(void **state)
{
    (void)state;
    const float max = ldexpf(127 * 1.4F, -24); /* 1.4 steps of f16, rounded to one step */
    const float x[] = {max, -max, max / 2, -max / 2};
    mha__q8 block;
    mha__q8_round(x, 1, 4, &block);
    assert_true(mha__f16_to_f32(block.scale) == ldexpf(1, -24));
    assert_int_equal(block.q[0], 127);
    assert_int_equal(block.q[1], -127);
    assert_int_equal(block.q[2], 89);
    assert_int_equal(block.q[3], -89);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_error), cmocka_unit_test(test_edges),
                                              cmocka_unit_test(test_ties), cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
