/* test_regroup_minilm.c - heads that share keys and values on all-MiniLM-L6-v2, against reference results (float64,
 * PyTorch).
 *
 * Needs the real weights: the folder named by MHA_MINILM, or where `./run fetch minilm` puts them. */
#include "mha/compare_models.h"
#include "mha/regroup.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/save_edit.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 6, HEADS = 12, TEXTS = 24, WIDTH = 384, D = 32 };

static mha_model *model;
static mha_file *golden;
static mha_head_data *data;
static json_t *index_json;
static const char *texts[TEXTS];

/* The form as published: neighbours, keys as they are, no refit. */
#define PUBLISHED(...)       \
    (&(mha_regroup_options){ \
        .size = sizeof(mha_regroup_options), .fit = data, .contiguous = 1, .uncentered = 1, .ridge = -1, __VA_ARGS__})

/* The tolerance of the reference for a tensor. */
static double limit_of(const char *name)
{
    const json_t *entry =
        json_object_get(json_object_get(json_object_get(index_json, "files"), "minilm-gqa.safetensors"), name);
    const double limit = json_real_value(json_object_get(entry, "abs_tolerance"));
    assert_non_null(entry);
    return limit > 0 ? limit : 1e-7; /* weights: a mean of numbers below 1, rounded to f32 */
}

/* Embeddings of the 24 sentences, of length 1. */
static void embed(const mha_model *m, float *out)
{
    for (int64_t i = 0; i < TEXTS; i++) {
        int64_t length = 0;
        mha_error err = {0};
        const int32_t *ids = mha_head_data_ids(data, i, &length);
        float *x = malloc((size_t)(length * WIDTH) * sizeof *x);
        const mha_model_input input = {.size = sizeof input, .batch = 1, .length = length, .ids = ids};
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

static double compare(const char *name, const float *got, int64_t count)
{
    float *want = case_floats(golden, name);
    const double worst = case_near(name, got, want, count, limit_of(name));
    free(want);
    return worst;
}

/* The regrouped model's cosines and embeddings, where the reference has them, are those of the reference. */
static void expect(const mha_regroup_options *options, const char *name)
{
    mha_model_edit *edit;
    mha_model *small;
    mha_error err = {0};
    double got[TEXTS];
    float near[TEXTS], *vectors = malloc(sizeof(float) * TEXTS * WIDTH);
    char cosine[60], embedding[60];
    mha_comparison c;
    if (mha_regroup(model, options, &edit, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_model_edit_open(edit, &small, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_models_compare(model, small, data, got, NULL, &c, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int i = 0; i < TEXTS; i++)
        near[i] = (float)got[i];
    snprintf(cosine, sizeof cosine, "cos_%s", name);
    snprintf(embedding, sizeof embedding, "embedding_%s", name);
    const double worst = compare(cosine, near, TEXTS);
    double worst_embedding = 0;
    if (mha_file_find(golden, embedding)) {
        embed(small, vectors);
        worst_embedding = compare(embedding, vectors, (int64_t)TEXTS * WIDTH);
    }
    print_message("%s: mean %.6f, within %.2g; embeddings within %.2g\n", name, c.mean_cosine, worst, worst_embedding);
    free(vectors);
    mha_model_free(small);
    mha_model_edit_free(edit);
}

static void test_mean(void **state)
{
    (void)state;
    static const int counts[] = {6, 4, 3, 2, 1};
    for (int n = 0; n < 5; n++) {
        char name[20];
        snprintf(name, sizeof name, "kv%d", counts[n]);
        const mha_regroup_options o = {
            .size = sizeof o, .method = MHA_REGROUP_MEAN, .key_heads = counts[n], .value_heads = counts[n]};
        expect(&o, name);
    }
}

static void test_closed(void **state)
{
    (void)state;
    expect(PUBLISHED(.key_heads = 6, .value_heads = 6), "lowrank_k6_v6");
    expect(PUBLISHED(.key_heads = 4, .value_heads = 4), "lowrank_k4_v4");
    expect(PUBLISHED(.key_heads = 1, .value_heads = 1), "lowrank_k1_v1");
    expect(PUBLISHED(.key_heads = 6), "lowrank_k6_v12");
    expect(PUBLISHED(.key_heads = 1), "lowrank_k1_v12");
    expect(PUBLISHED(.value_heads = 6), "lowrank_k12_v6");
}

/* ---- the stored weights ---- */

static void expect_part(const mha_file *file, const char *tensor, int64_t first, int64_t count, const char *name)
{
    float *all = case_floats(file, tensor);
    compare(name, all + first, count);
    free(all);
}

static void test_stored_weights(void **state)
{
    (void)state;
    const mha_regroup_options o = {.size = sizeof o, .method = MHA_REGROUP_MEAN, .key_heads = 4, .value_heads = 4};
    const char *folder = files_folder();
    char out[300];
    snprintf(out, sizeof out, "%s/out", folder);
    save_regrouped(model, &o, out);
    char path[320];
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    mha_file *file = case_file(path);
    expect_part(file, "encoder.layer.0.attention.self.key.weight", 0, D * WIDTH, "layer0_head0_k_weight");
    expect_part(file, "encoder.layer.0.attention.self.value.weight", 0, D * WIDTH, "layer0_head0_v_weight");
    expect_part(file, "encoder.layer.0.attention.self.key.bias", 0, 4 * D, "layer0_k_bias");
    expect_part(file, "encoder.layer.0.attention.self.value.bias", 0, 4 * D, "layer0_v_bias");
    mha_file_free(file);
    files_remove(out);
    files_remove(folder);
}

/* ---- files ---- */

static void open_all(const char *weights)
{
    mha_error err = {0};
    golden = case_file("heads/minilm-gqa.safetensors");
    index_json = json_load_file(MHA_TEST_DATA "/heads/index.json", 0, NULL);
    const json_t *a = json_object_get(json_object_get(index_json, "sentences"), "a");
    const json_t *b = json_object_get(json_object_get(index_json, "sentences"), "b");
    for (size_t i = 0; i < TEXTS; i++)
        texts[i] = json_string_value(json_array_get(i < TEXTS / 2 ? a : b, i % (TEXTS / 2)));
    model = case_model(NULL, weights, NULL);
    if (mha_head_data_of_texts(model, texts, TEXTS, NULL, &data, &err) != MHA_OK) fail_msg("%s", err.message);
}

int main(void)
{
    const char *weights = case_minilm();
    if (!weights) {
        puts("skipped: MiniLM is not on this machine (./run fetch minilm)");
        return 77;
    }
    open_all(weights);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mean), cmocka_unit_test(test_closed),
                                       cmocka_unit_test(test_stored_weights)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mha_head_data_free(data);
    mha_model_free(model);
    mha_file_free(golden);
    json_decref(index_json);
    return failed;
}
