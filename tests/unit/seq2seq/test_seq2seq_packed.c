/* test_seq2seq_packed.c - tests packed pairs of an encoder-decoder: logits and gradients of gates must be bitwise
 * identical to those of each pair alone. Also tests passes on given states of the encoder, and the activations and
 * fills of the cross-attention. */
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/model/seq2seq_case.h"
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 3, MAX = 64 };
static const int32_t source_ids[] = {5, 9, 31, 7, 12, 40, 3, 6, 11, 8, 8, 10},
                     ids[] = {0, 21, 8, 14, 0, 9, 0, 33, 6, 7};
static const int32_t labels[] = {21, 8, 14, 2, 9, 2, 33, 6, 7, 2};
static const int64_t source_starts[] = {0, 7, 8, 12}, starts[] = {0, 4, 6, 10};

typedef enum part { DECODER, CROSS, ENCODER, PARTS } part;

static int64_t heads_of(const mha_model *model, part p)
{
    const mha_model_info *info = mha_model_describe(p == ENCODER ? mha_model_encoder(model) : model);
    assert_true(info->layers * info->heads <= MAX);
    return info->layers * info->heads;
}

/* Sets *input and *source to pair n, or to all packed pairs (n = -1). */
static void describe(int n, mha_model_input *input, mha_model_input *source)
{
    const bool all = n < 0;
    const int at = all ? 0 : n;
    *source =
        (mha_model_input){.size = sizeof *source, .batch = all ? PAIRS : 1, .ids = source_ids + source_starts[at]};
    *input =
        (mha_model_input){.size = sizeof *input, .batch = all ? PAIRS : 1, .ids = ids + starts[at], .source = source};
    input->starts = all ? starts : NULL;
    source->starts = all ? source_starts : NULL;
    input->length = all ? 0 : starts[at + 1] - starts[at];
    source->length = all ? 0 : source_starts[at + 1] - source_starts[at];
}

static void forward(const mha_model *model, const mha_model_input *input, const mha_model_output *output)
{
    mha_error err = {0};
    if (mha_model_forward(model, input, output, &err) != MHA_OK) fail_msg("%s", err.message);
}

static void test_logits(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        mha_model *model = seq2seq_open(NULL, f);
        const size_t vocab = (size_t)mha_model_describe(model)->vocab;
        float *packed = malloc((size_t)starts[PAIRS] * vocab * sizeof *packed),
              *alone = malloc(4 * vocab * sizeof *alone);
        mha_model_input input, source;
        describe(-1, &input, &source);
        forward(model, &input, &(mha_model_output){.size = sizeof(mha_model_output), .logits = packed});
        for (int n = 0; n < PAIRS; n++) {
            describe(n, &input, &source);
            forward(model, &input, &(mha_model_output){.size = sizeof(mha_model_output), .logits = alone});
            assert_memory_equal(alone, packed + (size_t)starts[n] * vocab,
                                (size_t)input.length * vocab * sizeof *alone);
        }
        free(alone);
        free(packed);
        mha_model_free(model);
    }
}

static void gradients(mha_model_grads *grads, int n, float *dgates[PARTS])
{
    mha_model_input input, source;
    mha_error err = {0};
    double loss = 0;
    describe(n, &input, &source);
    const mha_model_loss_args args = {.size = sizeof args,
                                      .labels = labels + (n < 0 ? 0 : starts[n]),
                                      .scale = 0.125,
                                      .dgates = dgates[DECODER],
                                      .dcross_gates = dgates[CROSS],
                                      .dencoder_gates = dgates[ENCODER]};
    if (mha_model_grads_loss(grads, &input, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
}

static void test_gradients_of_gates(void **state)
{
    (void)state;
    float all[PARTS][PAIRS * MAX], one[PARTS][MAX];
    const mha_model_grads_options o = {.size = sizeof o, .no_parameters = 1};
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        mha_model *model = seq2seq_open(NULL, f);
        mha_model_grads *grads = NULL;
        assert_int_equal(mha_model_grads_create(model, &o, &grads, NULL), MHA_OK);
        gradients(grads, -1, (float *[]){all[DECODER], all[CROSS], all[ENCODER]});
        for (int n = 0; n < PAIRS; n++) {
            gradients(grads, n, (float *[]){one[DECODER], one[CROSS], one[ENCODER]});
            for (int p = 0; p < PARTS; p++) {
                const int64_t H = mha_model_describe(p == ENCODER ? mha_model_encoder(model) : model)->heads;
                for (int64_t h = 0; h < heads_of(model, (part)p); h++)
                    if (all[p][(h / H * PAIRS + n) * H + h % H] != one[p][h])
                        fail_msg("%s, part %d, pair %d, gate %d: packed gradient must be %.9g (got %.9g)",
                                 seq2seq_names[f], p, n, (int)h, (double)one[p][h],
                                 (double)all[p][(h / H * PAIRS + n) * H + h % H]);
            }
        }
        mha_model_grads_free(grads);
        mha_model_free(model);
    }
}

/* ---- given states of the encoder ---- */

static void test_given_states(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        mha_model *model = seq2seq_open(NULL, f);
        const mha_model_info *info = mha_model_describe(model);
        const size_t count = (size_t)(starts[PAIRS] * info->vocab);
        float *hidden = malloc((size_t)(source_starts[PAIRS] * info->hidden) * sizeof *hidden);
        float *want = malloc(count * sizeof *want), *got = malloc(count * sizeof *got);
        mha_model_input input, source;
        mha_error err = {0};
        describe(-1, &input, &source);
        const mha_model_output encoder = {.size = sizeof encoder, .last_hidden = hidden};
        forward(model, &input, &(mha_model_output){.size = sizeof encoder, .logits = want, .encoder = &encoder});
        source.hidden = hidden;
        source.first_layer = mha_model_describe(mha_model_encoder(model))->layers;
        forward(model, &input, &(mha_model_output){.size = sizeof encoder, .logits = got});
        assert_memory_equal(got, want, count * sizeof *got);
        assert_int_equal(
            mha_model_forward(model, &input, &(mha_model_output){.size = sizeof encoder, .encoder = &encoder}, &err),
            MHA_ERR_ARG);
        assert_non_null(strstr(err.message, "encoder must be NULL if the encoder does not run"));
        mha_model_grads *grads = NULL;
        assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
        assert_int_equal(mha_model_grads_forward(grads, &input, NULL, &err), MHA_ERR_UNSUPPORTED);
        mha_model_grads_free(grads);
        free(hidden);
        free(want);
        free(got);
        mha_model_free(model);
    }
}

/* ---- activations and fills of the cross-attention ---- */

typedef struct seen {
    float *context; /* [rows, H D] of layer 0 */
    int layers;
} seen;

static int see(void *user, const mha_model_activations *a)
{
    seen *s = user;
    if (a->layer == 0) memcpy(s->context, a->context, (size_t)(a->rows * a->heads * a->head_dim) * sizeof *a->context);
    assert_null(a->q);
    s->layers++;
    return 0;
}

/* A fill must be added to the output of a head, and a fill of a single-token target's own context must undo a gate of
 * 0. */
static void test_fills(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        mha_model *model = seq2seq_open(NULL, f);
        const mha_model_info *info = mha_model_describe(model);
        const int64_t D = info->head_dim, width = info->heads * D;
        float *context = malloc((size_t)width * sizeof *context),
              *fills = calloc((size_t)(info->layers * width), sizeof *fills);
        float *want = malloc((size_t)info->vocab * sizeof *want), *got = malloc((size_t)info->vocab * sizeof *got);
        float gates[MAX];
        seen s = {.context = context};
        mha_model_input input, source;
        describe(0, &input, &source);
        input.length = 1;
        forward(model, &input,
                &(mha_model_output){
                    .size = sizeof(mha_model_output), .logits = want, .on_cross_activations = see, .user = &s});
        assert_int_equal(s.layers, info->layers);
        for (int64_t n = 0; n < heads_of(model, CROSS); n++)
            gates[n] = n != 1;
        memcpy(fills + D, context + D, (size_t)D * sizeof *fills);
        input.cross_gates = gates;
        input.cross_fills = fills;
        forward(model, &input, &(mha_model_output){.size = sizeof(mha_model_output), .logits = got});
        assert_memory_equal(got, want, (size_t)info->vocab * sizeof *got);
        free(context);
        free(fills);
        free(want);
        free(got);
        mha_model_free(model);
    }
}

static int show(void *user, int64_t layer, int64_t heads, const float *probs)
{
    (void)user, (void)layer, (void)heads, (void)probs;
    return 0;
}

static void test_refusals(void **state)
{
    (void)state;
    static const int64_t empty[] = {0, 7, 7, 12};
    mha_model *model = seq2seq_open(NULL, SEQ2SEQ_T5);
    const mha_model_output maps = {.size = sizeof maps, .on_cross_attention = show};
    mha_model_input input, source;
    mha_error err = {0};
    describe(-1, &input, &source);
    assert_int_equal(mha_model_forward(model, &input, &maps, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "on_cross_attention must be NULL with starts"));
    source.starts = empty;
    assert_int_equal(mha_model_forward(model, &input, NULL, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "sequence 1 must have 1 to"));
    source.starts = NULL;
    source.length = 4;
    assert_int_equal(mha_model_forward(model, &input, NULL, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "starts of source must be given with starts of the input"));
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits), cmocka_unit_test(test_gradients_of_gates), cmocka_unit_test(test_given_states),
        cmocka_unit_test(test_fills),  cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
