/* test_attn_poison.c - NaN and infinity in a masked key or value must not affect any row. In a visible key or value,
 * they must affect only the rows that attend to it. Tested on every ISA. */
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <float.h>
#include <string.h>

/* Problems that together use every way to mask a key, for some rows or for all rows. Lengths and offsets are random. */
#define SIZES                                                                                                         \
    .size = sizeof(mha_attn_desc), .batch = 3, .heads = 4, .kv_heads = 2, .q_len = 45, .kv_len = 140, .head_dim = 24, \
    .v_head_dim = 40, .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS | MHA_ATTN_SCORES, .scores = MHA_SCORES_BIASED
static const struct {
    const char *name;
    mha_attn_desc desc;
} ways[] = {
    {"causal, top-left", {SIZES, .causal = 1, .align = MHA_ALIGN_TOP_LEFT}},
    {"causal, bottom-right of kv_lens",
     {SIZES, .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = MHA_ATTN_KV_LENS}},
    {"causal, offsets", {SIZES, .causal = 1, .align = MHA_ALIGN_OFFSETS}},
    {"window", {SIZES, .window = {1, 9, 3}, .align = MHA_ALIGN_BOTTOM_RIGHT}},
    {"kv_lens", {SIZES, .inputs = MHA_ATTN_KV_LENS}},
    {"keep", {SIZES, .inputs = MHA_ATTN_KEEP}},
    {"keep_keys", {SIZES, .inputs = MHA_ATTN_KEEP, .keep_keys = 77}},
    {"bias of -inf", {SIZES, .inputs = MHA_ATTN_BIAS}},
    {"prefix",
     {SIZES, .causal = 1, .window = {1, 9, -1}, .align = MHA_ALIGN_BOTTOM_RIGHT,
      .inputs = MHA_ATTN_PREFIX_LENS | MHA_ATTN_KV_LENS | MHA_ATTN_Q_LENS}},
    {"kv_lens and dropout", {SIZES, .dropout = 0.5, .inputs = MHA_ATTN_KV_LENS}},
    {"blocks", {SIZES, .block_q = 20, .block_k = 7, .inputs = MHA_ATTN_BLOCK_KEEP}},
    {"slopes and sinks",
     {SIZES, .causal = 1, .align = MHA_ALIGN_OFFSETS, .inputs = MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES}},
    {"functions and keep", {SIZES, .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = MHA_ATTN_FUNCTIONS | MHA_ATTN_KEEP}},
    {"functions, causal, bias, softcap and dropout",
     {SIZES, .causal = 1, .align = MHA_ALIGN_OFFSETS, .softcap = 4, .dropout = 0.3,
      .inputs = MHA_ATTN_FUNCTIONS | MHA_ATTN_BIAS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS}},
    {"bf16, functions and kv_lens",
     {SIZES, .dtype = MHA_BF16, .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = MHA_ATTN_FUNCTIONS | MHA_ATTN_KV_LENS}},
    {"bf16, causal, bottom-right of kv_lens",
     {SIZES, .dtype = MHA_BF16, .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = MHA_ATTN_KV_LENS}},
    {"bf16, window and bias of -inf",
     {SIZES, .dtype = MHA_BF16, .window = {1, 9, 3}, .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = MHA_ATTN_BIAS}},
    {"bf16, keep and dropout", {SIZES, .dtype = MHA_BF16, .dropout = 0.5, .inputs = MHA_ATTN_KEEP}},
    {"f16 keys and values, keep and bias",
     {SIZES, .kv_dtype = MHA_F16, .bias_dtype = MHA_F16, .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS}},
    {"all together",
     {SIZES, .causal = 1, .window = {1, 60, -1}, .align = MHA_ALIGN_BOTTOM_RIGHT,
      .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_KV_LENS | MHA_ATTN_Q_LENS | MHA_ATTN_PREFIX_LENS |
                MHA_ATTN_BLOCK_KEEP,
      .block_q = 16, .block_k = 16}},
};
enum { WAYS = sizeof ways / sizeof *ways };

static const double garbage[] = {NAN, INFINITY, -INFINITY, DBL_MAX};

/* Returns true if any row of the query heads that share key/value head g of batch entry b may attend to key j. */
static bool seen_by_any(const problem *p, int64_t b, int64_t g, int64_t j)
{
    int64_t share = p->desc.heads / p->desc.kv_heads;
    for (int64_t h = g * share; h < (g + 1) * share; h++)
        for (int64_t i = 0; i < p->desc.q_len; i++)
            if (ref_visible(&p->desc, &p->args, b, h, i, j)) return true;
    return false;
}

static void spoil_row(tensor *t, int64_t b, int64_t g, int64_t j, double value)
{
    for (int64_t d = 0; d < t->dim[3]; d++)
        tensor_set(t, b, g, j, d, value);
}

/* Sets every key that is masked for all rows, and its value, to `value` in `p` and to zero in `clean`. Returns the
 * number of such keys. */
static int spoil_unseen(problem *p, problem *clean, double value)
{
    int spoiled = 0;
    for (int64_t b = 0; b < p->desc.batch; b++)
        for (int64_t g = 0; g < p->desc.kv_heads; g++)
            for (int64_t j = 0; j < p->desc.kv_len; j++) {
                if (seen_by_any(p, b, g, j)) continue;
                spoil_row(&p->k, b, g, j, value);
                spoil_row(&p->v, b, g, j, value);
                spoil_row(&clean->k, b, g, j, 0);
                spoil_row(&clean->v, b, g, j, 0);
                spoiled++;
            }
    return spoiled;
}

/* Masks every fourth key for all rows, since random masks rarely do so. */
static void hide_some_keys(problem *p)
{
    for (int64_t j = 3; j < p->desc.kv_len; j += 4)
        for (int64_t row = 0; row < p->desc.batch * p->desc.heads * p->desc.q_len; row++) {
            int64_t b = row / (p->desc.heads * p->desc.q_len), h = row / p->desc.q_len % p->desc.heads;
            if (p->keep.memory && j < p->keep.dim[3]) tensor_set(&p->keep, b, h, row % p->desc.q_len, j, 0);
            if (p->block_keep.memory && p->desc.block_k == 7) /* block 3 of 7 keys only */
                tensor_set(&p->block_keep, b, h, row % p->desc.q_len / p->desc.block_q, 3, 0);
            if (p->bias.memory) tensor_set(&p->bias, b, h, row % p->desc.q_len, j, -INFINITY);
        }
}

static void test_unseen_by_all(void **state)
{
    (void)state;
    for (size_t way = 0; way < WAYS; way++)
        for (size_t value = 0; value < sizeof garbage / sizeof *garbage; value++) {
            problem p, clean;
            problem_make(&p, &ways[way].desc, NULL, 31);
            problem_make(&clean, &ways[way].desc, NULL, 31);
            hide_some_keys(&p);
            hide_some_keys(&clean);
            assert_true(spoil_unseen(&p, &clean, garbage[value]) > 0);
            for (int n = 0; n < isa_count_of(ways[way].desc.dtype); n++) {
                problem_run(isa_contexts[n], &p);
                problem_run(isa_contexts[n], &clean);
                if (!problem_same_bits(&p, &clean))
                    fail_msg("%s: %g must not affect the result where \"%s\" masks it", mha_ctx_isa(isa_contexts[n]),
                             garbage[value], ways[way].name);
            }
            problem_free(&p);
            problem_free(&clean);
        }
}

/* Returns true if row (b, h, i) of every output is bitwise identical in both problems. */
static bool same_row(const problem *x, const problem *y, int64_t b, int64_t h, int64_t i)
{
    const tensor *pairs[][2] = {{&x->out, &y->out}, {&x->lse, &y->lse}, {&x->probs, &y->probs}};
    for (int n = 0; n < 3; n++)
        for (int64_t d = 0; d < pairs[n][0]->dim[3]; d++) {
            double a = tensor_get(pairs[n][0], b, h, i, d), c = tensor_get(pairs[n][1], b, h, i, d);
            if (memcmp(&a, &c, sizeof a) != 0) return false;
        }
    return true;
}

/* Fails unless key j, which is NaN or infinite in `p`, affects exactly the rows that attend to it. All other rows must
 * equal those of `clean`. In rows that attend to key j, every column of out must be NaN or infinite, since it is a sum
 * that includes value j. */
static void check_one_key(mha_ctx *ctx, problem *p, problem *clean, int64_t j, const char *name)
{
    problem_run(ctx, p);
    problem_run(ctx, clean);
    int64_t share = p->desc.heads / p->desc.kv_heads;
    for (int64_t row = 0; row < p->desc.batch * p->desc.heads * p->desc.q_len; row++) {
        int64_t b = row / (p->desc.heads * p->desc.q_len), h = row / p->desc.q_len % p->desc.heads;
        int64_t i = row % p->desc.q_len;
        bool touched = b == 1 && h / share == 1 && ref_visible(&p->desc, &p->args, b, h, i, j);
        if (touched && isfinite(tensor_get(&p->out, b, h, i, 0)))
            fail_msg("%s: %s: row %lld attends to NaN or infinity, so its out must not be finite", mha_ctx_isa(ctx),
                     name, (long long)i);
        if (!touched && !same_row(p, clean, b, h, i))
            fail_msg("%s: %s: key %lld must not affect row (%lld, %lld, %lld)", mha_ctx_isa(ctx), name, (long long)j,
                     (long long)b, (long long)h, (long long)i);
    }
}

/* Sets a key and its value to NaN or infinity in problems in which only some rows attend to it. */
static void test_seen_by_some(void **state)
{
    (void)state;
    static const int64_t keys[] = {0, 5, 63, 64, 95, 139};
    for (size_t way = 0; way < WAYS; way++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            for (int n = 0; n < isa_count_of(ways[way].desc.dtype); n++) {
                problem p, clean;
                problem_make(&p, &ways[way].desc, NULL, 32);
                problem_make(&clean, &ways[way].desc, NULL, 32);
                if (k % 2 == 0) spoil_row(&p.k, 1, 1, keys[k], NAN);
                spoil_row(&p.v, 1, 1, keys[k], k % 3 == 1 ? INFINITY : NAN);
                check_one_key(isa_contexts[n], &p, &clean, keys[k], ways[way].name);
                problem_free(&p);
                problem_free(&clean);
            }
}

/* Rows of keys and values may be longer than a head, as in a buffer of several heads. The elements between them are
 * NaN, in every stored type, and must not affect the result: for few queries, which read keys in place, or for many. */
static void test_gaps_between_rows(void **state)
{
    (void)state;
    static const mha_dtype types[][2] = {{MHA_F32, MHA_F32},  {MHA_F64, MHA_F64},  {MHA_BF16, MHA_BF16},
                                         {MHA_F16, MHA_F16},  {MHA_F32, MHA_BF16}, {MHA_F32, MHA_F16},
                                         {MHA_F32, MHA_Q8_0}, {MHA_F32, MHA_Q4_0}, {MHA_F32, MHA_F8_E4M3}};
    static const int64_t lengths[] = {1, 3, 45}, widths[] = {32, 64, 96};
    static const int gaps[] = {1, 2, 32};
    for (size_t n = 0; n < 9 * 3 * 3; n++) {
        const mha_dtype *type = types[n % 9];
        const mha_attn_desc d = {.size = sizeof d,
                                 .batch = 1,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .q_len = lengths[n / 9 % 3],
                                 .kv_len = 140,
                                 .head_dim = widths[n / 27],
                                 .causal = 1,
                                 .outputs = MHA_ATTN_LSE,
                                 .align = MHA_ALIGN_BOTTOM_RIGHT,
                                 .dtype = type[0],
                                 .kv_dtype = type[1]};
        for (size_t g = 0; g < 3; g++) {
            const problem_layouts wide = {.k = {.pad[3] = gaps[g]}, .v = {.pad[3] = gaps[g]}};
            problem p, clean;
            problem_make(&p, &d, &wide, 34);
            problem_make(&clean, &d, NULL, 34);
            for (int isa = 0; isa < isa_count_of(type[0]); isa++) {
                problem_run(isa_contexts[isa], &p);
                problem_run(isa_contexts[isa], &clean);
                if (!problem_same_bits(&p, &clean))
                    fail_msg("%s: %s keys of %d elements for %d queries must not depend on the %d elements after them",
                             mha_ctx_isa(isa_contexts[isa]), mha_dtype_name(type[1]), (int)d.head_dim, (int)d.q_len,
                             gaps[g]);
            }
            problem_free(&p);
            problem_free(&clean);
        }
    }
}

/* Masks keys 3, 7, ... and sets value 7 to NaN. Fails unless the result, written to q, is bitwise identical to the
 * result without NaN. */
static void check_in_place(mha_ctx *ctx, const mha_attn_desc *d)
{
    problem p, clean;
    problem_make(&p, d, NULL, 35);
    problem_make(&clean, d, NULL, 35);
    hide_some_keys(&p);
    hide_some_keys(&clean);
    spoil_row(&p.v, 1, 1, 7, NAN);
    problem_run(ctx, &clean);
    p.args.out = tensor_view(&p.q);
    problem_run(ctx, &p);
    if (!tensor_same_bits(&clean.out, &p.q))
        fail_msg("%s, %s, %d keys, %d queries: a masked NaN must not affect out if out is q", mha_ctx_isa(ctx),
                 mha_dtype_name(d->dtype), (int)d->kv_len, (int)d->q_len);
    problem_free(&p);
    problem_free(&clean);
}

/* If out is q, the queries are overwritten before a tile with a NaN in a masked value is computed again, for few
 * queries or for many, and for keys that are divided among threads. */
static void test_in_place(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 3, 45}, keys[] = {140, 2100};
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16};
    mha_attn_desc d = {
        .size = sizeof d, .batch = 2, .heads = 4, .kv_heads = 2, .head_dim = 32, .inputs = MHA_ATTN_KEEP};
    for (int n = 0; n < 3 * 3 * 2 * isa_count; n++) {
        d.q_len = lengths[n % 3], d.dtype = types[n / 3 % 3], d.kv_len = keys[n / 9 % 2];
        if (n / 18 < isa_count_of(d.dtype)) check_in_place(isa_contexts[n / 18], &d);
    }
}

/* A NaN in a query must affect only its row, and must not affect it if the row has no visible keys. */
static void test_query(void **state)
{
    (void)state;
    mha_attn_desc d = ways[0].desc;
    d.inputs = MHA_ATTN_KV_LENS;
    for (int n = 0; n < isa_count_of(MHA_F32); n++) {
        problem p, clean;
        problem_make(&p, &d, NULL, 33);
        problem_make(&clean, &d, NULL, 33);
        p.kv_lens[0] = clean.kv_lens[0] = 0;
        p.kv_lens[1] = clean.kv_lens[1] = 50;
        for (int64_t b = 0; b < 2; b++)
            spoil_row(&p.q, b, 2, 17, NAN);
        problem_run(isa_contexts[n], &p);
        problem_run(isa_contexts[n], &clean);
        for (int64_t row = 0; row < d.batch * d.heads * d.q_len; row++) {
            int64_t b = row / (d.heads * d.q_len), h = row / d.q_len % d.heads, i = row % d.q_len;
            if (b == 1 && h == 2 && i == 17)
                assert_true(isnan(tensor_get(&p.out, b, h, i, 0)) && isnan(tensor_get(&p.lse, b, h, i, 0)));
            else
                assert_true(same_row(&p, &clean, b, h, i));
        }
        problem_free(&p);
        problem_free(&clean);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_unseen_by_all), cmocka_unit_test(test_seen_by_some),
                                              cmocka_unit_test(test_gaps_between_rows), cmocka_unit_test(test_in_place),
                                              cmocka_unit_test(test_query)};
    return cmocka_run_group_tests(tests, isa_setup_two, isa_teardown);
}
