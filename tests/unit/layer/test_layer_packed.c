/* test_layer_packed.c - tests linear layers with 16-bit and q8_0 weights. Their error relative to a reference in double
 * must be bounded by the rounding of the weights (and of the inputs on ISAs with tiles). A row of the result must be
 * bitwise identical for any values of the other rows. Results can be stored in 16-bit types. */
#include "layer/linear/linear.h"
#include "math/half.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TYPES = 3, Q8_GROUP = 128 };
static const mha_dtype types[TYPES] = {MHA_BF16, MHA_F16, MHA_Q8_0};

static mha_ctx *context(int threads, counting *memory)
{
    mha_ctx *ctx = NULL;
    mha_ctx_options options = {.size = sizeof options, .threads = threads};
    if (memory) options.allocator = counting_allocator(memory);
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    return ctx;
}

static mha_linear *linear_of(mha_ctx *ctx, int64_t in, const mha_matrix *parts, int64_t count)
{
    mha_linear *linear = NULL;
    mha_error err;
    if (mha_linear_create_stack(ctx, in, parts, count, MHA_ACT_NONE, &linear, &err) != MHA_OK)
        fail_msg("%s", err.message);
    return linear;
}

static float *forward(const mha_linear *linear, const float *x, int64_t rows, int64_t out)
{
    float *y = malloc((size_t)(rows * out + 1) * sizeof *y);
    assert_int_equal(mha_linear_forward(linear, x, rows, y, NULL), MHA_OK);
    return y;
}

static double weight_at(const mha_matrix *m, int64_t in, int64_t o, int64_t k)
{
    return (double)m->weight[m->transposed ? k * m->out + o : o * in + k];
}

/* Returns half a step of the q8_0 group that begins at element k: 0.5/127 of the largest of its magnitudes, which are
 * `step` elements apart. */
static double half_step(const float *x, int64_t step, int64_t in, int64_t k)
{
    double largest = 0;
    for (int64_t i = k; i < in && i < k + Q8_GROUP; i++)
        largest = fmax(largest, fabs((double)x[i * step]));
    return largest * 0.5 / 127;
}

/* Returns the largest error of the product of the input a and the weight w. The weight has an error of half a unit in
 * its last place. If x_too is true, the input is rounded as well, and its error is included. */
static double half_unit_error(mha_dtype type, bool x_too, double a, double w)
{
    if (type == MHA_F16) return a * (w * 0x1p-11 + 0x1p-25);
    return a * w * (x_too ? 0x1.02p-7 : 0x1p-8);
}

/* As half_unit_error, for q8_0: both have an error of half a step of their groups plus the rounding of the step. */
static double step_error(double x_step, double w_step, double a, double w)
{
    const double w_error = w_step * (1 + 0x1p-9) + w_step * 254 * 0x1p-11 + 127 * 0x1p-25;
    const double x_error = x_step * (1 + 0x1p-12);
    return a * w_error + x_error * (w + w_error);
}

/* Compares one element of the result, y, of the input row x and output o with its sum in double. */
static void check_element(mha_dtype type, bool x_too, double y, const float *x, int64_t in, const mha_matrix *m,
                          int64_t o)
{
    double sum = m->bias ? (double)m->bias[o] : 0, limit = 0, size = fabs(sum), x_step = 0, w_step = 0;
    for (int64_t k = 0; k < in; k++) {
        const double a = (double)x[k], w = weight_at(m, in, o, k);
        if (type == MHA_Q8_0 && k % Q8_GROUP == 0) {
            x_step = half_step(x, 1, in, k);
            w_step = half_step(m->weight + (m->transposed ? o : o * in), m->transposed ? m->out : 1, in, k);
        }
        sum += a * w;
        size += fabs(a * w);
        limit += type == MHA_Q8_0 ? step_error(x_step, w_step, fabs(a), fabs(w))
                                  : half_unit_error(type, x_too, fabs(a), fabs(w));
    }
    limit += (double)(in + 2) * 0x1p-24 * size * 1.01;
    if (!(fabs(y - sum) <= limit))
        fail_msg("%s, in %d out %d: error of y[%d] is %g, must be at most %g", mha_dtype_name(type), (int)in,
                 (int)m->out, (int)o, fabs(y - sum), limit);
}

static void check_error(mha_dtype type, const mha_linear *linear, const float *y, const float *x, int64_t rows,
                        int64_t in, const mha_matrix *m)
{
    const bool x_too = mha__linear_left(linear, rows) > 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < m->out; o++)
            check_element(type, x_too, (double)y[r * m->out + o], x + r * in, in, m, o);
}

static void test_error_is_that_of_rounding(void **state)
{
    (void)state;
    static const int64_t rows[] = {0, 1, 5, 17, 129}, sizes[] = {1, 31, 32, 97, 300};
    mha_ctx *ctx = context(2, NULL);
    for (int type = 0; type < TYPES; type++)
        for (size_t r = 0; r < 5; r++)
            for (size_t s = 0; s < 25; s++) {
                const int64_t in = sizes[s / 5], out = sizes[s % 5];
                float *x = random_floats(s, 1, rows[r] * in, 1, 0), *w = random_floats(s, 2, in * out, 0.1, 0);
                float *b = random_floats(s, 3, out, 1, 0);
                const mha_matrix m = {w, s % 2 ? b : NULL, s % 3 == 0, out, types[type], s % 4 < 2};
                mha_linear *linear = linear_of(ctx, in, &m, 1);
                float *y = forward(linear, x, rows[r], out);
                check_error(types[type], linear, y, x, rows[r], in, &m);
                mha_linear_free(linear);
                free(x), free(w), free(b), free(y);
            }
    mha_ctx_free(ctx);
}

/* A row of the result must be bitwise identical for any number of rows and threads, with one weight matrix or the same
 * weights in two. */
static void test_bits_of_a_row(void **state)
{
    (void)state;
    enum { ROWS = 700, IN = 300, OUT = 150, FIRST = 37 };
    float *x = random_floats(7, 1, ROWS * IN, 1, 0), *w = random_floats(7, 2, IN * OUT, 0.1, 0);
    float *b = random_floats(7, 3, OUT, 1, 0);
    for (int kind = 0; kind < 2 * TYPES; kind++) {
        const int type = kind / 2, many = kind % 2;
        const mha_matrix whole = {w, b, 0, OUT, types[type], many};
        const mha_matrix parts[] = {{w, b, 0, FIRST, types[type], many},
                                    {w + FIRST * IN, b + FIRST, 0, OUT - FIRST, types[type], many}};
        float *first = NULL;
        for (int threads = 1; threads <= 3; threads++) {
            mha_ctx *ctx = context(threads, NULL);
            mha_linear *linear = linear_of(ctx, IN, threads == 3 ? parts : &whole, threads == 3 ? 2 : 1);
            float *all = forward(linear, x, ROWS, OUT);
            for (int64_t r = 0, n = 1; r < ROWS; r += n, n = n % 37 + 1) {
                if (n > ROWS - r) n = ROWS - r;
                float *some = forward(linear, x + r * IN, n, OUT);
                assert_memory_equal(some, all + r * OUT, (size_t)(n * OUT) * sizeof *some);
                free(some);
            }
            if (first) assert_memory_equal(first, all, (size_t)(ROWS * OUT) * sizeof *all);
            free(first);
            first = all;
            mha_linear_free(linear);
            mha_ctx_free(ctx);
        }
        free(first);
    }
    free(x), free(w), free(b);
}

/* Fails unless columns [first, out) of the first `rows` rows are y rounded to 16 bits and all other elements are still
 * 0x5a5a. */
static void check_rounded(mha_dtype to, const uint16_t *halves, int64_t stride, int64_t max, const float *y,
                          int64_t rows, int64_t first, int64_t out)
{
    for (int64_t r = 0; r < max; r++)
        for (int64_t c = 0; c < stride; c++) {
            const bool written = r < rows && c >= first && c < out;
            const float number = written ? y[r * out + c] : 0;
            const uint16_t want = to == MHA_BF16 ? mha__f32_to_bf16(number) : mha__f32_to_f16(number);
            assert_int_equal(halves[r * stride + c], written ? want : 0x5a5a);
        }
}

/* A 16-bit result must equal the rounded f32 result, with an activation, with a selection of the weight matrices, and
 * with strides. */
static void test_rounded_results(void **state)
{
    (void)state;
    enum { IN = 96, OUT = 210, FIRST = 70, STRIDE = OUT + 3, MAX = 200 };
    static const mha_dtype packed[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0};
    static const int64_t rows[] = {1, 31, MAX};
    static const uint8_t chosen[2] = {0, 1};
    float *x = random_floats(8, 1, MAX * IN, 1, 0), *w = random_floats(8, 2, IN * OUT, 0.1, 0);
    float *y = malloc(MAX * OUT * sizeof *y);
    uint16_t *halves = malloc(MAX * STRIDE * sizeof *halves);
    mha_ctx *ctx = context(2, NULL);
    for (int n = 0; n < 24; n++) {
        const mha_dtype type = packed[n % 4], to = n / 4 % 2 ? MHA_F16 : MHA_BF16;
        const int64_t count = rows[n / 8];
        const mha_matrix parts[] = {{w, NULL, 0, FIRST, type, 0}, {w + FIRST * IN, x, 0, OUT - FIRST, type, 0}};
        mha_linear *linear = NULL;
        assert_int_equal(mha_linear_create_stack(ctx, IN, parts, 2, MHA_ACT_GELU, &linear, NULL), MHA_OK);
        void *left = aligned_alloc(64, (mha__linear_left(linear, count) + 127) / 64 * 64);
        memset(halves, 0x5a, MAX * STRIDE * sizeof *halves);
        assert_int_equal(mha_linear_forward(linear, x, count, y, NULL), MHA_OK);
        mha__linear_run(
            linear,
            &(mha__linear_call){
                .x = x, .rows = count, .y = halves, .y_stride = STRIDE, .parts = chosen, .rounded = to, .left = left});
        check_rounded(to, halves, STRIDE, MAX, y, count, FIRST, OUT);
        free(left);
        mha_linear_free(linear);
    }
    mha_ctx_free(ctx);
    free(x), free(w), free(y), free(halves);
}

/* ---- matrices of different types in one layer ---- */

enum { WIDE = 160, TOKENS = 9 };

static mha_matrix square(const float *weight, mha_dtype packed)
{
    return (mha_matrix){.weight = weight, .packed = packed};
}

/* Returns the output of a block with a gated feed-forward, whose gate is packed in `type`. */
static float *gated_block(mha_ctx *ctx, const float *w, const float *ones, const float *x, mha_dtype type)
{
    mha_block *block = NULL;
    const mha_norm norm = {.weight = ones, .eps = 1e-5, .kind = MHA_NORM_RMS};
    const mha_matrix plain = square(w, MHA_F32);
    const mha_block_options options = {
        .size = sizeof options,
        .attn =
            {.size = sizeof options.attn, .hidden = WIDE, .heads = 2, .q = plain, .k = plain, .v = plain, .o = plain},
        .pre_norm = 1,
        .attn_norm = norm,
        .mlp_norm = norm,
        .intermediate = WIDE,
        .up = plain,
        .down = plain,
        .gate = square(w, type),
        .activation = MHA_ACT_SILU};
    const mha_layer_input in = {.size = sizeof in, .batch = 1, .length = TOKENS};
    float *y = malloc(TOKENS * WIDE * sizeof *y);
    memcpy(y, x, TOKENS * WIDE * sizeof *y);
    assert_int_equal(mha_block_create(ctx, &options, &block, NULL), MHA_OK);
    assert_int_equal(mha_block_forward(block, &in, y, NULL), MHA_OK);
    mha_block_free(block);
    return y;
}

/* Returns keys and values of cross-attention, whose values are packed in `type`. */
static float *keys_and_values(mha_ctx *ctx, const float *w, const float *ones, const float *x, mha_dtype type)
{
    (void)ones;
    mha_attn_layer *layer = NULL;
    const mha_matrix plain = square(w, MHA_F32);
    const mha_attn_layer_options options = {.size = sizeof options,
                                            .hidden = WIDE,
                                            .heads = 2,
                                            .q = plain,
                                            .k = plain,
                                            .v = square(w, type),
                                            .o = plain,
                                            .cross = 1};
    float *kv = malloc(2 * TOKENS * WIDE * sizeof *kv);
    assert_int_equal(mha_attn_layer_create(ctx, &options, &layer, NULL), MHA_OK);
    assert_int_equal(mha_attn_layer_source(layer, x, TOKENS, kv, NULL), MHA_OK);
    mha_attn_layer_free(layer);
    return kv;
}

/* Only one matrix of a layer may round its input; results must be close to those of f32. */
static void test_matrices_of_different_types(void **state)
{
    (void)state;
    float *(*const run[])(mha_ctx *, const float *, const float *, const float *, mha_dtype) = {gated_block,
                                                                                                keys_and_values};
    float *x = random_floats(9, 1, TOKENS * WIDE, 1, 0), *w = random_floats(9, 2, WIDE * WIDE, 0.08, 0), ones[WIDE];
    mha_ctx *ctx = context(2, NULL);
    for (int i = 0; i < WIDE; i++)
        ones[i] = 1;
    for (int n = 0; n < 2 * TYPES; n++) {
        const int64_t count = (n / TYPES + 1) * TOKENS * WIDE;
        float *want = run[n / TYPES](ctx, w, ones, x, MHA_F32), *y = run[n / TYPES](ctx, w, ones, x, types[n % TYPES]);
        double error = 0, size = 0;
        for (int64_t i = 0; i < count; i++) {
            error += pow((double)y[i] - (double)want[i], 2);
            size += pow((double)want[i], 2);
        }
        assert_true(error > 0 && error < 4e-4 * size);
        free(want), free(y);
    }
    mha_ctx_free(ctx);
    free(x), free(w);
}

static void test_refusals(void **state)
{
    (void)state;
    const float w[4] = {0};
    mha_matrix parts[2] = {{.weight = w, .out = 2, .packed = MHA_BF16}, {.weight = w, .out = 2}};
    mha_linear *linear = NULL;
    mha_error err = {0};
    assert_int_equal(mha_linear_create_stack(NULL, 2, parts, 2, MHA_ACT_NONE, &linear, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "linear: packed must be that of matrix 0, bf16, in all matrices of a stack (got "
                                     "f32 in matrix 1)");
    parts[0].packed = MHA_I8;
    assert_int_equal(mha_linear_create_stack(NULL, 2, parts, 1, MHA_ACT_NONE, &linear, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "packed must be one of f32, bf16, f16, q8_0 (got i8)"));
    assert_null(linear);
    parts[0].packed = MHA_F32; /* the default of the other matrix */
    assert_int_equal(mha_linear_create_stack(NULL, 2, parts, 2, MHA_ACT_NONE, &linear, &err), MHA_OK);
    mha_linear_free(linear);
}

/* Messages must name the matrix of the layer. */
static void test_named_matrices(void **state)
{
    (void)state;
    static const float w[16] = {0};
    const mha_matrix good = {.weight = w, .out = 4}, wrong = {.weight = w, .out = 4, .packed = MHA_I8};
    static const char *const messages[] = {
        "attention layer: q, k and v: packed must be one of f32, bf16, f16, q8_0 (got i8)",
        ("attention layer: q, k and v: packed must be that of matrix 0, f32, in all matrices of a stack (got i8 in "
         "matrix 1)"),
        "attention layer: o: packed must be one of f32, bf16, f16, q8_0 (got i8)",
        "block: gate: packed must be one of f32, bf16, f16, q8_0 (got i8)",
        "block: up: packed must be one of f32, bf16, f16, q8_0 (got i8)",
        "block: down: packed must be one of f32, bf16, f16, q8_0 (got i8)"};
    for (int n = 0; n < 6; n++) {
        mha_block *block = NULL;
        mha_error err = {0};
        mha_block_options o = {.size = sizeof o, .intermediate = 4, .gate = good, .up = good, .down = good};
        o.attn = (mha_attn_layer_options){
            .size = sizeof o.attn, .hidden = 4, .heads = 2, .q = good, .k = good, .v = good, .o = good};
        o.attn_norm = o.mlp_norm = (mha_norm){.weight = w, .bias = w, .eps = 1e-5f};
        *(mha_matrix *const[]){&o.attn.q, &o.attn.k, &o.attn.o, &o.gate, &o.up, &o.down}[n] = wrong;
        assert_int_equal(mha_block_create(NULL, &o, &block, &err), MHA_ERR_ARG);
        assert_string_equal(err.message, messages[n]);
        assert_null(block);
    }
}

/* If an allocation of the forward pass fails, y must remain unchanged. */
static void test_no_memory(void **state)
{
    (void)state;
    const float w[6] = {1, 2, 3, 4, 5, 6};
    for (int type = 0; type < TYPES; type++) {
        counting memory = {.budget = -1};
        mha_ctx *ctx = context(1, &memory);
        mha_linear *linear = linear_of(ctx, 2, &(mha_matrix){.weight = w, .out = 3, .packed = types[type]}, 1);
        const long calls = memory.calls;
        float y[3] = {-1, -1, -1};
        mha_error err = {0};
        assert_int_equal(mha_linear_forward(linear, w, 1, y, NULL), MHA_OK);
        assert_true(fabsf(y[2] - 17) < 0.2F);
        const bool allocates = memory.calls > calls;
        assert_true(!allocates || types[type] != MHA_F16);
        memory.budget = 0;
        y[2] = -1;
        assert_int_equal(mha_linear_forward(linear, w, 1, y, &err), allocates ? MHA_ERR_MEMORY : MHA_OK);
        assert_true(!allocates || y[2] == -1);
        mha_linear_free(linear);
        mha_ctx_free(ctx);
        assert_int_equal(memory.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_is_that_of_rounding),
        cmocka_unit_test(test_bits_of_a_row),
        cmocka_unit_test(test_rounded_results),
        cmocka_unit_test(test_matrices_of_different_types),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_named_matrices),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
