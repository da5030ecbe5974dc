/* test_model_grads_rows.c - a forward pass with gradients must pass the same rows of probabilities to on_rows as
 * mha_model_forward, for padded and packed texts, with and without recomputation. Gradients must be bitwise identical
 * with and without on_rows. */
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include <stdlib.h>
#include <string.h>

enum { B = 3, L = 19, TOKENS = B * L, VOCAB = 600, LAYERS = 4, H = 4, MODELS = 3 };
static const char *const models[MODELS] = {"models/bert-tiny", "models/gpt2-tiny", "models/gemma2-tiny"};
enum { PADDED, HOLES, PACKED, INPUTS };

static int32_t ids[TOKENS];
static uint8_t mask[TOKENS];
static const int64_t starts[B + 1] = {0, 11, 12, 12 + L};

typedef struct seen {
    float rows[LAYERS][B][H][L][L];
    int64_t count; /* number of rows */
} seen;

static void keep_rows(void *user, int64_t layer, const mha_attn_rows *r)
{
    seen *s = user;
    for (int64_t n = 0; n < r->count; n++)
        memcpy(s->rows[layer][r->sequence][r->head][r->first + n], (const float *)r->p + n * r->stride,
               (size_t)r->keys * sizeof(float));
    s->count += r->count; /* one thread */
}

static mha_model_input input_of(int kind)
{
    mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    const int64_t lengths[B] = {L, 9, 1};
    rng r = rng_make(11, 1);
    for (int64_t n = 0; n < TOKENS; n++) {
        ids[n] = (int32_t)rng_range(&r, 0, VOCAB - 1);
        mask[n] = kind == HOLES ? n % L % 7 != n / L : n % L < lengths[n / L];
    }
    if (kind == PACKED)
        in.starts = starts;
    else
        in.mask = mask;
    return in;
}

static mha_ctx *one_thread(void)
{
    mha_ctx *ctx = NULL;
    const mha_ctx_options o = {.size = sizeof o, .threads = 1};
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    return ctx;
}

static seen *rows_of_forward(const mha_model *model, const mha_model_input *in)
{
    seen *s = calloc(1, sizeof *s);
    const mha_model_output out = {.size = sizeof out, .on_rows = keep_rows, .user = s};
    assert_int_equal(mha_model_forward(model, in, &out, NULL), MHA_OK);
    return s;
}

/* Runs a pass with gradients, which passes rows to `s` unless it is NULL, and stores the gradients of gates and
 * embeddings. */
static void gradients(mha_model_grads *grads, const mha_model_input *in, int64_t width, seen *s, float *gates,
                      float *embeddings)
{
    mha_error err = {0};
    float *direction = malloc((size_t)(TOKENS * width) * sizeof *direction);
    for (int64_t n = 0; n < TOKENS * width; n++)
        direction[n] = (float)(n % 13) - 6;
    const mha_model_output out = {.size = sizeof out, .on_rows = s ? keep_rows : NULL, .user = s};
    const mha_model_gradient wanted = {
        .size = sizeof wanted, .last_hidden = direction, .gates = gates, .embeddings = embeddings};
    if (mha_model_grads_forward(grads, in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_model_grads_backward(grads, &wanted, &err) != MHA_OK) fail_msg("%s", err.message);
    free(direction);
}

static void check(const mha_model *model, int kind, int recompute)
{
    const mha_model_info *info = mha_model_describe(model);
    const mha_model_grads_options how = {.size = sizeof how, .no_parameters = 1, .recompute = recompute};
    const mha_model_input in = input_of(kind);
    const size_t states = (size_t)(TOKENS * info->hidden);
    float gates[3][LAYERS * B * H] = {0}, *embeddings[3];
    mha_model_grads *grads = NULL;
    seen *want = rows_of_forward(model, &in), *got = calloc(1, sizeof *got);
    assert_int_equal(mha_model_grads_create(model, &how, &grads, NULL), MHA_OK);
    for (int pass = 0; pass < 3; pass++) { /* without rows, with rows, and without again */
        embeddings[pass] = calloc(states, sizeof(float));
        gradients(grads, &in, info->hidden, pass == 1 ? got : NULL, gates[pass], embeddings[pass]);
        assert_memory_equal(gates[pass], gates[0], sizeof gates[0]);
        assert_memory_equal(embeddings[pass], embeddings[0], states * sizeof(float));
    }
    assert_true(want->count > 0);
    assert_int_equal(got->count, want->count);
    assert_memory_equal(got->rows, want->rows, sizeof want->rows);
    for (int pass = 0; pass < 3; pass++)
        free(embeddings[pass]);
    free(want);
    free(got);
    mha_model_grads_free(grads);
}

static void same_rows_and_gradients(void **state)
{
    (void)state;
    mha_ctx *ctx = one_thread();
    for (int m = 0; m < MODELS; m++) {
        mha_model *model = case_model(ctx, models[m], NULL);
        for (int kind = 0; kind < INPUTS; kind++)
            for (int recompute = 0; recompute < 2; recompute++)
                check(model, kind, recompute);
        mha_model_free(model);
    }
    mha_ctx_free(ctx);
}

/* The outputs of a loss are those of its forward pass. */
static void outputs_of_a_loss(void **state)
{
    (void)state;
    mha_ctx *ctx = one_thread();
    mha_model *model = case_model(ctx, models[1], NULL);
    const int64_t width = mha_model_describe(model)->hidden;
    const size_t bytes = (size_t)(starts[B] * width) * sizeof(float);
    const mha_model_input in = input_of(PACKED);
    float *hidden[2] = {malloc(bytes), malloc(bytes)};
    seen *want = rows_of_forward(model, &in), *got = calloc(1, sizeof *got);
    mha_model_grads *grads = NULL;
    double loss = 0;
    const mha_model_output plain = {.size = sizeof plain, .last_hidden = hidden[0]};
    const mha_model_output out = {.size = sizeof out, .last_hidden = hidden[1], .on_rows = keep_rows, .user = got};
    const mha_model_loss_args args = {.size = sizeof args, .output = &out};
    assert_int_equal(mha_model_forward(model, &in, &plain, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_loss(grads, &in, &args, &loss, NULL, NULL), MHA_OK);
    assert_memory_equal(hidden[1], hidden[0], bytes);
    assert_memory_equal(got->rows, want->rows, sizeof want->rows);
    assert_int_equal(got->count, want->count);
    for (int n = 0; n < 2; n++)
        free(hidden[n]);
    free(want);
    free(got);
    mha_model_grads_free(grads);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static void chosen_rows_are_not_supported(void **state)
{
    static const mha_model_head list[] = {{0, 1}};
    static const int64_t rows[B] = {0, 0, 0};
    (void)state;
    mha_error err = {0};
    mha_model *model = case_model(NULL, models[0], NULL);
    mha_model_grads *grads = NULL;
    const mha_model_input in = input_of(PADDED);
    const mha_model_output heads = {.size = sizeof heads, .on_rows = keep_rows, .map_heads = list, .map_count = 1};
    const mha_model_output some = {.size = sizeof some, .on_rows = keep_rows, .map_rows = rows, .map_row_count = 1};
    assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_forward(grads, &in, &heads, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "map_heads must be NULL"));
    assert_int_equal(mha_model_grads_forward(grads, &in, &some, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "map_rows must be NULL"));
    mha_model_grads_free(grads);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_rows_and_gradients),
        cmocka_unit_test(outputs_of_a_loss),
        cmocka_unit_test(chosen_rows_are_not_supported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
