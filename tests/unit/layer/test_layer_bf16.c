/* test_layer_bf16.c - tests linear layers with bf16 inputs and results: y must be the f32 result of the same layer,
 * rounded to bf16, bit by bit, for any type of weights, number of rows and alignment. */
#include "math/half.h"
#include "mha/layer.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/rng.h"
#include <stdlib.h>
#include <string.h>

enum { GUARD = 0x5a5a };

typedef struct layer {
    mha_linear *linear;
    int64_t in, out;
} layer;

static layer layer_make(mha_ctx *ctx, mha_dtype type, int64_t in, int64_t out, mha_activation activation)
{
    layer l = {.in = in, .out = out};
    rng r = rng_make((uint64_t)(in * 1000 + out), 1);
    float *w = malloc((size_t)(in * out) * sizeof *w), *bias = malloc((size_t)out * sizeof *bias);
    for (int64_t i = 0; i < in * out; i++)
        w[i] = (float)rng_normal(&r);
    for (int64_t i = 0; i < out; i++)
        bias[i] = (float)rng_normal(&r);
    const mha_matrix matrix = {.weight = w, .bias = bias, .out = out, .packed = type};
    assert_int_equal(mha_linear_create_stack(ctx, in, &matrix, 1, activation, &l.linear, NULL), MHA_OK);
    free(w), free(bias);
    return l;
}

/* Compares both calls; x begins `shift` elements after the beginning of a cache line. */
static void check_rows(const layer *l, int64_t rows, int64_t shift)
{
    const int64_t xs = rows * l->in, ys = rows * l->out;
    rng r = rng_make((uint64_t)rows, 2);
    uint16_t *memory = aligned_alloc(64, (size_t)(xs + 64) / 32 * 64), *x = memory + shift;
    uint16_t *y = malloc((size_t)(ys + 1) * sizeof *y);
    float *reals = malloc((size_t)xs * sizeof *reals), *sums = malloc((size_t)ys * sizeof *sums);
    for (int64_t i = 0; i < xs; i++)
        reals[i] = mha__bf16_to_f32(x[i] = mha__f32_to_bf16((float)rng_normal(&r)));
    y[ys] = GUARD;
    assert_int_equal(mha_linear_forward(l->linear, reals, rows, sums, NULL), MHA_OK);
    assert_int_equal(mha_linear_forward_bf16(l->linear, x, rows, y, NULL), MHA_OK);
    for (int64_t i = 0; i < ys; i++)
        if (y[i] != mha__f32_to_bf16(sums[i]))
            fail_msg("%d rows, %d to %d, shift %d, element %d: got %g, expected %g", (int)rows, (int)l->in, (int)l->out,
                     (int)shift, (int)i, (double)mha__bf16_to_f32(y[i]), (double)sums[i]);
    assert_int_equal(y[ys], GUARD);
    free(memory), free(y), free(reals), free(sums);
}

static void check_layer(mha_dtype type, const int64_t width[2], mha_activation activation)
{
    static const int64_t rows[] = {0, 1, 15, 16, 17, 33, 1030}, shifts[] = {0, 1, 8};
    const layer l = layer_make(NULL, type, width[0], width[1], activation);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof shifts / sizeof *shifts; j++)
            check_rows(&l, rows[i], shifts[j]);
    mha_linear_free(l.linear);
}

static void test_rounded_result(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0};
    static const int64_t widths[][2] = {{32, 1}, {33, 70}, {384, 300}, {416, 33}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t j = 0; j < sizeof widths / sizeof *widths; j++) {
            check_layer(types[i], widths[j], MHA_ACT_NONE);
            check_layer(types[i], widths[j], MHA_ACT_GELU);
        }
}

static void test_refusals(void **state)
{
    (void)state;
    uint16_t a[2] = {0};
    mha_error err = {0};
    const layer l = layer_make(NULL, MHA_BF16, 2, 2, MHA_ACT_NONE);
    assert_int_equal(mha_linear_forward_bf16(NULL, a, 1, a, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "the layer must not"));
    assert_int_equal(mha_linear_forward_bf16(l.linear, a, -1, a, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "rows must be"));
    assert_int_equal(mha_linear_forward_bf16(l.linear, NULL, 1, a, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "x must not"));
    assert_int_equal(mha_linear_forward_bf16(l.linear, a, 1, NULL, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "y must not"));
    assert_int_equal(mha_linear_forward_bf16(l.linear, a, INT64_MAX / 2, a, &err), MHA_ERR_ARG);
    mha_linear_free(l.linear);
}

/* A call without memory for converted or copied rows must fail and must not write y. x is not aligned, so every ISA
 * copies it. */
static void check_no_memory(mha_dtype type, int64_t in)
{
    counting memory = {.budget = -1};
    mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx = NULL;
    mha_error err = {0};
    _Alignas(64) uint16_t zeros[33] = {0};
    uint16_t y[2] = {GUARD, GUARD};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const layer l = layer_make(ctx, type, in, 2, MHA_ACT_NONE);
    const long live = memory.live;
    memory.budget = memory.calls;
    assert_int_equal(mha_linear_forward_bf16(l.linear, zeros + 1, 1, y, &err), MHA_ERR_MEMORY);
    assert_int_equal(y[0], GUARD);
    assert_int_equal(memory.live, live);
    mha_linear_free(l.linear);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    check_no_memory(MHA_F32, 2);
    check_no_memory(MHA_BF16, 32);
    check_no_memory(MHA_Q8_0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounded_result),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
