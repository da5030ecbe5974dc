/* test_math_gram_runs.c - sums of X^T X over runs of rows must be bitwise identical to the products of single runs that
 * are added to the sums one by one, for any number of threads, with and without AVX2, and for any division of the runs
 * into calls. */
#include "math/linalg.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/rng.h"
#include <stdlib.h>
#include <string.h>

/* Rows exceed a block of 128 rows, columns a square of 48. */
enum { COLUMNS = 101, CELLS = COLUMNS * (COLUMNS + 1) / 2, RUNS = 9 };

static const int64_t starts[RUNS + 1] = {3, 10, 10, 60, 131, 137, 400, 401, 529, 600};
enum { ROWS = 600 };

static mha_ctx *context(int threads, const char *isa)
{
    const mha_ctx_options options = {.size = sizeof options, .threads = threads, .isa = isa};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    return ctx;
}

static float *draw_rows(void)
{
    rng draw = rng_make(21, 0);
    float *data = malloc((size_t)(ROWS * COLUMNS) * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (float)rng_normal(&draw);
    return data;
}

/* Adds the products of each run with mha__gram and mha__fixed_add. */
static void add_each(const mha__columns *x, mha__fixed *to)
{
    double *product = calloc((size_t)(x->count * x->count), sizeof *product);
    assert_non_null(product);
    for (int run = 0; run < RUNS; run++) {
        const mha__columns rows = {x->data + starts[run] * x->row, x->row, x->column, x->count};
        assert_int_equal(mha__gram(NULL, starts[run + 1] - starts[run], &rows, product, NULL), MHA_OK);
        mha__fixed_add_triangle(to, product, x->count);
    }
    free(product);
}

static void check(const mha__columns *x)
{
    static const char *const isas[] = {"scalar", NULL};
    static mha__fixed want[CELLS], got[CELLS];
    const size_t bytes = (size_t)mha__triangle(x->count) * sizeof *want;
    memset(want, 0, bytes);
    add_each(x, want);
    for (int n = 0; n < 4; n++) {
        mha_ctx *ctx = context(1 + n / 2, isas[n % 2]);
        for (int first = 0; first <= RUNS; first++) { /* two calls */
            memset(got, 0, bytes);
            assert_int_equal(mha__gram_runs(ctx, starts, first, x, got, NULL), MHA_OK);
            assert_int_equal(mha__gram_runs(ctx, starts + first, RUNS - first, x, got, NULL), MHA_OK);
            assert_memory_equal(got, want, bytes);
        }
        mha_ctx_free(ctx);
    }
}

static void sums_of_runs(void **state)
{
    (void)state;
    float *data = draw_rows();
    static const int64_t counts[] = {1, 4, 12, 49, COLUMNS};
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        check(&(mha__columns){data, COLUMNS, 1, counts[n]});
        check(&(mha__columns){data, 1, ROWS, counts[n]}); /* stored column by column */
    }
    free(data);
}

/* Values that are not finite or too large for a pile must affect only their own products. */
static void sums_that_are_not_finite(void **state)
{
    (void)state;
    float *data = draw_rows();
    data[5 * COLUMNS + 2] = NAN;
    data[139 * COLUMNS + 50] = INFINITY;
    data[20 * COLUMNS + 7] = 0x1p26F; /* its square is 2^52 */
    data[402 * COLUMNS + 8] = 0x1p40F;
    check(&(mha__columns){data, COLUMNS, 1, COLUMNS});
    mha__fixed got[CELLS] = {{0}};
    const mha__columns x = {data, COLUMNS, 1, COLUMNS};
    assert_int_equal(mha__gram_runs(NULL, starts, RUNS, &x, got, NULL), MHA_OK);
    for (int64_t r = 0; r < COLUMNS; r++)
        for (int64_t c = 0; c <= r; c++) {
            const bool bad = r == 2 || c == 2 || r == 50 || c == 50 || (r == 8 && c == 8);
            assert_true(isnan(mha__fixed_value(got[mha__triangle(r) + c])) == bad);
        }
    free(data);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    float *data = draw_rows();
    static mha__fixed got[CELLS];
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&count)};
    const mha__columns x = {data, COLUMNS, 1, COLUMNS};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long live = count.live;
    count.budget = count.calls;
    assert_int_equal(mha__gram_runs(ctx, starts, RUNS, &x, got, NULL), MHA_ERR_MEMORY);
    assert_int_equal(count.live, live);
    count.budget = -1;
    assert_int_equal(mha__gram_runs(ctx, starts, RUNS, &x, got, NULL), MHA_OK);
    assert_int_equal(count.live, live);
    mha_ctx_free(ctx);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_runs),
        cmocka_unit_test(sums_that_are_not_finite),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
