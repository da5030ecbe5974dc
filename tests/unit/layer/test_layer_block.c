/* test_layer_block.c - compares attention layers and blocks with references in double. Results must not depend on
 * padding, on other sequences or on the number of threads. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INPUT(...) (&(mha_layer_input){.size = sizeof(mha_layer_input), __VA_ARGS__})

typedef struct shape {
    int64_t hidden, heads, kv_heads, head_dim, intermediate, batch, length;
} shape;

static mha_block *create(mha_ctx *ctx, const mha_block_options *o)
{
    mha_block *block = NULL;
    mha_error err = {0};
    if (mha_block_create(ctx, o, &block, &err) != MHA_OK) fail_msg("%s", err.message);
    return block;
}

static void run(const mha_block *block, const mha_layer_input *in, float *x)
{
    mha_error err = {0};
    if (mha_block_forward(block, in, x, &err) != MHA_OK) fail_msg("%s", err.message);
}

static void check(const shape *s, const mha_layer_input *in, mha_block_options *o)
{
    const int64_t count = s->batch * s->length * s->hidden, maps = s->batch * s->heads * s->length * s->length;
    float *x = random_floats(5, 1, count, 1, 0), *probs = malloc((size_t)maps * sizeof *probs);
    double *truth = to_doubles(x, count), *true_probs = calloc((size_t)maps, sizeof *true_probs);
    mha_layer_input with_probs = *in;
    with_probs.probs = probs;
    mha_block *block = create(NULL, o);
    run(block, &with_probs, x);
    ref_block(o, in, truth, true_probs);
    if (!(worst_error(x, truth, count) <= 2e-5))
        fail_msg("error of x must be at most 2e-5 (got %g)", worst_error(x, truth, count));
    if (!(worst_error(probs, true_probs, maps) <= 5e-6))
        fail_msg("error of probs must be at most 5e-6 (got %g)", worst_error(probs, true_probs, maps));
    mha_block_free(block);
    free(x);
    free(probs);
    free(truth);
    free(true_probs);
}

static const shape shapes[] = {
    {48, 4, 0, 0, 112, 2, 13},
    {24, 3, 1, 8, 40, 1, 1},
    {32, 4, 2, 16, 50, 3, 20},
    {33, 3, 0, 0, 7, 1, 70},
};

static void test_close_to_double(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 4; variant++) {
            const shape *s = &shapes[i];
            mha_block_options o = random_block(i, s->hidden, s->heads, s->kv_heads, s->head_dim, s->intermediate);
            o.pre_norm = variant & 1;
            o.attn.causal = variant >> 1;
            o.activation = variant & 1 ? MHA_ACT_GELU_TANH : MHA_ACT_GELU;
            check(s, INPUT(.batch = s->batch, .length = s->length), &o);
            random_block_free(&o);
        }
}

/* Tests pre-norm blocks with absent norms, parallel blocks with one or two norms, and a residual scale. */
static void test_residuals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 16; variant++) {
            const shape *s = &shapes[i];
            mha_block_options o = random_block(i, s->hidden, s->heads, s->kv_heads, s->head_dim, s->intermediate);
            const mha_block_options all = o;
            o.pre_norm = 1;
            o.parallel = variant & 1;
            if (variant & 2) o.mlp_norm.weight = NULL;
            if (variant & 4) o.attn_norm.weight = NULL;
            o.residual_scale = variant & 8 ? 0.6 : 0;
            check(s, INPUT(.batch = s->batch, .length = s->length), &o);
            random_block_free((mha_block_options *)&all);
        }
}

static void test_masks(void **state)
{
    (void)state;
    const shape s = {32, 4, 2, 16, 50, 3, 20};
    const int64_t lengths[3] = {20, 1, 7};
    uint8_t keep[3 * 20];
    for (int i = 0; i < 60; i++)
        keep[i] = i % 20 == 0 || i % 3 != 1;
    mha_block_options o = random_block(1, s.hidden, s.heads, s.kv_heads, s.head_dim, s.intermediate);
    check(&s, INPUT(.batch = 3, .length = 20, .lengths = lengths), &o);
    check(&s, INPUT(.batch = 3, .length = 20, .keep = {keep, {20, 0, 0, 1}}), &o);
    random_block_free(&o);
}

/* Pads sequences of different lengths with arbitrary values. Each result must be bitwise identical to the result of the
 * sequence alone. */
static void test_padding_changes_no_bit(void **state)
{
    (void)state;
    enum { B = 4, L = 37, E = 48 };
    const int64_t lengths[B] = {37, 1, 20, 33};
    mha_block_options o = random_block(2, E, 4, 0, 0, 112);
    mha_block *block = create(NULL, &o);
    float *x = random_floats(6, 1, B * L * E, 1, 0), *y = malloc(B * L * E * sizeof *y),
          *keep_y = malloc(B * L * E * sizeof *y);
    uint8_t keep[B * L] = {0};
    for (int64_t b = 0; b < B; b++)
        memset(keep + b * L, 1, (size_t)lengths[b]);
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = lengths[b] * E; i < L * E; i++)
            x[b * L * E + i] = i % 2 ? NAN : 1e30f;
    memcpy(y, x, B * L * E * sizeof *y);
    memcpy(keep_y, x, B * L * E * sizeof *y);
    run(block, INPUT(.batch = B, .length = L, .lengths = lengths), y);
    run(block, INPUT(.batch = B, .length = L, .keep = {keep, {L, 0, 0, 1}}), keep_y);
    for (int64_t b = 0; b < B; b++) {
        const size_t bytes = (size_t)(lengths[b] * E) * sizeof *y;
        run(block, INPUT(.batch = 1, .length = lengths[b]), x + b * L * E);
        assert_memory_equal(x + b * L * E, y + b * L * E, bytes);
        assert_memory_equal(x + b * L * E, keep_y + b * L * E, bytes);
    }
    mha_block_free(block);
    random_block_free(&o);
    free(x);
    free(y);
    free(keep_y);
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    enum { B = 5, L = 130, E = 64 };
    mha_block_options o = random_block(3, E, 4, 0, 0, 256);
    float *first = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        assert_int_equal(
            mha_ctx_create(&(mha_ctx_options){.size = sizeof(mha_ctx_options), .threads = threads}, &ctx, NULL),
            MHA_OK);
        mha_block *block = create(ctx, &o);
        float *x = random_floats(7, 1, B * L * E, 1, 0);
        run(block, INPUT(.batch = B, .length = L), x);
        if (first) {
            assert_memory_equal(first, x, B * L * E * sizeof *x);
            free(x);
        } else {
            first = x;
        }
        mha_block_free(block);
        mha_ctx_free(ctx);
    }
    free(first);
    random_block_free(&o);
}

static void test_given_workspace(void **state)
{
    (void)state;
    enum { L = 9, E = 48 };
    mha_block_options o = random_block(4, E, 4, 0, 0, 112);
    mha_block *block = create(NULL, &o);
    float *x = random_floats(8, 1, L * E, 1, 0), *y = random_floats(8, 1, L * E, 1, 0);
    size_t bytes = 0;
    mha_error err = {0};
    assert_int_equal(mha_block_workspace(block, INPUT(.batch = 1, .length = L), &bytes, NULL), MHA_OK);
    char *memory = mha_alloc(NULL, bytes + 64);
    memset(memory, 0xFF, bytes); /* the bytes 0xFF are NaN as f32 */
    memset(memory + bytes, 0x55, 64);
    run(block, INPUT(.batch = 1, .length = L, .workspace = memory, .workspace_bytes = bytes), x);
    run(block, INPUT(.batch = 1, .length = L), y);
    assert_memory_equal(x, y, L * E * sizeof *x);
    for (int i = 0; i < 64; i++)
        assert_int_equal(memory[bytes + (size_t)i], 0x55);
    assert_int_equal(
        mha_block_forward(block, INPUT(.batch = 1, .length = L, .workspace = memory, .workspace_bytes = bytes - 1), x,
                          &err),
        MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "workspace_bytes"));
    assert_int_equal(
        mha_block_forward(block, INPUT(.batch = 1, .length = L, .workspace = memory + 1, .workspace_bytes = bytes), x,
                          &err),
        MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "mha_layer_input: workspace must be aligned to 64 bytes"));
    assert_memory_equal(x, y, L * E * sizeof *x);
    mha_free(NULL, memory);
    mha_block_free(block);
    random_block_free(&o);
    free(x);
    free(y);
}

static void refused(const mha_block_options *o, mha_status status, const char *part)
{
    mha_block *block = (void *)o;
    mha_error err = {0};
    assert_int_equal(mha_block_create(NULL, o, &block, &err), status);
    assert_null(block);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

#define REFUSED(field, value, status, part) \
    do {                                    \
        mha_block_options bad = good;       \
        bad.field = value;                  \
        refused(&bad, status, part);        \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    const mha_block_options good = random_block(5, 48, 4, 0, 0, 112);
    REFUSED(attn.heads, 0, MHA_ERR_ARG, "heads must be from 1 to 65536 (got 0)");
    REFUSED(attn.heads, 5, MHA_ERR_ARG, "attention layer: heads must divide hidden = 48 (got 5)");
    REFUSED(attn.kv_heads, 3, MHA_ERR_ARG, "attention layer: kv_heads must divide heads = 4 (got 3)");
    REFUSED(attn.head_dim, 4097, MHA_ERR_ARG, "head_dim must be from 1 to 4096 (got 4097)");
    REFUSED(attn.hidden, -1, MHA_ERR_ARG, "hidden must be from 1 to 2^31-1 (got -1)");
    REFUSED(attn.q.weight, NULL, MHA_ERR_ARG, "attention layer: q.weight must not be NULL");
    REFUSED(attn.v.weight, NULL, MHA_ERR_ARG, "attention layer: v.weight must not be NULL");
    REFUSED(attn.o.weight, NULL, MHA_ERR_ARG, "attention layer: o.weight must not be NULL");
    REFUSED(intermediate, 0, MHA_ERR_ARG, "block: intermediate must be from 1 to 2^31-1 if up, down or gate is set");
    REFUSED(up.weight, NULL, MHA_ERR_ARG, "block: up.weight must not be NULL with intermediate = 112");
    REFUSED(down.weight, NULL, MHA_ERR_ARG, "block: down.weight must not be NULL with intermediate = 112");
    REFUSED(attn_norm.eps, 0, MHA_ERR_ARG, "block: attn_norm: eps must be greater than 0 (got 0)");
    REFUSED(mlp_norm.kind, (mha_norm_kind)7, MHA_ERR_ARG, "mlp_norm: kind must be a value of mha_norm_kind (got 7)");
    REFUSED(attn_out_norm, good.attn_norm, MHA_ERR_ARG, "block: pre_norm must be set if attn_out_norm is set");
    REFUSED(parallel, 1, MHA_ERR_ARG, "block: pre_norm must be set if parallel is set");
    REFUSED(residual_scale, 2, MHA_ERR_ARG, "block: pre_norm must be set if residual_scale is set");
    REFUSED(residual_scale, ((bad.pre_norm = 1), (double)NAN), MHA_ERR_ARG,
            "block: residual_scale must be finite (got nan)");
    REFUSED(attn.q_norm, ((mha_norm){good.attn_norm.weight, NULL, 0, MHA_NORM_RMS}), MHA_ERR_ARG,
            "attention layer: q_norm: eps must be greater than 0 (got 0)");
    REFUSED(attn.qkv, good.up, MHA_ERR_ARG, "qkv must be NULL if q, k or v is set");
    REFUSED(mlp_norm.bias, NULL, MHA_ERR_ARG, "mlp_norm");
    REFUSED(mlp_norm.kind, MHA_NORM_RMS, MHA_ERR_ARG, "block: mlp_norm: bias must be NULL for MHA_NORM_RMS");
    REFUSED(attn.scale, (double)NAN, MHA_ERR_ARG, "scale must be finite in f32 (got nan)");
    REFUSED(attn.softcap, -1, MHA_ERR_ARG, "softcap must be 0 (off) or positive and finite (got -1)");
    REFUSED(attn.window, ((mha_window){1, -3, 0}), MHA_ERR_ARG, "window.left must be -1 (open) or at least 0 (got -3)");
    /* structs of older callers, which end before these fields */
    const mha_rope_options rope = {.size = sizeof rope.size, .head_dim = 12};
    const mha_attn_layer_options cross = {.size = sizeof cross.size, .cross = 1, .hidden = 48};
    REFUSED(attn.rope, &rope, MHA_ERR_ARG, "attention layer: head_dim of rope must be 12 (got 0)");
    REFUSED(cross, ((bad.cross_norm = good.attn_norm), &cross), MHA_ERR_ARG,
            "block: the field cross of cross must be 1 (got 0)");
    random_block_free((mha_block_options *)&good);
}

/* With a budget of 0, 1, 2, ... allocations, each failed creation or forward pass must return MHA_ERR_MEMORY and free
 * its memory. The same call must then succeed. */
static void test_no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_block_options o = random_block(6, 48, 4, 0, 0, 112);
    float *x = random_floats(9, 1, 5 * 48, 1, 0);
    const long live = memory.live;
    mha_block *block = NULL;
    mha_status status = MHA_ERR_MEMORY;
    int failures = 0;
    for (long n = 0; status != MHA_OK; n++, failures++) {
        memory.budget = memory.calls + n;
        status = mha_block_create(ctx, &o, &block, NULL);
        if (status == MHA_OK) break;
        assert_int_equal(status, MHA_ERR_MEMORY);
        assert_int_equal(memory.live, live);
    }
    assert_true(failures >= 5);
    const long with_block = memory.live;
    status = MHA_ERR_MEMORY;
    for (long n = 0; status != MHA_OK; n++) {
        memory.budget = memory.calls + n;
        status = mha_block_forward(block, INPUT(.batch = 1, .length = 5), x, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, with_block);
    }
    mha_block_free(block);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
    random_block_free(&o);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_to_double),
        cmocka_unit_test(test_residuals),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_padding_changes_no_bit),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_given_workspace),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
