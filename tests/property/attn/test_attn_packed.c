/* test_attn_packed.c - packed sequences must give results bitwise identical to those of padded sequences, and listed
 * heads to those of a call with all heads. Tested on every ISA. */
#include "mha/cache.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 7, H = 4, D = 24, DV = 20 };
static const int64_t rows_of[SEQUENCES] = {5, 0, 130, 1, 127, 300, 64},
                     keys_of[SEQUENCES] = {9, 4, 130, 0, 40, 1100, 128};

static const mha_attn_desc base = {.size = sizeof base,
                                   .batch = 1,
                                   .heads = H,
                                   .kv_heads = 2,
                                   .head_dim = D,
                                   .v_head_dim = DV,
                                   .outputs = MHA_ATTN_LSE};
static const struct {
    const char *name;
    mha_attn_desc d;
} ways[] = {
    {"plain", {.size = 0}},
    {"causal, bottom-right", {.causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT}},
    {"window, slopes, sinks and gates",
     {.window = {1, 30, 10}, .align = MHA_ALIGN_TOP_LEFT, .inputs = MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES}},
    {"lengths, offsets and prefix",
     {.causal = 1,
      .window = {1, 20, -1},
      .align = MHA_ALIGN_OFFSETS,
      .inputs = MHA_ATTN_Q_LENS | MHA_ATTN_KV_LENS | MHA_ATTN_PREFIX_LENS}},
};
enum { WAYS = sizeof ways / sizeof *ways };

static mha_attn_desc describe(size_t way)
{
    mha_attn_desc d = base;
    d.causal = ways[way].d.causal;
    d.align = ways[way].d.align;
    d.window = ways[way].d.window;
    d.inputs = ways[way].d.inputs;
    return d;
}

/* The operands and results of all sequences, concatenated as [L, H, width]. */
typedef struct packed {
    int64_t cu_q[SEQUENCES + 1], cu_k[SEQUENCES + 1], q_lens[SEQUENCES], kv_lens[SEQUENCES], offsets[SEQUENCES];
    int64_t prefix_lens[SEQUENCES];
    float *q, *k, *v, *out, *lse, slopes[SEQUENCES * H], sinks[SEQUENCES * H], gates[SEQUENCES * H];
} packed;

static float *pack(const problem *parts, size_t tensor_at, int64_t total, int64_t heads, int64_t width)
{
    float *all = calloc((size_t)(total * heads * width) + 1, sizeof *all), *to = all;
    if (!all) abort();
    for (int n = 0; n < SEQUENCES; n++) {
        const tensor *t = (const tensor *)(const void *)((const char *)&parts[n] + tensor_at);
        for (int64_t l = 0; l < t->dim[2]; l++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t d = 0; d < width; d++)
                    *to++ = (float)tensor_get(t, 0, h, l, d);
    }
    return all;
}

static void pack_all(packed *p, const problem *parts)
{
    *p = (packed){0};
    for (int n = 0; n < SEQUENCES; n++) {
        p->cu_q[n + 1] = p->cu_q[n] + rows_of[n];
        p->cu_k[n + 1] = p->cu_k[n] + keys_of[n];
        p->q_lens[n] = parts[n].q_lens[0], p->kv_lens[n] = parts[n].kv_lens[0];
        p->offsets[n] = parts[n].offsets[0], p->prefix_lens[n] = parts[n].prefix_lens[0];
        for (int h = 0; h < H && (parts[n].desc.inputs & MHA_ATTN_SLOPES); h++) {
            p->slopes[n * H + h] = (float)tensor_get(&parts[n].slopes, 0, h, 0, 0);
            p->sinks[n * H + h] = (float)tensor_get(&parts[n].sinks, 0, h, 0, 0);
            p->gates[n * H + h] = (float)tensor_get(&parts[n].gates, 0, h, 0, 0);
        }
    }
    const int64_t rows = p->cu_q[SEQUENCES], keys = p->cu_k[SEQUENCES];
    p->q = pack(parts, offsetof(problem, q), rows, H, D);
    p->k = pack(parts, offsetof(problem, k), keys, 2, D);
    p->v = pack(parts, offsetof(problem, v), keys, 2, DV);
    p->out = calloc((size_t)(rows * H * DV), sizeof *p->out);
    p->lse = calloc((size_t)(rows * H), sizeof *p->lse);
    if (!p->out || !p->lse) abort();
}

static void free_all(packed *p)
{
    free(p->q), free(p->k), free(p->v), free(p->out), free(p->lse);
}

static mha_attn_args arguments(packed *p, const mha_attn_desc *d)
{
    mha_attn_args a = {.size = sizeof a, .cu_seqlens_q = p->cu_q, .cu_seqlens_k = p->cu_k};
    a.q = (mha_cview){p->q, {0, D, H * D, 1}};
    a.k = (mha_cview){p->k, {0, D, 2 * D, 1}};
    a.v = (mha_cview){p->v, {0, DV, 2 * DV, 1}};
    a.out = (mha_view){p->out, {0, DV, H * DV, 1}};
    if (d->outputs & MHA_ATTN_LSE) a.lse = (mha_view){p->lse, {0, 1, H, 0}};
    if (d->inputs & MHA_ATTN_SLOPES) a.slopes = (mha_cview){p->slopes, {H, 1, 0, 0}};
    if (d->inputs & MHA_ATTN_SINKS) a.sinks = (mha_cview){p->sinks, {H, 1, 0, 0}};
    if (d->inputs & MHA_ATTN_GATES) a.gates = (mha_cview){p->gates, {H, 1, 0, 0}};
    if (d->inputs & MHA_ATTN_Q_LENS) a.q_lens = p->q_lens;
    if (d->inputs & MHA_ATTN_KV_LENS) a.kv_lens = p->kv_lens;
    if (d->inputs & MHA_ATTN_PREFIX_LENS) a.prefix_lens = p->prefix_lens;
    if (d->align == MHA_ALIGN_OFFSETS) a.offsets = p->offsets;
    return a;
}

static bool same(const packed *p, const problem *parts)
{
    for (int n = 0; n < SEQUENCES; n++)
        for (int64_t i = 0; i < rows_of[n]; i++)
            for (int64_t h = 0; h < H; h++) {
                const int64_t row = (p->cu_q[n] + i) * H + h;
                if (p->lse[row] != (float)tensor_get(&parts[n].lse, 0, h, i, 0)) return false;
                for (int64_t d = 0; d < DV; d++)
                    if (p->out[row * DV + d] != (float)tensor_get(&parts[n].out, 0, h, i, d)) return false;
            }
    return true;
}

static void test_packed(void **state)
{
    (void)state;
    for (size_t way = 0; way < WAYS; way++)
        for (int c = 0; c < isa_count_of(MHA_F32); c++) {
            problem parts[SEQUENCES];
            packed p;
            mha_error err = {0};
            mha_attn_desc d = describe(way);
            for (int n = 0; n < SEQUENCES; n++) {
                d.q_len = rows_of[n];
                d.kv_len = keys_of[n];
                problem_make(&parts[n], &d, NULL, (uint64_t)(41 + n));
                problem_run(isa_contexts[c], &parts[n]);
            }
            pack_all(&p, parts);
            d.batch = SEQUENCES;
            d.q_len = p.cu_q[SEQUENCES];
            d.kv_len = p.cu_k[SEQUENCES];
            d.inputs |= MHA_ATTN_CU_SEQLENS;
            mha_attn_args args = arguments(&p, &d);
            if (mha_attention(isa_contexts[c], &d, &args, &err) != MHA_OK)
                fail_msg("%s: %s", ways[way].name, err.message);
            if (!same(&p, parts))
                fail_msg("%s, packed, %s: must be bitwise identical to the padded result", mha_ctx_isa(isa_contexts[c]),
                         ways[way].name);
            free_all(&p);
            for (int n = 0; n < SEQUENCES; n++)
                problem_free(&parts[n]);
        }
}

/* A prefix longer than its sequence, up to the length of the longest sequence, must be accepted in packed problems
 * too. */
static void test_prefix_beyond_keys(void **state)
{
    (void)state;
    for (int c = 0; c < isa_count_of(MHA_F32); c++) {
        problem parts[SEQUENCES];
        packed p;
        mha_error err = {0};
        mha_attn_desc d = describe(3);
        for (int n = 0; n < SEQUENCES; n++) {
            d.q_len = rows_of[n];
            d.kv_len = keys_of[n];
            problem_make(&parts[n], &d, NULL, (uint64_t)(61 + n));
            parts[n].prefix_lens[0] = keys_of[n];
            problem_run(isa_contexts[c], &parts[n]);
        }
        pack_all(&p, parts);
        d.batch = SEQUENCES;
        d.q_len = p.cu_q[SEQUENCES];
        d.kv_len = p.cu_k[SEQUENCES];
        d.max_kv_len = 1100;
        d.inputs |= MHA_ATTN_CU_SEQLENS;
        mha_attn_args args = arguments(&p, &d);
        for (int n = 0; n < SEQUENCES; n++)
            p.prefix_lens[n] = n % 2 ? d.max_kv_len : keys_of[n] + (keys_of[n] < d.max_kv_len);
        if (mha_attention(isa_contexts[c], &d, &args, &err) != MHA_OK) fail_msg("%s", err.message);
        if (!same(&p, parts))
            fail_msg("%s: a prefix longer than the keys must not change the result", mha_ctx_isa(isa_contexts[c]));
        p.prefix_lens[1] = d.max_kv_len + 1;
        assert_int_equal(mha_attention(isa_contexts[c], &d, &args, &err), MHA_ERR_ARG);
        assert_string_equal(err.message, "prefix_lens[1] must be from 0 to 1100 (got 1101)");
        free_all(&p);
        for (int n = 0; n < SEQUENCES; n++)
            problem_free(&parts[n]);
    }
}

/* Invalid lengths must be rejected before anything is written. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        int which; /* index of the faulty array: 0 cu_seqlens_q, 1 cu_seqlens_k, 2 kv_lens, 3 prefix_lens */
        int64_t at, value;
    } faults[] = {{"cu_seqlens_q[0] must be 0 (got 1)", 0, 0, 1},
                  {"the previous entry, 5 (got 2)", 0, 3, 2},
                  {"(got 700)", 0, 7, 700},
                  {"(got 5000)", 1, 7, 5000},
                  {"(got -1)", 1, 2, -1},
                  {"(got 10)", 2, 0, 10},
                  {"(got 2000)", 3, 3, 2000}};
    problem parts[SEQUENCES];
    packed p;
    mha_attn_desc d = describe(3);
    for (int n = 0; n < SEQUENCES; n++) {
        d.q_len = rows_of[n];
        d.kv_len = keys_of[n];
        problem_make(&parts[n], &d, NULL, 1);
    }
    for (size_t n = 0; n < sizeof faults / sizeof *faults; n++) {
        mha_error err = {0};
        pack_all(&p, parts);
        int64_t *lists[] = {p.cu_q, p.cu_k, p.kv_lens, p.prefix_lens};
        d.batch = SEQUENCES;
        d.q_len = p.cu_q[SEQUENCES];
        d.kv_len = p.cu_k[SEQUENCES];
        d.inputs |= MHA_ATTN_CU_SEQLENS;
        lists[faults[n].which][faults[n].at] = faults[n].value;
        mha_attn_args args = arguments(&p, &d);
        assert_int_equal(mha_attention(NULL, &d, &args, &err), MHA_ERR_ARG);
        if (!strstr(err.message, faults[n].says))
            fail_msg("message must contain \"%s\" (got \"%s\")", faults[n].says, err.message);
        args.cu_seqlens_k = NULL;
        assert_int_equal(mha_attention(NULL, &d, &args, &err), MHA_ERR_ARG);
        free_all(&p);
    }
    for (int n = 0; n < SEQUENCES; n++)
        problem_free(&parts[n]);
}

/* ---- packed queries with a cache ---- */

enum { CACHED = 3, KEYS = 40, ROWS = 7, ALL_ROWS = 13 };
static const int64_t cached_keys[CACHED] = {5, KEYS, 17}, cached_rows[CACHED] = {5, 1, ROWS};
static const int64_t cached_cu[CACHED + 1] = {0, 5, 6, ALL_ROWS};
static float cached_k[CACHED * 2 * KEYS * D], side_q[CACHED * H * ROWS * D], packed_q[ALL_ROWS * H * D];
static float side_out[CACHED * H * ROWS * D], packed_out[ALL_ROWS * H * D];

/* Fills the cached keys and values and the queries of all sequences, both padded and packed as [L, H, D]. */
static void make_queries(void)
{
    rng r = rng_make(61, 1);
    for (size_t n = 0; n < sizeof cached_k / sizeof *cached_k; n++)
        cached_k[n] = (float)rng_normal(&r);
    for (size_t n = 0; n < sizeof side_q / sizeof *side_q; n++)
        side_q[n] = (float)rng_normal(&r);
    for (int64_t b = 0; b < CACHED; b++)
        for (int64_t i = 0; i < cached_rows[b]; i++)
            for (int64_t h = 0; h < H; h++)
                memcpy(packed_q + ((cached_cu[b] + i) * H + h) * D, side_q + ((b * H + h) * ROWS + i) * D,
                       D * sizeof *packed_q);
}

/* Binds the cache, which sets the fields of *d and *a that describe it, then calls the operator. */
static void attend_cached(mha_ctx *ctx, mha_cache *cache, const int64_t *q_lens, mha_attn_desc *d, mha_attn_args *a)
{
    mha_error err = {0};
    if (mha_cache_bind(cache, MHA_CACHE_ALL, q_lens, d, a, &err) != MHA_OK || mha_attention(ctx, d, a, &err) != MHA_OK)
        fail_msg("%s", err.message);
}

/* The result of packed queries with a cache must be bitwise identical to that of padded queries. */
static void test_on_a_cache(void **state)
{
    (void)state;
    make_queries();
    for (int c = 0; c < isa_count_of(MHA_F32); c++) {
        const mha_cache_desc cd = {.size = sizeof cd, .batch = CACHED, .kv_heads = 2, .head_dim = D, .page_size = 16};
        const mha_cache_tokens tokens = {
            .size = sizeof tokens, .count = KEYS, .counts = cached_keys, .k = {cached_k, {0}}, .v = {cached_k, {0}}};
        mha_attn_desc side = {.size = sizeof side, .heads = H, .q_len = ROWS, .causal = 1}, packed = side;
        mha_attn_args a = {.size = sizeof a, .q = {side_q, {0}}, .out = {side_out, {0}}}, b = a;
        mha_cache *cache;
        mha_error err = {0};
        assert_int_equal(mha_cache_create(isa_contexts[c], &cd, &cache, &err), MHA_OK);
        assert_int_equal(mha_cache_append(cache, MHA_CACHE_ALL, &tokens, &err), MHA_OK);
        attend_cached(isa_contexts[c], cache, cached_rows, &side, &a);
        packed.q_len = ALL_ROWS;
        packed.inputs = MHA_ATTN_CU_SEQLENS;
        assert_int_equal(mha_cache_bind(cache, MHA_CACHE_ALL, NULL, &packed, &b, &err), MHA_ERR_ARG);
        assert_non_null(strstr(err.message, "cu_seqlens_q must not be NULL"));
        b.cu_seqlens_q = cached_cu;
        b.q = (mha_cview){packed_q, {0, D, H * D, 1}};
        b.out = (mha_view){packed_out, {0, D, H * D, 1}};
        attend_cached(isa_contexts[c], cache, NULL, &packed, &b);
        for (int64_t n = 0; n < CACHED; n++)
            for (int64_t i = 0; i < cached_rows[n]; i++)
                for (int64_t h = 0; h < H; h++)
                    assert_memory_equal(packed_out + ((cached_cu[n] + i) * H + h) * D,
                                        side_out + ((n * H + h) * ROWS + i) * D, D * sizeof *packed_out);
        mha_cache_free(cache);
    }
}

/* ---- listed heads ---- */

/* The result of each listed head must be bitwise identical to that of the same head in a call with all heads. */
static void test_listed_heads(void **state)
{
    (void)state;
    static const int32_t list[] = {5, 0, 3, 3};
    mha_attn_desc d = {.size = sizeof d,
                       .batch = 2,
                       .heads = 6,
                       .kv_heads = 2,
                       .q_len = 150,
                       .kv_len = 140,
                       .head_dim = D,
                       .causal = 1,
                       .align = MHA_ALIGN_OFFSETS,
                       .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES,
                       .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS};
    for (int c = 0; c < isa_count_of(MHA_F32); c++) {
        problem all, some;
        problem_make(&all, &d, NULL, 51);
        mha_attn_desc chosen = d;
        chosen.inputs |= MHA_ATTN_HEAD_LIST;
        chosen.listed_heads = 4;
        problem_make(&some, &chosen, NULL, 51);
        memcpy(some.head_list, list, sizeof list);
        problem_run(isa_contexts[c], &all);
        problem_run(isa_contexts[c], &some);
        const tensor *pairs[][2] = {{&all.out, &some.out}, {&all.lse, &some.lse}, {&all.probs, &some.probs}};
        for (int t = 0; t < 3; t++)
            for (int64_t b = 0; b < d.batch; b++)
                for (int64_t n = 0; n < 4; n++)
                    for (int64_t i = 0; i < d.q_len; i++)
                        for (int64_t x = 0; x < pairs[t][0]->dim[3]; x++)
                            assert_true(tensor_get(pairs[t][0], b, list[n], i, x) ==
                                        tensor_get(pairs[t][1], b, n, i, x));
        problem_free(&all);
        problem_free(&some);
    }
}

static void test_head_list_refusals(void **state)
{
    (void)state;
    static const int32_t wrong[][2] = {{0, 6}, {-1, 2}, {0, INT32_MAX}};
    mha_attn_desc d = {.size = sizeof d,
                       .batch = 1,
                       .heads = 6,
                       .q_len = 2,
                       .kv_len = 2,
                       .head_dim = 4,
                       .listed_heads = 2,
                       .inputs = MHA_ATTN_HEAD_LIST};
    for (size_t n = 0; n < 4; n++) {
        problem p;
        char why[1200];
        problem_make(&p, &d, NULL, 52);
        if (n < 3) memcpy(p.head_list, wrong[n], sizeof wrong[n]);
        /* out must not overwrite q here, because rows of another listed head may be read later */
        if (n == 3) p.args.out = tensor_view(&p.q);
        assert_false(problem_try(NULL, &p, why, sizeof why));
        assert_non_null(strstr(why, n < 3 ? "head_list[" : "out must not overlap q"));
        problem_free(&p);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed),       cmocka_unit_test(test_prefix_beyond_keys),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_on_a_cache),
        cmocka_unit_test(test_listed_heads), cmocka_unit_test(test_head_list_refusals)};
    return cmocka_run_group_tests(tests, isa_setup_three, isa_teardown);
}
