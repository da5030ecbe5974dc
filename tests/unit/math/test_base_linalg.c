/* test_base_linalg.c - tests eigenvectors, Cholesky factorization, matrix products and bases: known results, residuals
 * and errors.
 *
 * Sizes exceed every block size of the library: tiles of 4 columns, squares of 48, tasks of 64 columns, and 128
 * rows. */
#include "math/linalg.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/rng.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 150 };

static mha_ctx *context(int threads)
{
    const mha_ctx_options options = {.size = sizeof options, .threads = threads};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    return ctx;
}

static void *numbers(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count, size);
    assert_non_null(memory);
    return memory;
}

static double uniform(rng *draw)
{
    return 2 * rng_uniform(draw) - 1;
}

/* Returns a symmetric matrix of random elements in [-1, 1). If `graded` is true, elements (i, j) decrease with i + j,
 * down to 1e-9. */
static double *symmetric(int64_t n, uint64_t seed, bool graded)
{
    rng draw = rng_make(seed, 0);
    double *a = numbers(n * n, sizeof *a);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            const double scale = graded ? pow(1e-9, (double)(i + j) / (double)(2 * n)) : 1;
            a[i * n + j] = a[j * n + i] = scale * uniform(&draw);
        }
    return a;
}

/* Returns X^T X. It is positive definite, since X is random and has more rows than columns. */
static double *definite(int64_t n, uint64_t seed)
{
    rng draw = rng_make(seed, 0);
    double *x = numbers((n + 5) * n, sizeof *x), *a = numbers(n * n, sizeof *a);
    for (int64_t i = 0; i < (n + 5) * n; i++)
        x[i] = uniform(&draw);
    for (int64_t r = 0; r < n + 5; r++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                a[i * n + j] += x[r * n + i] * x[r * n + j];
    free(x);
    return a;
}

/* ---- eigenvalues and eigenvectors ---- */

/* Fails unless the largest elements of |A v - value v| and |V V^T - I| are within the tolerance and the eigenvalues are
 * in ascending order. */
static void check_eigen(const double *a, const double *values, const double *vectors, int64_t n, double size)
{
    const double limit = 4 * (double)n * DBL_EPSILON;
    for (int64_t r = 0; r < n; r++) {
        const double *v = vectors + r * n;
        if (r > 0) assert_true(values[r - 1] <= values[r]);
        for (int64_t i = 0; i < n; i++) {
            const double residual = mha__dot(n, a + i * n, v) - values[r] * v[i];
            const double overlap = mha__dot(n, v, vectors + i * n) - (i == r ? 1 : 0);
            if (!(fabs(residual) <= limit * size))
                fail_msg("n = %d: residual of eigenvector %d must be at most %g (got %g)", (int)n, (int)r, limit * size,
                         residual);
            if (!(fabs(overlap) <= limit))
                fail_msg("n = %d: error in the inner product of eigenvectors %d and %d must be at most %g (got %g)",
                         (int)n, (int)r, (int)i, limit, overlap);
        }
    }
}

static void solve_eigen(const double *a, int64_t n, double size)
{
    double *copy = numbers(n * n, sizeof *copy), *values = numbers(n, sizeof *values);
    double *vectors = numbers(n * n, sizeof *vectors);
    memcpy(copy, a, (size_t)(n * n) * sizeof *a);
    for (int64_t i = 0; i < n; i++) /* elements above the diagonal must not be read */
        for (int64_t j = i + 1; j < n; j++)
            copy[i * n + j] = NAN;
    assert_int_equal(mha__symmetric_eigen(NULL, n, copy, values, vectors, NULL), MHA_OK);
    check_eigen(a, values, vectors, n, size);
    free(copy);
    free(values);
    free(vectors);
}

static void eigen_residuals(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 17, 64, 65, MAX};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int graded = 0; graded < 2; graded++) {
            const int64_t n = sizes[s];
            double *a = symmetric(n, (uint64_t)n, graded);
            solve_eigen(a, n, sqrt((double)n));
            free(a);
        }
}

/* Tests matrices with equal eigenvalues, with many eigenvalues of 0, and with blocks on the diagonal. */
static void eigen_of_special_matrices(void **state)
{
    (void)state;
    const int64_t n = 70;
    double *zero = numbers(n * n, sizeof *zero), *ones = numbers(n * n, sizeof *ones);
    double *blocks = numbers(n * n, sizeof *blocks), *identity = numbers(n * n, sizeof *identity);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            ones[i * n + j] = 1;
            blocks[i * n + j] = i / 10 == j / 10 ? 1e-3 * (double)(i / 10) : 0;
            identity[i * n + j] = i == j;
        }
    solve_eigen(zero, n, 0);
    solve_eigen(ones, n, (double)n);
    solve_eigen(blocks, n, 1);
    solve_eigen(identity, n, 1);
    double *huge = symmetric(n, 3, false), *small = symmetric(n, 3, false);
    for (int64_t i = 0; i < n * n; i++) {
        huge[i] *= 1e150;
        small[i] *= 1e-150;
    }
    solve_eigen(huge, n, 1e151);
    solve_eigen(small, n, 1e-149);
    double *all[] = {zero, ones, blocks, identity, huge, small};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Tests X^T X for X with 384 columns and 32 rows; the magnitudes of the rows decrease by powers of ten. Most
 * eigenvalues are 0 within rounding errors. */
static void eigen_of_missing_rank(void **state)
{
    (void)state;
    const int64_t n = 384, rank = 32;
    double *rows = numbers(rank * n, sizeof *rows), *a = numbers(n * n, sizeof *a), *all = symmetric(n, 5, false);
    for (int64_t r = 0; r < rank; r++)
        for (int64_t i = 0; i < n; i++)
            rows[r * n + i] = all[r * n + i] * pow(10, (double)(-6 * r) / (double)rank);
    for (int64_t r = 0; r < rank; r++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                a[i * n + j] += rows[r * n + i] * rows[r * n + j];
    solve_eigen(a, n, (double)n);
    free(rows);
    free(a);
    free(all);
}

/* Tests the second-difference matrix of n points with fixed ends. Eigenvalue k must be 2 - 2 cos(pi k / (n + 1)), and
 * the eigenvectors must be sines. */
static void eigen_known_answer(void **state)
{
    (void)state;
    const int64_t n = 40;
    double *a = numbers(n * n, sizeof *a), *values = numbers(n, sizeof *values), *v = numbers(n * n, sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        a[i * n + i] = 2;
        if (i > 0) a[i * n + i - 1] = -1;
    }
    assert_int_equal(mha__symmetric_eigen(NULL, n, a, values, v, NULL), MHA_OK);
    const double pi = acos(-1), unit = sqrt(2 / (double)(n + 1));
    for (int64_t k = 0; k < n; k++) {
        const double angle = pi * (double)(k + 1) / (double)(n + 1), sign = copysign(1, v[k * n]);
        assert_true(fabs(values[k] - (2 - 2 * cos(angle))) < 1e-14);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabs(sign * v[k * n + i] - unit * sin(angle * (double)(i + 1))) < 1e-13);
    }
    free(a);
    free(values);
    free(v);
}

static void eigen_refuses_what_is_not_finite(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        double a[9] = {1, 0, 0, bad[b], 2, 0, bad[b], bad[b], 3}, values[3], vectors[9];
        mha_error err = {0};
        assert_int_equal(mha__symmetric_eigen(NULL, 3, a, values, vectors, &err), MHA_ERR_NOT_FINITE);
        assert_non_null(strstr(err.message, "finite"));
    }
}

/* ---- Cholesky factorization ---- */

static void cholesky_residuals(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 4, 7, 47, 48, 49, 97, MAX};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s], columns = s % 2 ? 1 : 67;
        double *a = definite(n, (uint64_t)n + 1), *l = numbers(n * n, sizeof *l);
        double *x = numbers(n * columns, sizeof *x), *b = numbers(n * columns, sizeof *b);
        rng draw = rng_make((uint64_t)n, 1);
        memcpy(l, a, (size_t)(n * n) * sizeof *a);
        assert_int_equal(mha__cholesky(NULL, n, l, NULL), MHA_OK);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++)
                assert_true(fabs(mha__dot(j + 1, l + i * n, l + j * n) - a[i * n + j]) < 1e-14 * (double)(n + 5));
        for (int64_t i = 0; i < n * columns; i++)
            b[i] = x[i] = uniform(&draw);
        mha__cholesky_solve(NULL, n, l, columns, x);
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < columns; c++) {
                double sum = 0, size = 1;
                for (int64_t k = 0; k < n; k++) {
                    sum += a[i * n + k] * x[k * columns + c];
                    size += fabs(a[i * n + k] * x[k * columns + c]);
                }
                if (!(fabs(sum - b[i * columns + c]) <= 1e-14 * size))
                    fail_msg("n = %d: row %d must satisfy A x = b", (int)n, (int)i);
            }
        free(a);
        free(l);
        free(x);
        free(b);
    }
}

/* The factorization of [4 2; 2 5] must be [2 0; 1 2] [2 1; 0 2]. */
static void cholesky_known_answer(void **state)
{
    (void)state;
    double a[4] = {4, NAN, 2, 5}, b[2] = {8, 9};
    assert_int_equal(mha__cholesky(NULL, 2, a, NULL), MHA_OK);
    assert_true(a[0] == 2 && a[2] == 1 && a[3] == 2);
    mha__cholesky_solve(NULL, 2, a, 1, b);
    assert_true(fabs(b[0] - 1.375) < 1e-15 && fabs(b[1] - 1.25) < 1e-15);
}

static void cholesky_refuses_what_is_not_definite(void **state)
{
    (void)state;
    const int64_t n = 60;
    static const double pivots[] = {0, -1, NAN, INFINITY};
    for (size_t p = 0; p < sizeof pivots / sizeof *pivots; p++)
        for (int64_t bad = 0; bad < n; bad += 53) { /* an invalid pivot in the first or the second block */
            double *a = numbers(n * n, sizeof *a);
            mha_error err = {0};
            for (int64_t i = 0; i < n; i++)
                a[i * n + i] = i == bad ? pivots[p] : 1;
            assert_int_equal(mha__cholesky(NULL, n, a, &err), isfinite(pivots[p]) ? MHA_ERR_ARG : MHA_ERR_NOT_FINITE);
            assert_non_null(strstr(err.message, "must be positive definite"));
            assert_true(check_has_word(err.message, bad ? "53" : "0"));
            free(a);
        }
    double singular[9] = {1, 0, 0, 1. / 3, 1. / 9, 0, 0.1, 0.1 / 3, 1}; /* row 1 is a third of row 0 */
    assert_int_equal(mha__cholesky(NULL, 3, singular, NULL), MHA_ERR_ARG);
}

/* ---- matrix products ---- */

/* Tests products of columns with any strides. Every element must be a single chain of additions over the rows, starting
 * from its previous value. */
static void products_are_chains(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1}, {3, 2, 5}, {128, 4, 4}, {129, 49, 50}, {300, 97, 7}};
    rng draw = rng_make(5, 0);
    float *data = numbers(300 * 150, sizeof *data);
    for (int64_t i = 0; i < 300 * 150; i++)
        data[i] = (float)uniform(&draw);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t rows = sizes[s][0], m = sizes[s][1], n = sizes[s][2];
        /* x has rows of 150 elements; y is stored column by column */
        const mha__columns x = {data, 150, 1, m}, y = {data + 100, 1, 300, n};
        double *got = numbers(m * n, sizeof *got), *square = numbers(m * m, sizeof *square);
        for (int64_t i = 0; i < m * n; i++)
            got[i] = 0.5;
        const int64_t half = rows / 2; /* two calls with numbers of rows that are not multiples of the block size */
        const mha__columns x2 = {x.data + half * x.row, x.row, x.column, m};
        const mha__columns y2 = {y.data + half * y.row, y.row, y.column, n};
        assert_int_equal(mha__gram_cross(NULL, half, &x, &y, got, NULL), MHA_OK);
        assert_int_equal(mha__gram_cross(NULL, rows - half, &x2, &y2, got, NULL), MHA_OK);
        assert_int_equal(mha__gram(NULL, rows, &x, square, NULL), MHA_OK);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                double want = 0.5;
                for (int64_t r = 0; r < rows; r++)
                    want += (double)data[r * 150 + i] * (double)data[100 + r + 300 * j];
                assert_true(got[i * n + j] == want);
            }
            for (int64_t j = 0; j < m; j++) {
                double want = 0;
                for (int64_t r = 0; r < rows; r++)
                    want += (double)data[r * 150 + i] * (double)data[r * 150 + j];
                assert_true(square[i * m + j] == want);
            }
        }
        free(got);
        free(square);
    }
    free(data);
}

/* ---- orthonormal bases ---- */

static void basis_of_dependent_rows(void **state)
{
    (void)state;
    enum { COUNT = 7, WIDTH = 20 };
    rng draw = rng_make(9, 0);
    double x[COUNT][WIDTH], before[COUNT][WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        for (int r = 0; r < COUNT; r++)
            x[r][i] = uniform(&draw);
        x[2][i] = 3 * x[0][i] - x[1][i];
        x[4][i] = 0;
        x[5][i] = x[3][i] + 1e-9 * x[5][i]; /* nearly parallel to x[3], but linearly independent */
        for (int r = 0; r < COUNT; r++)
            before[r][i] = x[r][i];
    }
    assert_int_equal(mha__orthonormal_rows(COUNT, WIDTH, &x[0][0]), 5);
    for (int r = 0; r < COUNT; r++)
        for (int s = 0; s < COUNT; s++)
            assert_true(fabs(mha__dot(WIDTH, x[r], x[s]) - (r == s && r < 5)) < 1e-14);
    for (int r = 0; r < COUNT; r++) { /* every original row must be in the span of the basis */
        double left[WIDTH];
        memcpy(left, before[r], sizeof left);
        for (int b = 0; b < 5; b++) {
            const double part = mha__dot(WIDTH, before[r], x[b]);
            for (int i = 0; i < WIDTH; i++)
                left[i] -= part * x[b][i];
        }
        assert_true(mha__dot(WIDTH, left, left) < 1e-28);
    }
}

/* ---- list of tests ---- */

typedef struct results {
    double values[MAX], vectors[MAX * MAX], factor[MAX * MAX], solved[MAX * 70], product[MAX * MAX];
} results;

static mha_status compute(mha_ctx *ctx, results *r, mha_error *err)
{
    static float x[200 * MAX];
    rng draw = rng_make(11, 0);
    for (int i = 0; i < 200 * MAX; i++)
        x[i] = (float)uniform(&draw);
    for (int i = 0; i < MAX * 70; i++)
        r->solved[i] = (double)x[i];
    double *a = symmetric(MAX, 7, false);
    memset(r->product, 0, sizeof r->product);
    const mha__columns columns = {x, MAX, 1, MAX};
    mha_status status = mha__gram(ctx, 200, &columns, r->product, err);
    memcpy(r->factor, r->product, sizeof r->factor);
    if (status == MHA_OK) status = mha__symmetric_eigen(ctx, MAX, a, r->values, r->vectors, err);
    if (status == MHA_OK) status = mha__cholesky(ctx, MAX, r->factor, err);
    if (status == MHA_OK) mha__cholesky_solve(ctx, MAX, r->factor, 70, r->solved);
    free(a);
    return status;
}

static void same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    results *want = numbers(1, sizeof *want), *got = numbers(1, sizeof *got);
    mha_ctx *one = context(1);
    assert_int_equal(compute(one, want, NULL), MHA_OK);
    for (int threads = 2; threads <= 3; threads++) {
        mha_ctx *ctx = context(threads);
        assert_int_equal(compute(ctx, got, NULL), MHA_OK);
        assert_memory_equal(want, got, sizeof *got);
        mha_ctx_free(ctx);
    }
    mha_ctx_free(one);
    free(want);
    free(got);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    results *r = numbers(1, sizeof *r);
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&count)};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    for (int budget = 0; budget < 3; budget++) {
        mha_error err = {0};
        count.budget = count.calls + budget;
        const long live = count.live;
        assert_int_equal(compute(ctx, r, &err), MHA_ERR_MEMORY);
        assert_int_equal(count.live, live);
    }
    count.budget = -1;
    assert_int_equal(compute(ctx, r, NULL), MHA_OK);
    mha_ctx_free(ctx);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eigen_residuals),
        cmocka_unit_test(eigen_of_special_matrices),
        cmocka_unit_test(eigen_of_missing_rank),
        cmocka_unit_test(eigen_known_answer),
        cmocka_unit_test(eigen_refuses_what_is_not_finite),
        cmocka_unit_test(cholesky_residuals),
        cmocka_unit_test(cholesky_known_answer),
        cmocka_unit_test(cholesky_refuses_what_is_not_definite),
        cmocka_unit_test(products_are_chains),
        cmocka_unit_test(basis_of_dependent_rows),
        cmocka_unit_test(same_bits_for_any_number_of_threads),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
