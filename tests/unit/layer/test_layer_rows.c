/* test_layer_rows.c - tests layers that compute each row separately: normalization, activations and embeddings. */
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- normalization ---- */

static void check_norm(int64_t rows, int64_t width, bool with_residual, double shift)
{
    float *x = random_floats(1, (uint64_t)width, rows * width, 2, shift), *w = random_floats(1, 2, width, 0.3, 1);
    float *b = random_floats(1, 3, width, 0.3, 0), *res = random_floats(1, 4, rows * width, 1, 0);
    float *y = malloc((size_t)(rows * width) * sizeof *y);
    double *truth = to_doubles(x, rows * width);
    for (int64_t i = 0; with_residual && i < rows * width; i++)
        /* the sum is rounded to f32 as in the layer, so that this rounding does not count as an error */
        truth[i] = (double)(x[i] + res[i]);
    ref_layer_norm(truth, rows, width, w, b, 1e-5);
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){w, b, 1e-5, MHA_NORM_LAYER}, rows, width, x,
                                      with_residual ? res : NULL, y, NULL),
                     MHA_OK);
    /* Outputs are about 1 to 4. Errors grow by cancellation if the mean is large, or if the deviation is small, which
     * is possible with two elements. */
    const double limit = (width > 2 ? 4e-6 : 4e-5) * (1 + fabs(shift));
    if (!(worst_error(y, truth, rows * width) <= limit))
        fail_msg("rows %d width %d: error must be below the limit (got %g)", (int)rows, (int)width,
                 worst_error(y, truth, rows * width));
    /* the result must be the same if it overwrites x or the residual */
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){w, b, 1e-5, MHA_NORM_LAYER}, rows, width, x,
                                      with_residual ? res : NULL, x, NULL),
                     MHA_OK);
    assert_memory_equal(x, y, (size_t)(rows * width) * sizeof *x);
    free(x);
    x = random_floats(1, (uint64_t)width, rows * width, 2, shift);
    if (with_residual) {
        assert_int_equal(
            mha_norm_forward(NULL, &(mha_norm){w, b, 1e-5, MHA_NORM_LAYER}, rows, width, x, res, res, NULL), MHA_OK);
        assert_memory_equal(res, y, (size_t)(rows * width) * sizeof *x);
    }
    /* a row computed alone must equal the same row of the batch */
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){w, b, 1e-5, MHA_NORM_LAYER}, 1, width, y + (rows - 1) * width,
                                      NULL, x, NULL),
                     MHA_OK);
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){w, b, 1e-5, MHA_NORM_LAYER}, rows, width, y, NULL, y, NULL),
                     MHA_OK);
    assert_memory_equal(x, y + (rows - 1) * width, (size_t)width * sizeof *x);
    free(x);
    free(w);
    free(b);
    free(res);
    free(y);
    free(truth);
}

static void test_layer_norm(void **state)
{
    (void)state;
    static const int64_t widths[] = {2, 3, 16, 31, 48, 384, 1000};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        check_norm(5, widths[i], false, 0);
        check_norm(90, widths[i], true, 0);
        check_norm(2, widths[i], true, 10);
    }
}

static void test_layer_norm_of_equal_numbers(void **state)
{
    (void)state;
    float x[8] = {3, 3, 3, 3, 3, 3, 3, 3}, w[8], b[8], y[8];
    for (int i = 0; i < 8; i++) {
        w[i] = 2;
        b[i] = (float)i;
    }
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){w, b, 1e-12, MHA_NORM_LAYER}, 1, 8, x, NULL, y, NULL), MHA_OK);
    for (int i = 0; i < 8; i++)
        assert_true(y[i] == (float)i);
}

static void test_layer_norm_refusals(void **state)
{
    (void)state;
    float x[4] = {0};
    mha_error err = {0};
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){x, x, 1e-5, MHA_NORM_LAYER}, 1, 0, x, NULL, x, &err),
                     MHA_ERR_ARG);
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){x, x, 1e-5, MHA_NORM_LAYER}, -1, 4, x, NULL, x, &err),
                     MHA_ERR_ARG);
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){NULL, x, 1e-5, MHA_NORM_LAYER}, 1, 4, x, NULL, x, &err),
                     MHA_ERR_ARG);
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){x, x, NAN, MHA_NORM_LAYER}, 1, 4, x, NULL, x, &err),
                     MHA_ERR_ARG);
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){x, x, 0, MHA_NORM_LAYER}, 1, 4, x, NULL, x, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "eps must be greater than 0 (got 0)"));
    assert_int_equal(mha_norm_forward(NULL, &(mha_norm){x, x, 1e-5, MHA_NORM_RMS}, 1, 4, x, NULL, x, &err),
                     MHA_ERR_ARG);
    assert_string_equal(err.message, "norm: bias must be NULL for MHA_NORM_RMS");
}

/* ---- activations ---- */

static void check_activation(mha_activation activation, double relative)
{
    enum { N = 20011 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.0012f; /* from -12 to 12 */
    memcpy(y, x, N * sizeof *y);
    double *truth = to_doubles(x, N);
    ref_activation(activation, truth, N);
    assert_int_equal(mha_activation_forward(NULL, activation, 1, N, y, NULL), MHA_OK);
    for (int i = 0; i < N; i++) {
        /* the limit is also relative to the argument, since large negative arguments cause cancellation */
        const double limit = relative * (fabs((double)x[i]) + fabs(truth[i]) + 1e-3);
        if (!(fabs((double)y[i] - truth[i]) <= limit))
            fail_msg("activation %d of %g: got %.9g, expected %.9g", (int)activation, (double)x[i], (double)y[i],
                     truth[i]);
    }
    for (int i = 0; i < N; i += 97) { /* an element computed alone must equal the same element of the array, bit for
                                       * bit */
        float one = x[i];
        assert_int_equal(mha_activation_forward(NULL, activation, 1, 1, &one, NULL), MHA_OK);
        assert_memory_equal(&one, &y[i], sizeof one);
    }
    free(x);
    free(y);
    free(truth);
}

static void test_activations(void **state)
{
    (void)state;
    check_activation(MHA_ACT_NONE, 0);
    check_activation(MHA_ACT_RELU, 0);
    check_activation(MHA_ACT_GELU, 4e-7);
    check_activation(MHA_ACT_GELU_TANH, 4e-7);
    check_activation(MHA_ACT_TANH, 4e-7);
    check_activation(MHA_ACT_SILU, 4e-7);
    check_activation(MHA_ACT_QUICK_GELU, 4e-7);
    check_activation(MHA_ACT_SIGMOID, 4e-7);
    check_activation(MHA_ACT_SOFTPLUS, 4e-7);
    float x[3] = {NAN, -1, 2};
    assert_int_equal(mha_activation_forward(NULL, MHA_ACT_RELU, 1, 3, x, NULL), MHA_OK);
    assert_true(isnan(x[0]) && x[1] == 0 && x[2] == 2);
    mha_error err = {0};
    assert_int_equal(mha_activation_forward(NULL, (mha_activation)99, 1, 3, x, &err), MHA_ERR_ARG);
    assert_int_equal(mha_activation_forward(NULL, MHA_ACT_RELU, 1, 3, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "activation: x must not be NULL");
}

/* Compares the derivative of an activation with finite differences of the reference, for so many elements that several
 * tasks compute them, and for single elements. */
static void check_activation_slope(mha_activation activation)
{
    enum { N = 20011 };
    const double step = 1e-5;
    float *x = malloc(N * sizeof *x), *dy = malloc(N * sizeof *dy), *dx = malloc(N * sizeof *dx);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.0012F + 0.0005F, dy[i] = 0.5F;
    double *above = to_doubles(x, N), *below = to_doubles(x, N);
    for (int i = 0; i < N; i++)
        above[i] += step, below[i] -= step;
    ref_activation(activation, above, N);
    ref_activation(activation, below, N);
    assert_int_equal(mha_activation_backward(NULL, activation, 1, N, x, dy, dx, NULL), MHA_OK);
    for (int i = 0; i < N; i++) {
        const double want = (above[i] - below[i]) / (2 * step) / 2;
        if (!(fabs((double)dx[i] - want) <= 1e-6))
            fail_msg("derivative of activation %d at %g: got %.9g, expected %.9g", (int)activation, (double)x[i],
                     2 * (double)dx[i], 2 * want);
    }
    for (int i = 0; i < N; i += 97) {
        float one;
        assert_int_equal(mha_activation_backward(NULL, activation, 1, 1, &x[i], &dy[i], &one, NULL), MHA_OK);
        assert_memory_equal(&one, &dx[i], sizeof one);
    }
    free(x), free(dy), free(dx), free(above), free(below);
}

static void test_activation_slopes(void **state)
{
    (void)state;
    for (int a = MHA_ACT_NONE; a <= MHA_ACT_SOFTPLUS; a++)
        check_activation_slope((mha_activation)a);
    float x[3] = {-1, 0, 2}, dy[3] = {NAN, INFINITY, 3}, dx[3];
    assert_int_equal(mha_activation_backward(NULL, MHA_ACT_RELU, 3, 1, x, dy, dx, NULL), MHA_OK);
    assert_true(dx[0] == 0 && dx[1] == 0 && dx[2] == 3);
    mha_error err = {0};
    assert_int_equal(mha_activation_backward(NULL, (mha_activation)-1, 1, 3, x, dy, dx, &err), MHA_ERR_ARG);
    assert_int_equal(mha_activation_backward(NULL, MHA_ACT_RELU, 1, 3, NULL, dy, dx, &err), MHA_ERR_ARG);
    assert_int_equal(mha_activation_backward(NULL, MHA_ACT_RELU, 1, 3, x, NULL, dx, &err), MHA_ERR_ARG);
    assert_int_equal(mha_activation_backward(NULL, MHA_ACT_RELU, 1, 3, x, dy, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_activation_backward(NULL, MHA_ACT_RELU, 1, -3, x, dy, dx, &err), MHA_ERR_ARG);
    assert_int_equal(mha_activation_backward(NULL, MHA_ACT_RELU, 0, 3, NULL, NULL, NULL, &err), MHA_OK);
}

/* ---- embeddings ---- */

static void test_embedding(void **state)
{
    (void)state;
    const float table[3][2] = {{1, 2}, {3, 4}, {5, 6}};
    const int32_t ids[4] = {2, 0, 2, 1}, low[2] = {0, -1}, high[2] = {0, 3};
    float y[4][2];
    mha_error err = {0};
    assert_int_equal(mha_embedding_forward("ids", table[0], 3, 2, ids, 4, 0, y[0], NULL), MHA_OK);
    for (int r = 0; r < 4; r++)
        assert_memory_equal(y[r], table[ids[r]], sizeof y[r]);
    assert_int_equal(mha_embedding_forward("ids", table[0], 3, 2, ids, 4, 1, y[0], NULL), MHA_OK);
    for (int r = 0; r < 4; r++)
        assert_true(y[r][0] == 2 * table[ids[r]][0] && y[r][1] == 2 * table[ids[r]][1]);
    const float before = y[0][0];
    assert_int_equal(mha_embedding_forward("ids", table[0], 3, 2, low, 2, 0, y[0], &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "ids[1] must be from 0 to 2 (got -1)");
    assert_int_equal(mha_embedding_forward("ids", table[0], 3, 2, high, 2, 0, y[0], &err), MHA_ERR_ARG);
    assert_true(y[0][0] == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer_norm),          cmocka_unit_test(test_layer_norm_of_equal_numbers),
        cmocka_unit_test(test_layer_norm_refusals), cmocka_unit_test(test_activations),
        cmocka_unit_test(test_activation_slopes),   cmocka_unit_test(test_embedding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
