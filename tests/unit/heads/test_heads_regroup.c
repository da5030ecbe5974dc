/* test_heads_regroup.c - tests merging of key and value heads in every family. The result must be exact if the rank of
 * a group is at most the head width, and can also be saved in shapes that transformers loads. Also tests errors. */
#include "mha/compare_models.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/heads/regroup_case.h"
#include "support/model/model_case.h"
#include "support/model/save_edit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 6 }; /* of bert-mlm-tiny */

static const char *folder; /* the folder to which all models are saved */

static mha_model *save_and_open(const mha_model *model, const mha_regroup_options *o)
{
    save_regrouped(model, o, folder);
    return case_open(NULL, folder);
}

/* ---- models whose heads span the same subspace in pairs ---- */

/* Returns a copy of the model in which the odd key/value head of each pair is the even head multiplied by an invertible
 * matrix. One head can represent both without error, but their mean cannot. */
static mha_model *turned(const char *key, const char *value, const char *query, const char *out, int64_t layers,
                         int64_t heads, int64_t D, int64_t E)
{
    static float room[64][64 * 64];
    static char names[64][128];
    mha_named_tensor list[64];
    int64_t count = 0;
    const char *parts[] = {query, key, value, out};
    mha_file *file = case_file("models/bert-mlm-tiny/model.safetensors");
    for (int64_t l = 0; l < layers; l++)
        for (int p = 0; p < 4; p++) {
            snprintf(names[count], sizeof names[count], "bert.encoder.layer.%lld.%s.weight", (long long)l, parts[p]);
            float *from = case_floats(file, names[count]), *to = room[count];
            for (int64_t h = 0; h < heads; h++)
                for (int64_t i = 0; i < D; i++)
                    for (int64_t e = 0; e < E; e++) {
                        /* row i of an odd head is row (i + 3) % D of the even head before it, times 2 */
                        const bool odd = h % 2 == 1;
                        const int64_t j = odd ? (i + 3) % D : i, shared = odd ? h - 1 : h;
                        const float size = odd ? 2 : 1;
                        if (p == 1 || p == 2) to[(h * D + i) * E + e] = size * from[(shared * D + j) * E + e];
                        if (p == 0) to[(h * D + i) * E + e] = from[(h * D + i) * E + e];
                        if (p == 3) to[e * E + h * D + i] = from[e * E + h * D + i];
                    }
            list[count] = (mha_named_tensor){
                .name = names[count], .dtype = MHA_F32, .rank = 2, .shape = {heads * D, E}, .data = to};
            count++;
            free(from);
        }
    /* sets all key and value biases to 0, since a merged head has only one bias */
    static float zeros[64];
    for (int64_t l = 0; l < layers; l++)
        for (int p = 1; p < 3; p++) {
            snprintf(names[count], sizeof names[count], "bert.encoder.layer.%lld.%s.bias", (long long)l, parts[p]);
            list[count] = (mha_named_tensor){
                .name = names[count], .dtype = MHA_F32, .rank = 1, .shape = {heads * D}, .data = zeros};
            count++;
        }
    mha_file_free(file);
    mha_error err = {0};
    mha_model *made = NULL;
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .tensors = list, .tensor_count = count};
    static char whole[512];
    snprintf(whole, sizeof whole, "%s/models/bert-mlm-tiny", MHA_TEST_DATA);
    if (mha_model_open(NULL, whole, &o, &made, &err) != MHA_OK) fail_msg("%s", err.message);
    return made;
}

/* If the heads of each group span the same subspace, the closed form must be exact, with or without a search for the
 * head order and a refit. The mean must not be exact. */
static void test_exact_if_rank_permits(void **state)
{
    (void)state;
    mha_model *model = turned("attention.self.key", "attention.self.value", "attention.self.query",
                              "attention.output.dense", 2, 6, 8, 48);
    mha_head_data *data = regroup_data(model);
    float *want = regroup_states(model);
    const mha_regroup_options *some[] = {
        REGROUP(.key_heads = 3, .value_heads = 3, .fit = data, PUBLISHED),
        REGROUP(.key_heads = 3, .fit = data, PUBLISHED),
        REGROUP(.value_heads = 3, .fit = data, PUBLISHED),
        REGROUP(.key_heads = 3, .value_heads = 3, .fit = data, .ridge = -1),
        REGROUP(.key_heads = 3, .value_heads = 3, .fit = data),
        REGROUP(.key_heads = 3, .value_heads = 3, .fit = data, .compatible = 1),
    };
    for (size_t n = 0; n < sizeof some / sizeof *some; n++) {
        mha_model *small = save_and_open(model, some[n]);
        float *got = regroup_states(small);
        case_near("states", got, want, REGROUP_TOKENS * 48, 1e-4);
        const mha_model_info *info = mha_model_describe(small);
        const bool whole = some[n]->compatible;
        assert_int_equal(info->key_heads_per_layer[0], whole || !some[n]->key_heads ? 6 : 3);
        assert_int_equal(info->value_heads_per_layer[1], whole || !some[n]->value_heads ? 6 : 3);
        free(got);
        mha_model_free(small);
    }
    mha_model *mean = save_and_open(model, REGROUP(.key_heads = 3, .value_heads = 3, .method = MHA_REGROUP_MEAN));
    float *got = regroup_states(mean), worst = 0;
    for (int n = 0; n < REGROUP_TOKENS * 48; n++)
        worst = fmaxf(worst, fabsf(got[n] - want[n]));
    assert_true(worst > 1e-2F);
    free(got);
    free(want);
    mha_model_free(mean);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- regrouping in every family ---- */

typedef struct place {
    const char *folder;
    int64_t keys, values;
    mha_regroup_method method;
} place;

static const place places[] = {
    {"models/bert-tiny", 2, 2, MHA_REGROUP_CLOSED},      {"models/bert-mlm-tiny-hubnames", 2, 3, MHA_REGROUP_CLOSED},
    {"models/gpt2-tiny", 1, 2, MHA_REGROUP_CLOSED},      {"families/gpt2-hubnames", 2, 2, MHA_REGROUP_CLOSED},
    {"models/gemma2-tiny", 1, 1, MHA_REGROUP_VALUES},    {"families/llama", 1, 1, MHA_REGROUP_VALUES},
    {"families/llama-f16", 0, 1, MHA_REGROUP_CLOSED},    {"families/llama-sharded", 1, 1, MHA_REGROUP_MEAN},
    {"families/qwen2-window", 1, 0, MHA_REGROUP_VALUES}, {"families/qwen3", 1, 1, MHA_REGROUP_VALUES},
};

/* The edited model must give the same states in memory, saved in smaller shapes, and saved with repeated rows. The
 * saved model must have fewer parameters, and its config must record the regrouping. */
static void test_every_family(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof places / sizeof *places; n++) {
        const place *p = &places[n];
        mha_model *model = case_open(NULL, p->folder);
        mha_head_data *data = regroup_data(model);
        const int64_t numbers = REGROUP_TOKENS * mha_model_describe(model)->hidden;
        mha_regroup_options o = {
            .size = sizeof o, .key_heads = p->keys, .value_heads = p->values, .method = p->method, .fit = data};
        mha_model_edit *edit = regroup_edit(model, &o);
        mha_model *small = regroup_open(edit), *stored = save_and_open(model, &o);
        o.compatible = 1;
        mha_model *repeated = save_and_open(model, &o);
        float *a = regroup_states(small), *b = regroup_states(stored), *c = regroup_states(repeated);
        const double limit = mha_model_describe(model)->dtype == MHA_F32 ? 0 : 0.05;
        case_near("stored", b, a, numbers, limit);
        case_near("compatible", c, b, numbers, 2e-4);
        assert_true(mha_model_describe(stored)->parameters < mha_model_describe(model)->parameters);
        if (p->keys && p->values)
            assert_true(mha_model_describe(stored)->kv_bytes_per_token <=
                        mha_model_describe(model)->kv_bytes_per_token);
        assert_null(strstr(mha_model_config_json(repeated), "mha.kv_heads"));
        assert_non_null(strstr(mha_model_config_json(stored), "\"regrouped\""));
        assert_non_null(strstr(mha_model_config_json(stored), ".safetensors\": \""));
        free(a);
        free(b);
        free(c);
        mha_model_free(small);
        mha_model_free(stored);
        mha_model_free(repeated);
        mha_model_edit_free(edit);
        mha_head_data_free(data);
        mha_model_free(model);
    }
}

static double cosine_of(const mha_model *model, const mha_head_data *data, const mha_regroup_options *o)
{
    mha_model_edit *edit = regroup_edit(model, o);
    mha_model *small = regroup_open(edit);
    mha_comparison c;
    assert_int_equal(mha_models_compare(model, small, data, NULL, NULL, &c, NULL), MHA_OK);
    mha_model_free(small);
    mha_model_edit_free(edit);
    return c.mean_cosine;
}

/* On the texts of the fit, each method must be closer to the original model than the previous method in this order:
 * mean, closed form, closed form with head order and refit. A regrouped model must accept a second regrouping. */
static void test_each_method_improves(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "models/bert-mlm-tiny");
    mha_head_data *data = regroup_data(model);
    const double mean = cosine_of(model, data, REGROUP(.key_heads = 2, .value_heads = 2, .method = MHA_REGROUP_MEAN));
    const double closed = cosine_of(model, data, REGROUP(.key_heads = 2, .value_heads = 2, .fit = data, PUBLISHED));
    const double all = cosine_of(model, data, REGROUP(.key_heads = 2, .value_heads = 2, .fit = data));
    print_message("cosine similarity: mean %.4f, closed form %.4f, with order and refit %.4f\n", mean, closed, all);
    assert_true(mean < closed && closed < all);
    mha_model *three = save_and_open(model, REGROUP(.key_heads = 3, .value_heads = 3, .fit = data));
    mha_model *one = save_and_open(three, REGROUP(.key_heads = 1, .fit = data));
    assert_int_equal(mha_model_describe(one)->key_heads_per_layer[0], 1);
    assert_int_equal(mha_model_describe(one)->value_heads_per_layer[0], 3);
    mha_model_free(one);
    mha_model_free(three);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* The edited weights must give bitwise identical states for any number of threads. */
static void test_threads(void **state)
{
    (void)state;
    float *first = NULL;
    for (int threads = 1; threads <= 3; threads += 2) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options o = {.size = sizeof o, .threads = threads};
        assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
        mha_model *model = case_open(ctx, "models/gpt2-tiny");
        mha_head_data *data = regroup_data(model);
        mha_model_edit *edit = regroup_edit(model, REGROUP(.key_heads = 2, .value_heads = 1, .fit = data));
        mha_model *small = regroup_open(edit);
        float *x = regroup_states(small);
        if (first)
            assert_memory_equal(x, first, (size_t)(REGROUP_TOKENS * mha_model_describe(model)->hidden) * sizeof *x);
        if (first) free(x);
        if (!first) first = x;
        mha_model_free(small);
        mha_model_edit_free(edit);
        mha_head_data_free(data);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    free(first);
}

/* ---- error messages ---- */

static void refused(const mha_model *model, const mha_regroup_options *o, mha_status status, const char *part)
{
    mha_model_edit *edit = NULL;
    mha_error err = {0};
    assert_int_equal(mha_regroup(model, o, &edit, &err), status);
    assert_null(edit);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

static void test_refused(void **state)
{
    (void)state;
    mha_model *bert = case_open(NULL, "models/bert-mlm-tiny"), *llama = case_open(NULL, "families/llama");
    mha_model *qwen = case_open(NULL, "families/qwen3");
    mha_head_data *data = regroup_data(bert), *tokens = regroup_data(llama);
    refused(bert, REGROUP(.fit = data), MHA_ERR_ARG, "key_heads or value_heads must be above 0");
    refused(bert, REGROUP(.key_heads = 4, .fit = data), MHA_ERR_ARG,
            "key_heads must be a divisor of 6, the head count of layer 0 (got 4)");
    refused(bert, REGROUP(.value_heads = -1, .fit = data), MHA_ERR_ARG,
            "value_heads must be a divisor of 6, the head count of layer 0 (got -1)");
    refused(llama, REGROUP(.value_heads = 4, .fit = tokens), MHA_ERR_ARG,
            "value_heads must be at most 2, the source's head count in layer 0 (got 4)");
    refused(bert, REGROUP(.key_heads = 3), MHA_ERR_ARG, "fit must not be NULL");
    refused(bert, REGROUP(.key_heads = 3, .method = MHA_REGROUP_MEAN, .ridge = 1), MHA_ERR_ARG, "fit must not be NULL");
    refused(bert, REGROUP(.key_heads = 3, .fit = data, .ridge = NAN), MHA_ERR_ARG, "ridge must be finite (got nan)");
    refused(bert, REGROUP(.key_heads = 3, .method = (mha_regroup_method)9), MHA_ERR_ARG,
            "method must be a value of mha_regroup_method (got 9)");
    refused(llama, REGROUP(.key_heads = 1, .fit = tokens), MHA_ERR_UNSUPPORTED,
            "which are rotated after the projection");
    assert_int_equal(mha_regroup_default(qwen, 1), MHA_REGROUP_VALUES);
    assert_int_equal(mha_regroup_default(qwen, 0), MHA_REGROUP_CLOSED);
    assert_int_equal(mha_regroup_default(bert, 1), MHA_REGROUP_CLOSED);
    refused(qwen, REGROUP(.key_heads = 1, .fit = tokens), MHA_ERR_UNSUPPORTED, "which are normalized and rotated");
    double odd[2 * HEADS] = {0};
    odd[HEADS + 2] = NAN;
    refused(bert, REGROUP(.key_heads = 3, .method = MHA_REGROUP_MEAN, .scores = odd), MHA_ERR_ARG,
            "the score of head 1.2 must be finite (got nan)");
    assert_string_equal(mha_regroup_method_key(MHA_REGROUP_MEAN), "mean");
    assert_null(mha_regroup_method_key(MHA_REGROUP_METHODS));
    assert_non_null(mha_regroup_method_help(MHA_REGROUP_VALUES));
    mha_head_data_free(data);
    mha_head_data_free(tokens);
    mha_model_free(bert);
    mha_model_free(llama);
    mha_model_free(qwen);
}

/* ---- failed allocations ---- */

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY and free its memory. */
static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .allocator = counting_allocator(&count), .threads = 1};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, "models/bert-mlm-tiny");
    mha_head_data *data = regroup_data(model);
    const long live = atomic_load(&count.live);
    mha_status status = MHA_ERR_MEMORY;
    for (long budget = 0; status == MHA_ERR_MEMORY; budget = budget < 60 ? budget + 1 : budget + budget / 16) {
        mha_model_edit *edit = NULL;
        mha_error err = {0};
        atomic_store(&count.budget, atomic_load(&count.calls) + budget);
        status = mha_regroup(
            model, REGROUP(.key_heads = 3, .value_heads = 2, .fit = data, .scores = (double[2 * HEADS]){1, 2}), &edit,
            &err);
        assert_int_equal(status == MHA_OK, edit != NULL);
        mha_model_edit_free(edit);
        if (status != MHA_OK && !strstr(err.message, "memory"))
            fail_msg("budget %ld: error must be MHA_ERR_MEMORY (got %s)", budget, err.message);
        if (atomic_load(&count.live) != live)
            fail_msg("budget %ld: all allocations must be freed (got %ld live allocations)", budget,
                     atomic_load(&count.live));
    }
    assert_int_equal(status, MHA_OK);
    atomic_store(&count.budget, -1);
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    folder = files_folder();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_if_rank_permits),
        cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_each_method_improves),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    files_remove(folder);
    return failed;
}
