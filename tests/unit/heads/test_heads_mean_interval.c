/* test_heads_mean_interval.c - compares quantiles of Student's t distribution with published tables, and an interval
 * and medians with values calculated by hand. */
#include "mha/mean_interval.h"
#include "support/check.h"
#include <math.h>

/* Quantiles to eight digits, and the identity that one degree of freedom is the Cauchy distribution: tan(0.475 pi). */
static void test_quantiles(void **state)
{
    (void)state;
    static const struct {
        int64_t freedom;
        double quantile;
    } want[] = {{1, 12.706205}, {2, 4.3026527},  {3, 3.1824463},  {4, 2.7764451},   {5, 2.5705818},
                {9, 2.2621572}, {10, 2.2281389}, {30, 2.0422725}, {100, 1.9839715}, {1000, 1.9623391}};
    for (size_t n = 0; n < sizeof want / sizeof *want; n++)
        assert_true(fabs(mha_student_quantile(want[n].freedom) / want[n].quantile - 1) < 3e-8);
    assert_true(fabs(mha_student_quantile(1) - tan(0.475 * 3.14159265358979323846)) < 1e-9);
    assert_true(fabs(mha_student_quantile(2) - 0.95 * sqrt(2 / (1 - 0.95 * 0.95))) < 1e-12);
    assert_true(isnan(mha_student_quantile(0)) && isnan(mha_student_quantile(-3)));
}

/* The quantile must decrease to that of the normal distribution, also where the formula changes. */
static void test_quantiles_decrease(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 1100; n++)
        assert_true(mha_student_quantile(n) > mha_student_quantile(n + 1));
    assert_true(fabs(mha_student_quantile(INT64_MAX) - 1.959963984540054) < 1e-12);
}

/* 1, 2, 3: standard deviation 1, standard error 1 / sqrt(3), two degrees of freedom. */
static void test_interval(void **state)
{
    (void)state;
    static const double values[] = {1, 2, 3, 4, 10};
    double mean, half;
    mha_mean_interval(values, 3, &mean, &half);
    assert_true(mean == 2);
    assert_true(fabs(half - 2.4841377) < 1e-7);
    mha_mean_interval(values, 5, &mean, &half); /* squares 9 + 4 + 1 + 0 + 36, four degrees of freedom */
    assert_true(mean == 4);
    assert_true(fabs(half - 2.7764451 * sqrt(50.0 / 4 / 5)) < 1e-7);
    mha_mean_interval(values, 1, &mean, &half);
    assert_true(mean == 1 && isnan(half));
    mha_mean_interval(values, 0, &mean, &half);
    assert_true(isnan(mean) && isnan(half));
    mha_mean_interval(values, 2, &mean, NULL);
    assert_true(mean == 1.5);
}

static void test_median(void **state)
{
    (void)state;
    double values[] = {3, -1, 10, 2, 7};
    assert_true(mha_median(values, 5) == 3 && values[0] == -1 && values[4] == 10);
    assert_true(mha_median(values, 4) == 2.5); /* -1, 2, 3, 7 */
    assert_true(mha_median(values, 1) == -1);
    assert_true(isnan(mha_median(values, 0)) && isnan(mha_median(NULL, 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_quantiles), cmocka_unit_test(test_quantiles_decrease),
                                       cmocka_unit_test(test_interval), cmocka_unit_test(test_median)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
