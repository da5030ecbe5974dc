/* test_seq2seq_prune.c - tests removal of heads from the decoder, the cross-attention and the encoder. A pruned model
 * must equal the original model with gates of 0, bit by bit, and save and prune again. */
#include "mha/prune.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/save_edit.h"
#include "support/model/seq2seq_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 64 };

static const char *folder; /* temporary */
static const char *const names[] = {"pruned", "zeros", "first", "second", "third"};

/* Which heads are kept, and the same as gates, for the parts in the order of `part`. */
typedef enum part { DECODER, CROSS, ENCODER, PARTS } part;
typedef struct choice {
    uint8_t keep[PARTS][MAX];
    float gates[PARTS][MAX];
} choice;

static const mha_model_info *info_of(const mha_model *model, part p)
{
    return mha_model_describe(p == ENCODER ? mha_model_encoder(model) : model);
}

/* Chooses head h of layer l to be removed if (h + l + p) is divisible by `every`; `uniform`: if h is, in all layers. */
static void choose(const mha_model *model, int every, bool uniform, choice *c)
{
    for (int p = 0; p < PARTS; p++) {
        const mha_model_info *info = info_of(model, (part)p);
        assert_true(info->layers * info->heads <= MAX);
        for (int64_t l = 0; l < info->layers; l++)
            for (int64_t h = 0; h < info->heads; h++) {
                const bool goes = uniform ? h % every == 0 : (h + l + p) % every == 0;
                c->keep[p][l * info->heads + h] = !goes;
                c->gates[p][l * info->heads + h] = (float)!goes;
            }
    }
}

/* Returns the logits of the recorded pair, with these gates (NULL = none). */
static float *logits_with(const mha_model *model, int family, const choice *gates)
{
    seq2seq_pair pair;
    mha_file *file = seq2seq_recorded(family);
    seq2seq_read(file, "seq2seq", &pair);
    if (gates) {
        pair.input.gates = gates->gates[DECODER];
        pair.input.cross_gates = gates->gates[CROSS];
        pair.source.gates = gates->gates[ENCODER];
    }
    float *logits = seq2seq_logits(model, &pair.input);
    seq2seq_free(&pair);
    mha_file_free(file);
    return logits;
}

static int64_t count_of(const mha_model *model, int family)
{
    mha_file *file = seq2seq_recorded(family);
    seq2seq_pair pair;
    seq2seq_read(file, "seq2seq", &pair);
    const int64_t count = pair.input.length * mha_model_describe(model)->vocab;
    seq2seq_free(&pair);
    mha_file_free(file);
    return count;
}

static void expect_equal(const char *what, int family, const mha_model *model, float *want)
{
    float *got = logits_with(model, family, NULL);
    if (memcmp(got, want, (size_t)count_of(model, family) * sizeof *got) != 0)
        fail_msg("%s: logits of %s must be bitwise identical to those with gates of 0", what, seq2seq_names[family]);
    free(got);
    free(want);
}

#define ALL(c)             \
    (&(mha_prune_options){ \
        .size = sizeof(mha_prune_options), .cross_keep = (c).keep[CROSS], .encoder_keep = (c).keep[ENCODER]})

/* ---- removal ---- */

static void check_counts(const mha_model *model, const choice *c)
{
    for (int p = 0; p < PARTS; p++) {
        const mha_model_info *info = info_of(model, (part)p);
        for (int64_t l = 0; l < info->layers; l++) {
            int64_t count = 0;
            for (int64_t h = 0; h < info->original_heads; h++) {
                const mha_model *side = p == ENCODER ? mha_model_encoder(model) : model;
                if (!c->keep[p][l * info->original_heads + h]) continue;
                const int64_t number = (p == CROSS ? mha_cross_head_number : mha_head_number)(side, l, count);
                assert_int_equal(number, h);
                assert_int_equal((p == CROSS ? mha_cross_head_place : mha_head_place)(side, l, h), count++);
            }
            assert_int_equal((p == CROSS ? info->cross_heads_per_layer : info->heads_per_layer)[l], count);
        }
    }
}

static void test_removed_is_gated_off(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        choice c;
        mha_model *model = seq2seq_open(NULL, f);
        const char *out = files_path(folder, "pruned");
        choose(model, 3, false, &c);
        save_pruned(model, c.keep[DECODER], ALL(c), out);
        mha_model *saved = case_open(NULL, out);
        check_counts(saved, &c);
        expect_equal("saved", f, saved, logits_with(model, f, &c));
        assert_true(mha_model_describe(saved)->parameters < mha_model_describe(model)->parameters);
        mha_model_free(saved);
        mha_model_free(model);
    }
}

/* Parts may be removed one after another; the encoder is then the model that is pruned. */
static void test_parts_one_by_one(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        choice c, none;
        mha_model *model = seq2seq_open(NULL, f);
        const char *first = files_path(folder, "first"), *second = files_path(folder, "second"),
                   *third = files_path(folder, "third");
        const mha_prune_options cross = {.size = sizeof cross, .cross_keep = c.keep[CROSS]};
        choose(model, 3, false, &c);
        memset(&none, 1, sizeof none);
        save_pruned(mha_model_encoder(model), c.keep[ENCODER], NULL, first);
        mha_model *a = case_open(NULL, first);
        save_pruned(a, none.keep[DECODER], &cross, second);
        mha_model *b = case_open(NULL, second);
        save_pruned(b, c.keep[DECODER], NULL, third);
        mha_model *last = case_open(NULL, third);
        check_counts(last, &c);
        expect_equal("one by one", f, last, logits_with(model, f, &c));
        mha_model_free(last);
        mha_model_free(b);
        mha_model_free(a);
        mha_model_free(model);
    }
}

/* With `compatible`, shapes and config are those of the unpruned model, also from a model that was already pruned. */
static void test_compatible(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++)
        for (int uniform = 0; uniform < 2; uniform++) {
            choice c, none;
            mha_model *model = seq2seq_open(NULL, f);
            const char *pruned = files_path(folder, "pruned"), *zeros = files_path(folder, "zeros");
            const mha_prune_options compatible = {.size = sizeof compatible, .compatible = 1};
            choose(model, 3, uniform, &c);
            memset(&none, 1, sizeof none);
            save_pruned(model, c.keep[DECODER], ALL(c), pruned);
            mha_model *small = case_open(NULL, pruned);
            save_pruned(small, none.keep[DECODER], &compatible, zeros);
            mha_model *whole = case_open(NULL, zeros);
            assert_int_equal(mha_model_describe(whole)->parameters, mha_model_describe(model)->parameters);
            assert_int_equal(mha_model_describe(whole)->heads, mha_model_describe(model)->heads);
            assert_null(strstr(mha_model_config_json(whole), "mha.heads"));
            float *got = logits_with(whole, f, NULL), *want = logits_with(model, f, &c);
            case_near("logits of the compatible model", got, want, count_of(model, f), 1e-5);
            free(got);
            free(want);
            mha_model_free(whole);
            mha_model_free(small);
            mha_model_free(model);
        }
}

/* If all parts keep the same number of heads and a side the same heads, the keys of a T5 express the result. */
static void test_uniform(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        choice c;
        mha_error err = {0};
        mha_edit_evaluation e;
        mha_model_edit *edit = NULL;
        mha_model *model = seq2seq_open(NULL, f), *pruned = NULL;
        const bool t5 = f == SEQ2SEQ_T5 || f == SEQ2SEQ_T5_GATED;
        choose(model, 3, true, &c);
        assert_int_equal(mha_prune(model, c.keep[DECODER], ALL(c), &edit, &err), MHA_OK);
        assert_int_equal(mha_model_edit_evaluate(edit, NULL, &e, &err), MHA_OK);
        assert_true(t5 == (e.broken_rule == NULL));
        assert_true(e.heads[1] < e.heads[0] && e.parameters[1] < e.parameters[0]);
        assert_int_equal(mha_model_edit_open(edit, &pruned, &err), MHA_OK);
        const mha_model_info *info = mha_model_describe(pruned);
        assert_int_equal(info->original_heads, mha_model_describe(model)->heads);
        assert_int_equal(info->heads, t5 ? 2 : mha_model_describe(model)->heads);
        check_counts(pruned, &c);
        expect_equal("uniform", f, pruned, logits_with(model, f, &c));
        mha_model_free(pruned);
        mha_model_edit_free(edit);
        mha_model_free(model);
    }
}

/* ---- decoding ---- */

/* Tokens that are appended to a cache one by one must have the logits of a whole pass, although the layers of the
 * cross-attention have different numbers of heads. */
static void test_cache(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        choice c;
        seq2seq_pair pair;
        mha_error err = {0};
        mha_model_edit *edit = NULL;
        mha_model *model = seq2seq_open(NULL, f), *pruned = NULL;
        mha_model_cache *cache = NULL;
        mha_file *file = seq2seq_recorded(f);
        choose(model, 2, false, &c);
        assert_int_equal(mha_prune(model, c.keep[DECODER], ALL(c), &edit, &err), MHA_OK);
        assert_int_equal(mha_model_edit_open(edit, &pruned, &err), MHA_OK);
        seq2seq_read(file, "pad", &pair);
        float *whole = seq2seq_logits(pruned, &pair.input);
        const mha_model_cache_options o = {
            .size = sizeof o, .batch = pair.input.batch, .source_tokens = pair.source.length + 3};
        assert_int_equal(mha_model_cache_create(pruned, &o, &cache, &err), MHA_OK);
        const int64_t B = pair.input.batch, T = pair.input.length, V = mha_model_describe(pruned)->vocab;
        for (int64_t t = 0; t < T; t++) {
            int32_t *ids = calloc((size_t)B, sizeof *ids);
            for (int64_t b = 0; b < B; b++)
                ids[b] = pair.input.ids[b * T + t];
            const mha_model_input one = {.size = sizeof one,
                                         .batch = B,
                                         .length = 1,
                                         .ids = ids,
                                         .cache = cache,
                                         .source = t ? NULL : &pair.source};
            float *logits = seq2seq_logits(pruned, &one);
            for (int64_t b = 0; b < B; b++)
                if (memcmp(logits + b * V, whole + (b * T + t) * V, (size_t)V * sizeof *logits) != 0)
                    fail_msg("%s: token %d of sequence %d must have the logits of a whole pass", seq2seq_names[f],
                             (int)t, (int)b);
            free(logits);
            free(ids);
        }
        free(whole);
        mha_model_cache_free(cache);
        seq2seq_free(&pair);
        mha_file_free(file);
        mha_model_free(pruned);
        mha_model_edit_free(edit);
        mha_model_free(model);
    }
}

/* ---- refusals and memory ---- */

static void test_refusals(void **state)
{
    (void)state;
    choice c;
    mha_error err = {0};
    mha_model_edit *edit = NULL;
    mha_model *t5 = seq2seq_open(NULL, SEQ2SEQ_T5);
    choose(t5, 3, false, &c);
    assert_int_equal(mha_prune(mha_model_encoder(t5), c.keep[ENCODER], ALL(c), &edit, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "cross_keep must be NULL unless the model is the decoder"));
    const mha_prune_options none = {.size = sizeof none, .cross_keep = (const uint8_t[MAX]){0}};
    assert_int_equal(mha_prune(t5, c.keep[DECODER], &none, &edit, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "layer 0 must keep at least one head of its cross-attention"));
    assert_int_equal(mha_cross_head_number(mha_model_encoder(t5), 0, 0), -1);
    assert_int_equal(mha_cross_head_number(t5, 0, 99), -1);
    assert_null(edit);
    mha_model_free(t5);
}

static void test_without_memory(void **state)
{
    (void)state;
    choice c;
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .allocator = counting_allocator(&count), .threads = 1};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = seq2seq_open(ctx, SEQ2SEQ_T5);
    const long live = count.live;
    choose(model, 3, false, &c);
    for (long budget = 0;; budget++) {
        mha_error err = {0};
        mha_model_edit *edit = NULL;
        mha_model *pruned = NULL;
        count.budget = count.calls + budget;
        mha_status status = mha_prune(model, c.keep[DECODER], ALL(c), &edit, &err);
        if (status == MHA_OK) status = mha_model_edit_open(edit, &pruned, &err);
        count.budget = -1;
        mha_model_free(pruned);
        mha_model_edit_free(edit);
        assert_int_equal(count.live, live);
        if (status == MHA_OK) break;
        assert_int_equal(status, MHA_ERR_MEMORY);
    }
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static int make_folder(void **state)
{
    (void)state;
    folder = files_folder();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        files_remove(files_path(folder, names[n]));
    files_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_removed_is_gated_off),
        cmocka_unit_test(test_parts_one_by_one),
        cmocka_unit_test(test_compatible),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
