/* test_prune_minilm.c - heads chosen, removed, filled and refitted on all-MiniLM-L6-v2, against reference results
 * (float64, PyTorch).
 *
 * Needs the real weights: the folder named by MHA_MINILM, or where `./run fetch minilm` puts them. Sentences, scores
 * and results are those of the reference. */
#include "mha/compare_models.h"
#include "mha/prune.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/save_edit.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 6, HEADS = 12, TOTAL = LAYERS * HEADS, TEXTS = 24, WIDTH = 384 };

/* The least tolerance of the reference, ten times the error of a float32 run. */
#define LIMIT 8.8e-7

static mha_model *model;
static mha_file *golden, *scores;
static mha_head_data *data;
static const char *texts[TEXTS];

static void read_keep(const char *name, int64_t row, uint8_t *keep)
{
    float *stored = case_floats(golden, name);
    for (int h = 0; h < TOTAL; h++)
        keep[h] = stored[row * TOTAL + h] != 0;
    free(stored);
}

/* ---- choice ---- */

static void expect_choice(const char *score, int per_layer, bool most, const char *name)
{
    uint8_t got[TOTAL], want[TOTAL];
    double values[TOTAL];
    mha_error err = {0};
    const int64_t as_many = LAYERS * 4; /* of all layers, as ceil(12 0.3) of each */
    const mha_prune_rule rule = {
        .size = sizeof rule, .ratio = 0.3, .per_layer = per_layer, .count = per_layer ? 0 : as_many};
    float *stored = case_floats(scores, score);
    for (int h = 0; h < TOTAL; h++)
        values[h] = most ? -(double)stored[h] : (double)stored[h];
    free(stored);
    if (mha_prune_choose(model, values, &rule, got, &err) != MHA_OK) fail_msg("%s", err.message);
    read_keep(name, 0, want);
    for (int h = 0; h < TOTAL; h++)
        if (got[h] != want[h]) fail_msg("%s: head %d.%d is %s", name, h / HEADS, h % HEADS, got[h] ? "kept" : "gone");
}

static void test_choices(void **state)
{
    (void)state;
    expect_choice("gradmag", 1, false, "keep_gradmag");
    expect_choice("gate", 1, false, "keep_gate");
    expect_choice("loo", 1, false, "keep_loo");
    expect_choice("jacobian", 1, false, "keep_jacobian");
    expect_choice("loo", 1, true, "keep_most");
    expect_choice("loo", 0, false, "keep_loo_global");
}

/* ---- what is left ---- */

/* Embeddings of the 24 sentences, of length 1; gates [LAYERS, HEADS] or NULL. */
static void embed(const mha_model *m, const float *gates, float *out)
{
    for (int64_t i = 0; i < TEXTS; i++) {
        int64_t length = 0;
        mha_error err = {0};
        const int32_t *ids = mha_head_data_ids(data, i, &length);
        float *x = malloc((size_t)(length * WIDTH) * sizeof *x);
        const mha_model_input input = {.size = sizeof input, .batch = 1, .length = length, .ids = ids, .gates = gates};
        const mha_model_output output = {.size = sizeof output, .last_hidden = x};
        if (mha_model_forward(m, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
        double sum[WIDTH] = {0}, square = 0;
        for (int64_t n = 0; n < length * WIDTH; n++)
            sum[n % WIDTH] += (double)x[n];
        for (int e = 0; e < WIDTH; e++)
            square += sum[e] * sum[e];
        for (int e = 0; e < WIDTH; e++)
            out[i * WIDTH + e] = (float)(sum[e] / sqrt(square));
        free(x);
    }
}

/* The pruned model's cosines (and, where the reference has them, embeddings) are those of the reference. */
static void expect_result(const uint8_t *keep, const mha_prune_options *options, const char *cosines,
                          const char *embeddings)
{
    mha_model_edit *edit;
    mha_model *pruned;
    mha_error err = {0};
    double got[TEXTS];
    mha_comparison c;
    if (mha_prune(model, keep, options, &edit, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_model_edit_open(edit, &pruned, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_models_compare(model, pruned, data, got, NULL, &c, &err) != MHA_OK) fail_msg("%s", err.message);
    float *want = case_floats(golden, cosines), near[TEXTS];
    for (int i = 0; i < TEXTS; i++)
        near[i] = (float)got[i];
    double worst = case_near(cosines, near, want, TEXTS, LIMIT), worst_embedding = 0;
    free(want);
    if (embeddings) {
        float *vectors = malloc(sizeof(float) * TEXTS * WIDTH);
        embed(pruned, NULL, vectors);
        want = case_floats(golden, embeddings);
        worst_embedding = case_near(embeddings, vectors, want, TEXTS * WIDTH, LIMIT);
        free(want);
        free(vectors);
    }
    print_message("%s: mean %.6f, within %.2g; embeddings within %.2g\n", cosines, c.mean_cosine, worst,
                  worst_embedding);
    assert_true(isnan(c.loss[0]) && c.foreseen == 0 && c.texts == TEXTS);
    mha_model_free(pruned);
    mha_model_edit_free(edit);
}

static const char *const chosen[] = {"gradmag", "gate", "loo", "jacobian", "most", "loo_global"};

static void test_removed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        uint8_t keep[TOTAL];
        char kept[60], cosine[60], embedding[60];
        snprintf(kept, sizeof kept, "keep_%s", chosen[i]);
        snprintf(cosine, sizeof cosine, "cos_%s", chosen[i]);
        snprintf(embedding, sizeof embedding, "embedding_%s", chosen[i]);
        read_keep(kept, 0, keep);
        expect_result(keep, NULL, cosine, embedding);
    }
}

static void test_filled(void **state)
{
    (void)state;
    const mha_prune_options filled = {.size = sizeof filled, .fill = data};
    for (size_t i = 0; i + 1 < sizeof chosen / sizeof *chosen; i++) { /* the last has no cosines, but its mean */
        uint8_t keep[TOTAL];
        char kept[60], cosine[60];
        snprintf(kept, sizeof kept, "keep_%s", chosen[i]);
        snprintf(cosine, sizeof cosine, "cos_meanfill_%s", chosen[i]);
        read_keep(kept, 0, keep);
        expect_result(keep, &filled, cosine, NULL);
    }
}

static void test_refitted(void **state)
{
    (void)state;
    const mha_prune_options refitted = {.size = sizeof refitted, .refit = data};
    uint8_t keep[TOTAL];
    read_keep("keep_loo", 0, keep);
    expect_result(keep, &refitted, "cos_refit_loo", "embedding_refit_loo");
    read_keep("keep_loo_global", 0, keep);
    expect_result(keep, &refitted, "cos_refit_loo_global", "embedding_refit_loo_global");
}

/* Twenty choices at random: their mean cosines are those of the reference. */
static void test_random(void **state)
{
    (void)state;
    float got[20], *want = case_floats(golden, "cos_random");
    for (int row = 0; row < 20; row++) {
        uint8_t keep[TOTAL];
        mha_model_edit *edit;
        mha_model *pruned;
        mha_comparison c;
        read_keep("keep_random", row, keep);
        assert_int_equal(mha_prune(model, keep, NULL, &edit, NULL), MHA_OK);
        assert_int_equal(mha_model_edit_open(edit, &pruned, NULL), MHA_OK);
        assert_int_equal(mha_models_compare(model, pruned, data, NULL, NULL, &c, NULL), MHA_OK);
        got[row] = (float)c.mean_cosine;
        mha_model_free(pruned);
        mha_model_edit_free(edit);
    }
    case_near("cos_random", got, want, 20, LIMIT);
    free(want);
}

/* Removed for real, stored and loaded: to the bit what gates of 0 give. */
static void test_removed_is_gated_off(void **state)
{
    (void)state;
    uint8_t keep[TOTAL];
    float gates[TOTAL], *off = malloc(sizeof(float) * TEXTS * WIDTH), *gone = malloc(sizeof(float) * TEXTS * WIDTH);
    const char *folder = files_folder();
    char out[300];
    snprintf(out, sizeof out, "%s/out", folder);
    read_keep("keep_loo_global", 0, keep);
    for (int h = 0; h < TOTAL; h++)
        gates[h] = keep[h];
    save_pruned(model, keep, NULL, out);
    mha_model *pruned = case_model(NULL, out, NULL);
    embed(model, gates, off);
    embed(pruned, NULL, gone);
    assert_memory_equal(off, gone, sizeof(float) * TEXTS * WIDTH);
    mha_model_free(pruned);
    free(off);
    free(gone);
    files_remove(out);
    files_remove(folder);
}

/* ---- set-up ---- */

static int set_up(void **state)
{
    (void)state;
    mha_error err = {0};
    model = case_model(NULL, case_minilm(), NULL);
    golden = case_file("heads/minilm-pruning.safetensors");
    scores = case_file("heads/minilm-importance.safetensors");
    json_t *sentences = json_load_file(MHA_TEST_DATA "/heads/sentences.json", 0, NULL);
    for (int i = 0; i < TEXTS; i++)
        texts[i] = json_string_value(json_array_get(json_object_get(sentences, i < 12 ? "a" : "b"), (size_t)i % 12));
    const mha_status status = mha_head_data_of_texts(model, texts, TEXTS, NULL, &data, &err);
    json_decref(sentences);
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    return status != MHA_OK;
}

static int tear_down(void **state)
{
    (void)state;
    mha_head_data_free(data);
    mha_model_free(model);
    mha_file_free(golden);
    mha_file_free(scores);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices),  cmocka_unit_test(test_removed), cmocka_unit_test(test_filled),
        cmocka_unit_test(test_refitted), cmocka_unit_test(test_random),  cmocka_unit_test(test_removed_is_gated_off),
    };
    if (!case_minilm()) {
        printf("skipped: MiniLM is not here; ./run fetch minilm\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
