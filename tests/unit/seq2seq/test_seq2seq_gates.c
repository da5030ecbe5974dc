/* test_seq2seq_gates.c - tests gates of the heads of encoder-decoders: their gradients against finite differences, with
 * and without gradients of parameters. tests/python/test_encoder_decoders.py compares them with PyTorch. */
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/model/seq2seq_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 256 };
typedef enum part { DECODER, CROSS, ENCODER, PARTS } part;

/* A model, its recorded training batch, and the gates of its parts with their gradients. */
typedef struct trial {
    mha_model *model;
    mha_file *recorded;
    seq2seq_pair pair;
    int32_t *labels;
    float gates[PARTS][MAX], dgates[PARTS][MAX];
} trial;

static int64_t cells_of(const trial *t, part p)
{
    const mha_model_info *info = mha_model_describe(p == ENCODER ? mha_model_encoder(t->model) : t->model);
    return info->layers * t->pair.input.batch * info->heads;
}

static void begin(trial *t, int family)
{
    *t = (trial){.model = seq2seq_open(NULL, family), .recorded = seq2seq_recorded(family)};
    seq2seq_read(t->recorded, "train", &t->pair);
    t->labels = case_ints(t->recorded, "train/labels");
    for (int p = 0; p < PARTS; p++) {
        assert_true(cells_of(t, (part)p) <= MAX);
        for (int64_t n = 0; n < MAX; n++)
            t->gates[p][n] = 1 - 0.3F * (float)((n + p) % 3);
    }
    t->pair.input.gates = t->gates[DECODER];
    t->pair.input.cross_gates = t->gates[CROSS];
    t->pair.source.gates = t->gates[ENCODER];
}

static void end(trial *t)
{
    free(t->labels);
    seq2seq_free(&t->pair);
    mha_file_free(t->recorded);
    mha_model_free(t->model);
}

static double loss_of(trial *t, mha_model_grads *grads, int loss_only)
{
    const mha_model_loss_args args = {.size = sizeof args,
                                      .labels = t->labels,
                                      .loss_only = loss_only,
                                      .dgates = loss_only ? NULL : t->dgates[DECODER],
                                      .dcross_gates = loss_only ? NULL : t->dgates[CROSS],
                                      .dencoder_gates = loss_only ? NULL : t->dgates[ENCODER]};
    double loss = 0;
    mha_error err = {0};
    if (mha_model_grads_loss(grads, &t->pair.input, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    return loss;
}

static mha_model_grads *create(const trial *t, int recompute, int no_parameters)
{
    const mha_model_grads_options o = {.size = sizeof o, .recompute = recompute, .no_parameters = no_parameters};
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    if (mha_model_grads_create(t->model, &o, &grads, &err) != MHA_OK) fail_msg("%s", err.message);
    return grads;
}

/* The gradient of every gate must be the central difference of the loss. */
static void test_gradients_are_differences(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        trial t;
        begin(&t, f);
        mha_model_grads *grads = create(&t, 0, 1);
        loss_of(&t, grads, 0);
        for (int p = 0; p < PARTS; p++)
            for (int64_t n = 0; n < cells_of(&t, (part)p); n++) {
                const float was = t.gates[p][n], step = 0.004F;
                t.gates[p][n] = was + step;
                const double up = loss_of(&t, grads, 1);
                t.gates[p][n] = was - step;
                const double down = loss_of(&t, grads, 1), want = (up - down) / (2 * (double)step);
                t.gates[p][n] = was;
                if (fabs(want - (double)t.dgates[p][n]) > 1e-3 + 0.02 * fabs(want))
                    fail_msg("%s, part %d, gate %d: gradient must be %g (got %g)", seq2seq_names[f], p, (int)n, want,
                             (double)t.dgates[p][n]);
            }
        mha_model_grads_free(grads);
        end(&t);
    }
}

/* Recomputation and gradients of parameters must not change a bit. */
static void test_options_change_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        trial t;
        float first[PARTS][MAX] = {{0}};
        begin(&t, f);
        for (int n = 0; n < 4; n++) {
            mha_model_grads *grads = create(&t, n & 1, n >> 1);
            loss_of(&t, grads, 0);
            if (n == 0) memcpy(first, t.dgates, sizeof first);
            assert_memory_equal(first, t.dgates, sizeof first);
            mha_model_grads_free(grads);
        }
        end(&t);
    }
}

/* Gates of 1 must not change a bit, and a gate of 0 in the cross-attention must change the logits. */
static void test_gates_of_the_forward_pass(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        trial t;
        begin(&t, f);
        const size_t bytes = (size_t)(t.pair.input.batch * t.pair.input.length) *
                             (size_t)mha_model_describe(t.model)->vocab * sizeof(float);
        for (int64_t n = 0; n < MAX; n++)
            t.gates[DECODER][n] = t.gates[CROSS][n] = t.gates[ENCODER][n] = 1;
        float *ones = seq2seq_logits(t.model, &t.pair.input);
        t.gates[CROSS][1] = 0;
        float *removed = seq2seq_logits(t.model, &t.pair.input);
        t.pair.input.gates = t.pair.input.cross_gates = t.pair.source.gates = NULL;
        float *plain = seq2seq_logits(t.model, &t.pair.input);
        assert_memory_equal(ones, plain, bytes);
        assert_true(memcmp(removed, plain, bytes) != 0);
        free(ones);
        free(removed);
        free(plain);
        end(&t);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    trial t;
    mha_error err = {0};
    float x[MAX];
    begin(&t, SEQ2SEQ_T5);
    mha_model_input source = t.pair.source;
    source.cross_gates = x;
    assert_int_equal(mha_model_forward(mha_model_encoder(t.model), &source, NULL, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "cross_gates must be NULL, since t5 is not"));
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_differences),
        cmocka_unit_test(test_options_change_no_bit),
        cmocka_unit_test(test_gates_of_the_forward_pass),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
