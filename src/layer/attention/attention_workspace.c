/* attention_workspace.c - divides the memory of a call of the attention layer: the trace, which the backward pass
 * reads, and the scratch memory of both passes. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/disentangled.h"
#include "layer/attention/latent.h"
#include "layer/selection/computed_heads.h"
#include "layer/selection/expert_output.h"
#include "layer/selection/head_count_per_sequence.h"

/* ---- memory of a call ---- */

/* Returns true if no step reads q, k and v as f32. */
static bool rounds_at_once(const mha_attn_layer *l, const mha_layer_input *in)
{
    const mha_attn_layer_options *o = &l->options;
    return !o->q_norm.weight && !o->k_norm.weight && !o->rope && !in->cache && !l->relative && !l->latent &&
           l->k_heads == l->v_heads;
}

static size_t qkv_elements(const mha_attn_layer *l, const mha__attn_call *call)
{
    return (size_t)mha__qkv_of(l, call, NULL, 0).elements;
}

static size_t context_elements(const mha_attn_layer *l, const mha__attn_call *call)
{
    return (size_t)(mha__attn_rows(call) * mha__context_width(l));
}

static size_t past_elements(const mha_attn_layer *l, const mha__attn_call *call)
{
    const int64_t keys = call->past ? mha__attn_keys(l, call) : 0;
    return (size_t)(call->in->batch * keys * l->options.kv_heads * l->options.head_dim);
}

/* Allocates memory for qkv and the context in 16 bits, and in f32 if a step reads f32. */
static void take_halves(mha__arena *arena, const mha_attn_layer *l, const mha__attn_call *call, mha__attn_trace *t)
{
    const size_t context = context_elements(l, call);
    if (!rounds_at_once(l, call->in)) t->qkv = mha__take(arena, qkv_elements(l, call), sizeof(float));
    t->half = mha__take(arena, qkv_elements(l, call), sizeof *t->half);
    if (l->options.dtype == MHA_BF16 && l->o && mha__linear_takes_bf16(l->o) && !call->in->fills) {
        /* the output projection reads bf16 directly */
        t->mixed = mha__take(arena, 1, mha__linear_left(l->o, mha__attn_rows(call)));
        return;
    }
    t->context = mha__take(arena, context, sizeof(float));
    t->mixed = mha__take(arena, context, sizeof *t->mixed);
}

/* Allocates the arrays that the backward pass and observers read. */
static void take_records(mha__arena *arena, const mha_attn_layer *l, const mha__attn_call *call, mha__attn_trace *t)
{
    const mha_attn_layer_options *o = &l->options;
    const size_t real = mha__attn_real(l), rows = (size_t)mha__attn_rows(call);
    const size_t per_key = (size_t)mha__attn_max_heads(l) * real;
    const size_t pairs = rows * (size_t)mha__attn_keys(l, call);
    if (o->q_norm.weight || o->k_norm.weight) t->plain = mha__take(arena, qkv_elements(l, call), real);
    t->lse = mha__take(arena, rows, per_key);
    if (call->outputs & MHA_ATTN_PROBS) t->probs = mha__take(arena, pairs, per_key);
    if (call->outputs & MHA_ATTN_SCORES) t->scores = mha__take(arena, pairs, per_key);
}

void mha__attn_trace_take(mha__arena *arena, const mha_attn_layer *l, const mha__attn_call *call, mha__attn_trace *t)
{
    const size_t real = mha__attn_real(l), past = past_elements(l, call);
    *t = (mha__attn_trace){0};
    if (mha__latent_absorbs(l, call->in)) {
        if (call->in->activations) t->qkv = mha__take(arena, qkv_elements(l, call), real);
        t->context = mha__take(arena, context_elements(l, call), real);
    } else if (mha__attn_is_half(l) && !mha__attn_records(call)) {
        take_halves(arena, l, call, t);
    } else {
        t->qkv = mha__take(arena, qkv_elements(l, call), real);
        t->context = mha__take(arena, context_elements(l, call), real);
    }
    if (mha__attn_records(call)) take_records(arena, l, call, t);
    if (past) t->past_k = mha__take(arena, past, real);
    if (past) t->past_v = mha__take(arena, past, real);
    if (mha__experts_summed(l)) t->sum = mha__take(arena, (size_t)(mha__attn_rows(call) * l->options.hidden), real);
    mha__latent_trace_take(arena, l, call, t);
    mha__chosen_take(arena, l, call->in, &t->chosen);
}

static void take_gradients(mha__arena *arena, const mha_attn_layer *l, const mha__attn_call *call, mha__attn_scratch *s)
{
    const size_t real = mha__attn_real(l), past = past_elements(l, call), rows = (size_t)mha__attn_rows(call);
    s->dqkv = mha__take(arena, qkv_elements(l, call), real);
    s->dcontext = mha__take(arena, context_elements(l, call), real);
    if (l->options.sinks) s->dsinks = mha__take(arena, (size_t)l->options.heads, sizeof *s->dsinks);
    if (past) s->dpast_k = mha__take(arena, past, real);
    if (past) s->dpast_v = mha__take(arena, past, real);
    if (mha__experts_summed(l)) s->dsum = mha__take(arena, rows * (size_t)l->options.hidden, real);
    mha__choice_grads_take(arena, l, call->in, &s->choice);
}

void mha__attn_scratch_take(mha__arena *arena, const mha_attn_layer *l, const mha__attn_call *call, size_t space_bytes,
                            mha__attn_scratch *s)
{
    const size_t max = mha__linear_max_left((const mha_linear *[]){l->o, l->project[0]}, 2, mha__attn_rows(call));
    const int64_t kv_rows = mha__qkv_of(l, call, NULL, 0).kv_rows;
    const size_t kv = mha__linear_max_left((const mha_linear *[]){l->project[1], l->project[2]}, 2, kv_rows);
    *s = (mha__attn_scratch){.space_bytes = space_bytes};
    if (call->outputs & MHA_ATTN_GRADS) take_gradients(arena, l, call, s);
    mha__disentangled_scratch_take(arena, l, call, s);
    mha__latent_scratch_take(arena, l, call, s);
    s->left = mha__take(arena, 1, max > kv ? max : kv);
    s->space = mha__take(arena, 1, space_bytes);
}

/* ---- workspace of a layer ---- */

static void lay_out(mha__arena *arena, const mha_attn_layer *layer, const mha__attn_call *call, mha__attn_trace *trace,
                    mha__attn_scratch *scratch)
{
    mha__attn_trace_take(arena, layer, call, trace);
    mha__attn_scratch_take(arena, layer, call, mha_attn_plan_workspace(call->plan), scratch);
}

mha_status mha__attn_layer_bytes(const mha_attn_layer *layer, const mha__attn_call *call, size_t *bytes, mha_error *err)
{
    mha__arena arena = {0};
    mha__attn_trace trace;
    mha__attn_scratch scratch;
    lay_out(&arena, layer, call, &trace, &scratch);
    if (arena.overflow) return mha__no_memory(err, SIZE_MAX, "an attention layer's workspace");
    *bytes = arena.used;
    return MHA_OK;
}

void mha__attn_layer_place(const mha_attn_layer *layer, const mha__attn_call *call, mha__attn_trace *trace,
                           mha__attn_scratch *scratch)
{
    mha__arena arena = {.base = call->in->workspace};
    lay_out(&arena, layer, call, trace, scratch);
}

mha_status mha_attn_layer_workspace(const mha_attn_layer *layer, const mha_layer_input *input, size_t *bytes,
                                    mha_error *err)
{
    mha_layer_input in;
    mha_attn_plan *plan = NULL;
    if (!layer || !bytes)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: %s must not be NULL", layer ? "bytes" : "layer");
    MHA__TRY(mha__layer_input(&in, input, err));
    mha__attn_call call = {.in = &in};
    MHA__TRY(mha__cross_input(layer, &in, false, err));
    MHA__TRY(mha__attn_plan(layer, &call, &plan, err));
    call.plan = plan;
    const mha_status status = mha__attn_layer_bytes(layer, &call, bytes, err);
    mha_attn_plan_free(plan);
    return status;
}
