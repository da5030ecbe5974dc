/* variant_attend.c - plans and arguments of the operator calls of a layer. Heads are never copied: the operator reads
 * q, k and v through strides, where the projections wrote them. */
#include "base/ctx.h"
#include "base/size.h"
#include "layer/variants/variant.h"
#include "mha/attn_grads.h"
#include <string.h>

/* A plan with its workspace, reused while the shape stays the same. */
typedef struct prepared {
    uint32_t outputs;
    mha_attn_plan *plan;
    int64_t heads;
    void *workspace;
    size_t bytes;
} prepared;

static mha_attn_desc describe(const mha_variant *v, const mha_variant_input *in, const mha_trace *t,
                              const mha__run *run, uint32_t outputs)
{
    return (mha_attn_desc){
        .size = sizeof(mha_attn_desc),
        .batch = run->count,
        .heads = run->heads,
        .kv_heads = !v->choice.of ? v->kv_heads : run->heads,
        .q_len = t->Lq,
        .kv_len = t->Lk,
        .head_dim = run->head_dim,
        .dtype = v->dtype,
        .scale = v->scale,
        .causal = v->causal,
        .align = MHA_ALIGN_OFFSETS,
        .listed_heads = run->list ? run->listed : 0,
        .dropout = t->drops ? v->dropout : 0,
        .scores = outputs & MHA_ATTN_SCORES ? in->score_stage : 0,
        .inputs = (t->keep.data ? MHA_ATTN_KEEP : 0u) | (t->bias.data ? MHA_ATTN_BIAS : 0u) |
                  (mha__gated(v) ? MHA_ATTN_GATES : 0u) | (run->list ? MHA_ATTN_HEAD_LIST : 0u) |
                  (t->drop.data ? MHA_ATTN_DROPOUT_KEEP : 0u),
        .outputs = outputs,
    };
}

/* A mask of all samples, starting at sample `first`. */
static mha_cview from_sample(mha_cview all, int64_t first, size_t size)
{
    if (all.data) all.data = (const char *)all.data + (size_t)(first * all.stride[0]) * size;
    return all;
}

/* A view of q, k or v as projected, [B L, width], or of keys after past ones, [B, Hkv, Lk, D]. */
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

static mha_attn_args attend_args(const mha_variant *v, const mha_variant_input *in, const mha_trace *t,
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
        .gates = from_sample((mha_cview){mha__gated(v) ? t->gates : NULL, {gates, 1, 0, 0}}, run->first, v->real),
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
    *p = (prepared){.outputs = p->outputs};
}

static mha_status prepare(const mha_variant *v, const mha_variant_input *in, const mha_trace *t, const mha__run *run,
                          prepared *p, mha_error *err)
{
    if (p->plan && p->heads == run->heads) return MHA_OK;
    forget(v, p);
    const mha_attn_desc desc = describe(v, in, t, run, p->outputs);
    MHA__TRY(mha_attn_plan_create(v->ctx, &desc, &p->plan, err));
    p->heads = run->heads;
    p->bytes = mha_attn_plan_workspace(p->plan);
    p->workspace = mha__alloc(v->ctx, p->bytes);
    return p->workspace || !p->bytes ? MHA_OK : mha__no_memory(err, p->bytes, "the workspace of attention");
}

mha_status mha__attend(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err)
{
    prepared p = {.outputs = MHA_ATTN_LSE | (t->weights ? MHA_ATTN_PROBS : 0u) | (t->scores ? MHA_ATTN_SCORES : 0u)};
    mha_status status = MHA_OK;
    for (int64_t r = 0; status == MHA_OK && r < mha__runs(v, t); r++) {
        const mha__run run = mha__run_of(v, t, r);
        const mha_attn_args args = attend_args(v, in, t, &run);
        status = prepare(v, in, t, &run, &p, err);
        if (status == MHA_OK) status = mha_attn_forward(p.plan, &args, p.workspace, p.bytes, err);
        t->flops += 4 * run.count * run.listed * t->Lq * t->Lk * run.head_dim;
    }
    forget(v, &p);
    return status;
}

/* ---- backward ---- */

static mha_attn_grads bind_grads(const mha_variant *v, const mha_trace *t, const char *dcontext,
                                 const mha__attend_grads *g, const mha_attn_args *args, const mha__run *run)
{
    const int64_t gates = mha__gate_row(v, t);
    const mha_cview dout = operand(v, dcontext, t->Lq, t->width, run);
    const mha_cview dq = operand(v, g->dq, t->Lq, v->dense[MHA__Q].out, run);
    const mha_cview dk = keys(v, t, g->dk, t->P ? g->dk : NULL, MHA__K, run);
    const mha_cview dv = keys(v, t, g->dv, t->P ? g->dv : NULL, MHA__V, run);
    mha_attn_grads grads = {.size = sizeof grads,
                            .dout = dout,
                            .out.data = args->out.data,
                            .lse.data = args->lse.data,
                            .dq.data = (void *)dq.data,
                            .dk.data = (void *)dk.data,
                            .dv.data = (void *)dv.data};
    memcpy(grads.out.stride, args->out.stride, sizeof grads.out.stride);
    memcpy(grads.lse.stride, args->lse.stride, sizeof grads.lse.stride);
    memcpy(grads.dq.stride, dq.stride, sizeof grads.dq.stride);
    memcpy(grads.dk.stride, dk.stride, sizeof grads.dk.stride);
    memcpy(grads.dv.stride, dv.stride, sizeof grads.dv.stride);
    if (mha__gated(v)) grads.dgates = (mha_view){g->dgates + (size_t)(run->first * gates) * v->real, {gates, 1, 0, 0}};
    return grads;
}

mha_status mha__attend_backward(const mha_variant *v, const mha_variant_input *in, const mha_trace *t,
                                const char *dcontext, const mha__attend_grads *grads, mha_error *err)
{
    prepared p = {.outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS};
    mha_status status = MHA_OK;
    for (int64_t r = 0; status == MHA_OK && r < mha__runs(v, t); r++) {
        const mha__run run = mha__run_of(v, t, r);
        const mha_attn_args args = attend_args(v, in, t, &run);
        const mha_attn_grads g = bind_grads(v, t, dcontext, grads, &args, &run);
        status = prepare(v, in, t, &run, &p, err);
        if (status == MHA_OK) status = mha_attn_backward(p.plan, &args, &g, p.workspace, p.bytes, err);
    }
    forget(v, &p);
    return status;
}
