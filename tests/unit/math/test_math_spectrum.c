/* test_math_spectrum.c - tests eigenvalues and singular values of matrices that are not symmetric: known results,
 * products of known factors, invariants, and inputs that must be refused. */
#include "math/linalg.h"
#include "support/check.h"
#include "support/rng.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 96 };

static double a[MAX * MAX], b[MAX * MAX], left[MAX * MAX], right[MAX * MAX];
static double real[MAX], imaginary[MAX], values[MAX];

static void draw(int64_t count, uint64_t seed, double *out)
{
    rng r = rng_make(seed, 0);
    for (int64_t i = 0; i < count; i++)
        out[i] = 2 * rng_uniform(&r) - 1;
}

/* Draws an orthogonal matrix [n, n]. */
static void draw_orthogonal(int64_t n, uint64_t seed, double *out)
{
    draw(n * n, seed, out);
    assert_int_equal(mha__orthonormal_rows(n, n, out), n);
}

/* Sets a [n, n] to left^T middle right. */
static void set_product(int64_t n, const double *middle)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            b[i * n + j] = 0;
            for (int64_t k = 0; k < n; k++)
                b[i * n + j] += middle[i * n + k] * right[k * n + j];
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            a[i * n + j] = 0;
            for (int64_t k = 0; k < n; k++)
                a[i * n + j] += left[k * n + i] * b[k * n + j];
        }
}

/* ---- eigenvalues ---- */

/* Finds the eigenvalue closest to one that is known, and returns the distance; removes it from the list. */
static double distance_to(int64_t n, double re, double im)
{
    double min = INFINITY;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const double distance = hypot(real[i] - re, imaginary[i] - im);
        if (!(distance < min)) continue;
        min = distance;
        at = i;
    }
    real[at] = NAN;
    return min;
}

/* A quasi-triangular matrix with the eigenvalues 1 + i / 8, and pairs 1 + i / 8 +- 2 i, in an orthogonal basis. */
static void eigenvalues_of_known_factors(void **state)
{
    (void)state;
    static double middle[MAX * MAX];
    for (int64_t n = 1; n <= MAX; n = n < 8 ? n + 1 : 2 * n - 3) {
        draw_orthogonal(n, (uint64_t)n, left);
        memcpy(right, left, sizeof left);
        draw(n * n, (uint64_t)n + 1000, middle);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++)
                middle[i * n + j] = i == j ? 1 + (double)i / 8 : 0;
        for (int64_t i = 0; i + 1 < n; i += 3) { /* rows i and i + 1 get the pair */
            middle[(i + 1) * n + i + 1] = middle[i * n + i];
            middle[i * n + i + 1] = 2;
            middle[(i + 1) * n + i] = -2;
        }
        set_product(n, middle);
        assert_true(mha__eigenvalues(n, a, real, imaginary));
        for (int64_t i = 0; i < n; i++) {
            const bool first = i % 3 == 0 && i + 1 < n, second = i % 3 == 1;
            const double error = distance_to(n, middle[i * n + i], first ? 2 : second ? -2 : 0);
            if (!(error < 1e-7)) fail_msg("n %lld: eigenvalue %lld is off by %g", (long long)n, (long long)i, error);
        }
    }
}

/* The eigenvalues of a cyclic permutation are the roots of unity: the usual shifts alone never converge. */
static void eigenvalues_of_a_cycle(void **state)
{
    (void)state;
    const double turn = 8 * atan(1);
    for (int64_t n = 1; n <= 40; n++) {
        memset(a, 0, sizeof a);
        for (int64_t i = 0; i < n; i++)
            a[i * n + (i + 1) % n] = 1;
        assert_true(mha__eigenvalues(n, a, real, imaginary));
        for (int64_t i = 0; i < n; i++)
            assert_true(distance_to(n, cos(turn * (double)i / (double)n), sin(turn * (double)i / (double)n)) < 1e-12);
    }
}

static void eigenvalues_of_missing_rank_and_of_scales(void **state)
{
    (void)state;
    const double scales[] = {1, 1e-150, 1e150, 0};
    for (int s = 0; s < 4; s++) {
        const int64_t n = 24, rank = 5;
        double trace = 0, sum = 0, odd = 0, largest = 0;
        draw(n * rank, 3, left);
        draw(rank * n, 4, right);
        memset(a, 0, sizeof a);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t k = 0; k < rank; k++)
                    a[i * n + j] += scales[s] * left[i * rank + k] * right[k * n + j];
        for (int64_t i = 0; i < n; i++)
            trace += a[i * n + i];
        assert_true(mha__eigenvalues(n, a, real, imaginary));
        for (int64_t i = 0; i < n; i++) {
            sum += real[i];
            odd += imaginary[i];
            values[i] = hypot(real[i], imaginary[i]);
            largest = fmax(largest, values[i]);
        }
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++)
            count += values[i] > 1e-10 * largest;
        assert_true(fabs(sum - trace) <= 1e-13 * largest && fabs(odd) <= 1e-13 * largest);
        assert_int_equal(count, scales[s] > 0 ? rank : 0);
    }
}

/* ---- singular values ---- */

static void singular_values_of_known_factors(void **state)
{
    (void)state;
    static double middle[MAX * MAX];
    for (int64_t n = 1; n <= MAX; n = n < 8 ? n + 1 : 2 * n - 3) {
        memset(middle, 0, sizeof middle);
        for (int64_t i = 0; i < n; i++)
            middle[i * n + i] = pow(0.5, (double)(n - 1 - i) / 4); /* ascending; the smallest is 1e-7 */
        draw_orthogonal(n, (uint64_t)n, left);
        draw_orthogonal(n, (uint64_t)n + 1000, right);
        set_product(n, middle);
        assert_true(mha__singular_values(n, n, a, values));
        for (int64_t i = 0; i < n; i++) {
            const double error = fabs(values[i] - pow(0.5, (double)i / 4));
            if (!(error < 1e-13)) fail_msg("n %lld: value %lld is off by %g", (long long)n, (long long)i, error);
        }
    }
}

/* Rows of very different sizes: each value keeps its relative accuracy, which eigenvalues of A A^T would lose. */
static void small_singular_values_are_accurate(void **state)
{
    (void)state;
    const int64_t n = 20;
    draw_orthogonal(n, 7, a);
    for (int64_t i = 0; i < n * n; i++)
        a[i] *= pow(10, -(double)(i / n));
    assert_true(mha__singular_values(n, n, a, values));
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(values[i] / pow(10, -(double)i) - 1) < 1e-13);
}

static void singular_values_of_shapes_and_scales(void **state)
{
    (void)state;
    const int64_t shapes[][2] = {{1, 1}, {1, 9}, {9, 1}, {6, 13}, {13, 6}};
    const double scales[] = {1, 1e-200, 1e200, 0};
    for (int i = 0; i < 20; i++) {
        const int64_t rows = shapes[i / 4][0], columns = shapes[i / 4][1], rank = rows < columns ? rows : columns;
        double squares = 0, sum = 0;
        draw(rows * columns, 5, a);
        for (int64_t k = 0; k < rows * columns; k++) {
            squares += a[k] * a[k];
            a[k] *= scales[i % 4];
        }
        assert_true(mha__singular_values(rows, columns, a, values));
        for (int64_t k = 0; k < rows; k++) {
            if (scales[i % 4] > 0) sum += (values[k] / scales[i % 4]) * (values[k] / scales[i % 4]);
            assert_true(k < rank || values[k] <= 1e-14 * values[0]);
            assert_true(k == 0 || values[k] <= values[k - 1]);
        }
        assert_true(scales[i % 4] > 0 ? fabs(sum - squares) <= 1e-13 * squares : sum == 0);
    }
}

static void elements_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 27; i++) {
        draw(9, 1, a);
        a[i % 9] = bad[i / 9];
        assert_false(mha__singular_values(3, 3, a, values));
        assert_false(mha__eigenvalues(3, a, real, imaginary));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eigenvalues_of_known_factors),
        cmocka_unit_test(eigenvalues_of_a_cycle),
        cmocka_unit_test(eigenvalues_of_missing_rank_and_of_scales),
        cmocka_unit_test(singular_values_of_known_factors),
        cmocka_unit_test(small_singular_values_are_accurate),
        cmocka_unit_test(singular_values_of_shapes_and_scales),
        cmocka_unit_test(elements_that_are_not_finite_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
