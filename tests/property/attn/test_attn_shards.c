/* test_attn_shards.c - calls over all shards of a problem must give results bitwise identical to those of one call.
 * Positions and dropout must be those of the whole problem. Tested on every ISA. */
#include "support/attn/grads.h"
#include "support/check.h"
#include "support/isas.h"
#include <stdlib.h>
#include <string.h>

/* The sequences b, key/value heads g and rows i of one shard, each as [first, end). */
typedef struct box {
    int64_t b[2], g[2], i[2];
} box;

#define SIZES                                                                                                          \
    .size = sizeof(mha_attn_desc), .batch = 3, .heads = 4, .kv_heads = 2, .q_len = 150, .kv_len = 290, .head_dim = 24, \
    .v_head_dim = 20, .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS
static const struct {
    const char *name;
    mha_attn_desc desc;
} ways[] = {
    {"causal and dropout", {SIZES, .causal = 1, .align = MHA_ALIGN_TOP_LEFT, .dropout = 0.4}},
    {"window, slopes and gates",
     {SIZES, .window = {1, 30, 5}, .align = MHA_ALIGN_OFFSETS, .inputs = MHA_ATTN_SLOPES | MHA_ATTN_GATES}},
    {"prefix, bias and sinks",
     {SIZES, .causal = 1, .align = MHA_ALIGN_OFFSETS, .dropout = 0.2,
      .inputs = MHA_ATTN_PREFIX_LENS | MHA_ATTN_BIAS | MHA_ATTN_SINKS | MHA_ATTN_KEEP}},
    {"bf16, causal, slopes and dropout",
     {SIZES, .dtype = MHA_BF16, .causal = 1, .align = MHA_ALIGN_TOP_LEFT, .dropout = 0.5, .inputs = MHA_ATTN_SLOPES}},
    {"functions", {SIZES, .causal = 1, .align = MHA_ALIGN_OFFSETS, .inputs = MHA_ATTN_FUNCTIONS}},
    {"plain", {SIZES}},
};

static const void *moved(const tensor *t, int64_t b, int64_t h, int64_t i)
{
    const int64_t at = b * t->stride[0] + h * t->stride[1] + i * t->stride[2];
    return (const char *)t->data + at * (int64_t)(t->dtype == MHA_BF16 ? 2 : t->dtype == MHA_U8 ? 1 : 4);
}

static void move_in(mha_cview *view, const tensor *t, int64_t b, int64_t h, int64_t i)
{
    if (t->memory) view->data = moved(t, b, h, t->dim[2] > 1 ? i : 0);
}

static void move_out(mha_view *view, tensor *t, int64_t b, int64_t h, int64_t i)
{
    if (t->memory) view->data = (void *)moved(t, b, h, t->dim[2] > 1 ? i : 0);
}

/* Returns the description of a shard and sets the arguments of `p` and `g` to the elements of the tensors that belong
 * to the shard. */
static mha_attn_desc describe_shard(problem *p, gradients *g, const box *at)
{
    const int64_t b = at->b[0], kv = at->g[0], h = kv * (p->desc.heads / p->desc.kv_heads), i = at->i[0];
    mha_attn_desc d = p->desc;
    d.batch = at->b[1] - b;
    d.kv_heads = at->g[1] - kv;
    d.heads = d.kv_heads * (p->desc.heads / p->desc.kv_heads);
    d.q_len = at->i[1] - i;
    d.shard = (mha_shard){.batch = b, .head = h, .row = i};
    problem_bind(p);
    gradients_bind(g, p);
    mha_attn_args *a = &p->args;
    move_in(&a->q, &p->q, b, h, i), move_in(&a->k, &p->k, b, kv, 0), move_in(&a->v, &p->v, b, kv, 0);
    move_in(&a->keep, &p->keep, b, h, i), move_in(&a->bias, &p->bias, b, h, i);
    move_in(&a->slopes, &p->slopes, b, h, 0), move_in(&a->sinks, &p->sinks, b, h, 0);
    move_in(&a->gates, &p->gates, b, h, 0);
    move_out(&a->out, &p->out, b, h, i), move_out(&a->lse, &p->lse, b, h, i), move_out(&a->probs, &p->probs, b, h, i);
    if (a->offsets) a->offsets += b;
    if (a->prefix_lens) a->prefix_lens += b;
    move_in(&g->args.dout, &g->dout, b, h, i), move_in(&g->args.out, &p->out, b, h, i);
    move_in(&g->args.lse, &p->lse, b, h, i);
    mha_view *results[RESULTS] = {&g->args.dq,      &g->args.dk,     &g->args.dv,     &g->args.dbias,
                                  &g->args.dslopes, &g->args.dsinks, &g->args.dgates, &g->args.row_taylor};
    for (int n = 0; n < RESULTS; n++)
        move_out(results[n], &g->result[n], b, n == DK || n == DV ? kv : h, n == DK || n == DV ? 0 : i);
    return d;
}

/* Returns true if a gradient is summed over rows. Such a gradient is computed only if all rows are in one shard. */
static bool sums_rows(int result)
{
    return result != DQ && result != DBIAS && result != ROW_TAYLOR;
}

static void run_shard(mha_ctx *ctx, problem *p, gradients *g, const box *at, bool divided)
{
    mha_error err = {0};
    const mha_attn_desc d = describe_shard(p, g, at);
    if (divided)
        g->args.dk.data = g->args.dv.data = g->args.dslopes.data = g->args.dsinks.data = g->args.dgates.data = NULL;
    if (mha_attention(ctx, &d, &p->args, &err) != MHA_OK ||
        mha_attention_backward(ctx, &d, &p->args, &g->args, &err) != MHA_OK)
        fail_msg("shard that begins at row %lld: %s", (long long)at->i[0], err.message);
}

static void compare(mha_ctx *ctx, const char *name, const mha_attn_desc *desc, const box *boxes, size_t count)
{
    problem whole, parts;
    gradients of_whole, of_parts;
    const bool divided = boxes[0].i[1] < desc->q_len;
    problem_make(&whole, desc, NULL, 71);
    problem_make(&parts, desc, NULL, 71);
    gradients_make(&of_whole, &whole, NULL, 72);
    gradients_make(&of_parts, &parts, NULL, 72);
    gradients_run(ctx, &whole, &of_whole);
    for (size_t n = 0; n < count; n++)
        run_shard(ctx, &parts, &of_parts, &boxes[n], divided);
    if (!problem_same_bits(&whole, &parts))
        fail_msg("%s: %s: the forward pass of the shards must be bitwise identical to one call", mha_ctx_isa(ctx),
                 name);
    for (int n = 0; n < RESULTS; n++)
        if (of_whole.result[n].memory && !(divided && sums_rows(n)) &&
            !tensor_same_bits(&of_whole.result[n], &of_parts.result[n]))
            fail_msg("%s: %s: gradient %d of the shards must be bitwise identical to one call", mha_ctx_isa(ctx), name,
                     n);
    gradients_free(&of_whole), gradients_free(&of_parts);
    problem_free(&whole), problem_free(&parts);
}

static void test_union_of_shards(void **state)
{
    (void)state;
    static const box groups[] = {{{0, 1}, {0, 2}, {0, 150}}, {{1, 3}, {0, 1}, {0, 150}}, {{1, 3}, {1, 2}, {0, 150}}};
    static const box rows[] = {{{0, 3}, {0, 2}, {0, 1}},    {{0, 3}, {0, 2}, {1, 64}},   {{0, 2}, {0, 2}, {64, 137}},
                               {{2, 3}, {0, 1}, {64, 137}}, {{2, 3}, {1, 2}, {64, 137}}, {{0, 3}, {0, 2}, {137, 150}}};
    for (int n = 0; n < isa_count; n++)
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            if (n >= isa_count_of(ways[way].desc.dtype)) continue;
            compare(isa_contexts[n], ways[way].name, &ways[way].desc, groups, sizeof groups / sizeof *groups);
            compare(isa_contexts[n], ways[way].name, &ways[way].desc, rows, sizeof rows / sizeof *rows);
        }
}

/* Rows 170 to 189 attend to keys 130 to 189 only, so a call with keys 128 to 255 must give the same rows. */
static void test_shard_of_keys(void **state)
{
    (void)state;
    const mha_attn_desc desc = {SIZES, .window = {1, 40, 0}, .align = MHA_ALIGN_TOP_LEFT, .dropout = 0.5,
                                .inputs = MHA_ATTN_SLOPES | MHA_ATTN_PREFIX_LENS};
    for (int n = 0; n < isa_count_of(MHA_F32); n++) {
        problem whole, part;
        mha_error err = {0};
        mha_attn_desc d = desc;
        d.q_len = 290;
        d.outputs = MHA_ATTN_LSE;
        problem_make(&whole, &d, NULL, 73);
        problem_make(&part, &d, NULL, 73);
        for (int b = 0; b < 3; b++)
            whole.prefix_lens[b] = part.prefix_lens[b] = b * 60;
        d.q_len = 20, d.kv_len = 128;
        d.shard = (mha_shard){.row = 170, .key = 128};
        problem_run(isa_contexts[n], &whole);
        move_in(&part.args.q, &part.q, 0, 0, 170), move_out(&part.args.out, &part.out, 0, 0, 170);
        move_in(&part.args.k, &part.k, 0, 0, 128), move_in(&part.args.v, &part.v, 0, 0, 128);
        move_out(&part.args.lse, &part.lse, 0, 0, 170);
        assert_int_equal(mha_attention(isa_contexts[n], &d, &part.args, &err), MHA_OK);
        for (int64_t i = 170; i < 190; i++)
            for (int64_t c = 0; c < 20; c++)
                assert_true(tensor_get(&whole.out, 0, 1, i, c) == tensor_get(&part.out, 0, 1, i, c));
        problem_free(&whole), problem_free(&part);
    }
}

/* ---- shards of keys ---- */

enum { KEYS = 5420, PARTS_MAX = 12 };

#define LONG                                                                                              \
    .size = sizeof(mha_attn_desc), .batch = 2, .heads = 4, .kv_heads = 2, .kv_len = KEYS, .head_dim = 24, \
    .v_head_dim = 20, .outputs = MHA_ATTN_LSE
static const mha_attn_desc long_ways[] = {
    {LONG, .q_len = 1},
    {LONG, .q_len = 3, .dtype = MHA_BF16},
    {LONG, .q_len = 40, .causal = 1, .align = MHA_ALIGN_OFFSETS, .dropout = 0.3, .inputs = MHA_ATTN_SLOPES},
    {LONG, .q_len = 2, .causal = 1, .window = {1, 3000, 0}, .align = MHA_ALIGN_OFFSETS, .dtype = MHA_F64,
     .inputs = MHA_ATTN_PREFIX_LENS | MHA_ATTN_GATES},
    {LONG, .q_len = 5, .causal = 1, .align = MHA_ALIGN_OFFSETS, .inputs = MHA_ATTN_FUNCTIONS},
    {LONG, .q_len = 20, .dtype = MHA_BF16, .inputs = MHA_ATTN_SINKS | MHA_ATTN_GATES | MHA_ATTN_BIAS},
};
static const int64_t cuts[][5] = {{0, KEYS}, {0, 1024, KEYS}, {0, 3072, 4096, KEYS}, {0, 2048, 3072, 5120, KEYS}};

/* Returns the partial result over keys [key, key + keys) of the whole problem. */
static mha_attn_partial run_keys(mha_ctx *ctx, problem *p, int64_t key, int64_t keys)
{
    mha_error err = {0};
    mha_attn_desc d = p->desc;
    const size_t size = d.dtype == MHA_F64 ? 8 : 4;
    void *rows = calloc((size_t)(d.batch * d.heads * d.q_len * (2 + d.v_head_dim)), size);
    const int64_t width = 2 + d.v_head_dim;
    d.kv_len = keys;
    d.shard.key = key;
    d.inputs &= ~(uint32_t)(MHA_ATTN_SINKS | MHA_ATTN_GATES);
    d.outputs = MHA_ATTN_PARTIAL;
    problem_bind(p);
    p->args.sinks.data = p->args.gates.data = p->args.lse.data = NULL;
    p->args.partial = (mha_view){rows, {d.heads * d.q_len * width, d.q_len * width, width, 1}};
    const mha_cview *k = &p->args.k, *bias = &p->args.bias;
    const int64_t of_kv = d.dtype == MHA_BF16 ? 2 : (int64_t)size;
    p->args.k.data = (const char *)k->data + key * k->stride[2] * of_kv;
    p->args.v.data = (const char *)p->args.v.data + key * p->args.v.stride[2] * of_kv;
    if (bias->data) p->args.bias.data = (const char *)bias->data + key * bias->stride[3] * (int64_t)size;
    if (mha_attention(ctx, &d, &p->args, &err) != MHA_OK) fail_msg("key %lld: %s", (long long)key, err.message);
    return (mha_attn_partial){{rows, {0}}, key, keys};
}

/* Merges parts 0 to n - 1 into part 0, in place, for the largest n for which they cover one subtree. Returns the
 * remaining number of parts. */
static int64_t merge_some(mha_ctx *ctx, const mha_attn_desc *desc, mha_attn_partial *parts, int64_t count)
{
    int64_t some = 0;
    mha_error err = {0};
    for (int64_t n = 2; n <= count; n++) {
        const int64_t keys = parts[n - 1].key + parts[n - 1].kv_len - parts[0].key;
        if (mha_attn_subtree(parts[0].key, parts[0].key + keys) == keys) some = n;
    }
    if (some == 0) return count;
    mha_attn_merge_partials_args args = {.size = sizeof args,
                                         .batch = desc->batch,
                                         .heads = desc->heads,
                                         .q_len = desc->q_len,
                                         .v_head_dim = desc->v_head_dim,
                                         .dtype = desc->dtype,
                                         .count = some,
                                         .parts = parts,
                                         .partial.data = (void *)parts[0].rows.data};
    if (mha_attn_merge_partials(ctx, &args, &err) != MHA_OK) fail_msg("%s", err.message);
    parts[0].kv_len = parts[some - 1].key + parts[some - 1].kv_len - parts[0].key;
    for (int64_t n = 1; n < some; n++)
        free((void *)parts[n].rows.data);
    memmove(parts + 1, parts + some, (size_t)(count - some) * sizeof *parts);
    return count - some + 1;
}

static void compare_keys(mha_ctx *ctx, const mha_attn_desc *desc, const int64_t *cut, bool again)
{
    problem whole, merged;
    mha_error err = {0};
    mha_attn_partial parts[PARTS_MAX];
    int64_t count = 0;
    problem_make(&whole, desc, NULL, 81);
    problem_make(&merged, desc, NULL, 81);
    for (int b = 0; b < 2; b++) {
        whole.offsets[b] = merged.offsets[b] = 2000 + 3000 * b;
        whole.prefix_lens[b] = merged.prefix_lens[b] = 1500 * b;
    }
    problem_run(ctx, &whole);
    for (; *cut < KEYS; cut++)
        for (int64_t key = cut[0], keys; (keys = mha_attn_subtree(key, cut[1])) > 0; key += keys)
            parts[count++] = run_keys(ctx, &merged, key, keys);
    if (again) count = merge_some(ctx, desc, parts, count);
    problem_bind(&merged);
    const mha_attn_merge_partials_args args = {.size = sizeof args,
                                               .batch = desc->batch,
                                               .heads = desc->heads,
                                               .q_len = desc->q_len,
                                               .v_head_dim = desc->v_head_dim,
                                               .dtype = desc->dtype,
                                               .count = count,
                                               .parts = parts,
                                               .sinks = merged.args.sinks,
                                               .gates = merged.args.gates,
                                               .out = merged.args.out,
                                               .lse = merged.args.lse};
    if (mha_attn_merge_partials(ctx, &args, &err) != MHA_OK) fail_msg("%s", err.message);
    if (!problem_same_bits(&whole, &merged))
        fail_msg("%s: %lld merged parts of %lld rows must equal one call", mha_ctx_isa(ctx), (long long)count,
                 (long long)desc->q_len);
    for (int64_t n = 0; n < count; n++)
        free((void *)parts[n].rows.data);
    problem_free(&whole), problem_free(&merged);
}

static void test_merged_shards_of_keys(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count; n++)
        for (size_t way = 0; way < sizeof long_ways / sizeof *long_ways; way++)
            for (size_t cut = 0; cut < sizeof cuts / sizeof *cuts; cut++)
                for (int again = 0; again <= 1 && n < isa_count_of(long_ways[way].dtype); again++)
                    compare_keys(isa_contexts[n], &long_ways[way], cuts[cut], again);
}

static void test_subtrees(void **state)
{
    (void)state;
    assert_int_equal(mha_attn_subtree(0, KEYS), 4096);
    assert_int_equal(mha_attn_subtree(4096, KEYS), 1024);
    assert_int_equal(mha_attn_subtree(5120, KEYS), 300);
    assert_int_equal(mha_attn_subtree(2048, 8192), 2048);
    assert_int_equal(mha_attn_subtree(1024, 8192), 1024);
    assert_int_equal(mha_attn_subtree(0, INT64_MAX), INT64_C(1) << 62);
    assert_int_equal(mha_attn_subtree(100, 8192), 0);
    assert_int_equal(mha_attn_subtree(-1024, 8192), 0);
    assert_int_equal(mha_attn_subtree(2048, 2048), 0);
}

static void refuse_parts(const mha_attn_partial *parts, int64_t count, const char *message)
{
    mha_error err = {0};
    float out[4] = {7};
    const mha_attn_merge_partials_args args = {.size = sizeof args,
                                               .batch = 1,
                                               .heads = 1,
                                               .q_len = 1,
                                               .v_head_dim = 2,
                                               .count = count,
                                               .parts = parts,
                                               .out.data = out};
    assert_int_equal(mha_attn_merge_partials(NULL, &args, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, message);
    assert_true(out[0] == 7);
}

static void test_refused_partial(void **state)
{
    (void)state;
    mha_error err = {0};
    float rows[2][3] = {{0}}, out[3], lse[1];
    const mha_attn_partial parts[2] = {{{rows[0], {0}}, 1024, 1024}, {{rows[1], {0}}, 2048, 1024}};
    mha_attn_merge_partials_args a = {.size = sizeof a,
                                      .batch = 1,
                                      .heads = 1,
                                      .q_len = 1,
                                      .v_head_dim = 1,
                                      .count = 2,
                                      .parts = parts,
                                      .partial.data = out};
    assert_int_equal(mha_attn_merge_partials(NULL, &a, &err), MHA_ERR_ARG);
    assert_string_equal(err.message,
                        "parts must be one subtree of 1024-key chunks with partial (got 2048 keys from key "
                        "1024); see mha_attn_subtree");
    a.count = 1;
    a.partial.data = rows[0] + 1;
    assert_int_equal(mha_attn_merge_partials(NULL, &a, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "partial must not overlap parts[0].rows, unless it is exactly the same view");
    a.partial.data = out;
    a.out.data = out + 2;
    assert_int_equal(mha_attn_merge_partials(NULL, &a, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "partial must not overlap out or lse");
    a.out.data = NULL;
    a.lse.data = lse;
    assert_int_equal(mha_attn_merge_partials(NULL, &a, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "out must not be NULL with lse");
}

static void test_refused_parts(void **state)
{
    (void)state;
    const float row[4] = {0};
    const mha_cview at = {row, {0}};
    refuse_parts((mha_attn_partial[]){{at, 100, 1024}}, 1,
                 "parts[0] must be one subtree of 1024-key chunks (got 1024 keys from key 100); see mha_attn_subtree");
    refuse_parts((mha_attn_partial[]){{at, 1024, 2048}}, 1,
                 "parts[0] must be one subtree of 1024-key chunks (got 2048 keys from key 1024); see mha_attn_subtree");
    refuse_parts((mha_attn_partial[]){{at, 0, 3072}, {at, 3072, 10}}, 2,
                 "parts[0] must be one whole subtree of 1024-key chunks (got 3072 keys from key 0); see "
                 "mha_attn_subtree");
    refuse_parts((mha_attn_partial[]){{at, 0, 1024}, {at, 2048, 10}}, 2,
                 "parts[1].key must be the end of the previous part, 1024 (got 2048)");
    refuse_parts((mha_attn_partial[]){{at, 0, INT64_MAX}}, 1,
                 "parts[0] must be one subtree of 1024-key chunks (got 9223372036854775807 keys from key 0); see "
                 "mha_attn_subtree");
    refuse_parts(NULL, 1, "parts must not be NULL");
    refuse_parts(NULL, 0, "count must be at least 1 (got 0)");
    refuse_parts((mha_attn_partial[]){{{NULL, {0}}, 0, 10}}, 1, "parts[0].rows must not be NULL");
}

static void refuse(mha_attn_desc d, const char *message)
{
    mha_error err = {0};
    mha_attn_plan *plan;
    assert_int_equal(mha_attn_plan_create(NULL, &d, &plan, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, message);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse((mha_attn_desc){SIZES, .shard.head = -1}, "shard.head must be from 0 to 2^60 (got -1)");
    refuse((mha_attn_desc){SIZES, .shard.key = INT64_MAX},
           "shard.key must be from 0 to 2^60 (got 9223372036854775807)");
    mha_attn_desc partial = {LONG, .q_len = 1, .shard.key = 1024};
    partial.outputs = MHA_ATTN_PARTIAL;
    refuse(
        partial,
        "shard.key must begin a subtree of 1024-key chunks that contains kv_len = 5420 keys with MHA_ATTN_PARTIAL (got "
        "1024); see mha_attn_subtree");
    refuse((mha_attn_desc){SIZES, .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT, .shard.row = 7},
           "align must be MHA_ALIGN_TOP_LEFT or MHA_ALIGN_OFFSETS if shard.row or shard.key is not 0 (got 2)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_union_of_shards),       cmocka_unit_test(test_shard_of_keys),
        cmocka_unit_test(test_merged_shards_of_keys), cmocka_unit_test(test_subtrees),
        cmocka_unit_test(test_refused_parts),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_partial),
    };
    return cmocka_run_group_tests(tests, isa_setup_two, isa_teardown);
}
