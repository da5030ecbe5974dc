/* test_layer_rows_back.c - compares gradients of norms with finite differences in double, and cross-entropy with its
 * formula. */
#include "base/ctx.h"
#include "layer/norm.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- norms ---- */

enum { WIDTH_MAX = 97 };

/* Computes one row of a norm without bias in double. */
static void norm_row(const mha_norm *norm, int64_t width, const double *x, double *y)
{
    double mean = 0, square = 0;
    for (int64_t i = 0; norm->kind == MHA_NORM_LAYER && i < width; i++)
        mean += x[i] / (double)width;
    for (int64_t i = 0; i < width; i++)
        square += (x[i] - mean) * (x[i] - mean) / (double)width;
    for (int64_t i = 0; i < width; i++)
        y[i] = (x[i] - mean) / sqrt(square + norm->eps) * (double)norm->weight[i];
}

/* Returns the derivative of sum(dy * y) with respect to x[at], from central differences. */
static double slope(const mha_norm *norm, int64_t width, const float *x, const float *dy, int64_t at)
{
    const double step = 1e-5;
    double row[WIDTH_MAX], y[WIDTH_MAX], sum[2] = {0};
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < width; i++)
            row[i] = (double)x[i] + (i == at ? side ? step : -step : 0);
        norm_row(norm, width, row, y);
        for (int64_t i = 0; i < width; i++)
            sum[side] += y[i] * (double)dy[i];
    }
    return (sum[1] - sum[0]) / (2 * step);
}

static void check_norm(mha_norm_kind kind, int64_t rows, int64_t width)
{
    float *x = random_floats(1, 1, rows * width, 2, 0.5), *dy = random_floats(1, 2, rows * width, 1, 0);
    float *weight = random_floats(1, 3, width, 0.5, 1), *dx = random_floats(1, 4, rows * width, 1, 0);
    float *dweight = random_floats(1, 5, width, 1, 0), *dbias = random_floats(1, 6, width, 1, 0);
    float *was = random_floats(1, 5, width, 1, 0), *bias_was = random_floats(1, 6, width, 1, 0);
    const mha_norm norm = {.weight = weight, .bias = kind == MHA_NORM_LAYER ? weight : NULL, .eps = 1e-5, .kind = kind};
    mha_norm_gradient g = {.size = sizeof g, .rows = rows, .width = width, .x = x, .dy = dy, .dx = dx};
    g.dweight = dweight, g.dbias = dbias;
    assert_int_equal(mha_norm_backward(NULL, &norm, &g, NULL), MHA_OK);
    for (int64_t r = 0; r<rows; r += rows> 8 ? 37 : 1)
        for (int64_t i = 0; i < width; i++) {
            const double want = slope(&norm, width, x + r * width, dy + r * width, i);
            if (!(fabs((double)dx[r * width + i] - want) < 2e-6 * (1 + fabs(want))))
                fail_msg("dx[%d, %d]: got %.9g, expected %.9g", (int)r, (int)i, (double)dx[r * width + i], want);
        }
    for (int64_t i = 0; i < width; i++) {
        double sum = (double)was[i], bias = (double)bias_was[i], y[WIDTH_MAX], row[WIDTH_MAX];
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t n = 0; n < width; n++)
                row[n] = (double)x[r * width + n];
            norm_row(&norm, width, row, y);
            sum += y[i] / (double)weight[i] * (double)dy[r * width + i];
            bias += (double)dy[r * width + i];
        }
        assert_true(fabs((double)dweight[i] - sum) < 1e-6 * (double)rows);
        assert_true(fabs((double)dbias[i] - bias) < 1e-6 * (double)rows);
    }
    /* with `add`, dx must be added to the elements of the buffer */
    float *sum = random_floats(1, 7, rows * width, 1, 0), *before = random_floats(1, 7, rows * width, 1, 0);
    g.dx = sum, g.add = 1, g.dweight = g.dbias = NULL;
    assert_int_equal(mha_norm_backward(NULL, &norm, &g, NULL), MHA_OK);
    for (int64_t i = 0; i < rows * width; i++)
        assert_true(sum[i] == before[i] + dx[i]);
    g.dx = dy, g.add = 0;
    assert_int_equal(mha_norm_backward(NULL, &norm, &g, NULL), MHA_OK);
    assert_memory_equal(dy, dx, (size_t)(rows * width) * sizeof *dx);
    float *all[] = {x, dy, weight, dx, dweight, dbias, was, bias_was, sum, before};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void test_norms(void **state)
{
    (void)state;
    for (int kind = MHA_NORM_LAYER; kind <= MHA_NORM_RMS; kind++) {
        check_norm((mha_norm_kind)kind, 1, 1);
        check_norm((mha_norm_kind)kind, 3, 7);
        check_norm((mha_norm_kind)kind, 5, WIDTH_MAX);
        check_norm((mha_norm_kind)kind, 1200, 64); /* 1200 rows are divided into several tasks */
    }
}

/* If heads are normalized as parts of wider rows, each gradient must equal that of a separate row. All other elements
 * must remain unchanged. */
static void test_norm_of_heads(void **state)
{
    (void)state;
    enum { ROWS = 6, HEADS = 3, D = 8, X = 40, Y = 32 };
    float *x = random_floats(2, 1, ROWS * X, 1, 0), *dy = random_floats(2, 2, ROWS * Y, 1, 0);
    float *weight = random_floats(2, 3, D, 0.2, 1), dweight[D] = {0}, want_weight[D] = {0};
    float rows[ROWS * HEADS * D], slopes[ROWS * HEADS * D], before[ROWS * Y];
    const mha_norm norm = {.weight = weight, .eps = 1e-6, .kind = MHA_NORM_RMS};
    memcpy(before, dy, sizeof before);
    for (int r = 0; r < ROWS; r++) {
        memcpy(rows + r * HEADS * D, x + r * X, HEADS * D * sizeof *x);
        memcpy(slopes + r * HEADS * D, dy + r * Y, HEADS * D * sizeof *x);
    }
    const mha__norm_back strided = {.rows = ROWS,
                                    .groups = HEADS,
                                    .width = D,
                                    .x = x,
                                    .x_stride = X,
                                    .dy = dy,
                                    .y_stride = Y,
                                    .dx = dy,
                                    .dweight = dweight};
    const mha_norm_gradient plain = {.size = sizeof plain,
                                     .rows = ROWS * HEADS,
                                     .width = D,
                                     .x = rows,
                                     .dy = slopes,
                                     .dx = slopes,
                                     .dweight = want_weight};
    assert_int_equal(mha__norm_backward(mha__ctx(NULL), &norm, &strided, NULL), MHA_OK);
    assert_int_equal(mha_norm_backward(NULL, &norm, &plain, NULL), MHA_OK);
    for (int r = 0; r < ROWS; r++) {
        assert_memory_equal(dy + r * Y, slopes + r * HEADS * D, HEADS * D * sizeof *x);
        assert_memory_equal(dy + r * Y + HEADS * D, before + r * Y + HEADS * D, (Y - HEADS * D) * sizeof *x);
    }
    assert_memory_equal(dweight, want_weight, sizeof dweight);
    free(x);
    free(dy);
    free(weight);
}

/* ---- cross-entropy ---- */

static void check_loss(int64_t rows, int64_t classes, int ignored)
{
    float *logits = random_floats(3, 1, rows * classes, 5, 0), *dlogits = random_floats(3, 2, rows * classes, 1, 0);
    int32_t *labels = malloc((size_t)rows * sizeof *labels);
    double want = 0, loss = 0;
    int64_t counted = 0, expected = 0;
    for (int64_t r = 0; r < rows; r++) {
        labels[r] = ignored && r % ignored == 0 ? MHA_IGNORE : (int32_t)(r * 7 % classes);
        expected += labels[r] != MHA_IGNORE;
    }
    mha_cross_entropy_args args = {.size = sizeof args, .rows = rows, .classes = classes, .logits = logits};
    args.labels = labels, args.dlogits = dlogits;
    assert_int_equal(mha_cross_entropy(NULL, &args, &loss, &counted, NULL), MHA_OK);
    assert_int_equal(counted, expected);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++)
            sum += exp((double)logits[r * classes + c]);
        for (int64_t c = 0; c < classes; c++) {
            const double p = exp((double)logits[r * classes + c]) / sum, hot = c == labels[r];
            const double slope_want = labels[r] == MHA_IGNORE ? 0 : (p - hot) / (double)counted;
            assert_true(fabs((double)dlogits[r * classes + c] - slope_want) < 1e-6);
        }
        if (labels[r] != MHA_IGNORE) want += log(sum) - (double)logits[r * classes + labels[r]];
    }
    assert_true(fabs(loss - want / (double)counted) < 1e-6 * (1 + fabs(loss)));
    /* the result must be scale * (sum of the losses), and the gradients must overwrite the logits */
    args.scale = 0.5, args.dlogits = logits;
    double half = 0;
    assert_int_equal(mha_cross_entropy(NULL, &args, &half, NULL, NULL), MHA_OK);
    assert_true(fabs(half - 0.5 * want) < 1e-6 * (1 + fabs(half)));
    for (int64_t i = 0; i < rows * classes; i++)
        assert_true(fabs((double)logits[i] - 0.5 * (double)counted * (double)dlogits[i]) < 1e-6);
    free(logits);
    free(dlogits);
    free(labels);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    check_loss(1, 1, 0);
    check_loss(4, 9, 2);
    check_loss(33, 1000, 5);
    check_loss(3, 20011, 0);
}

/* Ignored rows must not be read, and large logits must not cause overflow or underflow. */
static void test_cross_entropy_extremes(void **state)
{
    (void)state;
    float logits[3][2] = {{NAN, INFINITY}, {800, -800}, {-1e30f, -1e30f}}, dlogits[3][2];
    const int32_t labels[3] = {MHA_IGNORE, 1, 0}, none[3] = {MHA_IGNORE, MHA_IGNORE, MHA_IGNORE};
    mha_cross_entropy_args args = {.size = sizeof args, .rows = 3, .classes = 2, .logits = logits[0]};
    double loss = 0;
    args.labels = labels, args.dlogits = dlogits[0];
    assert_int_equal(mha_cross_entropy(NULL, &args, &loss, NULL, NULL), MHA_OK);
    assert_true(fabs(loss - (1600 + log(2)) / 2) < 1e-9);
    assert_true(dlogits[0][0] == 0 && dlogits[0][1] == 0 && dlogits[1][0] == 0.5f && dlogits[1][1] == -0.5f);
    args.labels = none;
    assert_int_equal(mha_cross_entropy(NULL, &args, &loss, NULL, NULL), MHA_OK);
    assert_true(isnan(loss) && dlogits[1][0] == 0);
    args.rows = 0;
    assert_int_equal(mha_cross_entropy(NULL, &args, &loss, NULL, NULL), MHA_OK);
}

/* ---- bitwise identity and error messages ---- */

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    enum { ROWS = 700, WIDTH = 256 };
    float *x = random_floats(4, 1, ROWS * WIDTH, 1, 0), *dy = random_floats(4, 2, ROWS * WIDTH, 1, 0);
    float *dx[2], *dweight[2];
    double loss[2];
    for (int n = 0; n < 2; n++) {
        const mha_ctx_options o = {.size = sizeof o, .threads = n ? 5 : 1};
        mha_ctx *ctx = NULL;
        int32_t labels[ROWS];
        assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
        dx[n] = random_floats(4, 3, ROWS * WIDTH, 1, 0), dweight[n] = random_floats(4, 4, WIDTH, 1, 0);
        const mha_norm norm = {.weight = x, .bias = x, .eps = 1e-5};
        const mha_norm_gradient g = {
            .size = sizeof g, .rows = ROWS, .width = WIDTH, .x = x, .dy = dy, .dx = dx[n], .dweight = dweight[n]};
        for (int r = 0; r < ROWS; r++)
            labels[r] = r % WIDTH;
        mha_cross_entropy_args args = {.size = sizeof args, .rows = ROWS, .classes = WIDTH, .logits = x};
        args.labels = labels;
        assert_int_equal(mha_norm_backward(ctx, &norm, &g, NULL), MHA_OK);
        assert_int_equal(mha_cross_entropy(ctx, &args, &loss[n], NULL, NULL), MHA_OK);
        mha_ctx_free(ctx);
    }
    assert_memory_equal(dx[0], dx[1], ROWS * WIDTH * sizeof *x);
    assert_memory_equal(dweight[0], dweight[1], WIDTH * sizeof *x);
    assert_true(loss[0] == loss[1]);
    float *all[] = {x, dy, dx[0], dx[1], dweight[0], dweight[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void refused(mha_status status, const mha_error *err, const char *part)
{
    assert_int_equal(status, MHA_ERR_ARG);
    if (!strstr(err->message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err->message);
}

static void test_refusals(void **state)
{
    (void)state;
    float x[4] = {0};
    int32_t labels[2] = {0, 2};
    mha_error err;
    const mha_norm norm = {.weight = x, .eps = 1e-5, .kind = MHA_NORM_RMS};
    mha_norm_gradient g = {.size = sizeof g, .rows = 2, .width = 2, .x = x};
    refused(mha_norm_backward(NULL, &norm, &g, &err), &err, "x and dy must not be NULL");
    refused(mha_norm_backward(NULL, NULL, &g, &err), &err, "norm must not be NULL");
    g.width = 0;
    refused(mha_norm_backward(NULL, &norm, &g, &err), &err,
            "rows must be at least 0, width at least 1, and all must fit in memory (got 2, 0)");
    mha_cross_entropy_args args = {.size = sizeof args, .rows = 2, .classes = 2, .logits = x, .labels = labels};
    refused(mha_cross_entropy(NULL, &args, NULL, NULL, &err), &err, "labels[1] must be from 0 to 1, or -100 (got 2");
    labels[1] = -1;
    refused(mha_cross_entropy(NULL, &args, NULL, NULL, &err), &err, "labels[1] must be from 0 to 1, or -100 (got -1)");
    args.labels = NULL;
    refused(mha_cross_entropy(NULL, &args, NULL, NULL, &err), &err, "labels must not be NULL");
    args.labels = labels, labels[1] = 0, args.scale = INFINITY;
    refused(mha_cross_entropy(NULL, &args, NULL, NULL, &err), &err, "scale must be finite (got inf)");
    args.scale = 0, args.classes = 0;
    refused(mha_cross_entropy(NULL, &args, NULL, NULL, &err), &err,
            "rows must be at least 0, classes at least 1, and all must fit in memory (got 2, 0)");
    args.rows = INT64_C(1) << 60, args.classes = 5;
    refused(mha_cross_entropy(NULL, &args, NULL, NULL, &err), &err,
            "classes at least 1, and all must fit in memory (got 1152921504606846976, 5)");
}

static void test_no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx = NULL;
    float x[4] = {1, 2, 3, 4}, dweight[2] = {0};
    const int32_t labels[2] = {0, 1};
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    const mha_norm norm = {.weight = x, .eps = 1e-5, .kind = MHA_NORM_RMS};
    const mha_norm_gradient g = {.size = sizeof g, .rows = 2, .width = 2, .x = x, .dy = x, .dweight = dweight};
    const mha_cross_entropy_args args = {.size = sizeof args, .rows = 2, .classes = 2, .logits = x, .labels = labels};
    memory.budget = 0;
    assert_int_equal(mha_norm_backward(ctx, &norm, &g, NULL), MHA_ERR_MEMORY);
    assert_int_equal(mha_cross_entropy(ctx, &args, NULL, NULL, NULL), MHA_ERR_MEMORY);
    memory.budget = -1;
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_norm_of_heads),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_cross_entropy_extremes),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
