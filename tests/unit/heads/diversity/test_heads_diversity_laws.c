/* test_heads_diversity_laws.c - tests properties of the similarity measures that need no reference: bitwise identical
 * results for any number of threads and batches, ranges of values, selected rows, layers with different head counts,
 * and rollouts. */
#include "mha/prune.h"
#include "support/check.h"
#include "support/heads/diversity_case.h"
#include <math.h>
#include <string.h>

/* ---- bitwise identity ---- */

static void threads_and_batches_change_nothing(void **state)
{
    (void)state;
    static const int64_t batches[] = {0, 1, 50, 100};
    for (int f = 0; f < 2; f++) {
        mha_model *model = diversity_model(NULL, f ? DIVERSITY_DECODER : DIVERSITY_ENCODER, NULL, 0);
        mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 0);
        mha_diversity *want = diversity_of(model, data, (mha_diversity_options){0});
        for (int threads = 1; threads <= 3; threads++) {
            mha_ctx *ctx;
            const mha_ctx_options options = {.size = sizeof options, .threads = threads};
            assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
            mha_model *other = diversity_model(ctx, f ? DIVERSITY_DECODER : DIVERSITY_ENCODER, NULL, 0);
            mha_head_data *cut = diversity_data(other, diversity_lengths, DIVERSITY_TEXTS, batches[threads]);
            mha_diversity *d = diversity_of(other, cut, (mha_diversity_options){0});
            assert_true(diversity_equal(model, d, want));
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
    mha_model *model = diversity_model(NULL, DIVERSITY_ENCODER, NULL, 0);
    const mha_model_info *info = mha_model_describe(model);
    mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 0);
    mha_diversity *d = diversity_of(model, data, (mha_diversity_options){0});
    const int64_t n = mha_diversity_heads(d);
    assert_int_equal(n, info->layers * info->heads);
    for (int64_t i = 0; i < n * n; i++) {
        const diversity_pair p = diversity_pair_at(info, i), back = {p.lb, p.b, p.la, p.a};
        const bool same = i / n == i % n, layer = p.la == p.lb;
        for (int what = 0; what < MHA_DIVERSITIES; what++) {
            const double x = diversity_at(d, what, p), y = diversity_at(d, what, back);
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
    mha_model *model = diversity_model(NULL, DIVERSITY_ENCODER, NULL, 0);
    const mha_model_info *info = mha_model_describe(model);
    mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 0);
    mha_diversity *all = diversity_of(model, data, (mha_diversity_options){0});
    const int64_t n = mha_diversity_heads(all);
    for (int one = 0; one < MHA_DIVERSITIES; one++) {
        mha_diversity *d = diversity_of(model, data, (mha_diversity_options){.what = 1U << one});
        for (int what = 0; what < MHA_DIVERSITIES; what++)
            for (int64_t i = 0; i < n * n; i++) {
                const double got = diversity_at(d, what, diversity_pair_at(info, i)),
                             want = diversity_at(all, what, diversity_pair_at(info, i));
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
    mha_model *model = diversity_model(NULL, DIVERSITY_ENCODER, NULL, 0);
    mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 0),
                  *cut = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 40);
    mha_diversity *all = diversity_of(model, data, (mha_diversity_options){0});
    const int64_t tokens = mha_head_data_tokens(data);
    assert_int_equal(mha_diversity_rows(all), tokens);
    mha_diversity *more = diversity_of(model, data, (mha_diversity_options){.max_rows = tokens + 5});
    assert_true(diversity_equal(model, all, more));
    for (int64_t rows = 1; rows < tokens; rows += 47) {
        mha_diversity *some = diversity_of(model, data, (mha_diversity_options){.max_rows = rows});
        mha_diversity *again = diversity_of(model, cut, (mha_diversity_options){.max_rows = rows});
        assert_int_equal(mha_diversity_rows(some), rows);
        assert_true(diversity_equal(model, some, again));
        assert_false(diversity_equal(model, some, all));
        mha_diversity_free(some);
        mha_diversity_free(again);
    }
    mha_diversity_free(all);
    mha_diversity_free(more);
    mha_head_data_free(data);
    mha_head_data_free(cut);
    mha_model_free(model);
}

/* ---- layers with different head counts ---- */

/* Pruning must not change the similarity of the remaining heads of layer 0, except `unique`, which depends on all heads
 * of the layer. In other layers, it must not change the similarity of subspaces. */
static void pruned_layers(void **state)
{
    (void)state;
    static const uint8_t keep[12] = {1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1};
    static const int64_t kept[3][4] = {{0, 2, 3}, {1, 2}, {0, 1, 2, 3}}, counts[3] = {3, 2, 4};
    mha_model *whole = diversity_model(NULL, DIVERSITY_ENCODER, NULL, 0), *less;
    mha_model_edit *edit;
    mha_error err = {0};
    if (mha_prune(whole, keep, NULL, &edit, &err) != MHA_OK || mha_model_edit_open(edit, &less, &err) != MHA_OK)
        fail_msg("%s", err.message);
    mha_head_data *data = diversity_data(whole, diversity_lengths, DIVERSITY_TEXTS, 0);
    mha_diversity *before = diversity_of(whole, data, (mha_diversity_options){0});
    mha_diversity *after = diversity_of(less, data, (mha_diversity_options){0});
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

/* ---- rollout ---- */

static void rollouts_share_out_everything(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        mha_model *model = diversity_model(NULL, f ? DIVERSITY_DECODER : DIVERSITY_ENCODER, NULL, 0);
        mha_head_data *data = diversity_data(model, diversity_lengths, DIVERSITY_TEXTS, 0);
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
        cmocka_unit_test(pruned_layers),
        cmocka_unit_test(rollouts_share_out_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
