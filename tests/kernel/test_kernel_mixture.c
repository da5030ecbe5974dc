/* test_kernel_mixture.c - compares the `mixture` kernel, the sum of (p + q) log2(p + q), with libm in double for every
 * f32 table. */
#include "kernel/table.h"

/* Tests lengths from 0 to several vectors, at any offset, with NaN before and after the elements. */
static void sums_are_right(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    for (int t = tables(list); t-- > 1;) {
        rng draw = rng_make(4, (uint64_t)t);
        for (int64_t n = 0; n < 700; n += n < 150 ? 1 : 61) {
            const mha__kernels *k = list[t];
            array p = array_make(k, n, (int)(n % 7), INPUT), q = array_make(k, n, (int)(n % 5), INPUT);
            double want = 0, size = 0;
            for (int64_t i = 0; i < n; i++) {
                const bool zero = rng_chance(&draw, 0.1);
                put(&p, i, zero ? 0 : pow(rng_uniform(&draw), 8));
                put(&q, i, zero || rng_chance(&draw, 0.3) ? 0 : rng_uniform(&draw));
                const double x = get(&p, i) + get(&q, i), term = x > 0 ? x * log2(x) : 0;
                want += term;
                size += fabs(term) + x;
            }
            const double got = k->mixture(n, (const float *)(void *)p.data, (const float *)(void *)q.data);
            if (!(fabs(got - want) <= 2e-7 * size))
                fail_msg("%s, n = %d: got %.9g, expected %.9g", k->isa, (int)n, got, want);
            array_free(&p);
            array_free(&q);
        }
    }
}

/* Tests sums of one term, for x from the smallest positive value to 2. The error limit is relative to the term plus x,
 * because the logarithm is near 0 for x near 1. */
static void terms_are_right(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    for (int t = tables(list); t-- > 1;) {
        rng draw = rng_make(5, 0);
        for (int i = 0; i < 20000; i++) {
            const float x =
                i < 150 ? ldexpf(1, -i) : ldexpf(1 + (float)rng_uniform(&draw), -(int)rng_range(&draw, 0, 30));
            const float zero = 0;
            const double got = list[t]->mixture(1, &x, &zero), want = (double)x * log2((double)x);
            const double limit = x < 0x1p-126F ? 0x1p-118 : 1.2e-7 * (fabs(want) + (double)x);
            if (!(fabs(got - want) <= limit))
                fail_msg("%s: x = %a: got %.9g, expected %.9g", list[t]->isa, (double)x, got, want);
        }
        const float nothing[2] = {0, 0}, lost[2] = {0.5F, NAN}, whole[2] = {0.5F, 1};
        assert_true(list[t]->mixture(2, nothing, nothing) == 0);
        assert_true(isnan(list[t]->mixture(2, lost, nothing)));
        /* the sum must be exact if each p + q is a power of 2 */
        assert_true(list[t]->mixture(2, whole, nothing) == -0.5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_right), cmocka_unit_test(terms_are_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
