/* test_heads_tinylm.c - measures every head of a small causal model without a tokenizer on token ids, and compares
 * scores and labels with references (float64, PyTorch). Each text is token 0 followed by 15 random tokens twice, so
 * each text is also a probe. The tolerance is abs_tolerance of the reference's index.json, ten times the error of a
 * float32 run. */
#include "mha/heads.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdlib.h>

enum { LAYERS = 2, HEADS = 4, TOTAL = LAYERS * HEADS, TEXTS = 4, LENGTH = 31, PERIOD = 15, SCORES = 12 };

static const mha_head_metric score_order[SCORES] = {MHA_HEAD_PREV,     MHA_HEAD_NEXT,      MHA_HEAD_SELF,
                                                    MHA_HEAD_FIRST,    MHA_HEAD_SEP,       MHA_HEAD_PUNCT,
                                                    MHA_HEAD_WINDOW2,  MHA_HEAD_BROAD,     MHA_HEAD_VERTICAL,
                                                    MHA_HEAD_TOEPLITZ, MHA_HEAD_DUP_PROBE, MHA_HEAD_INDUCTION_PROBE};
static const mha_head_label label_order[SCORES] = {
    MHA_LABEL_MIXED, MHA_LABEL_PREV,  MHA_LABEL_NEXT,     MHA_LABEL_SELF,      MHA_LABEL_FIRST,     MHA_LABEL_SEP,
    MHA_LABEL_LOCAL, MHA_LABEL_BROAD, MHA_LABEL_VERTICAL, MHA_LABEL_DUPLICATE, MHA_LABEL_INDUCTION, MHA_LABEL_PUNCT};

static mha_model *open_model(void)
{
    const mha_model_options untold = {.size = sizeof untold, .no_tokenizer = 1};
    return case_model(NULL, "heads/tinylm", &untold);
}

static void check_metric(const mha_heads *heads, mha_head_metric metric, const float *want, double limit)
{
    for (int h = 0; h < TOTAL; h++) {
        const double got = mha_heads_value(heads, h / HEADS, h % HEADS, metric);
        const bool none = isnan(got) && want[h] == 0; /* the reference has 0 for undefined scores */
        if (!none && !(fabs(got - (double)want[h]) <= limit))
            fail_msg("%s of head %d: got %.9g, expected %.9g", mha_head_metric_key(metric), h, got, (double)want[h]);
    }
}

static mha_heads *measure(const mha_model *model, const int32_t *ids)
{
    mha_head_data *data;
    mha_heads *heads;
    mha_error err = {0};
    int64_t starts[TEXTS + 1] = {0};
    int32_t r[TEXTS * PERIOD];
    const int32_t first = 0;
    for (int64_t b = 0; b < TEXTS; b++) {
        starts[b + 1] = (b + 1) * LENGTH;
        for (int i = 0; i < PERIOD; i++)
            r[b * PERIOD + i] = ids[b * LENGTH + 1 + i];
    }
    const mha_head_data_options how = {.size = sizeof how, .special = &first, .special_count = 1};
    if (mha_head_data_of_ids(model, ids, starts, TEXTS, &how, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    const mha_heads_options options = {
        .size = sizeof options,
        .probe = {.ids = r, .texts = TEXTS, .period = PERIOD, .first = &first, .first_count = 1}};
    if (mha_heads_measure_data(model, data, &options, &heads, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_head_data_free(data);
    return heads;
}

static void scores_and_labels(void **state)
{
    (void)state;
    mha_model *model = open_model();
    mha_file *file = case_file("heads/tinylm-golden.safetensors");
    int32_t *ids = case_ints(file, "input_ids"), *labels = case_ints(file, "labels");
    mha_heads *heads = measure(model, ids);
    float *scores = case_floats(file, "pattern_scores");
    for (int s = 0; s < SCORES; s++)
        check_metric(heads, score_order[s], scores + s * TOTAL, 1.1e-6);
    static const struct {
        const char *name;
        mha_head_metric metric;
        double limit;
    } others[] = {{"entropy", MHA_HEAD_ENTROPY, 2.7e-6},
                  {"distance", MHA_HEAD_DISTANCE, 1e-5},
                  {"confidence", MHA_HEAD_CONFIDENCE, 1e-6}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        float *want = case_floats(file, others[i].name);
        check_metric(heads, others[i].metric, want, others[i].limit);
        free(want);
    }
    for (int h = 0; h < TOTAL; h++)
        assert_int_equal(mha_heads_label(heads, h / HEADS, h % HEADS), label_order[labels[h]]);
    mha_heads_free(heads);
    free(scores), free(labels), free(ids);
    mha_file_free(file);
    mha_model_free(model);
}

/* Without a tokenizer, probe texts must be random ids, and induction heads must still be found. */
static void drawn_probes(void **state)
{
    (void)state;
    mha_model *model = open_model();
    mha_file *file = case_file("heads/tinylm-golden.safetensors");
    int32_t *ids = case_ints(file, "input_ids");
    const int64_t starts[2] = {0, LENGTH};
    mha_head_data *data;
    mha_heads *heads;
    mha_error err = {0};
    assert_int_equal(mha_head_data_of_ids(model, ids, starts, 1, NULL, &data, &err), MHA_OK);
    if (mha_heads_measure_data(model, data, NULL, &heads, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int h = 0; h < HEADS; h++)
        assert_int_equal(mha_heads_label(heads, 1, h), MHA_LABEL_INDUCTION);
    mha_heads_free(heads);
    mha_head_data_free(data);
    free(ids);
    mha_file_free(file);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores_and_labels), cmocka_unit_test(drawn_probes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
