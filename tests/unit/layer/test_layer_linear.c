/* test_layer_linear.c - compares linear layers with references in double. A row of the result must be bitwise identical
 * for any values of the other rows. */
#include "layer/linear/linear.h"
#include "math/half.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CANARY -12345.0f
#define GUARD 64

static mha_ctx *context(int threads)
{
    mha_ctx *ctx = NULL;
    assert_int_equal(
        mha_ctx_create(&(mha_ctx_options){.size = sizeof(mha_ctx_options), .threads = threads}, &ctx, NULL), MHA_OK);
    return ctx;
}

/* Returns y = linear(x), computed between two guard regions. The guard regions must remain unchanged. The caller must
 * free y. */
static float *forward(const mha_linear *linear, const float *x, int64_t rows, int64_t out)
{
    const int64_t count = rows * out;
    float *raw = malloc((size_t)(count + 2 * GUARD) * sizeof *raw), *y = malloc((size_t)(count + 1) * sizeof *y);
    for (int64_t i = 0; i < count + 2 * GUARD; i++)
        raw[i] = CANARY;
    assert_int_equal(mha_linear_forward(linear, x, rows, raw + GUARD, NULL), MHA_OK);
    for (int64_t i = 0; i < GUARD; i++) {
        assert_true(raw[i] == CANARY);
        assert_true(raw[GUARD + count + i] == CANARY);
    }
    memcpy(y, raw + GUARD, (size_t)count * sizeof *y);
    free(raw);
    return y;
}

/* Compares y = x W^T + b with a reference in double. Each element is computed with in + 1 roundings, so |error| <= (in
 * + 1) u (|b| + sum |x w|) with u = 2^-24. */
static void assert_near(const float *y, const float *x, int64_t rows, int64_t in, const mha_matrix *m)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < m->out; o++) {
            double sum = m->bias ? (double)m->bias[o] : 0, size = fabs(sum);
            for (int64_t k = 0; k < in; k++) {
                const double term =
                    (double)x[r * in + k] * (double)m->weight[m->transposed ? k * m->out + o : o * in + k];
                sum += term;
                size += fabs(term);
            }
            const double error = fabs((double)y[r * m->out + o] - sum),
                         limit = (double)(in + 1) * 0x1p-24 * size + 1e-30;
            if (!(error <= limit))
                fail_msg("rows %d in %d out %d: error of y[%d][%d] is %g, must be at most %g", (int)rows, (int)in,
                         (int)m->out, (int)r, (int)o, error, limit);
        }
}

static void check_shape(mha_ctx *ctx, int64_t rows, int64_t in, int64_t out, bool bias, bool transposed)
{
    const uint64_t seed = (uint64_t)(rows * 1000000 + in * 1000 + out);
    float *x = random_floats(seed, 1, rows * in, 1, 0), *w = random_floats(seed, 2, in * out, 0.1, 0);
    float *b = random_floats(seed, 3, out, 1, 0);
    const mha_matrix m = {.weight = w, .bias = bias ? b : NULL, .transposed = transposed, .out = out};
    mha_linear *linear = NULL;
    assert_int_equal(mha_linear_create_stack(ctx, in, &m, 1, MHA_ACT_NONE, &linear, NULL), MHA_OK);
    float *y = forward(linear, x, rows, out);
    assert_near(y, x, rows, in, &m);
    mha_linear_free(linear);
    free(x);
    free(w);
    free(b);
    free(y);
}

static void test_close_to_double(void **state)
{
    (void)state;
    static const int64_t rows[] = {0, 1, 2, 5, 17, 129}, sizes[] = {1, 3, 16, 33, 112, 384};
    mha_ctx *ctx = context(2);
    for (size_t r = 0; r < 6; r++)
        for (size_t i = 0; i < 6; i++)
            for (size_t o = 0; o < 6; o++)
                check_shape(ctx, rows[r], sizes[i], sizes[o], (r + i + o) % 2, (i + o) % 3 == 0);
    check_shape(ctx, 130, 1537, 70, true, false); /* 1537 inputs are divided into several blocks */
    check_shape(ctx, 3, 513, 1000, true, true);
    mha_ctx_free(ctx);
}

static void test_bits_of_a_row(void **state)
{
    (void)state;
    const int64_t rows = 300, in = 1100, out = 150;
    float *x = random_floats(7, 1, rows * in, 1, 0), *w = random_floats(7, 2, in * out, 0.1, 0);
    float *b = random_floats(7, 3, out, 1, 0), *first = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = context(threads);
        mha_linear *linear = NULL;
        assert_int_equal(mha_linear_create(ctx, in, out, w, b, &linear, NULL), MHA_OK);
        float *all = forward(linear, x, rows, out);
        for (int64_t r = 0, n = 1; r < rows; r += n, n = n % 13 + 1) {
            if (n > rows - r) n = rows - r;
            float *some = forward(linear, x + r * in, n, out);
            assert_memory_equal(some, all + r * out, (size_t)(n * out) * sizeof *some);
            free(some);
        }
        if (first) assert_memory_equal(first, all, (size_t)(rows * out) * sizeof *all);
        if (first)
            free(all);
        else
            first = all;
        mha_linear_free(linear);
        mha_ctx_free(ctx);
    }
    free(first);
    free(x);
    free(w);
    free(b);
}

static void test_stack_is_its_parts(void **state)
{
    (void)state;
    enum { ROWS = 9, IN = 50 };
    static const int64_t outs[] = {48, 7, 100};
    float *x = random_floats(8, 1, ROWS * IN, 1, 0);
    mha_matrix parts[3];
    for (int p = 0; p < 3; p++)
        parts[p] = (mha_matrix){.weight = random_floats(8, 10 + (uint64_t)p, IN * outs[p], 0.2, 0),
                                .bias = p == 1 ? NULL : random_floats(8, 20 + (uint64_t)p, outs[p], 1, 0),
                                .out = outs[p]};
    mha_linear *stack = NULL;
    assert_int_equal(mha_linear_create_stack(NULL, IN, parts, 3, MHA_ACT_GELU, &stack, NULL), MHA_OK);
    float *y = forward(stack, x, ROWS, 155);
    for (int64_t p = 0, column = 0; p < 3; column += outs[p++]) {
        mha_linear *one = NULL;
        assert_int_equal(mha_linear_create(NULL, IN, outs[p], parts[p].weight, parts[p].bias, &one, NULL), MHA_OK);
        float *part = forward(one, x, ROWS, outs[p]);
        assert_int_equal(mha_activation_forward(NULL, MHA_ACT_GELU, ROWS, outs[p], part, NULL), MHA_OK);
        for (int64_t r = 0; r < ROWS; r++)
            assert_memory_equal(part + r * outs[p], y + r * 155 + column, (size_t)outs[p] * sizeof *y);
        free(part);
        mha_linear_free(one);
        free((void *)parts[p].weight);
        free((void *)parts[p].bias);
    }
    mha_linear_free(stack);
    free(x);
    free(y);
}

/* Computes `rows` rows by mha__linear_run with rounded inputs in `left`. */
static void run(const mha_linear *linear, const float *x, int64_t rows, bool without_activation, mha_dtype rounded,
                void *y)
{
    const size_t bytes = mha__linear_left(linear, rows);
    void *left = aligned_alloc(64, (bytes + 127) / 64 * 64);
    mha__linear_run(linear,
                    &(mha__linear_call){
                        .x = x, .rows = rows, .y = y, .linear = without_activation, .rounded = rounded, .left = left});
    free(left);
}

/* A layer with an activation must have the same bits if the activation is applied afterwards, as in passes with a
 * trace, and if results are rounded to bf16 in the call. */
static void check_activation(mha_ctx *ctx, mha_dtype packed, mha_activation activation, int64_t rows)
{
    enum { IN = 200, OUT = 150 };
    float *w = random_floats(21, 1, OUT * IN, 0.1, 0), *b = random_floats(22, 1, OUT, 1, 0);
    float *x = random_floats(23, 1, rows * IN, 1, 0), *later = calloc((size_t)(rows * OUT), sizeof *later);
    uint16_t *rounded = calloc((size_t)(rows * OUT), sizeof *rounded);
    mha_linear *linear = NULL;
    const mha_matrix m = {.weight = w, .bias = b, .out = OUT, .packed = packed};
    assert_int_equal(mha_linear_create_stack(ctx, IN, &m, 1, activation, &linear, NULL), MHA_OK);
    float *y = forward(linear, x, rows, OUT);
    run(linear, x, rows, true, MHA_DTYPE_DEFAULT, later);
    mha__linear_activate(linear, rows * OUT, later);
    assert_memory_equal(later, y, (size_t)(rows * OUT) * sizeof *y);
    run(linear, x, rows, false, MHA_BF16, rounded);
    for (int64_t i = 0; i < rows * OUT; i++)
        assert_int_equal(rounded[i], mha__f32_to_bf16(y[i]));
    mha_linear_free(linear);
    free(w), free(b), free(x), free(later), free(rounded), free(y);
}

static void test_activation(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0};
    static const mha_activation activations[] = {MHA_ACT_NONE, MHA_ACT_GELU, MHA_ACT_GELU_TANH, MHA_ACT_SILU};
    mha_ctx *ctx = context(1);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t a = 0; a < sizeof activations / sizeof *activations; a++)
            for (int64_t rows = 1; rows < 80; rows += 13)
                check_activation(ctx, types[t], activations[a], rows);
    mha_ctx_free(ctx);
}

static void test_nan_stays_in_its_row(void **state)
{
    (void)state;
    float w[4 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, x[3 * 3] = {1, 1, 1, NAN, 1, 1, 1, 1, 1};
    mha_linear *linear = NULL;
    assert_int_equal(mha_linear_create(NULL, 3, 4, w, NULL, &linear, NULL), MHA_OK);
    float *y = forward(linear, x, 3, 4);
    for (int o = 0; o < 4; o++) {
        assert_true(y[o] == 9.0f * (float)o + 6.0f && y[8 + o] == y[o]);
        assert_true(isnan(y[4 + o]));
    }
    free(y);
    mha_linear_free(linear);
}

static void test_refusals(void **state)
{
    (void)state;
    float w[4] = {0};
    mha_linear *linear = (void *)w;
    mha_error err = {0};
    assert_int_equal(mha_linear_create(NULL, 0, 2, w, NULL, &linear, &err), MHA_ERR_ARG);
    assert_null(linear);
    assert_non_null(strstr(err.message, "in must be"));
    assert_int_equal(mha_linear_create(NULL, 2, -1, w, NULL, &linear, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "out must be"));
    assert_int_equal(mha_linear_create(NULL, 2, 2, NULL, NULL, &linear, &err), MHA_ERR_ARG);
    assert_int_equal(
        mha_linear_create_stack(NULL, 2, &(mha_matrix){.weight = w, .out = 2}, 1, (mha_activation)9, &linear, &err),
        MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "activation must be"));
    assert_int_equal(mha_linear_create_stack(NULL, 2, NULL, 1, MHA_ACT_NONE, &linear, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "parts must not be NULL"));
    assert_int_equal(
        mha_linear_create_stack(NULL, 2, &(mha_matrix){.weight = w, .out = 2}, 65, MHA_ACT_NONE, &linear, &err),
        MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "count must be from 1 to 64 (got 65)"));
    assert_int_equal(mha_linear_create(NULL, 2, 2, w, NULL, &linear, &err), MHA_OK);
    assert_int_equal(mha_linear_forward(linear, w, -1, w, &err), MHA_ERR_ARG);
    assert_int_equal(mha_linear_forward(linear, NULL, 1, w, &err), MHA_ERR_ARG);
    assert_int_equal(mha_linear_forward(linear, w, INT64_MAX / 2, w, &err), MHA_ERR_ARG);
    mha_linear_free(linear);
    mha_linear_free(NULL);
}

static void test_no_memory(void **state)
{
    (void)state;
    float w[6] = {0};
    counting memory = {.budget = -1};
    mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long live = memory.live;
    memory.budget = memory.calls;
    mha_linear *linear = NULL;
    mha_error err = {0};
    assert_int_equal(mha_linear_create(ctx, 2, 3, w, NULL, &linear, &err), MHA_ERR_MEMORY);
    assert_null(linear);
    assert_int_equal(memory.live, live);
    memory.budget = -1;
    assert_int_equal(mha_linear_create(ctx, 2, 3, w, NULL, &linear, &err), MHA_OK);
    const long calls = memory.calls;
    float y[3];
    assert_int_equal(mha_linear_forward(linear, w, 1, y, &err), MHA_OK);
    assert_int_equal(memory.calls, calls); /* mha_linear_forward must not allocate memory */
    mha_linear_free(linear);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_to_double),    cmocka_unit_test(test_bits_of_a_row),
        cmocka_unit_test(test_stack_is_its_parts), cmocka_unit_test(test_nan_stays_in_its_row),
        cmocka_unit_test(test_activation),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
