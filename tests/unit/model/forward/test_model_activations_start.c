/* test_model_activations_start.c - activations and results must be bitwise identical if a pass begins at a later layer,
 * continues a cache, or uses another number of threads. */
#include "support/check.h"
#include "support/passes/inner_case.h"
#include <math.h>
#include <stdlib.h>

enum { B = INNER_B, L = INNER_L, TOKENS = B * L, LAYERS = INNER_LAYERS, H = INNER_H, WIDEST = INNER_WIDEST };
static mha_error err;

/* ---- passes that begin at a later layer ---- */

static void a_pass_from_any_layer_is_bitwise_identical(void **state)
{
    (void)state;
    for (int m = 0; m < INNER_FAMILIES; m++) {
        mha_model *model = inner_open(NULL, m, MHA_DTYPE_DEFAULT);
        const mha_model_info *info = mha_model_describe(model);
        for (int kind = 0; kind < INNER_INPUTS; kind++)
            for (int64_t first = 0; first < info->layers; first++) {
                mha_model_input in = inner_input(kind);
                inner_seen whole = inner_run(model, &in, true);
                in.first_layer = first;
                in.hidden = whole.hidden[first];
                in.ids = NULL;
                for (int64_t r = 0; r < whole.rows; r++) /* hidden states of masked tokens must not be read */
                    for (int64_t i = 0; !inner_is_real(&in, r) && i < whole.width; i++)
                        whole.hidden[first][r * whole.width + i] = NAN;
                inner_seen part = inner_run(model, &in, true);
                inner_same_rows(&in, part.last, whole.last, whole.width);
                assert_int_equal(part.calls, info->layers - first);
                for (int64_t n = 0; n <= info->layers; n++)
                    if (n < first)
                        assert_null(part.hidden[n]);
                    else
                        inner_same_rows(&in, part.hidden[n], whole.hidden[n], whole.width);
                for (int64_t n = first; n < info->layers; n++)
                    inner_same_rows(&in, part.a[n].out, whole.a[n].out, whole.width);
                inner_seen_free(&whole);
                inner_seen_free(&part);
            }
        mha_model_free(model);
    }
}

/* A pass can begin at the context of a layer. If this context was computed by the layer itself, the result must be
 * bitwise identical to that of the complete pass, also in 16-bit types. */
static void a_given_context_replaces_attention(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16};
    for (int m = 0; m < INNER_FAMILIES; m++)
        for (int t = 0; t < 3; t++) {
            mha_model *model = inner_open(NULL, m, types[t]);
            for (int kind = 0; kind < INNER_FILLED; kind++) {
                mha_model_input in = inner_input(kind);
                inner_seen whole = inner_run(model, &in, true);
                in.first_layer = 1;
                in.hidden = whole.hidden[1];
                in.context = whole.a[1].context;
                inner_seen part = inner_run(model, &in, false);
                inner_same_rows(&in, part.last, whole.last, whole.width);
                inner_seen_free(&whole);
                inner_seen_free(&part);
            }
            mha_model_free(model);
        }
}

static void logits_of_a_pass_from_a_later_layer(void **state)
{
    (void)state;
    mha_model *model = inner_open(NULL, INNER_SLIDING, MHA_DTYPE_DEFAULT);
    const int64_t vocab = mha_model_describe(model)->vocab;
    float *want = malloc((size_t)(TOKENS * vocab) * sizeof *want),
          *got = malloc((size_t)(TOKENS * vocab) * sizeof *got);
    mha_model_input in = inner_input(INNER_PLAIN);
    inner_seen whole = inner_run(model, &in, true);
    const mha_model_output all = {.size = sizeof all, .logits = want};
    assert_int_equal(mha_model_forward(model, &in, &all, &err), MHA_OK);
    in.first_layer = 2;
    in.hidden = whole.hidden[2];
    const mha_model_output part = {/* the last hidden states overwrite the input of the pass */
                                   .size = sizeof part,
                                   .logits = got,
                                   .last_hidden = whole.hidden[2]};
    assert_int_equal(mha_model_forward(model, &in, &part, &err), MHA_OK);
    assert_memory_equal(got, want, (size_t)(TOKENS * vocab) * sizeof *want);
    assert_memory_equal(whole.hidden[2], whole.last, (size_t)(TOKENS * whole.width) * sizeof *want);
    inner_seen_free(&whole);
    free(want);
    free(got);
    mha_model_free(model);
}

/* ---- passes with a cache ---- */

/* A text that is passed in pieces with a cache must have the same activations as the text in one pass. */
static void pieces_give_the_rows_of_the_whole_text(void **state)
{
    (void)state;
    static const int64_t cuts[] = {0, 13, L - 1, L};
    for (int m = INNER_DECODER; m < INNER_FAMILIES; m++) {
        mha_model *model = inner_open(NULL, m, MHA_DTYPE_DEFAULT);
        mha_model_input in = inner_input(INNER_PLAIN);
        const int32_t *const text = in.ids;
        in.batch = 1;
        inner_seen whole = inner_run(model, &in, true);
        const mha_model_cache_options o = {.size = sizeof o, .tokens = L};
        assert_int_equal(mha_model_cache_create(model, &o, &in.cache, &err), MHA_OK);
        for (int c = 0; c < 3; c++) {
            in.ids = text + cuts[c];
            in.length = cuts[c + 1] - cuts[c];
            inner_seen part = inner_run(model, &in, true);
            for (int64_t n = 0; n < mha_model_describe(model)->layers; n++) {
                const mha_model_activations *a = &whole.a[n];
                const int64_t wide = a->heads * a->head_dim;
                inner_same_rows(&in, part.a[n].q, a->q + cuts[c] * a->stride, a->stride);
                inner_same_rows(&in, part.a[n].context, a->context + cuts[c] * wide, wide);
                inner_same_rows(&in, part.a[n].out, a->out + cuts[c] * whole.width, whole.width);
            }
            inner_seen_free(&part);
        }
        mha_model_cache_free(in.cache);
        inner_seen_free(&whole);
        mha_model_free(model);
    }
}

/* ---- threads, error messages and failed allocations ---- */

static void threads_change_no_bit(void **state)
{
    (void)state;
    inner_seen first = {0};
    const mha_model_input in = inner_input(INNER_FILLED);
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options o = {.size = sizeof o, .threads = threads};
        assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
        mha_model *model = inner_open(ctx, INNER_SLIDING, MHA_DTYPE_DEFAULT);
        inner_seen s = inner_run(model, &in, true);
        if (threads == 1) first = s;
        for (int n = 0; n < LAYERS; n++) {
            inner_same_rows(&in, first.a[n].q, s.a[n].q, s.a[n].stride);
            inner_same_rows(&in, first.a[n].context, s.a[n].context, s.a[n].heads * s.a[n].head_dim);
            inner_same_rows(&in, first.a[n].out, s.a[n].out, s.width);
        }
        if (threads > 1) inner_seen_free(&s);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    inner_seen_free(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_from_any_layer_is_bitwise_identical),
        cmocka_unit_test(a_given_context_replaces_attention),
        cmocka_unit_test(logits_of_a_pass_from_a_later_layer),
        cmocka_unit_test(pieces_give_the_rows_of_the_whole_text),
        cmocka_unit_test(threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
