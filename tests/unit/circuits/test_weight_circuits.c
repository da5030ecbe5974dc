/* test_weight_circuits.c - tests circuits from weights in every layout of a checkpoint: identities, other measures of
 * the same weights, laws, and refusals. tests/golden/verify compares recorded values. */
#include "mha/importance.h"
#include "mha/weight_circuits.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Checkpoints with separate, fused, interleaved and transposed projections, shared keys, and every kind of norm. */
static const char *const folders[] = {
    "models/gpt2-tiny",     "models/gemma2-tiny", "models/bert-mlm-tiny", "families/llama",     "families/qwen3",
    "families2/phi3",       "families2/gpt-neox", "families2/bloom",      "families2/cohere",   "families2/olmo2",
    "families2/modernbert", "families2/mixtral",  "families2/albert",     "families2/opt-post", "families2/granite"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static mha_weight_circuits *measure(const mha_model *model, uint32_t what, int raw)
{
    const mha_weight_circuits_options options = {.size = sizeof options, .what = what, .raw = raw};
    mha_weight_circuits *c;
    mha_error err = {0};
    if (mha_weight_circuits_measure(model, &options, &c, &err) != MHA_OK) fail_msg("%s", err.message);
    return c;
}

static double norm_of(const mha_weight_circuits *c, mha_circuit_kind what, int64_t layer, int64_t head)
{
    int64_t count;
    double sum = 0;
    const double *s = mha_weight_circuits_singular(c, what, layer, head, &count);
    for (int64_t i = 0; i < count; i++) {
        sum += s[i] * s[i];
        assert_true(s[i] >= 0 && (i == 0 || s[i] <= s[i - 1]));
    }
    return s ? sqrt(sum) : NAN;
}

/* ---- laws ---- */

static void check_norm(const mha_model *model, const mha_weight_circuits *c, mha_circuit_kind what,
                       mha_importance_score by, double factor)
{
    const mha_importance_options options = {.size = sizeof options, .by = by};
    const mha_model_info *info = mha_model_describe(model);
    mha_importance *i;
    assert_int_equal(mha_importance_measure(model, NULL, &options, &i, NULL), MHA_OK);
    for (int64_t l = 0; l < info->layers; l++)
        for (int64_t h = 0; h < info->heads_per_layer[l]; h++) {
            const double want = factor * mha_importance_value(i, l, h), got = norm_of(c, what, l, h);
            if (!(fabs(got - want) <= 1e-12 * want))
                fail_msg("%s %s %lld.%lld: %.15g instead of %.15g", info->family, mha_circuit_key(what), (long long)l,
                         (long long)h, got, want);
        }
    mha_importance_free(i);
}

/* The norm of the singular values is the Frobenius norm that the importance scores compute from Gram matrices. */
static void norms_equal_the_importance_scores(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        mha_model *model = case_open(NULL, folders[f]);
        mha_weight_circuits *c = measure(model, 0, 1);
        check_norm(model, c, MHA_CIRCUIT_OV, MHA_IMPORTANCE_OV_NORM, 1);
        if (!mha_weight_circuits_reason(c, MHA_CIRCUIT_QK))
            check_norm(model, c, MHA_CIRCUIT_QK, MHA_IMPORTANCE_QK_NORM,
                       sqrt((double)mha_model_describe(model)->head_dim));
        mha_weight_circuits_free(c);
        mha_model_free(model);
    }
}

static void check_composition(const mha_weight_circuits *c, const mha_model_info *info, mha_circuit_kind kind)
{
    const double norm = 1 + 1e-12;
    for (int64_t s = 0; s < info->layers * info->heads; s++)
        for (int64_t t = 0; t < info->layers * info->heads; t++) {
            const int64_t from = s / info->heads, to = t / info->heads;
            const double x = mha_weight_circuits_composition(c, kind, from, s % info->heads, to, t % info->heads);
            if (from < to)
                assert_true(x > 0 && x <= norm);
            else
                assert_true(x == 0);
        }
}

static void check_ranges(const mha_weight_circuits *c, const mha_model_info *info, int raw)
{
    for (int kind = MHA_CIRCUIT_COMPOSE_Q; kind < MHA_CIRCUITS; kind++)
        if (!mha_weight_circuits_reason(c, (mha_circuit_kind)kind)) check_composition(c, info, (mha_circuit_kind)kind);
    for (int64_t l = 0; l < info->layers; l++)
        for (int64_t h = 0; h < info->heads; h++) {
            const double directions = mha_weight_circuits_directions(c, MHA_CIRCUIT_OV, l, h);
            assert_true(directions >= 1 && directions <= (double)info->head_dim);
            for (int centred = 0; centred < 2 && !mha_weight_circuits_reason(c, MHA_CIRCUIT_COPYING); centred++) {
                const double copying = mha_weight_circuits_copying(c, l, h, centred);
                assert_true(copying >= -1 - 1e-12 && copying <= 1 + 1e-12);
            }
        }
    const double width = 1 / pow(mha_weight_circuits_baseline(c), 2);
    assert_true(fabs(width - (double)info->hidden) < 1e-9 || (!raw && fabs(width - (double)info->hidden + 1) < 1e-9));
}

static void values_are_in_their_ranges(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++)
        for (int raw = 0; raw < 2; raw++) {
            const bool post =
                strstr(folders[f], "bert-mlm") || strstr(folders[f], "albert") || strstr(folders[f], "post");
            mha_model *model = case_open(NULL, folders[f]);
            if (raw || !post) {
                mha_weight_circuits *c = measure(model, 0, raw);
                check_ranges(c, mha_model_describe(model), raw);
                mha_weight_circuits_free(c);
            }
            mha_model_free(model);
        }
}

/* A layer without rotation has equal values for both offsets; a layer with rotation has not. */
static void rotation_applies_to_rotary_layers(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "families2/smollm3");
    const mha_model_info *info = mha_model_describe(model);
    mha_weight_circuits *c = measure(model, 0, 0);
    int64_t turned = 0;
    for (int64_t l = 0; l < info->layers; l++) {
        const double *here = mha_weight_circuits_singular(c, MHA_CIRCUIT_QK, l, 0, NULL);
        const double *previous = mha_weight_circuits_singular(c, MHA_CIRCUIT_QK_PREVIOUS, l, 0, NULL);
        const bool same = fabs(here[0] - previous[0]) < 1e-9 * here[0];
        assert_true(same == !info->attention_per_layer[l].rotary);
        turned += info->attention_per_layer[l].rotary;
    }
    assert_true(turned > 0 && turned < info->layers); /* both kinds of layers were tested */
    mha_weight_circuits_free(c);
    mha_model_free(model);
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    double first[64];
    for (int threads = 1; threads <= 5; threads += 2) {
        mha_ctx *ctx;
        const mha_ctx_options options = {.size = sizeof options, .threads = threads};
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        mha_model *model = case_open(ctx, "families/llama");
        mha_weight_circuits *c = measure(model, 0, 0);
        const mha_model_info *info = mha_model_describe(model);
        double now[64] = {0};
        for (int64_t h = 0; h < info->heads && h < 8; h++) {
            now[8 * h] = mha_weight_circuits_copying(c, 1, h, 1);
            now[8 * h + 1] = norm_of(c, MHA_CIRCUIT_QK_PREVIOUS, 1, h);
            for (int k = 0; k < 3; k++)
                now[8 * h + 2 + k] =
                    mha_weight_circuits_composition(c, (mha_circuit_kind)(MHA_CIRCUIT_COMPOSE_Q + k), 0, h, 1, 0);
        }
        if (threads == 1) memcpy(first, now, sizeof first);
        assert_memory_equal(first, now, sizeof first);
        mha_weight_circuits_free(c);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
}

/* ---- requests ---- */

static void only_requested_measures_are_computed(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "models/gpt2-tiny");
    mha_weight_circuits *all = measure(model, 0, 0), *some = measure(model, 1u << MHA_CIRCUIT_COMPOSE_K, 0);
    assert_true(mha_weight_circuits_composition(some, MHA_CIRCUIT_COMPOSE_K, 0, 1, 2, 3) ==
                mha_weight_circuits_composition(all, MHA_CIRCUIT_COMPOSE_K, 0, 1, 2, 3));
    assert_true(isnan(mha_weight_circuits_composition(some, MHA_CIRCUIT_COMPOSE_V, 0, 1, 2, 3)));
    assert_true(isnan(mha_weight_circuits_copying(some, 0, 0, 0)) && isnan(mha_weight_circuits_trace(some, 0, 0)));
    int64_t count = 1;
    assert_null(mha_weight_circuits_singular(some, MHA_CIRCUIT_OV, 0, 0, &count));
    assert_int_equal(count, 0);
    assert_true(isnan(mha_weight_circuits_directions(some, MHA_CIRCUIT_OV, 0, 0)));
    mha_weight_circuits_free(some);
    mha_weight_circuits_free(all);
    mha_model_free(model);
}

static void indices_out_of_range_have_no_values(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "models/gpt2-tiny");
    mha_weight_circuits *c = measure(model, 0, 0);
    const int64_t bad[][2] = {{-1, 0}, {0, -1}, {3, 0}, {0, 4}, {INT64_MAX, 0}, {0, INT64_MIN}};
    for (int i = 0; i < 6; i++) {
        assert_true(isnan(mha_weight_circuits_copying(c, bad[i][0], bad[i][1], 0)));
        assert_null(mha_weight_circuits_singular(c, MHA_CIRCUIT_OV, bad[i][0], bad[i][1], NULL));
        assert_true(isnan(mha_weight_circuits_composition(c, MHA_CIRCUIT_COMPOSE_K, bad[i][0], bad[i][1], 2, 0)));
        assert_true(isnan(mha_weight_circuits_composition(c, MHA_CIRCUIT_COMPOSE_K, 0, 0, bad[i][0], bad[i][1])));
    }
    assert_true(isnan(mha_weight_circuits_composition(c, MHA_CIRCUIT_OV, 0, 0, 1, 0)));
    assert_null(mha_weight_circuits_singular(c, MHA_CIRCUIT_COPYING, 0, 0, NULL));
    assert_null(mha_circuit_key(MHA_CIRCUITS));
    assert_null(mha_circuit_help((mha_circuit_kind)-1));
    assert_true(isnan(mha_weight_circuits_copying(NULL, 0, 0, 0)) && isnan(mha_weight_circuits_baseline(NULL)));
    mha_weight_circuits_free(NULL);
    mha_weight_circuits_free(c);
    mha_model_free(model);
}

/* ---- refusals ---- */

static void refuse(const mha_model *model, uint32_t what, int raw, mha_status status, const char *words)
{
    const mha_weight_circuits_options options = {.size = sizeof options, .what = what, .raw = raw};
    mha_weight_circuits *c = NULL;
    mha_error err = {0};
    const mha_status got = mha_weight_circuits_measure(model, &options, &c, &err);
    if (got != status || !strstr(err.message, words)) fail_msg("status %d: %s", (int)got, err.message);
    assert_null(c);
}

static void what_is_not_defined_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *folder;
        uint32_t what;
        int raw;
        const char *words;
    } cases[] = {
        {"models/bert-mlm-tiny", 0, 0, "raw must be set for a post-norm model (got bert"},
        {"models/bert-mlm-tiny", 1u << MHA_CIRCUIT_COPYING, 1, "for this bert model: norms after each layer"},
        {"models/gpt2-tiny", 1u << MHA_CIRCUIT_QK_PREVIOUS, 0, "no rotary positions"},
        {"families/qwen3", 1u << MHA_CIRCUIT_QK, 0, "q and k are divided by norms that depend on the text"},
        {"families/qwen3", 1u << MHA_CIRCUIT_COMPOSE_K, 1, "compose_k must not be requested for this qwen3 model"},
        {"families2/bloom", 1u << MHA_CIRCUIT_COPYING, 0, "word embeddings are normalized"},
        {"families2/modernbert", 1u << MHA_CIRCUIT_COPYING, 0, "dense layer"},
        {"families2/deepseek-v3", 0, 0, "must not have latent attention (got deepseek_v3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mha_model *model = case_open(NULL, cases[i].folder);
        refuse(model, cases[i].what, cases[i].raw, MHA_ERR_UNSUPPORTED, cases[i].words);
        mha_model_free(model);
    }
}

static void arguments_are_checked(void **state)
{
    (void)state;
    mha_weight_circuits *c;
    mha_error err = {0};
    mha_model *model = case_open(NULL, "models/gpt2-tiny");
    refuse(model, 1u << MHA_CIRCUITS, 0, MHA_ERR_ARG, "(got 0x80)");
    assert_int_equal(mha_weight_circuits_measure(NULL, NULL, &c, &err), MHA_ERR_ARG);
    assert_int_equal(mha_weight_circuits_measure(model, NULL, NULL, &err), MHA_ERR_ARG);
    mha_model_free(model);
    const mha_model_options without = {.size = sizeof without, .no_tokenizer = 1, .no_weights = 1};
    model = case_model(NULL, "models/gpt2-tiny", &without);
    refuse(model, 0, 0, MHA_ERR_ARG, "opened with its weights");
    mha_model_free(model);
}

static void weights_that_are_not_finite_are_named(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "models/bert-mlm-tiny");
    const int64_t hidden = mha_model_describe(model)->hidden;
    mha_file *file = case_file(MHA_TEST_DATA "/models/bert-mlm-tiny/model.safetensors");
    const char *name = "bert.encoder.layer.1.attention.self.value.weight";
    float *weight = case_floats(file, name);
    weight[(2 * mha_model_describe(model)->head_dim + 1) * hidden] = INFINITY;
    const mha_named_tensor changed = {
        .name = name, .dtype = MHA_F32, .rank = 2, .shape = {hidden, hidden}, .data = weight};
    mha_model_free(model);
    const mha_model_options options = {
        .size = sizeof options, .no_tokenizer = 1, .tensors = &changed, .tensor_count = 1};
    model = case_model(NULL, "models/bert-mlm-tiny", &options);
    refuse(model, 0, 1, MHA_ERR_ARG, "weights of head 1.2 must be finite");
    mha_model_free(model);
    mha_file_free(file);
    free(weight);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 2, .allocator = counting_allocator(&count)};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_open(ctx, "models/gemma2-tiny");
    const long live = count.live;
    mha_status status = MHA_ERR_MEMORY;
    int failures = 0;
    for (; status != MHA_OK; failures++) {
        mha_weight_circuits *c = NULL;
        mha_error err = {0};
        count.budget = count.calls + failures;
        status = mha_weight_circuits_measure(model, NULL, &c, &err);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        mha_weight_circuits_free(c);
        assert_int_equal(count.live, live);
    }
    assert_true(failures > 5);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_equal_the_importance_scores),
        cmocka_unit_test(values_are_in_their_ranges),
        cmocka_unit_test(rotation_applies_to_rotary_layers),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(only_requested_measures_are_computed),
        cmocka_unit_test(indices_out_of_range_have_no_values),
        cmocka_unit_test(what_is_not_defined_is_refused_with_the_reason),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(weights_that_are_not_finite_are_named),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
