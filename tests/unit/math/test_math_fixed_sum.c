/* test_math_fixed_sum.c - sums in units of 2^-80 must be bitwise identical for any order and division of the terms, and
 * close to the exact sum. */
#include "math/fixed_sum.h"
#include "support/check.h"
#include "support/rng.h"

enum { TERMS = 2000, ORDERS = 20 };

static double terms[TERMS];

static void fill(rng *r)
{
    for (int n = 0; n < TERMS; n++)
        terms[n] = ldexp(rng_normal(r), (int)rng_range(r, -60, 40));
}

static void shuffle(rng *r)
{
    for (int n = TERMS - 1; n > 0; n--) {
        const int64_t other = rng_range(r, 0, n);
        const double t = terms[n];
        terms[n] = terms[other];
        terms[other] = t;
    }
}

/* Returns the sum of all terms, computed as the integer sum of `parts` partial sums. */
static mha__fixed sum_in(int parts)
{
    mha__fixed part[8] = {{0}}, all = {0};
    for (int n = 0; n < TERMS; n++)
        mha__fixed_add(&part[n * parts / TERMS], terms[n]);
    for (int p = 0; p < parts; p++) {
        all.whole += part[p].whole;
        all.fraction += part[p].fraction;
        all.rest += part[p].rest;
        all.bad += part[p].bad;
    }
    mha__fixed_carry(&all);
    return all;
}

static void test_order(void **state)
{
    (void)state;
    rng r = rng_make(5, 1);
    fill(&r);
    long double truth = 0;
    for (int n = 0; n < TERMS; n++)
        truth += terms[n];
    const mha__fixed first = sum_in(1);
    assert_true(fabs(mha__fixed_value(first) - (double)truth) <= fabs((double)truth) * 0x1p-51);
    for (int n = 0; n < ORDERS; n++) {
        shuffle(&r);
        const mha__fixed sum = sum_in(1 + n % 8);
        assert_memory_equal(&sum, &first, sizeof sum);
    }
}

static void test_values(void **state)
{
    (void)state;
    static const double exact[] = {0,       1,        -1,      0.5,      -0.25, 1e9 + 0.125, -0x1p52,
                                   0x1p-40, -0x1p-40, 0x1p-80, -0x1p-80, 1e-8,  -1 / 3.};
    for (size_t n = 0; n < sizeof exact / sizeof *exact; n++) {
        mha__fixed sum = {0};
        mha__fixed_add(&sum, exact[n]);
        assert_true(mha__fixed_value(sum) == exact[n]);
        mha__fixed_add(&sum, -exact[n]);
        assert_true(mha__fixed_value(sum) == 0 && sum.whole == 0 && sum.fraction == 0 && sum.rest == 0);
    }
    mha__fixed small = {0};
    mha__fixed_add(&small, -1e-30); /* must be rounded to 0 */
    assert_true(mha__fixed_value(small) == 0);
    mha__fixed_add(&small, -0x1.8p-81);
    assert_true(mha__fixed_value(small) == -0x1p-80);
}

static void test_not_finite(void **state)
{
    (void)state;
    const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0x1p53};
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        mha__fixed sum = {0};
        mha__fixed_add(&sum, bad[n]);
        mha__fixed_add(&sum, 1);
        assert_true(isnan(mha__fixed_value(sum)) && sum.bad == 1 && sum.whole == 1);
    }
}

/* A sum collected in a pile must be bitwise identical to a sum to which the terms are added one by one. */
static void test_pile(void **state)
{
    (void)state;
    rng r = rng_make(6, 1);
    mha__pile pile = {.terms = 0};
    mha__fixed want[MHA__PILE] = {{0}}, got[MHA__PILE] = {{0}};
    fill(&r);
    for (int n = 0; n + MHA__PILE <= TERMS; n += MHA__PILE)
        assert_true(mha__pile_add(&pile, terms + n));
    for (int n = 0; n < TERMS / MHA__PILE * MHA__PILE; n++)
        mha__fixed_add(&want[n % MHA__PILE], terms[n]);
    for (int n = 0; n < MHA__PILE; n++)
        mha__pile_read(&pile, n, &got[n]);
    assert_memory_equal(got, want, sizeof got);
}

static void test_limits_of_pile(void **state)
{
    (void)state;
    static const double good[] = {-0x1p51, 0x1p51 - 1, 0x1p-81, 0x1.8p-80, 0x1p-1074};
    const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0x1p51, -0x1.8p51, 1e300};
    mha__pile pile = {.terms = 0};
    for (int n = 0; n < MHA__PILE; n++)
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            const mha__pile before = pile;
            double x[MHA__PILE] = {0};
            x[n] = bad[b];
            assert_false(mha__pile_add(&pile, x));
            assert_memory_equal(&pile, &before, sizeof pile);
        }
    for (size_t g = 0; g < sizeof good / sizeof *good; g++) {
        const double x[MHA__PILE] = {good[g]};
        mha__fixed got = {0}, want = {0};
        memset(&pile, 0, sizeof pile);
        assert_true(mha__pile_add(&pile, x));
        mha__pile_read(&pile, 0, &got);
        mha__fixed_add(&want, good[g]);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_not_finite), cmocka_unit_test(test_pile),
                                       cmocka_unit_test(test_limits_of_pile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
