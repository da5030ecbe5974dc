/* test_attn_gradients.c - invariants of the backward pass on every ISA: gradients must not depend on the number of
 * threads or on the batch, masked keys and rows must not be read, and tensors without effect must have zero
 * gradients. */
#include "support/attn/grads.h"
#include "support/check.h"
#include "support/isas.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>

#define SIZES                                                                                                          \
    .size = sizeof(mha_attn_desc), .batch = 3, .heads = 4, .kv_heads = 2, .q_len = 150, .kv_len = 170, .head_dim = 24, \
    .v_head_dim = 20, .outputs = MHA_ATTN_LSE
static const struct {
    const char *name;
    mha_attn_desc desc;
} ways[] = {
    {"plain", {SIZES}},
    {"causal, top-left", {SIZES, .causal = 1, .align = MHA_ALIGN_TOP_LEFT}},
    {"causal, bottom-right of lengths",
     {SIZES, .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = MHA_ATTN_KV_LENS | MHA_ATTN_Q_LENS}},
    {"window and softcap", {SIZES, .window = {1, 9, 3}, .align = MHA_ALIGN_BOTTOM_RIGHT, .softcap = 3}},
    {"keep and bias", {SIZES, .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS}},
    {"prefix and window",
     {SIZES, .causal = 1, .window = {1, 9, -1}, .align = MHA_ALIGN_BOTTOM_RIGHT,
      .inputs = MHA_ATTN_PREFIX_LENS | MHA_ATTN_KV_LENS | MHA_ATTN_Q_LENS}},
    {"dropout and blocks",
     {SIZES, .dropout = 0.5, .block_q = 20, .block_k = 7, .inputs = MHA_ATTN_KV_LENS | MHA_ATTN_BLOCK_KEEP}},
    {"slopes, sinks and gates",
     {SIZES, .causal = 1, .align = MHA_ALIGN_OFFSETS, .inputs = MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES}},
    {"functions and keep", {SIZES, .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = MHA_ATTN_FUNCTIONS | MHA_ATTN_KEEP}},
    {"bf16, functions and softcap",
     {SIZES, .dtype = MHA_BF16, .align = MHA_ALIGN_BOTTOM_RIGHT, .softcap = 3,
      .inputs = MHA_ATTN_FUNCTIONS | MHA_ATTN_KV_LENS}},
    {"bf16, causal", {SIZES, .dtype = MHA_BF16, .causal = 1, .align = MHA_ALIGN_TOP_LEFT}},
    {"bf16, keep, bias and dropout",
     {SIZES, .dtype = MHA_BF16, .dropout = 0.25, .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_Q_LENS}},
    {"bf16, window, softcap, slopes and gates",
     {SIZES, .dtype = MHA_BF16, .window = {1, 40, 3}, .align = MHA_ALIGN_BOTTOM_RIGHT, .softcap = 3,
      .inputs = MHA_ATTN_SLOPES | MHA_ATTN_GATES | MHA_ATTN_KV_LENS}},
    {"f64, keep", {SIZES, .dtype = MHA_F64, .inputs = MHA_ATTN_KEEP}},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void make(problem *p, gradients *g, const mha_attn_desc *desc)
{
    const gradients_layouts layouts = {.with_dlse = true};
    problem_make(p, desc, NULL, 51);
    gradients_make(g, p, &layouts, 52);
}

static void drop(problem *p, gradients *g)
{
    gradients_free(g);
    problem_free(p);
}

/* ---- bitwise identity across threads and batches ---- */

static void compare_threads(const char *isa, const char *name, const mha_attn_desc *desc)
{
    static const int threads[] = {1, 2, 3, 7};
    problem p[2];
    gradients g[2];
    for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
        mha_ctx *ctx;
        const mha_ctx_options options = {.size = sizeof options, .threads = threads[n], .isa = isa};
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        make(&p[n > 0], &g[n > 0], desc);
        gradients_run(ctx, &p[n > 0], &g[n > 0]);
        mha_ctx_free(ctx);
        if (n == 0) continue;
        if (!gradients_same_bits(&g[0], &g[1]))
            fail_msg("%s: %s: %d threads must not change the gradients", isa, name, threads[n]);
        drop(&p[1], &g[1]);
    }
    drop(&p[0], &g[0]);
}

/* Gradients must be bitwise identical for any number of threads. The last problem is so long that its rows are split
 * into several ranges. */
static void test_threads(void **state)
{
    (void)state;
    mha_attn_desc parts = ways[1].desc;
    parts.q_len = 2100;
    parts.kv_len = 300;
    parts.batch = 1;
    parts.head_dim = parts.v_head_dim = 8;
    for (int n = 0; n < isa_count; n++) {
        const char *isa = mha_ctx_isa(isa_contexts[n]);
        for (size_t way = 0; way < WAYS; way++)
            if (n < isa_count_of(ways[way].desc.dtype)) compare_threads(isa, ways[way].name, &ways[way].desc);
        if (n < isa_count_of(parts.dtype)) compare_threads(isa, "several parts", &parts);
    }
}

/* Copies batch entry b of `from` to `to`, which has one batch entry. */
static void copy_entry(tensor *to, const tensor *from, int64_t b)
{
    for (int64_t h = 0; h < to->dim[1]; h++)
        for (int64_t i = 0; i < to->dim[2]; i++)
            for (int64_t d = 0; d < to->dim[3]; d++)
                tensor_set(to, 0, h, i, d, tensor_get(from, b, h, i, d));
}

static bool same_entry(const tensor *one, const tensor *all, int64_t b)
{
    for (int64_t h = 0; h < one->dim[1]; h++)
        for (int64_t i = 0; i < one->dim[2]; i++)
            for (int64_t d = 0; d < one->dim[3]; d++) {
                const double x = tensor_get(one, 0, h, i, d), y = tensor_get(all, b, h, i, d);
                if (memcmp(&x, &y, sizeof x) != 0) return false;
            }
    return true;
}

static void compare_entry(mha_ctx *ctx, const char *name, const problem *all, const gradients *g, int64_t b)
{
    problem one;
    gradients alone;
    mha_attn_desc d = all->desc;
    d.batch = 1;
    d.shard.batch = b; /* for user functions */
    make(&one, &alone, &d);
    const struct {
        tensor *to;
        const tensor *from;
    } pairs[] = {{&one.q, &all->q},         {&one.k, &all->k},         {&one.v, &all->v},
                 {&one.keep, &all->keep},   {&one.bias, &all->bias},   {&one.slopes, &all->slopes},
                 {&one.sinks, &all->sinks}, {&one.gates, &all->gates}, {&one.block_keep, &all->block_keep},
                 {&alone.dout, &g->dout},   {&alone.dlse, &g->dlse}};
    for (size_t n = 0; n < sizeof pairs / sizeof *pairs; n++)
        if (pairs[n].from->memory) copy_entry(pairs[n].to, pairs[n].from, b);
    one.q_lens[0] = all->q_lens[b], one.kv_lens[0] = all->kv_lens[b];
    one.offsets[0] = all->offsets[b], one.prefix_lens[0] = all->prefix_lens[b];
    gradients_run(ctx, &one, &alone);
    for (int n = 0; n < RESULTS; n++)
        if (alone.result[n].memory && !same_entry(&alone.result[n], &g->result[n], b))
            fail_msg("%s: %s: gradient %d of entry %d must be bitwise identical if the entry is computed alone",
                     mha_ctx_isa(ctx), name, n, (int)b);
    drop(&one, &alone);
}

/* The gradients of each batch entry computed alone must be the same as in the batch. Skips random dropout, which
 * depends on the batch index. */
static void test_batch(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count; n++)
        for (size_t way = 0; way < WAYS; way++) {
            problem p;
            gradients g;
            if (ways[way].desc.dropout > 0 || n >= isa_count_of(ways[way].desc.dtype)) continue;
            make(&p, &g, &ways[way].desc);
            gradients_run(isa_contexts[n], &p, &g);
            for (int64_t b = 0; b < p.desc.batch; b++)
                compare_entry(isa_contexts[n], ways[way].name, &p, &g, b);
            drop(&p, &g);
        }
}

/* ---- masked keys and rows ---- */

static const double garbage[] = {NAN, INFINITY, DBL_MAX};

static void spoil(tensor *t, int64_t b, int64_t h, int64_t i, double value)
{
    for (int64_t d = 0; d < t->dim[3]; d++)
        tensor_set(t, b, h, i, d, value);
}

static bool sees(const problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return ref_visible(&p->desc, &p->args, b, h, i, j);
}

static bool same_row(const tensor *x, const tensor *y, int64_t b, int64_t h, int64_t i)
{
    for (int64_t d = 0; d < x->dim[3]; d++) {
        const double a = tensor_get(x, b, h, i, d), c = tensor_get(y, b, h, i, d);
        if (memcmp(&a, &c, sizeof a) != 0) return false;
    }
    return true;
}

/* Sets key and value j of head (1, 1) to `value`, which is NaN or infinite. The dq of rows that do not attend to key j
 * and the gradients of other batch entries must equal `want`, the gradients without garbage. */
static void check_key(mha_ctx *ctx, size_t way, const gradients *want, int64_t j, double value)
{
    problem p;
    gradients g;
    make(&p, &g, &ways[way].desc);
    spoil(&p.k, 1, 1, j, value);
    spoil(&p.v, 1, 1, j, value);
    gradients_run(ctx, &p, &g);
    for (int64_t h = 0; h < p.desc.heads; h++)
        for (int64_t i = 0; i < p.desc.q_len; i++) {
            const bool touched = h / 2 == 1 && sees(&p, 1, h, i, j);
            if (!touched && !same_row(&g.result[DQ], &want->result[DQ], 1, h, i))
                fail_msg("%s: %s: key %d must not affect dq of row %d", mha_ctx_isa(ctx), ways[way].name, (int)j,
                         (int)i);
            if (!touched && !same_row(&g.result[ROW_TAYLOR], &want->result[ROW_TAYLOR], 1, h, i))
                fail_msg("%s: %s: key %d must not affect row_taylor of row %d", mha_ctx_isa(ctx), ways[way].name,
                         (int)j, (int)i);
            if (touched && !isfinite(value) && isfinite(tensor_get(&g.result[DQ], 1, h, i, 0)))
                fail_msg("%s: %s: dq of row %d, which attends to a non-finite key, must not be finite",
                         mha_ctx_isa(ctx), ways[way].name, (int)i);
        }
    for (int64_t key = 0; key < p.desc.kv_len; key++)
        for (int n = DK; n <= DV; n++)
            if (!same_row(&g.result[n], &want->result[n], 0, 1, key) ||
                !same_row(&g.result[n], &want->result[n], 1, 0, key))
                fail_msg("%s: %s: gradients of other heads must not change", mha_ctx_isa(ctx), ways[way].name);
    drop(&p, &g);
}

/* Sets q and dout of row i of head (1, 2) to `value`, which is NaN or infinite. The dk and dv of keys to which the row
 * does not attend and the gradients of other rows must equal `want`, the gradients without garbage. */
static void check_row(mha_ctx *ctx, size_t way, const gradients *want, int64_t i, double value)
{
    problem p;
    gradients g;
    make(&p, &g, &ways[way].desc);
    spoil(&p.q, 1, 2, i, value);
    spoil(&g.dout, 1, 2, i, value);
    gradients_run(ctx, &p, &g);
    for (int64_t j = 0; j < p.desc.kv_len; j++)
        for (int which = DK; which <= DV; which++) {
            const bool touched = sees(&p, 1, 2, i, j);
            if (!touched && !same_row(&g.result[which], &want->result[which], 1, 1, j))
                fail_msg("%s: %s: row %d must not affect key %d", mha_ctx_isa(ctx), ways[way].name, (int)i, (int)j);
            if (touched && isnan(value) && isfinite(tensor_get(&g.result[which], 1, 1, j, 0)))
                fail_msg("%s: %s: the gradient of key %d, to which a non-finite row attends, must not be finite",
                         mha_ctx_isa(ctx), ways[way].name, (int)j);
        }
    for (int64_t row = 0; row < p.desc.q_len; row++)
        if (row != i && !same_row(&g.result[DQ], &want->result[DQ], 1, 2, row))
            fail_msg("%s: %s: row %d must not affect row %d", mha_ctx_isa(ctx), ways[way].name, (int)i, (int)row);
    drop(&p, &g);
}

static void test_garbage(void **state)
{
    (void)state;
    static const int64_t keys[] = {0, 5, 64, 127, 128, 169}, rows[] = {0, 31, 32, 127, 128, 149};
    for (int n = 0; n < isa_count; n++)
        for (size_t way = 0; way < WAYS; way++) {
            problem clean;
            gradients want;
            if (n >= isa_count_of(ways[way].desc.dtype)) continue;
            make(&clean, &want, &ways[way].desc);
            gradients_run(isa_contexts[n], &clean, &want);
            for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
                check_key(isa_contexts[n], way, &want, keys[k], garbage[k % 3]);
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                check_row(isa_contexts[n], way, &want, rows[r], r % 2 ? INFINITY : NAN);
            drop(&clean, &want);
        }
}

/* Keys to which no row attends and rows without keys must have zero gradients, even if they contain NaN. */
static void check_unseen(mha_ctx *ctx, size_t way)
{
    problem p;
    gradients g;
    make(&p, &g, &ways[way].desc);
    for (int64_t b = 0; b < 3; b++)
        for (int64_t h = 0; h < 4; h++)
            for (int64_t i = 0; i < p.desc.q_len; i++) {
                bool any = false;
                for (int64_t j = 0; j < p.desc.kv_len; j++)
                    any = any || sees(&p, b, h, i, j);
                if (!any) spoil(&p.q, b, h, i, NAN), spoil(&g.dout, b, h, i, NAN);
                if (!any && !p.sinks.memory) tensor_set(&g.dlse, b, h, i, 0, NAN);
            }
    gradients_run(ctx, &p, &g);
    for (int n = 0; n < RESULTS; n++)
        for (int64_t at = 0; g.result[n].memory && at < 3 * g.result[n].dim[1] * g.result[n].dim[2]; at++) {
            const int64_t i = at % g.result[n].dim[2], h = at / g.result[n].dim[2] % g.result[n].dim[1];
            const int64_t b = at / g.result[n].dim[2] / g.result[n].dim[1];
            bool seen = n != DQ && n != DK && n != DV && n != ROW_TAYLOR;
            for (int64_t j = 0; j < p.desc.kv_len && (n == DQ || n == ROW_TAYLOR); j++)
                seen = seen || sees(&p, b, h, i, j);
            for (int64_t row = 0; row < 2 * p.desc.q_len && (n == DK || n == DV); row++)
                seen = seen || sees(&p, b, 2 * h + row / p.desc.q_len, row % p.desc.q_len, i);
            const double x = tensor_get(&g.result[n], b, h, i, 0);
            if (!isfinite(x) || (!seen && x != 0))
                fail_msg("%s: %s: gradient %d of (%d, %d, %d) must be 0 (got %g)", mha_ctx_isa(ctx), ways[way].name, n,
                         (int)b, (int)h, (int)i, x);
        }
    drop(&p, &g);
}

static void test_unseen(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count; n++)
        for (size_t way = 0; way < WAYS; way++)
            if (n < isa_count_of(ways[way].desc.dtype)) check_unseen(isa_contexts[n], way);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads), cmocka_unit_test(test_batch),
                                              cmocka_unit_test(test_garbage), cmocka_unit_test(test_unseen)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
