/* attention_call.c - the operator's description, plan and arguments for one call of an attention layer. */
#include "attn/cache/kv_cache.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/redzone.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "layer/attention/disentangled.h"
#include "layer/attention/latent.h"
#include "layer/selection/computed_heads.h"
#include "layer/selection/head_count_per_sequence.h"
#include <math.h>
#include <string.h>

mha_status mha__layer_workspace(mha_ctx *ctx, size_t bytes, mha_layer_input *in, void **own, const char *what,
                                mha_error *err)
{
    *own = NULL;
    if (in->workspace && in->workspace_bytes < bytes)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: workspace_bytes must be at least %zu (got %zu)", bytes,
                         in->workspace_bytes);
    if ((uintptr_t)in->workspace % 64)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: workspace must be aligned to 64 bytes (got %p)",
                         in->workspace);
    if (in->workspace) return MHA_OK;
    in->workspace_bytes = bytes;
    *own = in->workspace = mha__alloc(ctx, bytes);
    return *own ? MHA_OK : mha__no_memory(err, bytes, what);
}

void mha__layer_workspace_end(mha_ctx *ctx, const mha_layer_input *in, void *own)
{
    if (!own) mha__redzone_clear(in->workspace, in->workspace_bytes);
    mha__free(ctx, own);
}

int64_t mha__layer_sequence(const mha_layer_input *in)
{
    return in->batch == 1 ? in->sequence : MHA_CACHE_ALL;
}

/* Requests the maps and statistics that the call returns. A row that in->rows masks is described as a masked block of
 * one query by all keys. */
static void describe_outputs(const mha_layer_input *in, mha_attn_desc *desc)
{
    if (in->probs) desc->outputs |= MHA_ATTN_PROBS;
    if (in->on_rows) desc->outputs |= MHA_ATTN_ROWS;
    if (in->probs || in->on_rows) {
        desc->inputs |= in->map_heads ? MHA_ATTN_MAP_HEADS : 0;
        desc->map_heads = in->map_heads ? in->map_count : 0;
        desc->inputs |= in->map_rows ? MHA_ATTN_MAP_ROWS : 0;
        desc->map_rows = in->map_rows ? in->map_row_count : 0;
    }
    if (!in->stats) return;
    desc->outputs |= MHA_ATTN_STATS;
    desc->top_keys = in->top_keys;
    if (!in->rows) return;
    desc->inputs |= MHA_ATTN_BLOCK_KEEP;
    desc->block_q = 1;
    desc->block_k = in->length;
}

static const int64_t *kv_lengths(const mha_attn_layer *layer, const mha_layer_input *in)
{
    return layer->options.cross ? in->source->lengths : in->lengths;
}

static const mha_cview *keep_of(const mha_attn_layer *layer, const mha_layer_input *in)
{
    return layer->options.cross ? &in->source->keep : &in->keep;
}

/* Returns the flags of the masks and gates that the operator reads. A call with gradients always has gates, so that the
 * gradients of gates are computed too. */
static uint32_t inputs_of(const mha_attn_layer *layer, const mha__attn_call *call)
{
    const mha_attn_layer_options *o = &layer->options;
    const mha_layer_input *in = call->in;
    return (in->lengths ? MHA_ATTN_Q_LENS : 0u) | (kv_lengths(layer, in) ? MHA_ATTN_KV_LENS : 0u) |
           (keep_of(layer, in)->data ? MHA_ATTN_KEEP : 0u) |
           (in->gates.data || o->choice.of || (call->outputs & MHA_ATTN_GRADS) ? MHA_ATTN_GATES : 0u) |
           (o->slopes ? MHA_ATTN_SLOPES : 0u) | (o->sinks ? MHA_ATTN_SINKS : 0u) |
           (call->in->bias.data || layer->relative ? MHA_ATTN_BIAS : 0u) |
           (call->drop.data ? MHA_ATTN_DROPOUT_KEEP : 0u);
}

/* Returns the starts of the packed sequences of keys. */
static const int64_t *kv_starts(const mha_attn_layer *layer, const mha_layer_input *in)
{
    return layer->options.cross ? in->source->starts : in->starts;
}

static void describe_packed(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_desc *desc)
{
    const int64_t *starts = kv_starts(layer, in);
    if (!in->starts) return;
    desc->batch = in->sequences;
    desc->inputs |= MHA_ATTN_CU_SEQLENS;
    for (int64_t n = 0; n < in->sequences; n++) {
        desc->max_q_len = mha__max64(desc->max_q_len, in->starts[n + 1] - in->starts[n]);
        desc->max_kv_len = mha__max64(desc->max_kv_len, starts[n + 1] - starts[n]);
    }
}

/* Rejects inputs that the layer does not support. */
static mha_status check_input(const mha_attn_layer *layer, const mha_layer_input *in, mha_error *err)
{
    const mha_choice choice = layer->options.choice.of;
    if (in->cache && choice)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_layer_input: cache must be NULL for a layer that selects heads");
    if (in->shard && choice)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_layer_input: shard must be NULL for a layer that selects heads");
    if (in->shard && layer->relative)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "mha_layer_input: shard must be NULL for a layer with relative positions");
    return choice == MHA_CHOICE_OPTIONS ? mha__attn_split_check(in, err) : MHA_OK;
}

/* Checks the heads of a cache, except one of latent vectors, which mha__latent_check_cache checks. */
static mha_status check_cache(const mha_attn_layer *layer, const mha_cache_desc *d, mha_error *err)
{
    const mha_attn_layer_options *o = &layer->options;
    if (d->v_from_k || (d->kv_heads == o->kv_heads && d->head_dim == o->head_dim && d->v_head_dim == o->head_dim))
        return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "mha_layer_input: kv_heads, head_dim and v_head_dim of the cache must be %lld, %lld, %lld (got "
                     "%lld, %lld, %lld)",
                     (long long)o->kv_heads, (long long)o->head_dim, (long long)o->head_dim, (long long)d->kv_heads,
                     (long long)d->head_dim, (long long)d->v_head_dim);
}

/* Reserves the tokens of the call in the cache, and describes its keys and values. */
static mha_status describe_cached(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_desc *desc,
                                  mha_error *err)
{
    if (in->keep.data) return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: keep must be NULL with cache");
    MHA__TRY(mha__latent_check_cache(layer, in, err));
    MHA__TRY(check_cache(layer, &in->cache->desc, err));
    if (mha__latent_absorbs(layer, in)) {
        desc->dtype = MHA_F32;
        if (desc->scale == 0) desc->scale = 1 / sqrt((double)layer->options.head_dim);
    }
    desc->kv_len = 0;
    MHA__TRY(mha__cache_reserve_tokens(in->cache, mha__layer_sequence(in), in->length, err));
    return mha_cache_describe(in->cache, mha__layer_sequence(in), in->length, desc, err);
}

mha_status mha__attn_describe(const mha_attn_layer *layer, const mha__attn_call *call, mha_attn_desc *desc,
                              mha_error *err)
{
    const mha_attn_layer_options *o = &layer->options;
    const mha_layer_input *in = call->in;
    MHA__TRY(check_input(layer, in, err));
    *desc = (mha_attn_desc){
        .size = sizeof *desc,
        .batch = in->batch,
        .heads = o->heads,
        .kv_heads = o->kv_heads,
        .q_len = in->shard ? in->shard->length : in->length,
        .kv_len = in->shard ? in->shard->length : mha__attn_keys(layer, call),
        .head_dim = o->head_dim,
        .dtype = mha__attn_records(call) && mha__attn_is_half(layer) ? MHA_F32 : o->dtype,
        .scale = o->scale,
        .softcap = o->softcap,
        .causal = o->causal,
        /* query i attends to the past keys and to keys 0 to i of this call, regardless of padding */
        .align = call->past ? MHA_ALIGN_BOTTOM_RIGHT : MHA_ALIGN_TOP_LEFT,
        .window = o->window,
        .dropout = call->dropout,
        .scores = call->scores,
        .inputs = inputs_of(layer, call),
        .outputs = call->outputs,
    };
    describe_outputs(in, desc);
    mha__heads_describe(layer, call, desc);
    describe_packed(layer, in, desc);
    return in->cache ? describe_cached(layer, in, desc, err) : MHA_OK;
}

mha_status mha__attn_plan(const mha_attn_layer *layer, const mha__attn_call *call, mha_attn_plan **plan, mha_error *err)
{
    mha_attn_desc desc;
    MHA__TRY(mha__attn_describe(layer, call, &desc, err));
    *plan = NULL;
    if (call->in->shard) return MHA_OK; /* the caller runs the operator */
    return mha_attn_plan_create(layer->ctx, &desc, plan, err);
}

bool mha__attn_layer_equivalent(const mha_attn_layer *a, const mha_attn_layer *b)
{
    const mha_attn_layer_options *x = &a->options, *y = &b->options;
    return x->heads == y->heads && x->kv_heads == y->kv_heads && x->head_dim == y->head_dim && x->dtype == y->dtype &&
           x->scale == y->scale && x->softcap == y->softcap && x->causal == y->causal && x->window.on == y->window.on &&
           x->window.left == y->window.left && x->window.right == y->window.right && !x->slopes == !y->slopes &&
           !x->sinks == !y->sinks && !a->relative == !b->relative && !x->choice.of == !y->choice.of &&
           mha__heads_keep_some(x) == mha__heads_keep_some(y) && mha__attn_splits(a) == mha__attn_splits(b) &&
           !x->cross == !y->cross;
}

/* ---- arguments of the operator ---- */

/* Returns one gate of 1 that is broadcast to all heads, for calls that have gates only to compute their gradients. */
static const void *no_gates(const mha_attn_layer *layer)
{
    static const float one = 1;
    static const double wide_one = 1;
    return layer->options.dtype == MHA_F64 ? (const void *)&wide_one : &one;
}

/* Sets k and v to the keys and values of another sequence. */
static void bind_source(const mha_attn_layer *layer, const mha_layer_source *source, mha_attn_args *args)
{
    const int64_t D = layer->options.head_dim, half = layer->options.kv_heads * D;
    const int64_t apart = source->stride ? source->stride : source->tokens * 2 * half;
    args->k = (mha_cview){source->kv, {apart, D, 2 * half, 1}};
    args->v = (mha_cview){source->kv + half, {apart, D, 2 * half, 1}};
}

/* Sets the arrays from which the operator reads q, k and v, and the array to which it writes the context. */
static void bind_qkv(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *t,
                     mha_attn_args *args)
{
    const mha_attn_layer_options *o = &layer->options;
    if (mha__latent_absorbs(layer, call->in)) return; /* mha__latent_attend sets them */
    const size_t size = t->qkv ? mha__attn_real(layer) : sizeof *t->half;
    const mha__qkv at = mha__qkv_of(layer, call, t->qkv ? t->qkv : t->half, size);
    const int64_t L = call->in->length, D = o->head_dim, width = mha__context_width(layer),
                  Ln = mha__attn_kv_length(layer, call);
    args->q = (mha_cview){at.q, {L * at.q_row, D, at.q_row, 1}};
    args->k = (mha_cview){at.k, {Ln * at.kv_row, D, at.kv_row, 1}};
    args->v = (mha_cview){at.v, {Ln * at.kv_row, D, at.kv_row, 1}};
    args->out = (mha_view){t->context, {L * width, D, width, 1}};
    if (mha__attn_kv_given(layer, call)) bind_source(layer, call->in->source, args);
    if (!call->past) return;
    const int64_t head = mha__attn_keys(layer, call) * D;
    args->k = (mha_cview){t->past_k, {o->kv_heads * head, head, D, 1}};
    args->v = (mha_cview){t->past_v, {o->kv_heads * head, head, D, 1}};
}

mha_attn_args mha__attn_args(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *t,
                             const mha__attn_scratch *s)
{
    const mha_layer_input *in = call->in;
    const bool maps = in->probs || in->on_rows;
    mha_attn_args args = {
        .size = sizeof(mha_attn_args),
        .keep = *keep_of(layer, in),
        .bias = in->bias,
        .dropout_keep = call->drop,
        .dropout_seed = call->dropout_seed,
        .gates = in->gates,
        .slopes = {layer->options.slopes, {0, 1}},
        .sinks = {layer->options.sinks, {0, 1}},
        .q_lens = in->lengths,
        .kv_lens = kv_lengths(layer, in),
        .cu_seqlens_q = in->starts,
        .cu_seqlens_k = kv_starts(layer, in),
        .lse = {t->lse, {layer->options.heads * in->length, in->length, 1}},
        .probs = {in->probs ? in->probs : t->probs, {0}},
        .scores = {t->scores, {0}},
        .map_heads = maps ? in->map_heads : NULL,
        .map_rows = {maps ? in->map_rows : NULL, {0}},
        .stats = in->stats,
        .on_rows = in->on_rows ? *in->on_rows : (mha_attn_visitor){0},
        .block_keep = {in->stats ? in->rows : NULL, {in->length, 0, 1, 0}},
    };
    if (layer->relative) {
        const mha_view bias = mha__disentangled_view(layer, in, s->bias);
        args.bias.data = bias.data;
        memcpy(args.bias.stride, bias.stride, sizeof bias.stride);
    }
    bind_qkv(layer, call, t, &args);
    if ((call->outputs & MHA_ATTN_GRADS) && !args.gates.data) args.gates.data = no_gates(layer);
    mha__chosen_bind(layer, in, &t->chosen, &args);
    return args;
}
