/* test_ablation_minilm.c - heads of all-MiniLM-L6-v2 left out one by one, over 12 pairs of sentences, against reference
 * values (float64, PyTorch). Needs the real weights, as test_heads_minilm.c. */
#include "support/check.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mha/importance.h"
#include "support/model/model_case.h"

enum { LAYERS = 6, HEADS = 12, TOTAL = LAYERS * HEADS, TEXTS = 24 };

static mha_model *model;
static mha_head_data *data;
static mha_file *golden;

/* Tolerances: abs_tolerance of the reference's index.json, ten times a float32 run's error. */
static void scores(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        mha_importance_options options;
        double limit;
    } cases[] = {
        {"loo", {.by = MHA_SCORE_LOO}, 5.1e-7},
        {"loo_loss", {.by = MHA_SCORE_LOO_LOSS, .loss = MHA_LOSS_PAIRS}, 1.2e-6},
        {"loo_mean", {.by = MHA_SCORE_LOO_MEAN}, 4.1e-7},
        {"loo_mean_loss", {.by = MHA_SCORE_LOO_MEAN_LOSS, .loss = MHA_LOSS_PAIRS}, 1e-6},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        mha_importance_options own = cases[c].options;
        mha_importance *i = NULL;
        mha_error err = {0};
        double worst = 0;
        own.size = sizeof own;
        if (mha_importance_measure(model, data, &own, &i, &err) != MHA_OK) fail_msg("%s", err.message);
        float *want = case_floats(golden, cases[c].name);
        for (int n = 0; n < TOTAL; n++) {
            const double difference = fabs(mha_importance_value(i, n / HEADS, n % HEADS) - (double)want[n]);
            if (!(difference <= worst)) worst = difference; /* a NAN stays */
        }
        printf("%-14s worst %.2e of %.2e\n", cases[c].name, worst, cases[c].limit);
        if (!(worst <= cases[c].limit)) fail_msg("%s: error %.3g, limit %.3g", cases[c].name, worst, cases[c].limit);
        free(want);
        mha_importance_free(i);
    }
}

/* ---- the means that heads are replaced by ---- */

typedef struct means {
    double sum[TOTAL * 32];
    int64_t tokens;
} means;

static int add_context(void *user, const mha_model_activations *a)
{
    means *m = user;
    const int64_t wide = a->heads * a->head_dim;
    assert_true(a->heads == HEADS && a->head_dim == 32);
    for (int64_t n = 0; n < a->rows * wide; n++)
        m->sum[a->layer * wide + n % wide] += (double)a->context[n];
    if (a->layer == 0) m->tokens += a->rows;
    return 0;
}

static void mean_contexts(void **state)
{
    (void)state;
    means m = {{0}, 0};
    float *want = case_floats(golden, "mean_ctx");
    for (int64_t t = 0; t < TEXTS; t++) {
        int64_t length;
        const int32_t *ids = mha_head_data_ids(data, t, &length);
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = length, .ids = ids};
        const mha_model_output out = {.size = sizeof out, .on_activations = add_context, .user = &m};
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
    }
    for (int n = 0; n < TOTAL * 32; n++)
        assert_true(fabs(m.sum[n] / (double)m.tokens - (double)want[n]) <= 2.1e-6);
    free(want);
}

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
    mha_model_free(model);
    return 0;
}

int main(void)
{
    if (!case_minilm()) {
        printf("skipped: no all-MiniLM-L6-v2 in $MHA_MINILM or the cache folder; ./run fetch minilm gets it\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores), cmocka_unit_test(mean_contexts)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
