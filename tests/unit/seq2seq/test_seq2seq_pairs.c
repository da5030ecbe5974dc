/* test_seq2seq_pairs.c - tests the choice and removal of heads on source/target pairs: every score, a choice, mean
 * fill, refit and evaluation must work for each family, and fail without a leak if memory is exhausted. The results are
 * compared with PyTorch in tests/python/test_pair_importance.py and test_pair_pruning.py. */
#include "mha/importance.h"
#include "mha/prune.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/seq2seq_case.h"
#include <math.h>
#include <string.h>

enum { PAIRS = 5, MAX = 64 };
static const int32_t source_ids[] = {5, 9, 31, 7, 12, 40, 3, 6, 11, 8, 8, 10},
                     labels[] = {21, 8, 14, 2, 9, 2, 33, 6, 2};
static const int64_t source_starts[] = {0, 4, 5, 7, 8, 12}, starts[] = {0, 3, 4, 6, 7, 9};

static mha_status create(const mha_model *model, mha_head_data **data, mha_error *err)
{
    return mha_head_data_of_id_pairs(model, source_ids, source_starts, labels, starts, PAIRS, NULL, data, err);
}

static mha_status score(const mha_model *model, const mha_head_data *data, mha_importance_score by,
                        mha_importance **scores, mha_error *err)
{
    return mha_importance_measure(
        model, data, &(mha_importance_options){.size = sizeof(mha_importance_options), .by = by}, scores, err);
}

/* Every score must be finite for every head that a kind has; confidence must be refused. */
static void test_scores(void **state)
{
    (void)state;
    for (int f = 0; f < SEQ2SEQ_FAMILIES; f++) {
        mha_model *model = seq2seq_open(NULL, f);
        mha_head_data *data = NULL;
        mha_error err = {0};
        assert_int_equal(create(model, &data, &err), MHA_OK);
        for (mha_importance_score by = 0; by < MHA_IMPORTANCE_SCORES; by++) {
            mha_importance *scores = NULL;
            mha_importance_heads heads;
            const mha_status status = score(model, data, by, &scores, &err);
            const bool refused = by == MHA_IMPORTANCE_CONFIDENCE || by == MHA_IMPORTANCE_CONFIDENCE_NOSPECIAL;
            assert_int_equal(status, refused ? MHA_ERR_UNSUPPORTED : MHA_OK);
            for (int k = 0; status == MHA_OK && k < MHA_HEAD_KINDS; k++) {
                assert_int_equal(mha_importance_kind(scores, (mha_head_kind)k, &heads), 1);
                for (int64_t n = 0; n < heads.layers * heads.heads; n++)
                    if (!isfinite(heads.values[n]))
                        fail_msg("%s, %s, kind %d: score %d must be finite", seq2seq_names[f],
                                 mha_importance_score_key(by), k, (int)n);
            }
            mha_importance_free(scores);
        }
        mha_head_data_free(data);
        mha_model_free(model);
    }
}

/* Chooses heads by a score, and removes them with fill and refit. */
static mha_status prune(const mha_model *model, mha_edit_evaluation *e, mha_error *err)
{
    uint8_t keep[MHA_HEAD_KINDS][MAX];
    mha_head_data *data = NULL;
    mha_importance *scores = NULL;
    mha_model_edit *edit = NULL;
    mha_importance_heads heads[MHA_HEAD_KINDS];
    mha_status status = create(model, &data, err);
    if (status == MHA_OK) status = score(model, data, MHA_IMPORTANCE_LOO_MEAN_LOSS, &scores, err);
    for (int k = 0; k < MHA_HEAD_KINDS; k++)
        mha_importance_kind(scores, (mha_head_kind)k, &heads[k]);
    const mha_prune_rule rule = {.size = sizeof rule,
                                 .count = 3,
                                 .cross_keep = keep[MHA_HEADS_CROSS],
                                 .encoder_keep = keep[MHA_HEADS_ENCODER],
                                 .cross_scores = heads[MHA_HEADS_CROSS].values,
                                 .encoder_scores = heads[MHA_HEADS_ENCODER].values};
    const mha_prune_options how = {.size = sizeof how,
                                   .fill = data,
                                   .refit = data,
                                   .cross_keep = keep[MHA_HEADS_CROSS],
                                   .encoder_keep = keep[MHA_HEADS_ENCODER]};
    if (status == MHA_OK)
        status = mha_prune_choose(model, heads[MHA_HEADS_OWN].values, &rule, keep[MHA_HEADS_OWN], err);
    if (status == MHA_OK) status = mha_prune(model, keep[MHA_HEADS_OWN], &how, &edit, err);
    if (status == MHA_OK) status = mha_model_edit_evaluate(edit, data, e, err);
    mha_model_edit_free(edit);
    mha_importance_free(scores);
    mha_head_data_free(data);
    return status;
}

static void test_pruning(void **state)
{
    (void)state;
    static const int families[] = {SEQ2SEQ_BART, SEQ2SEQ_MBART, SEQ2SEQ_MARIAN}; /* T5 has no biases to fill */
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        mha_model *model = seq2seq_open(NULL, families[f]);
        mha_edit_evaluation e = {0};
        mha_error err = {0};
        if (prune(model, &e, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(e.heads[0] - e.heads[1], 3);
        assert_int_equal(e.comparison.texts, PAIRS);
        assert_int_equal(e.comparison.predicted, starts[PAIRS]);
        assert_true(e.comparison.mean_cosine > 0.9);
        mha_model_free(model);
    }
}

/* Every allocation in turn must fail with MHA_ERR_MEMORY and without a leak; later ones are sampled. */
static void test_without_memory(void **state)
{
    (void)state;
    counting count = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .allocator = counting_allocator(&count), .threads = 1};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = seq2seq_open(ctx, SEQ2SEQ_BART);
    const long live = count.live;
    for (long budget = 0;; budget += 1 + budget / 16) {
        mha_edit_evaluation e;
        mha_error err = {0};
        count.budget = count.calls + budget;
        const mha_status status = prune(model, &e, &err);
        count.budget = -1;
        assert_int_equal(count.live, live);
        if (status == MHA_OK) break;
        assert_int_equal(status, MHA_ERR_MEMORY);
    }
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static void test_refusals(void **state)
{
    (void)state;
    uint8_t keep[MAX];
    double scores[MAX] = {0};
    mha_model *t5 = seq2seq_open(NULL, SEQ2SEQ_T5);
    mha_error err = {0};
    mha_head_data *data = NULL;
    mha_prune_rule rule = {.size = sizeof rule, .count = 1, .cross_keep = keep};
    assert_int_equal(mha_prune_choose(t5, scores, &rule, keep, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "cross_keep and encoder_keep must both be set"));
    rule.encoder_keep = keep;
    assert_int_equal(mha_prune_choose(t5, scores, &rule, keep, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "cross_scores must not be NULL"));
    assert_int_equal(mha_prune_choose(mha_model_encoder(t5), scores, &rule, keep, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "cross_keep must be NULL unless the model is the decoder"));
    assert_int_equal(create(mha_model_encoder(t5), &data, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "model must be an encoder-decoder for source/target pairs (got t5)"));
    assert_null(data);
    mha_model_free(t5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_pruning),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
