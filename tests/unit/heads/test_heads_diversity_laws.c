/* test_heads_diversity_laws.c - tests properties of the similarity measures that need no reference: bitwise identical
 * results for any number of threads, batches and interruptions, texts in several passes, selected rows, heads with zero
 * output, errors, and failed allocations. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/diversity.h"
#include "mha/prune.h"
#include "support/alloc.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/rng.h"

enum { TEXTS = 9, VOCAB = 60 };
static const int64_t lengths[TEXTS] = {9, 80, 2, 31, 9, 1, 17, 40, 5};
static const char encoder[] = "models/bert-tiny", decoder[] = "heads/tinylm";

static mha_model *open_model(mha_ctx *ctx, const char *folder, const mha_named_tensor *tensors, int64_t count)
{
    const mha_model_options options = {
        .size = sizeof options, .no_tokenizer = 1, .tensors = tensors, .tensor_count = count};
    return case_model(ctx, folder, &options);
}

static mha_head_data *draw_data(const mha_model *model, const int64_t *n, int64_t count, int64_t batch_tokens)
{
    mha_head_data *data;
    mha_error err = {0};
    rng draw = rng_make(3, 0);
    int64_t starts[TEXTS + 1] = {0};
    for (int64_t i = 0; i < count; i++)
        starts[i + 1] = starts[i] + n[i];
    int32_t *ids = calloc((size_t)starts[count], sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < starts[count]; i++)
        ids[i] = (int32_t)rng_range(&draw, 5, VOCAB - 1);
    const mha_head_data_options options = {.size = sizeof options, .batch_tokens = batch_tokens};
    if (mha_head_data_of_ids(model, ids, starts, count, &options, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    free(ids);
    return data;
}

static mha_diversity *measure(const mha_model *model, const mha_head_data *data, mha_diversity_options options)
{
    mha_diversity *d;
    mha_error err = {0};
    options.size = sizeof options;
    if (mha_diversity_measure(model, data, &options, &d, &err) != MHA_OK) fail_msg("%s", err.message);
    return d;
}

/* A pair of heads: head a of layer la and head b of layer lb. */
typedef struct pair {
    int64_t la, a, lb, b;
} pair;

static pair pair_at(const mha_model_info *info, int64_t i)
{
    const int64_t n = info->layers * info->heads, a = i / n, b = i % n;
    return (pair){a / info->heads, a % info->heads, b / info->heads, b % info->heads};
}

static double value_at(const mha_diversity *d, mha_diversity_kind what, pair p)
{
    return mha_diversity_value(d, what, p.la, p.a, p.lb, p.b);
}

/* Returns true if all values, the map and the clusters of x and y are bitwise identical. */
static bool equal(const mha_model *model, const mha_diversity *x, const mha_diversity *y)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t n = mha_diversity_heads(x);
    for (int what = 0; what < MHA_DIVERSITIES; what++)
        for (int64_t i = 0; i < n * n; i++) {
            const double a = value_at(x, what, pair_at(info, i)), b = value_at(y, what, pair_at(info, i));
            if (memcmp(&a, &b, sizeof a) != 0) return false;
        }
    return memcmp(mha_diversity_map(x), mha_diversity_map(y), (size_t)n * 2 * sizeof(double)) == 0 &&
           memcmp(mha_diversity_merges(x), mha_diversity_merges(y), (size_t)(n - 1) * sizeof(mha_head_merge)) == 0;
}

/* ---- bitwise identity ---- */

static void threads_and_batches_change_nothing(void **state)
{
    (void)state;
    static const int64_t batches[] = {0, 1, 50, 100};
    for (int f = 0; f < 2; f++) {
        mha_model *model = open_model(NULL, f ? decoder : encoder, NULL, 0);
        mha_head_data *data = draw_data(model, lengths, TEXTS, 0);
        mha_diversity *want = measure(model, data, (mha_diversity_options){0});
        for (int threads = 1; threads <= 3; threads++) {
            mha_ctx *ctx;
            const mha_ctx_options options = {.size = sizeof options, .threads = threads};
            assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
            mha_model *other = open_model(ctx, f ? decoder : encoder, NULL, 0);
            mha_head_data *cut = draw_data(other, lengths, TEXTS, batches[threads]);
            mha_diversity *d = measure(other, cut, (mha_diversity_options){0});
            assert_true(equal(model, d, want));
            mha_diversity_free(d);
            mha_head_data_free(cut);
            mha_model_free(other);
            mha_ctx_free(ctx);
        }
        mha_diversity_free(want);
        mha_head_data_free(data);
        mha_model_free(model);
    }
}

static void ranges(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, encoder, NULL, 0);
    const mha_model_info *info = mha_model_describe(model);
    mha_head_data *data = draw_data(model, lengths, TEXTS, 0);
    mha_diversity *d = measure(model, data, (mha_diversity_options){0});
    const int64_t n = mha_diversity_heads(d);
    assert_int_equal(n, info->layers * info->heads);
    for (int64_t i = 0; i < n * n; i++) {
        const pair p = pair_at(info, i), back = {p.lb, p.b, p.la, p.a};
        const bool same = i / n == i % n, layer = p.la == p.lb;
        for (int what = 0; what < MHA_DIVERSITIES; what++) {
            const double x = value_at(d, what, p), y = value_at(d, what, back);
            assert_true(memcmp(&x, &y, sizeof x) == 0);
            const bool divergence = what == MHA_DIVERSITY_JS || what == MHA_DIVERSITY_JS_CLARK;
            if (what == MHA_DIVERSITY_UNIQUE ? !same : !layer && !divergence) {
                assert_true(isnan(x));
                continue;
            }
            assert_true(x >= (what == MHA_DIVERSITY_COSINE_CENTRED ? -1 : 0));
            assert_true(x <= 1 || what == MHA_DIVERSITY_JS_CLARK);
            if (same && divergence) assert_true(x == 0);
            if (same && !divergence && what != MHA_DIVERSITY_UNIQUE) assert_true(fabs(x - 1) < 1e-12);
        }
    }
    for (int64_t l = 0; l < info->layers; l++)
        for (int what = 0; what < MHA_DIVERSITIES; what++) {
            const bool grows = what == MHA_DIVERSITY_JS || what == MHA_DIVERSITY_JS_CLARK;
            double sum = 0, count = 0;
            for (int64_t a = 0; a < info->heads; a++)
                for (int64_t b = 0; b < info->heads; b++) {
                    if (what == MHA_DIVERSITY_UNIQUE ? a != b : a == b) continue;
                    sum += mha_diversity_value(d, what, l, a, l, b);
                    count++;
                }
            const double mean = sum / count, want = grows || what == MHA_DIVERSITY_UNIQUE ? mean : 1 - mean;
            assert_true(fabs(mha_diversity_layer(d, what, l) - want) < 1e-12 * fmax(1, fabs(want)));
        }
    assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITY_JS, 0, info->heads, 0, 0)));
    assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITY_JS, 0, 0, -1, 0)));
    assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITIES, 0, 0, 0, 0)));
    assert_true(isnan(mha_diversity_layer(d, MHA_DIVERSITY_JS, info->layers)));
    assert_string_equal(mha_diversity_key(MHA_DIVERSITY_CKA), "output_cka");
    assert_non_null(mha_diversity_help(MHA_DIVERSITY_UNIQUE));
    assert_null(mha_diversity_key(MHA_DIVERSITIES));
    mha_diversity_free(d);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* Measuring one kind alone must give values bitwise identical to those of a measurement of all kinds. Values of kinds
 * that were not requested must be NAN. */
static void single_measures(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, encoder, NULL, 0);
    const mha_model_info *info = mha_model_describe(model);
    mha_head_data *data = draw_data(model, lengths, TEXTS, 0);
    mha_diversity *all = measure(model, data, (mha_diversity_options){0});
    const int64_t n = mha_diversity_heads(all);
    for (int one = 0; one < MHA_DIVERSITIES; one++) {
        mha_diversity *d = measure(model, data, (mha_diversity_options){.what = 1U << one});
        for (int what = 0; what < MHA_DIVERSITIES; what++)
            for (int64_t i = 0; i < n * n; i++) {
                const double got = value_at(d, what, pair_at(info, i)), want = value_at(all, what, pair_at(info, i));
                assert_true(what == one ? memcmp(&got, &want, sizeof got) == 0 : isnan(got));
            }
        assert_int_equal(mha_diversity_map(d) != NULL, one == MHA_DIVERSITY_JS);
        assert_int_equal(mha_diversity_merges(d) != NULL, one == MHA_DIVERSITY_JS);
        mha_diversity_free(d);
    }
    mha_diversity_free(all);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- selected rows ---- */

static void chosen_rows(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, encoder, NULL, 0);
    mha_head_data *data = draw_data(model, lengths, TEXTS, 0), *cut = draw_data(model, lengths, TEXTS, 40);
    mha_diversity *all = measure(model, data, (mha_diversity_options){0});
    const int64_t tokens = mha_head_data_tokens(data);
    assert_int_equal(mha_diversity_rows(all), tokens);
    mha_diversity *more = measure(model, data, (mha_diversity_options){.max_rows = tokens + 5});
    assert_true(equal(model, all, more));
    for (int64_t rows = 1; rows < tokens; rows += 47) {
        mha_diversity *some = measure(model, data, (mha_diversity_options){.max_rows = rows});
        mha_diversity *again = measure(model, cut, (mha_diversity_options){.max_rows = rows});
        assert_int_equal(mha_diversity_rows(some), rows);
        assert_true(equal(model, some, again));
        assert_false(equal(model, some, all));
        mha_diversity_free(some);
        mha_diversity_free(again);
    }
    mha_diversity_free(all);
    mha_diversity_free(more);
    mha_head_data_free(data);
    mha_head_data_free(cut);
    mha_model_free(model);
}

/* Opens the decoder with its maximum length increased to 1800 tokens. */
static mha_model *long_model(void)
{
    static const char from[] = "\"max_position_embeddings\": 64", to[] = "\"max_position_embeddings\": 1800";
    const char *folder = files_folder();
    size_t n;
    char *config = files_read(MHA_TEST_DATA "/heads/tinylm/config.json", &n);
    assert_non_null(config);
    const char *at = strstr(config, from);
    assert_non_null(at);
    char *changed = malloc(n + sizeof to);
    assert_non_null(changed);
    const int size = snprintf(changed, n + sizeof to, "%.*s%s%s", (int)(at - config), config, to, at + sizeof from - 1);
    files_write(files_path(folder, "config.json"), changed, (size_t)size);
    free(changed);
    free(config);
    char *weights = files_read(MHA_TEST_DATA "/heads/tinylm/model.safetensors", &n);
    assert_non_null(weights);
    files_write(files_path(folder, "model.safetensors"), weights, n);
    free(weights);
    const mha_model_options options = {.size = sizeof options, .no_tokenizer = 1, .no_map = 1};
    mha_model *model = case_model(NULL, folder, &options);
    files_remove(folder);
    return model;
}

enum { LONG = 1800 };

/* Callback: copies the maps of head 0 of layer 0 and of the last head of layer 1. */
static int keep_two(void *user, int64_t layer, int64_t heads, const float *probs)
{
    float *kept = user;
    const size_t map = (size_t)LONG * LONG;
    if (layer == 0) memcpy(kept, probs, map * sizeof *kept);
    if (layer == 1) memcpy(kept + map, probs + (size_t)(heads - 1) * map, map * sizeof *kept);
    return 0;
}

static double plogp(double x)
{
    return x > 0 ? x * log2(x) : 0;
}

/* The maps of 8 heads, each 1800 x 1800 elements, exceed the memory limit, so the text must be computed in two passes.
 * The values must equal those computed from complete maps. */
static void a_long_text_runs_in_passes(void **state)
{
    (void)state;
    static const int64_t length = LONG;
    mha_model *model = long_model();
    mha_head_data *data = draw_data(model, &length, 1, 0);
    mha_error err = {0};
    int64_t n;
    const int32_t *ids = mha_head_data_ids(data, 0, &n);
    assert_int_equal(n, LONG);
    mha_diversity *d = measure(model, data, (mha_diversity_options){0});
    float *kept = malloc(2 * sizeof *kept * LONG * LONG);
    assert_non_null(kept);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = LONG, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .on_attention = keep_two, .user = kept};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    double sum = 0;
    for (int64_t i = 0; i < (int64_t)LONG * LONG; i++) {
        const double p = (double)kept[i], q = (double)kept[(int64_t)LONG * LONG + i];
        sum += (plogp(p) + plogp(q)) / 2 - plogp((p + q) / 2);
    }
    const double got = mha_diversity_value(d, MHA_DIVERSITY_JS, 0, 0, 1, 3);
    if (!(fabs(got - sum / LONG) < 3e-7)) fail_msg("js: got %.9g, expected %.9g", got, sum / LONG);
    free(kept);
    mha_diversity_free(d);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- interruptions ---- */

typedef struct stopper {
    int calls, stop_at;
} stopper;

static int stop(void *user, const char *what, int64_t done, int64_t total)
{
    stopper *s = user;
    if (strcmp(what, "diversity") != 0) return 0;
    assert_true(done <= total);
    return ++s->calls == s->stop_at;
}

static void stopped_and_resumed(void **state)
{
    (void)state;
    stopper s = {0};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .progress = stop, .progress_user = &s};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx, encoder, NULL, 0);
    mha_head_data *data = draw_data(model, lengths, TEXTS, 40);
    mha_diversity *want = measure(model, data, (mha_diversity_options){0}), *d;
    assert_int_equal(s.calls, 6); /* the callback must run before each of 5 batches and after the last */
    const char *folder = files_folder();
    mha_diversity_options how = {.size = sizeof how, .state = files_path(folder, "state")};
    int stops = 0;
    mha_status status = MHA_ERR_CANCELLED;
    for (; status == MHA_ERR_CANCELLED; stops++) {
        s = (stopper){.stop_at = 2}; /* stops before the second batch */
        status = mha_diversity_measure(model, data, &how, &d, NULL);
        assert_int_equal(d != NULL, status == MHA_OK);
    }
    assert_int_equal(status, MHA_OK);
    assert_int_equal(stops, 6);
    assert_true(equal(model, d, want));
    mha_diversity_free(d);
    how.max_rows = 7; /* must be rejected, because the state file is from a run over all rows */
    assert_int_equal(mha_diversity_measure(model, data, &how, &d, NULL), MHA_ERR_ARG);
    files_remove(folder);
    mha_diversity_free(want);
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* ---- layers with different head counts ---- */

/* Pruning must not change the similarity of the remaining heads of layer 0, except `unique`, which depends on all heads
 * of the layer. In other layers, it must not change the similarity of subspaces. */
static void pruned_layers(void **state)
{
    (void)state;
    static const uint8_t keep[12] = {1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1};
    static const int64_t kept[3][4] = {{0, 2, 3}, {1, 2}, {0, 1, 2, 3}}, counts[3] = {3, 2, 4};
    mha_model *whole = open_model(NULL, encoder, NULL, 0), *less;
    mha_model_edit *edit;
    mha_error err = {0};
    if (mha_prune(whole, keep, NULL, &edit, &err) != MHA_OK || mha_model_edit_open(edit, &less, &err) != MHA_OK)
        fail_msg("%s", err.message);
    mha_head_data *data = draw_data(whole, lengths, TEXTS, 0);
    mha_diversity *before = measure(whole, data, (mha_diversity_options){0});
    mha_diversity *after = measure(less, data, (mha_diversity_options){0});
    assert_int_equal(mha_diversity_heads(after), 9);
    for (int64_t l = 0; l < 3; l++)
        for (int64_t i = 0; i < counts[l] * counts[l]; i++) {
            const int64_t a = i / counts[l], b = i % counts[l];
            for (mha_diversity_kind what = 0; what < MHA_DIVERSITIES; what++) {
                const double now = mha_diversity_value(after, what, l, a, l, b);
                const double then = mha_diversity_value(before, what, l, kept[l][a], l, kept[l][b]);
                assert_int_equal(isnan(now), what == MHA_DIVERSITY_UNIQUE && a != b);
                if (what == MHA_DIVERSITY_SUBSPACE || (l == 0 && what != MHA_DIVERSITY_UNIQUE))
                    assert_true(fabs(now - then) <= 1e-12 * fmax(1, fabs(then)));
            }
        }
    assert_false(isnan(mha_diversity_value(after, MHA_DIVERSITY_JS, 1, 1, 2, 3)));
    assert_true(isnan(mha_diversity_value(after, MHA_DIVERSITY_JS, 1, 2, 2, 3)));
    assert_int_equal(mha_diversity_merges(after)[7].size, 9);
    mha_diversity_free(before);
    mha_diversity_free(after);
    mha_head_data_free(data);
    mha_model_free(less);
    mha_model_edit_free(edit);
    mha_model_free(whole);
}

/* ---- heads with zero output, and weights that are not finite ---- */

/* Returns a copy of a weight [48, 48] of the encoder (heads of width 12), with a block of elements set to x. */
static float *changed(const char *name, int64_t first_row, int64_t rows, int64_t first, int64_t columns, float x)
{
    mha_file *file = case_file("models/bert-tiny/model.safetensors");
    float *w = case_floats(file, name);
    for (int64_t r = first_row; r < first_row + rows; r++)
        for (int64_t c = first; c < first + columns; c++)
            w[r * 48 + c] = x;
    mha_file_free(file);
    return w;
}

static void a_head_with_zero_output(void **state)
{
    (void)state;
    static const char name[] = "encoder.layer.0.attention.output.dense.weight";
    float *w = changed(name, 0, 48, 12, 12, 0);
    const mha_named_tensor tensor = {.name = name, .dtype = MHA_F32, .rank = 2, .shape = {48, 48}, .data = w};
    mha_model *model = open_model(NULL, encoder, &tensor, 1);
    mha_head_data *data = draw_data(model, lengths, TEXTS, 0);
    mha_diversity *d = measure(model, data, (mha_diversity_options){0});
    for (int64_t b = 0; b < 4; b++) {
        assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITY_CKA, 0, 1, 0, b)));
        assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITY_SUBSPACE, 0, b, 0, 1)));
        assert_int_equal(isnan(mha_diversity_value(d, MHA_DIVERSITY_UNIQUE, 0, b, 0, b)), b == 1);
        assert_false(isnan(mha_diversity_value(d, MHA_DIVERSITY_CKA, 0, 2, 0, b == 1 ? 2 : b)));
        assert_false(isnan(mha_diversity_value(d, MHA_DIVERSITY_COSINE, 0, 1, 0, b)));
    }
    assert_true(isnan(mha_diversity_layer(d, MHA_DIVERSITY_CKA, 0)));
    mha_diversity_free(d);
    mha_head_data_free(data);
    mha_model_free(model);
    free(w);
}

static void non_finite_values_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"encoder.layer.0.attention.self.query.weight",
                                        "encoder.layer.0.attention.self.value.weight"};
    static const uint32_t what[] = {1U << MHA_DIVERSITY_JS, 1U << MHA_DIVERSITY_CKA};
    for (int i = 0; i < 2; i++) {
        float *w = changed(names[i], 24, 12, 0, 48, NAN); /* rows 24 to 35 belong to head 2 */
        const mha_named_tensor tensor = {.name = names[i], .dtype = MHA_F32, .rank = 2, .shape = {48, 48}, .data = w};
        mha_model *model = open_model(NULL, encoder, &tensor, 1);
        mha_head_data *data = draw_data(model, lengths, TEXTS, 0);
        const mha_diversity_options options = {.size = sizeof options, .what = what[i]};
        mha_diversity *d;
        mha_error err = {0};
        assert_int_equal(mha_diversity_measure(model, data, &options, &d, &err), MHA_ERR_ARG);
        assert_null(d);
        assert_non_null(strstr(err.message, "head 2 of layer 0 must be finite"));
        mha_head_data_free(data);
        mha_model_free(model);
        free(w);
    }
}

/* A text shorter than 64 tokens is in one half only. The measure `unique` requires two halves, so it must be NAN. */
static void unique_requires_two_halves(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, encoder, NULL, 0);
    mha_head_data *data = draw_data(model, lengths, 1, 0);
    mha_diversity *d = measure(model, data, (mha_diversity_options){0});
    assert_true(isnan(mha_diversity_value(d, MHA_DIVERSITY_UNIQUE, 0, 0, 0, 0)));
    assert_false(isnan(mha_diversity_value(d, MHA_DIVERSITY_CKA, 0, 0, 0, 1)));
    mha_diversity_free(d);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- error messages ---- */

static void refusals(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, encoder, NULL, 0);
    mha_head_data *data = draw_data(model, lengths, TEXTS, 0);
    mha_error err = {0};
    mha_diversity *d;
    mha_diversity_options options = {.size = sizeof options, .what = 1U << MHA_DIVERSITIES};
    assert_int_equal(mha_diversity_measure(model, data, &options, &d, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "0x80"));
    options = (mha_diversity_options){.size = sizeof options, .max_rows = -3};
    assert_int_equal(mha_diversity_measure(model, data, &options, &d, &err), MHA_ERR_ARG);
    assert_true(check_has_word(err.message, "-3"));
    assert_int_equal(mha_diversity_measure(NULL, data, NULL, &d, &err), MHA_ERR_ARG);
    assert_int_equal(mha_diversity_measure(model, NULL, NULL, &d, &err), MHA_ERR_ARG);
    assert_int_equal(mha_diversity_measure(model, data, NULL, NULL, &err), MHA_ERR_ARG);
    float out[81];
    assert_int_equal(mha_head_rollout(model, data, TEXTS, out, &err), MHA_ERR_ARG);
    assert_true(check_has_word(err.message, "9"));
    assert_int_equal(mha_head_rollout(model, data, -1, out, &err), MHA_ERR_ARG);
    assert_int_equal(mha_head_rollout(model, data, 0, NULL, &err), MHA_ERR_ARG);
    mha_diversity_free(NULL);
    mha_head_data_free(data);
    mha_model_free(model);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx, encoder, NULL, 0);
    mha_head_data *data = draw_data(model, lengths, TEXTS, 0);
    const long before = memory.live;
    float out[81];
    mha_status status = MHA_ERR_MEMORY;
    long budget = 0;
    for (; status != MHA_OK; budget++) {
        mha_error err = {0};
        mha_diversity *d;
        memory.budget = memory.calls + budget;
        status = mha_diversity_measure(model, data, NULL, &d, &err);
        if (status == MHA_OK) status = mha_head_rollout(model, data, 0, out, &err);
        mha_diversity_free(d);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, before);
    }
    assert_true(budget > 40);
    memory.budget = -1;
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* ---- rollout ---- */

static void rollouts_share_out_everything(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        mha_model *model = open_model(NULL, f ? decoder : encoder, NULL, 0);
        mha_head_data *data = draw_data(model, lengths, TEXTS, 0);
        float out[31 * 31];
        mha_error err = {0};
        if (mha_head_rollout(model, data, 3, out, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int i = 0; i < 31; i++) {
            double sum = 0;
            for (int j = 0; j < 31; j++) {
                const double x = (double)out[i * 31 + j];
                assert_true(f && j > i ? x == 0 : x > 0);
                sum += x;
            }
            assert_true(fabs(sum - 1) < 1e-6);
        }
        mha_head_data_free(data);
        mha_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_batches_change_nothing),
        cmocka_unit_test(ranges),
        cmocka_unit_test(single_measures),
        cmocka_unit_test(chosen_rows),
        cmocka_unit_test(a_long_text_runs_in_passes),
        cmocka_unit_test(stopped_and_resumed),
        cmocka_unit_test(pruned_layers),
        cmocka_unit_test(a_head_with_zero_output),
        cmocka_unit_test(non_finite_values_are_named),
        cmocka_unit_test(unique_requires_two_halves),
        cmocka_unit_test(refusals),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(rollouts_share_out_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
