/* test_importance_minilm.c - every score of importance on all-MiniLM-L6-v2 and 12 pairs of sentences, against reference
 * values (float64, PyTorch). Needs the real weights, as test_heads_minilm.c. */
#include "support/check.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/importance.h"
#include "support/model/model_case.h"

enum { LAYERS = 6, HEADS = 12, TOTAL = LAYERS * HEADS, TEXTS = 24 };

static mha_model *model;
static mha_head_data *data;
static mha_file *golden, *attention;

static mha_importance *measure(const mha_importance_options *options)
{
    mha_importance *i = NULL;
    mha_error err = {0};
    mha_importance_options own = *options;
    own.size = sizeof own;
    if (mha_importance_measure(model, data, &own, &i, &err) != MHA_OK) fail_msg("%s", err.message);
    return i;
}

/* Tolerances: abs_tolerance of the reference's index.json, ten times a float32 run's error. */
static const struct {
    const char *name;
    mha_importance_options options;
    double limit;
} cases[] = {
    {"gate", {.by = MHA_SCORE_GATE, .loss = MHA_LOSS_PAIRS}, 1.6e-7},
    {"gate_scale20", {.by = MHA_SCORE_GATE, .loss = MHA_LOSS_PAIRS, .loss_scale = 20}, 2e-7},
    {"gate_batch", {.by = MHA_SCORE_GATE_BATCH, .loss = MHA_LOSS_PAIRS}, 2.7e-7},
    {"gate_layer_l2", {.by = MHA_SCORE_GATE_LAYER_L2, .loss = MHA_LOSS_PAIRS}, 3.2e-6},
    {"taylor_token", {.by = MHA_SCORE_TAYLOR_TOKEN, .loss = MHA_LOSS_PAIRS}, 2e-7},
    {"taylor_elem", {.by = MHA_SCORE_TAYLOR_ELEM, .loss = MHA_LOSS_PAIRS}, 4.1e-7},
    {"gradmag", {.by = MHA_SCORE_GRADMAG, .loss = MHA_LOSS_PAIRS}, 6e-9},
    {"gradmag_3batches", {.by = MHA_SCORE_GRADMAG, .loss = MHA_LOSS_PAIRS, .batch_texts = 4}, 4.5e-9},
    {"gradmag_scale20", {.by = MHA_SCORE_GRADMAG, .loss = MHA_LOSS_PAIRS, .loss_scale = 20}, 1.6e-9},
    {"jacobian", {.by = MHA_SCORE_JACOBIAN}, 7.5e-8},
    {"jacobian_probe4", {.by = MHA_SCORE_JACOBIAN_PROBE}, 9.2e-8},
    {"confidence", {.by = MHA_SCORE_CONFIDENCE}, 1e-6},
    {"confidence_nospecial", {.by = MHA_SCORE_CONFIDENCE_NOSPECIAL}, 1e-6},
    {"ov_norm", {.by = MHA_SCORE_OV_NORM}, 1.5e-4},
    {"qk_norm", {.by = MHA_SCORE_QK_NORM}, 1e-4},
};
enum { CASES = sizeof cases / sizeof *cases };

/* The exact Jacobian is 384 ways back: five minutes without vectors, where test_importance has it on small models. */
static bool takes_minutes(const char *name)
{
    if (strcmp(name, "jacobian") || strcmp(mha_ctx_isa(mha_model_ctx(model)), "scalar")) return false;
    printf("skipped: the exact Jacobian of MiniLM, which takes minutes without vectors\n");
    return true;
}

static void scores(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        if (takes_minutes(cases[c].name)) continue;
        mha_importance *i = measure(&cases[c].options);
        float *want = case_floats(mha_file_find(golden, cases[c].name) ? golden : attention, cases[c].name);
        double worst = 0;
        for (int n = 0; n < TOTAL; n++) {
            const double difference = fabs(mha_importance_value(i, n / HEADS, n % HEADS) - (double)want[n]);
            if (!(difference <= worst)) worst = difference; /* a NAN stays */
        }
        const double identity = mha_importance_identity(i);
        assert_true(cases[c].options.loss ? identity < 2e-5 : isnan(identity));
        printf("%-20s identity %.1e worst %.2e of %.2e\n", cases[c].name, identity, worst, cases[c].limit);
        if (!(worst <= cases[c].limit)) fail_msg("%s: error %.3g, limit %.3g", cases[c].name, worst, cases[c].limit);
        free(want);
        mha_importance_free(i);
    }
}

static void losses(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double scale, limit;
    } both[] = {{"loss", 0, 3.8e-7}, {"loss_scale20", 20, 2.7e-7}};
    for (int n = 0; n < 2; n++) {
        mha_importance *i = measure(
            &(mha_importance_options){.by = MHA_SCORE_GATE, .loss = MHA_LOSS_PAIRS, .loss_scale = both[n].scale});
        float *want = case_floats(golden, both[n].name);
        assert_true(fabs(mha_importance_loss(i) - (double)*want) <= both[n].limit);
        assert_int_equal(mha_importance_saturated(i), n == 1);
        assert_int_equal(mha_importance_texts_used(i), TEXTS);
        free(want);
        mha_importance_free(i);
    }
}

/* ---- set-up ---- */

static int set_up(void **state)
{
    mha_error err = {0};
    const char *texts[TEXTS];
    json_t *sentences = json_load_file(MHA_TEST_DATA "/heads/sentences.json", 0, NULL);
    *state = sentences;
    for (int i = 0; i < TEXTS; i++)
        texts[i] = json_string_value(json_array_get(json_object_get(sentences, i < 12 ? "a" : "b"), (size_t)i % 12));
    if (mha_model_open(NULL, case_minilm(), NULL, &model, &err) == MHA_OK &&
        mha_file_open(NULL, MHA_TEST_DATA "/heads/minilm-importance.safetensors", NULL, &golden, &err) == MHA_OK &&
        mha_file_open(NULL, MHA_TEST_DATA "/heads/minilm-attention.safetensors", NULL, &attention, &err) == MHA_OK &&
        mha_head_data_of_texts(model, texts, TEXTS, NULL, &data, &err) == MHA_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return 1;
}

static int tear_down(void **state)
{
    json_decref(*state);
    mha_head_data_free(data);
    mha_file_free(golden);
    mha_file_free(attention);
    mha_model_free(model);
    return 0;
}

int main(void)
{
    if (!case_minilm()) {
        printf("skipped: no all-MiniLM-L6-v2 in $MHA_MINILM or the cache folder; ./run fetch minilm gets it\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores), cmocka_unit_test(losses)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
