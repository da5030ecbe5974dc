/* test_attn_shards.c - calls over parts of a problem, each with its place in the whole, together give bitwise what one
 * call gives: positions and dropout are those of the whole. On every ISA. */
#include "support/attn/grads.h"
#include "support/check.h"
#include "support/isas.h"
#include <string.h>

/* Sequences, key/value heads and rows of one shard: [first, end) each. */
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

/* The description of a shard, and its arguments in the memory of the whole. */
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

/* Gradients that are sums over rows are those of the whole only where rows are not divided. */
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
        fail_msg("shard of rows %lld: %s", (long long)at->i[0], err.message);
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
    if (!problem_same_bits(&whole, &parts)) fail_msg("%s: %s: forward differs", mha_ctx_isa(ctx), name);
    for (int n = 0; n < RESULTS; n++)
        if (of_whole.result[n].memory && !(divided && sums_rows(n)) &&
            !tensor_same_bits(&of_whole.result[n], &of_parts.result[n]))
            fail_msg("%s: %s: gradient %d differs", mha_ctx_isa(ctx), name, n);
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
            compare(isa_contexts[n], ways[way].name, &ways[way].desc, groups, sizeof groups / sizeof *groups);
            compare(isa_contexts[n], ways[way].name, &ways[way].desc, rows, sizeof rows / sizeof *rows);
        }
}

/* Rows 170 to 189 see keys 130 to 189 only: a shard of keys 128 to 255 is all that they need. */
static void test_shard_of_keys(void **state)
{
    (void)state;
    const mha_attn_desc desc = {SIZES, .window = {1, 40, 0}, .align = MHA_ALIGN_TOP_LEFT, .dropout = 0.5,
                                .inputs = MHA_ATTN_SLOPES | MHA_ATTN_PREFIX_LENS};
    for (int n = 0; n < isa_count; n++) {
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
    refuse((mha_attn_desc){SIZES, .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT, .shard.row = 7},
           "align must be MHA_ALIGN_TOP_LEFT or MHA_ALIGN_OFFSETS with shard.row or shard.key (got 2)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_union_of_shards),
        cmocka_unit_test(test_shard_of_keys),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, isa_setup_two, isa_teardown);
}
