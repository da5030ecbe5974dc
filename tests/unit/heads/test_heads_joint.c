/* test_heads_joint.c - compares joint selection of heads, mean fills in models without biases, and the comparison of
 * two models with the results of separate forward passes. */
#include "mha/compare_models.h"
#include "mha/generate.h"
#include "mha/prune.h"
#include "mha/regroup.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/save_edit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 5, TOKENS = 45, MAX = 16 };
static const int64_t starts[TEXTS + 1] = {0, 7, 18, 24, 40, TOKENS};

static mha_head_data *data_of(const mha_model *model)
{
    int32_t ids[TOKENS];
    mha_head_data *data;
    mha_error err = {0};
    /* batches of at most 20 tokens, so that there are several batches */
    const mha_head_data_options small = {.size = sizeof small, .batch_tokens = 20};
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * i * 7 + 3 * i + 1) % (int32_t)mha_model_describe(model)->vocab;
    if (mha_head_data_of_ids(model, ids, starts, TEXTS, &small, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    return data;
}

/* Computes the sum of the last hidden states of each text with `gates`, in one forward pass per text. The sum has the
 * same direction as the mean. */
static void mean_states(const mha_model *model, const mha_head_data *data, const float *gates, double *out)
{
    const int64_t E = mha_model_describe(model)->hidden;
    memset(out, 0, (size_t)(TEXTS * E) * sizeof *out);
    for (int64_t t = 0; t < TEXTS; t++) {
        int64_t n = 0;
        const int32_t *ids = mha_head_data_ids(data, t, &n);
        float *x = malloc((size_t)(n * E) * sizeof *x);
        const mha_model_input input = {.size = sizeof input, .batch = 1, .length = n, .ids = ids, .gates = gates};
        const mha_model_output output = {.size = sizeof output, .last_hidden = x};
        assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
        for (int64_t i = 0; i < n * E; i++)
            out[t * E + i % E] += (double)x[i];
        free(x);
    }
}

static double distance(int64_t E, const double *a, const double *b)
{
    double sum = 0;
    for (int64_t t = 0; t < TEXTS; t++) {
        double ab = 0, aa = 0, bb = 0;
        for (int64_t e = t * E; e < (t + 1) * E; e++) {
            ab += a[e] * b[e];
            aa += a[e] * a[e];
            bb += b[e] * b[e];
        }
        sum += 1 - ab / sqrt(aa * bb);
    }
    return sum / TEXTS;
}

/* With one head per round, each round must remove the head whose removal changes the output least, given the heads that
 * are already removed. */
static void test_greedy_one_by_one(void **state)
{
    (void)state;
    enum { LAYERS = 3, H = 4, E = 48, GO = 3 };
    mha_model *model = case_open(NULL, "models/bert-tiny");
    mha_head_data *data = data_of(model);
    float gates[LAYERS * H];
    uint8_t keep[LAYERS * H];
    int32_t order[LAYERS * H];
    double whole[TEXTS * E], now[TEXTS * E];
    mha_error err = {0};
    const mha_prune_rule rule = {.size = sizeof rule, .count = GO};
    const mha_prune_joint_options options = {.size = sizeof options, .rounds = GO, .order = order};
    if (mha_prune_choose_joint(model, data, &rule, &options, keep, &err) != MHA_OK) fail_msg("%s", err.message);
    mean_states(model, data, NULL, whole);
    for (int h = 0; h < LAYERS * H; h++)
        gates[h] = 1;
    for (int n = 1; n <= GO; n++) {
        int best = -1, left[LAYERS] = {0};
        double min = INFINITY;
        for (int h = 0; h < LAYERS * H; h++)
            left[h / H] += gates[h] != 0;
        for (int h = 0; h < LAYERS * H; h++) {
            if (gates[h] == 0 || left[h / H] == 1) continue;
            gates[h] = 0;
            mean_states(model, data, gates, now);
            gates[h] = 1;
            if (distance(E, whole, now) >= min) continue;
            min = distance(E, whole, now);
            best = h;
        }
        gates[best] = 0;
        assert_int_equal(order[best], n);
        assert_int_equal(keep[best], 0);
    }
    for (int h = 0; h < LAYERS * H; h++)
        assert_true((order[h] == 0) == (keep[h] == 1) && keep[h] == (gates[h] != 0));
    mha_head_data_free(data);
    mha_model_free(model);
}

/* Fails unless the rule removes `all` heads in total and, if `each` is at least 0, `each` heads from every layer. */
static void expect_gone(const mha_model *model, const mha_prune_rule *rule, int64_t all, int64_t each)
{
    const mha_model_info *info = mha_model_describe(model);
    mha_head_data *data = data_of(model);
    uint8_t keep[MAX];
    mha_error err = {0};
    int64_t gone = 0;
    if (mha_prune_choose_joint(model, data, rule, NULL, keep, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t l = 0; l < info->layers; l++) {
        int64_t here = 0;
        for (int64_t h = 0; h < info->heads; h++)
            here += !keep[l * info->heads + h];
        if (each >= 0) assert_int_equal(here, each);
        gone += here;
    }
    assert_int_equal(gone, all);
    mha_head_data_free(data);
}

#define RULE(...) (&(mha_prune_rule){.size = sizeof(mha_prune_rule), __VA_ARGS__})

/* A ratio must apply to the number of heads of the model, rounded to whole heads or groups. With per_layer, it must
 * apply to the heads of each layer, rounded up. */
static void test_amounts(void **state)
{
    (void)state;
    mha_model *bert = case_open(NULL, "models/bert-tiny");    /* 12 heads */
    mha_model *gemma = case_open(NULL, "models/gemma2-tiny"); /* 16 heads, in groups of 2 */
    expect_gone(bert, RULE(.ratio = 0.1), 1, -1);
    expect_gone(bert, RULE(.ratio = 0.2), 2, -1);
    expect_gone(bert, RULE(.ratio = 0.3), 4, -1);
    expect_gone(bert, RULE(.ratio = 0.03), 0, 0);
    expect_gone(bert, RULE(.ratio = 0.3, .per_layer = 1), 6, 2);
    expect_gone(gemma, RULE(.ratio = 0.3), 4, -1);
    expect_gone(gemma, RULE(.ratio = 0.3, .per_layer = 1), 8, 2);
    expect_gone(gemma, RULE(.count = 1, .per_layer = 1), 8, 2);
    expect_gone(gemma, RULE(.count = 3), 4, -1);
    mha_model_free(bert);
    mha_model_free(gemma);
}

/* A count and the equivalent ratio must remove the same heads in the same order if the number of rounds is the same. */
static void test_count_and_ratio(void **state)
{
    (void)state;
    enum { HEADS = 12 };
    mha_model *model = case_open(NULL, "models/bert-tiny");
    mha_head_data *data = data_of(model);
    mha_error err = {0};
    for (int go = 1; go <= HEADS - 3; go++) {
        uint8_t keep[2][HEADS];
        int32_t order[2][HEADS];
        const mha_prune_rule rules[] = {{.size = sizeof(mha_prune_rule), .count = go},
                                        {.size = sizeof(mha_prune_rule), .ratio = (double)go / HEADS}};
        for (int i = 0; i < 2; i++) {
            const mha_prune_joint_options o = {.size = sizeof o, .rounds = 4, .order = order[i]};
            assert_int_equal(mha_prune_choose_joint(model, data, &rules[i], &o, keep[i], &err), MHA_OK);
        }
        assert_memory_equal(keep[0], keep[1], sizeof *keep);
        assert_memory_equal(order[0], order[1], sizeof *order);
    }
    mha_head_data_free(data);
    mha_model_free(model);
}

/* For a decoder, the head or group of heads must be removed whose removal increases the next-token loss least. */
static void test_decoders(void **state)
{
    (void)state;
    static const char *const folders[] = {"models/gpt2-tiny", "models/gemma2-tiny", "families/llama-f32"};
    for (int f = 0; f < 3; f++) {
        mha_model *model = case_open(NULL, folders[f]);
        mha_head_data *data = data_of(model);
        const mha_model_info *info = mha_model_describe(model);
        const int64_t group = info->heads / info->kv_heads;
        uint8_t chosen[MAX], keep[MAX];
        mha_error err = {0};
        double min = INFINITY, got = NAN;
        const mha_prune_rule rule = {.size = sizeof rule, .count = 1};
        if (mha_prune_choose_joint(model, data, &rule, NULL, chosen, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int64_t first = 0; first < info->layers * info->heads; first += group) {
            mha_model_edit *edit;
            mha_model *pruned;
            mha_comparison c;
            memset(keep, 1, sizeof keep);
            memset(keep + first, 0, (size_t)group);
            assert_int_equal(mha_prune(model, keep, NULL, &edit, NULL), MHA_OK);
            assert_int_equal(mha_model_edit_open(edit, &pruned, NULL), MHA_OK);
            assert_int_equal(mha_models_compare(model, pruned, data, NULL, NULL, &c, NULL), MHA_OK);
            if (c.loss[1] < min) min = c.loss[1];
            if (memcmp(keep, chosen, (size_t)(info->layers * info->heads)) == 0) got = c.loss[1];
            mha_model_free(pruned);
            mha_model_edit_free(edit);
        }
        assert_true(fabs(got - min) <= 1e-6);
        mha_head_data_free(data);
        mha_model_free(model);
    }
}

/* The losses must equal those of mha_model_score. A model compared with itself must have a cosine of 1 and the same
 * loss twice. */
static void test_compare(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "models/gpt2-tiny");
    mha_head_data *data = data_of(model);
    double cosines[TEXTS], losses[2 * TEXTS], sum = 0;
    mha_comparison c;
    assert_int_equal(mha_models_compare(model, model, data, cosines, losses, &c, NULL), MHA_OK);
    for (int64_t t = 0; t < TEXTS; t++) {
        int64_t n = 0;
        float logprob[TOKENS];
        double text = 0;
        const int32_t *ids = mha_head_data_ids(data, t, &n);
        assert_int_equal(mha_model_score(model, ids, n, logprob, NULL), MHA_OK);
        for (int64_t i = 0; i + 1 < n; i++)
            text -= (double)logprob[i];
        assert_true(fabs(losses[t] - text / (double)(n - 1)) <= 1e-5 && losses[t] == losses[TEXTS + t]);
        assert_true(fabs(cosines[t] - 1) <= 1e-12);
        sum += text;
    }
    assert_int_equal(c.predicted, TOKENS - TEXTS);
    assert_true(fabs(c.loss[0] - sum / (TOKENS - TEXTS)) <= 1e-5 && c.loss[0] == c.loss[1]);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* Sums of the output of every head over all tokens. */
typedef struct means {
    int64_t heads, head_dim;
    double sum[2 * 4 * 16];
} means;

static int add_contexts(void *user, const mha_model_activations *a)
{
    means *m = user;
    const int64_t width = a->heads * a->head_dim;
    for (int64_t n = 0; n < a->rows * width; n++)
        m->sum[a->layer * m->heads * m->head_dim + n % width] += (double)a->context[n];
    return 0;
}

/* Computes the last hidden states of text 0 with `gates` and `fills`. */
static void last_states(const mha_model *model, const mha_head_data *data, const float *gates, const float *fills,
                        float *x)
{
    int64_t n = 0;
    const int32_t *ids = mha_head_data_ids(data, 0, &n);
    const mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = n, .ids = ids, .gates = gates, .fills = fills};
    const mha_model_output output = {.size = sizeof output, .last_hidden = x};
    assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
}

/* `filled` is a model from which heads 0 and 1 of layer 0 were removed with a fill. Fails unless it is close to the
 * original model with the outputs of these heads replaced by their means. */
static void check_filled(const mha_model *model, const mha_head_data *data, const mha_model *filled)
{
    const mha_model_info *info = mha_model_describe(model);
    means m = {.heads = info->heads, .head_dim = info->head_dim};
    const float gates[8] = {0, 0, 1, 1, 1, 1, 1, 1};
    float fills[2 * 4 * 16] = {0}, want[7 * 32], got[7 * 32];
    for (int64_t t = 0; t < TEXTS; t++) {
        int64_t n = 0;
        const int32_t *ids = mha_head_data_ids(data, t, &n);
        const mha_model_input input = {.size = sizeof input, .batch = 1, .length = n, .ids = ids};
        const mha_model_output output = {.size = sizeof output, .on_activations = add_contexts, .user = &m};
        assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
    }
    for (int64_t n = 0; n < 2 * info->head_dim; n++)
        fills[n] = (float)(m.sum[n] / TOKENS);
    last_states(model, data, gates, fills, want);
    last_states(filled, data, NULL, NULL, got);
    case_near(info->family, got, want, 7 * info->hidden, 2e-5);
}

/* A mean fill requires biases. For a model without biases, mha_prune must add them if a config key of the family
 * permits this, and otherwise return MHA_ERR_UNSUPPORTED. */
static void test_fill_without_bias(void **state)
{
    (void)state;
    const uint8_t keep[8] = {0, 0, 1, 1, 1, 1, 1, 1};
    static const char *const can[] = {"families/llama-f32", "families/qwen3", "families/gemma2"};
    static const char *const cannot[] = {"families/mistral", "families/qwen2"};
    mha_model_edit *edit;
    mha_error err = {0};
    for (int f = 0; f < 3; f++) {
        mha_model *model = case_open(NULL, can[f]), *filled;
        mha_head_data *data = data_of(model);
        const mha_prune_options options = {.size = sizeof options, .fill = data};
        if (mha_prune(model, keep, &options, &edit, &err) != MHA_OK) fail_msg("%s: %s", can[f], err.message);
        assert_int_equal(mha_model_edit_open(edit, &filled, NULL), MHA_OK);
        assert_non_null(strstr(mha_model_config_json(filled), "\"attention_bias\": true"));
        check_filled(model, data, filled);
        mha_model_free(filled);
        mha_model_edit_free(edit);
        mha_head_data_free(data);
        mha_model_free(model);
    }
    for (int f = 0; f < 2; f++) {
        mha_model *model = case_open(NULL, cannot[f]);
        mha_head_data *data = data_of(model);
        const mha_prune_options options = {.size = sizeof options, .fill = data},
                                refit = {.size = sizeof refit, .refit = data};
        assert_int_equal(mha_prune(model, keep, &options, &edit, &err), MHA_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "have no bias"));
        /* a refit needs no bias, so it must succeed */
        assert_int_equal(mha_prune(model, keep, &refit, &edit, &err), MHA_OK);
        mha_model_edit_free(edit);
        mha_head_data_free(data);
        mha_model_free(model);
    }
}

/* In a regrouped model, key heads and value heads may have groups of different sizes, and heads can only be removed in
 * whole groups of both. The saved model must be bitwise identical to the regrouped model with gates of 0. */
static void test_regrouped(void **state)
{
    (void)state;
    enum { LAYERS = 3, H = 4, E = 48 };
    const char *folder = files_folder();
    char shared[300], out[300];
    const uint8_t part[LAYERS * H] = {1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint8_t keep[LAYERS * H] = {0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
    float gates[LAYERS * H], want[7 * E], got[7 * E];
    snprintf(shared, sizeof shared, "%s/shared", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    mha_model *whole = case_open(NULL, "models/bert-tiny");
    const mha_regroup_options mean = {
        .size = sizeof mean, .key_heads = 2, .value_heads = 4, .method = MHA_REGROUP_MEAN};
    save_regrouped(whole, &mean, shared);
    mha_model *model = case_open(NULL, shared);
    mha_head_data *data = data_of(model);
    mha_model_edit *edit;
    assert_int_equal(mha_prune(model, part, NULL, &edit, NULL), MHA_ERR_ARG);
    assert_null(edit);
    save_pruned(model, keep, NULL, out);
    mha_model *pruned = case_open(NULL, out);
    for (int h = 0; h < LAYERS * H; h++)
        gates[h] = keep[h];
    last_states(model, data, gates, NULL, want);
    last_states(pruned, data, NULL, NULL, got);
    assert_memory_equal(want, got, sizeof want);
    assert_int_equal(mha_model_describe(pruned)->key_heads_per_layer[0], 1);
    assert_int_equal(mha_model_describe(pruned)->value_heads_per_layer[0], 2);
    assert_int_equal(mha_head_number(pruned, 0, 1), mha_head_number(model, 0, 3));
    mha_head_data_free(data);
    mha_model_free(pruned);
    mha_model_free(model);
    mha_model_free(whole);
    files_remove(out);
    files_remove(shared);
    files_remove(folder);
}

/* Texts of one token have no next token to predict, so joint selection by the loss must fail. */
static void test_nothing_to_predict(void **state)
{
    (void)state;
    const int32_t words[] = {5, 6, 7};
    const int64_t at[] = {0, 1, 2, 3};
    uint8_t keep[64];
    mha_error err = {0};
    mha_head_data *data = NULL;
    mha_model *model = case_open(NULL, "models/gpt2-tiny");
    const mha_prune_rule one = {.size = sizeof one, .count = 1};
    assert_int_equal(mha_head_data_of_ids(model, words, at, 3, NULL, &data, &err), MHA_OK);
    assert_int_equal(mha_prune_choose_joint(model, data, &one, NULL, keep, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "data must have a token to predict"));
    mha_head_data_free(data);
    mha_model_free(model);
}

/* Opens a copy of a model, the first element of whose file is NaN. */
static mha_model *open_not_finite(const char *name)
{
    size_t n;
    uint64_t header;
    const float nan = NAN;
    const char *folder = case_copy(name), *path = files_path(folder, "model.safetensors");
    char *bytes = files_read(path, &n);
    memcpy(&header, bytes, sizeof header);
    memcpy(bytes + sizeof header + header, &nan, sizeof nan);
    files_write(path, bytes, n);
    free(bytes);
    mha_model *model = case_model(NULL, folder, &(mha_model_options){.size = sizeof(mha_model_options), .no_map = 1});
    files_remove(folder);
    return model;
}

/* Heads must not be chosen by the outputs of a model with weights that are not finite. */
static void test_not_finite(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"models/bert-tiny", "text 1 of 5: the embedding must be finite"},
                                           {"models/gpt2-tiny", "text 1 of 5: the loss must be finite"}};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        uint8_t keep[64];
        mha_error err = {0};
        mha_model *model = open_not_finite(names[n][0]);
        mha_head_data *data = data_of(model);
        const mha_prune_rule one = {.size = sizeof one, .count = 1};
        assert_int_equal(mha_prune_choose_joint(model, data, &one, NULL, keep, &err), MHA_ERR_NOT_FINITE);
        if (!strstr(err.message, names[n][1])) fail_msg("%s: %s", names[n][0], err.message);
        mha_head_data_free(data);
        mha_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_one_by_one),  cmocka_unit_test(test_amounts),
        cmocka_unit_test(test_decoders),           cmocka_unit_test(test_compare),
        cmocka_unit_test(test_fill_without_bias),  cmocka_unit_test(test_regrouped),
        cmocka_unit_test(test_nothing_to_predict), cmocka_unit_test(test_count_and_ratio),
        cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
