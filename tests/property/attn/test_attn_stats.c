/* test_attn_stats.c - statistics must be bitwise identical with and without probabilities and other outputs, and must
 * need only memory that grows linearly with L. Tests of random problems compare statistics with the probabilities
 * (statistics.h). */
#include "support/attn/statistics.h"
#include "support/check.h"
#include "support/isas.h"
#include <string.h>

static const mha_attn_desc base = {.size = sizeof base,
                                   .batch = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .q_len = 150,
                                   .kv_len = 1300,
                                   .head_dim = 24,
                                   .causal = 1,
                                   .align = MHA_ALIGN_BOTTOM_RIGHT,
                                   .inputs = MHA_ATTN_KEEP | MHA_ATTN_SINKS | MHA_ATTN_KV_LENS | MHA_ATTN_Q_LENS,
                                   .top_keys = 5,
                                   .outputs = MHA_ATTN_STATS | MHA_ATTN_PROBS};

static mha_view *view_of(mha_attn_stats *s, int n)
{
    mha_view *const views[PROBLEM_STATS] = {&s->row_entropy, &s->row_max,  &s->row_argmax, &s->row_distance,
                                            &s->received,    &s->top_prob, &s->top_key};
    return views[n];
}

static void test_tied_to_probabilities(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count_of(MHA_F32); c++) {
        problem p;
        char why[600];
        problem_make(&p, &base, NULL, 51);
        problem_run(isa_contexts[c], &p);
        if (!statistics_near(&p, why, sizeof why)) fail_msg("%s: %s", mha_ctx_isa(isa_contexts[c]), why);
        problem_free(&p);
    }
}

/* Statistics must be bitwise identical if computed alone, with one of them left out, or without probabilities. */
static void test_any_selection(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count_of(MHA_F32); c++) {
        problem all;
        problem_make(&all, &base, NULL, 52);
        problem_run(isa_contexts[c], &all);
        for (int n = 0; n <= 2 * PROBLEM_STATS; n++) {
            problem some;
            mha_attn_desc d = base;
            d.outputs = MHA_ATTN_STATS;
            problem_make(&some, &d, NULL, 52);
            for (int i = 0; i < PROBLEM_STATS && n < 2 * PROBLEM_STATS; i++) {
                const bool chosen = n % PROBLEM_STATS == i;
                if (chosen != (n < PROBLEM_STATS)) view_of(&some.stats_views, i)->data = NULL;
            }
            problem_run(isa_contexts[c], &some);
            for (int i = 0; i < PROBLEM_STATS; i++)
                if (view_of(&some.stats_views, i)->data)
                    assert_true(tensor_same_bits(&some.stats[i], &all.stats[i]));
                else
                    assert_true(tensor_get(&some.stats[i], 0, 0, 0, 0) == TEST_CANARY);
            assert_true(tensor_same_bits(&some.out, &all.out));
            problem_free(&some);
        }
        problem_free(&all);
    }
}

/* Statistics must be bitwise identical for any number of threads, with one head and with several heads, and enough rows
 * for all threads. */
static void test_threads(void **state)
{
    (void)state;
    for (int64_t heads = 1; heads <= 3; heads += 2) {
        mha_attn_desc d = base;
        d.batch = 1;
        d.heads = heads;
        d.kv_heads = 1;
        d.q_len = 700;
        d.outputs = MHA_ATTN_STATS;
        problem alone;
        problem_make(&alone, &d, NULL, 53);
        problem_run(isa_contexts[isa_count - 1], &alone);
        for (int threads = 2; threads <= 3; threads++) {
            mha_ctx *ctx[PROBLEM_ISAS];
            const int count = isas_create(ctx, threads);
            problem shared;
            problem_make(&shared, &d, NULL, 53);
            problem_run(ctx[count - 1], &shared);
            assert_true(problem_same_bits(&alone, &shared));
            problem_free(&shared);
            isas_free(ctx, count);
        }
        problem_free(&alone);
    }
}

/* Distances must depend on the offset that align sets, even if no mask depends on it. */
static void test_distance_without_masks(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count_of(MHA_F32); c++)
        for (int align = MHA_ALIGN_UNSET; align <= MHA_ALIGN_OFFSETS; align++) {
            const mha_attn_desc d = {.size = sizeof d,
                                     .batch = 2,
                                     .heads = 1,
                                     .q_len = 5,
                                     .kv_len = 140,
                                     .head_dim = 8,
                                     .align = (mha_align)align,
                                     .outputs = MHA_ATTN_STATS | MHA_ATTN_PROBS};
            problem p;
            char why[600];
            problem_make(&p, &d, NULL, 54);
            problem_run(isa_contexts[c], &p);
            if (!statistics_near(&p, why, sizeof why)) fail_msg("%s: %s", mha_ctx_isa(isa_contexts[c]), why);
            problem_free(&p);
        }
}

/* The statistics of a NaN row must be NaN and its top keys -1; the other row must not change. */
static void test_nan(void **state)
{
    (void)state;
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = 1,
                             .q_len = 2,
                             .kv_len = 2,
                             .head_dim = 3,
                             .causal = 1,
                             .top_keys = 1,
                             .outputs = MHA_ATTN_STATS | MHA_ATTN_PROBS};
    for (int c = 0; c < isa_count_of(MHA_F32); c++) {
        problem p;
        char why[600];
        problem_make(&p, &d, NULL, 55);
        tensor_set(&p.q, 0, 0, 0, 1, NAN);
        problem_run(isa_contexts[c], &p);
        if (!statistics_near(&p, why, sizeof why)) fail_msg("%s: %s", mha_ctx_isa(isa_contexts[c]), why);
        assert_true(isnan(tensor_get(&p.stats[ROW_ENTROPY], 0, 0, 0, 0)));
        assert_true(isnan(tensor_get(&p.stats[RECEIVED], 0, 0, 0, 0)));
        assert_true(tensor_get(&p.stats[ROW_ARGMAX], 0, 0, 0, 0) == -1);
        assert_true(isfinite(tensor_get(&p.stats[ROW_ENTROPY], 0, 0, 1, 0)));
        assert_true(isfinite(tensor_get(&p.stats[RECEIVED], 0, 0, 1, 0)));
        problem_free(&p);
    }
}

/* Returns by how many bytes statistics increase the workspace of a call with as many queries as keys. */
static size_t statistics_bytes(int64_t keys)
{
    size_t bytes[2];
    for (int n = 0; n < 2; n++) {
        mha_attn_plan *plan;
        mha_attn_desc d = {.size = sizeof d, .batch = 1, .heads = 1, .q_len = keys, .kv_len = keys, .head_dim = 64};
        if (n) d.outputs = MHA_ATTN_STATS, d.top_keys = 32;
        assert_int_equal(mha_attn_plan_create(isa_contexts[0], &d, &plan, NULL), MHA_OK);
        bytes[n] = mha_attn_plan_workspace(plan);
        mha_attn_plan_free(plan);
    }
    return bytes[1] - bytes[0];
}

/* Statistics must need only a few elements per key and per row of a tile; 4096 x 4096 probabilities would need 64 MiB.
 * Up to 4096 keys, the scores of the 128 rows of a tile are kept, too. */
static void test_workspace(void **state)
{
    (void)state;
    static const int64_t keys[] = {512, 4096, 4097, 32768};
    for (int n = 0; n < 4; n++) {
        const size_t kept = keys[n] <= 4096 ? (size_t)keys[n] * 128 * sizeof(float) : 0,
                     bytes = statistics_bytes(keys[n]);
        if (bytes > (size_t)keys[n] * 8 + 128 * 1024 + kept)
            fail_msg("statistics of %d keys must need a few bytes per key (got %zu bytes)", (int)keys[n], bytes);
    }
}

static void refuse(problem *p, const char *want)
{
    mha_error err = {0};
    assert_int_equal(mha_attention(isa_contexts[0], &p->desc, &p->args, &err), MHA_ERR_ARG);
    if (!strstr(err.message, want)) fail_msg("message must contain \"%s\" (got \"%s\")", want, err.message);
    assert_true(tensor_get(&p->out, 0, 0, 0, 0) == TEST_CANARY);
}

static void test_refusals(void **state)
{
    (void)state;
    problem p;
    problem_make(&p, &base, NULL, 56);
    p.args.stats = NULL;
    refuse(&p, "stats must not be NULL");
    problem_bind(&p);
    p.stats_views.size = 12;
    refuse(&p, "mha_attn_stats.size must be");
    problem_bind(&p);
    p.stats_views.received.stride[2] = 0;
    refuse(&p, "stats.received.stride[2] must be at least");
    problem_bind(&p);
    p.stats_views.top_key.stride[3] = 0;
    refuse(&p, "stats.top_key.stride[3] must be at least");
    problem_bind(&p);
    p.stats_views.row_max.data = p.stats_views.row_entropy.data;
    refuse(&p, "stats.row_max must not overlap stats.row_entropy");
    problem_bind(&p);
    p.stats_views.row_distance.data = (float *)p.out.data + 1;
    refuse(&p, "stats.row_distance must not overlap out");
    problem_bind(&p);
    p.stats_views.received.data = p.k.data;
    refuse(&p, "stats.received must not overlap k");
    problem_bind(&p);
    p.stats_views.top_key.data = p.v.data;
    refuse(&p, "stats.top_key must not overlap v");
    p.desc.align = MHA_ALIGN_OFFSETS;
    p.desc.causal = 0;
    problem_bind(&p);
    p.args.offsets = NULL;
    refuse(&p, "offsets must not be NULL");
    problem_free(&p);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_tied_to_probabilities),
                                              cmocka_unit_test(test_any_selection),
                                              cmocka_unit_test(test_threads),
                                              cmocka_unit_test(test_distance_without_masks),
                                              cmocka_unit_test(test_nan),
                                              cmocka_unit_test(test_workspace),
                                              cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
