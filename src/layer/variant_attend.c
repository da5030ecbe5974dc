/* variant_attend.c - the operator's share of a layer: plans and arguments of all runs. Heads are never copied: q, k
 * and v lie as the projections wrote them, and the operator reads them through strides. */
#include "base/ctx.h"
#include "base/size.h"
#include "layer/variant.h"

/* A plan with its workspace; kept from run to run while the shape stays the same. */
typedef struct prepared {
    mha_attn_plan *plan;
    int64_t heads;
    void *workspace;
    size_t bytes;
} prepared;

static mha_attn_desc describe(const mha_variant *v, const mha_variant_input *in, const mha_trace *t,
                              const mha__run *run)
{
    return (mha_attn_desc){
        .size = sizeof(mha_attn_desc),
        .batch = run->count,
        .heads = run->heads,
        .kv_heads = v->selector == MHA__SELECT_NONE ? v->kv_heads : run->heads,
        .q_len = t->Lq,
        .kv_len = t->Lk,
        .head_dim = run->head_dim,
        .dtype = v->dtype,
        .scale = v->scale,
        .causal = v->causal,
        .align = MHA_ALIGN_OFFSETS,
        .listed_heads = run->list ? run->listed : 0,
        .dropout = t->drops ? v->dropout : 0,
        .scores = in->score_stage,
        .inputs = (t->keep.data ? MHA_ATTN_KEEP : 0u) | (t->bias.data ? MHA_ATTN_BIAS : 0u) |
                  (mha__gated(v) ? MHA_ATTN_GATES : 0u) | (run->list ? MHA_ATTN_HEAD_LIST : 0u) |
                  (t->drop.data ? MHA_ATTN_DROPOUT_KEEP : 0u),
        .outputs = MHA_ATTN_LSE | (t->weights ? MHA_ATTN_PROBS : 0u) | (t->scores ? MHA_ATTN_SCORES : 0u),
    };
}

/* A mask of all samples, from sample `first` on. */
static mha_cview from_sample(mha_cview all, int64_t first, size_t size)
{
    if (all.data) all.data = (const char *)all.data + (size_t)(first * all.stride[0]) * size;
    return all;
}

/* q, k or v as projected, [B L, width], or keys with past ones in front, [B, Hkv, Lk, D]. */
static mha_cview operand(const mha_variant *v, const char *data, int64_t L, int64_t width, const mha__run *run)
{
    return (mha_cview){data + (size_t)(run->first * L * width) * v->real, {L * width, run->head_dim, width, 1}};
}

static mha_cview keys(const mha_variant *v, const mha_trace *t, const char *fresh, const char *with_past, int dense,
                      const mha__run *run)
{
    if (!with_past) return operand(v, fresh, t->Ln, v->dense[dense].out, run);
    const int64_t head = t->Lk * v->head_dim;
    return (mha_cview){with_past, {v->kv_heads * head, head, v->head_dim, 1}};
}

static mha_view result(const mha_variant *v, char *data, int64_t heads, int64_t rows, int64_t columns,
                       const mha__run *run)
{
    const int64_t head = rows * columns;
    return (mha_view){data ? data + (size_t)(run->first * heads * head) * v->real : NULL,
                      {heads * head, head, columns, columns == 1 ? 0 : 1}};
}

mha_attn_args mha__attend_args(const mha_variant *v, const mha_variant_input *in, const mha_trace *t,
                               const mha__run *run)
{
    const mha_cview context = operand(v, t->context, t->Lq, t->width, run);
    const int64_t gates = mha__gate_row(v, t);
    mha_attn_args args = {
        .size = sizeof args,
        .q = operand(v, t->query_q, t->Lq, v->dense[MHA__Q].out, run),
        .k = keys(v, t, t->key_k, t->past_k, MHA__K, run),
        .v = keys(v, t, t->value_v, t->past_v, MHA__V, run),
        .out = {(void *)context.data, {context.stride[0], context.stride[1], context.stride[2], 1}},
        .keep = from_sample(t->keep, run->first, 1),
        .bias = from_sample(t->bias, run->first, v->real),
        .dropout_keep = from_sample(t->drop, run->first, 1),
        .dropout_seed = in->dropout_seed,
        .offsets = t->offsets + run->first,
        .gates = from_sample((mha_cview){t->gates, {gates, 1, 0, 0}}, run->first, v->real),
        .head_list = run->list,
        .lse = result(v, t->lse, t->n, t->Lq, 1, run),
        .probs = result(v, t->weights, t->n, t->Lq, t->Lk, run),
        .scores = result(v, t->scores, t->n, t->Lq, t->Lk, run),
    };
    return args;
}

static void forget(const mha_variant *v, prepared *p)
{
    mha_attn_plan_free(p->plan);
    mha__free(v->ctx, p->workspace);
    *p = (prepared){0};
}

static mha_status prepare(const mha_variant *v, const mha_variant_input *in, const mha_trace *t, const mha__run *run,
                          prepared *p, mha_error *err)
{
    if (p->plan && p->heads == run->heads) return MHA_OK;
    forget(v, p);
    const mha_attn_desc desc = describe(v, in, t, run);
    MHA__TRY(mha_attn_plan_create(v->ctx, &desc, &p->plan, err));
    p->heads = run->heads;
    p->bytes = mha_attn_plan_workspace(p->plan);
    p->workspace = mha__alloc(v->ctx, p->bytes);
    return p->workspace || !p->bytes ? MHA_OK : mha__no_memory(err, p->bytes, "the workspace of attention");
}

mha_status mha__attend(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err)
{
    prepared p = {0};
    mha_status status = MHA_OK;
    for (int64_t r = 0; status == MHA_OK && r < mha__runs(v, t); r++) {
        const mha__run run = mha__run_of(v, t, r);
        const mha_attn_args args = mha__attend_args(v, in, t, &run);
        status = prepare(v, in, t, &run, &p, err);
        if (status == MHA_OK) status = mha_attn_forward(p.plan, &args, p.workspace, p.bytes, err);
        t->flops += 4 * run.count * run.listed * t->Lq * t->Lk * run.head_dim;
    }
    forget(v, &p);
    return status;
}

mha_status mha__attend_backward(const mha_variant *v, const mha_variant_input *in, const mha_trace *t,
                                const char *dcontext, const mha__attend_grads *grads, mha_error *err)
{
    (void)v, (void)in, (void)t, (void)dcontext, (void)grads;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "attention layers: the backward pass is not built yet");
}
