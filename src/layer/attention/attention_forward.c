/* attention_forward.c - the forward pass of the attention layer, for models and variants.
 *
 * Linear layers compute q, k and v of all heads into one buffer whose rows are [q of H heads | k of Hkv | v of Hkv]; if
 * k and v have different head counts, repeat_kv_heads.c repeats heads. The operator reads the buffer through strides
 * and writes [B, L, H, D], which the output projection reads. With a 16-bit dtype, the projection writes 16-bit
 * elements directly. If heads are rotated, normalized or cached, it writes f32, and the operator reads a 16-bit
 * copy. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/disentangled.h"
#include "layer/attention/latent.h"
#include "layer/norm.h"
#include "layer/selection/computed_heads.h"
#include "layer/selection/expert_output.h"
#include "layer/selection/head_count_per_sequence.h"
#include <string.h>

/* ---- projections, norms and rotation ---- */

/* Computes all heads of q, k and v. */
static void project_all(const mha_attn_layer *l, const mha__attn_call *call, const void *const x[3], void *left,
                        void *qkv)
{
    const size_t real = mha__attn_real(l);
    const mha__qkv at = mha__qkv_of(l, call, qkv, real);
    char *const y[] = {at.q, at.k, at.written_v};
    const int count = mha__attn_kv_given(l, call) ? 1 : 3;
    for (int p = 0; p < count && l->project[p]; p++)
        mha__linear_run(l->project[p], &(mha__linear_call){.x = x[p],
                                                           .rows = p ? at.kv_rows : at.q_rows,
                                                           .y = y[p],
                                                           .y_stride = p ? at.kv_row : at.q_row,
                                                           .left = left});
}

/* Normalizes and rotates the heads of q and k, in place. */
static mha_status normalize_and_rotate(const mha_attn_layer *l, const mha__attn_call *call, void *qkv, mha_error *err)
{
    const mha_attn_layer_options *o = &l->options;
    const mha_layer_input *in = call->in;
    const int64_t D = o->head_dim, row = mha__qkv_width(o), rows = in->batch * in->length;
    float *q = qkv, *k = q + o->heads * D;
    const int64_t q_norms = o->whole_norms ? 1 : o->heads, k_norms = o->whole_norms ? 1 : o->kv_heads;
    const int64_t q_width = mha__attn_norm_width(o, o->heads), k_width = mha__attn_norm_width(o, o->kv_heads);
    if (o->q_norm.weight) mha__norm_heads(l->ctx, &o->q_norm, rows, row, q_norms, q_width, o->head_gains, q);
    if (o->k_norm.weight) mha__norm_heads(l->ctx, &o->k_norm, rows, row, k_norms, k_width, o->head_gains, k);
    if (!o->rope) return MHA_OK;
    if (!in->cos || !in->sin)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: %s must not be NULL for a layer with rope",
                         in->cos ? "sin" : "cos");
    /* q and k are adjacent, so their heads form one array */
    return mha_rope_turn(l->ctx, o->rope, in->cos, in->sin, rows, o->heads + o->kv_heads, q, row, D, 0, err);
}

/* Appends the keys and values of this call to the cache, and passes all cached keys and values to the operator. */
static mha_status through_cache(const mha_attn_layer *l, const mha_layer_input *in, mha_attn_args *args, mha_error *err)
{
    mha_attn_desc desc = {.size = sizeof desc, .heads = l->options.heads, .q_len = in->length, .causal = 1};
    const mha_cache_tokens fresh = {
        .size = sizeof fresh, .count = in->length, .counts = in->lengths, .dtype = MHA_F32, .k = args->k, .v = args->v};
    desc.window = l->options.window;
    MHA__TRY(mha_cache_append(in->cache, mha__layer_sequence(in), &fresh, err));
    return mha_cache_bind(in->cache, mha__layer_sequence(in), in->lengths, &desc, args, err);
}

/* Passes q, k and v to the operator in 16 bits; cached k and v are already set. */
static void bind_halves(const mha_attn_layer *l, const mha__attn_call *call, const mha__attn_trace *t,
                        mha_attn_args *args)
{
    const mha__qkv at = mha__qkv_of(l, call, t->half, sizeof *t->half);
    args->q.data = at.q;
    args->out.data = t->mixed;
    if (call->in->cache) return;
    args->k.data = at.k;
    args->v.data = at.v;
}

/* Computes q, k and v in the form that the operator reads. */
static mha_status project(const mha_attn_layer *l, const mha__attn_call *call, const void *x, const mha__attn_trace *t,
                          const mha__attn_scratch *s, mha_attn_args *args, mha_error *err)
{
    const int64_t rows = mha__attn_rows(call), wide = mha__qkv_width(&l->options);
    const void *const inputs[] = {x, call->key ? call->key : x, call->value ? call->value : x};
    if (!t->qkv) {
        mha__linear_run(
            l->project[0],
            &(mha__linear_call){.x = x, .rows = rows, .y = t->half, .left = s->left, .rounded = l->options.dtype});
    } else if (l->head_part && mha__heads_skipped(l, call->in)) {
        mha__heads_project(l, call, &t->chosen, inputs, t->qkv);
    } else if (l->latent) {
        mha__latent_project(l, call, x, t, s);
    } else {
        project_all(l, call, inputs, s->left, t->qkv);
    }
    if (t->qkv) mha__attn_repeat_kv_heads(l, rows, false, t->qkv);
    const size_t elements = (size_t)mha__qkv_of(l, call, NULL, 0).elements;
    if (t->plain) memcpy(t->plain, t->qkv, elements * mha__attn_real(l));
    if (t->qkv) MHA__TRY(normalize_and_rotate(l, call, t->qkv, err));
    mha__edited(call->edit, MHA__EDIT_QKV, 0, rows, t->qkv);
    if (call->empty.data) mha__attn_clear_empty(l, call, t->qkv);
    mha__attn_move_past(l, call, true, t->qkv, t->past_k, t->past_v, (void *)call->past_key, (void *)call->past_value);
    if (call->in->cache) MHA__TRY(through_cache(l, call->in, args, err));
    if (t->qkv && t->half) mha__attn_convert(l, rows, wide, t->qkv, t->half, false);
    if (t->half) bind_halves(l, call, t, args);
    return MHA_OK;
}

/* Computes the context from a cache of latent vectors; q, k and v of all heads only for the caller. */
static mha_status absorb(const mha_attn_layer *l, const mha__attn_call *call, const void *x, const mha__attn_trace *t,
                         const mha__attn_scratch *s, mha_attn_args *args, mha_error *err)
{
    if (t->qkv) mha__latent_project(l, call, x, t, s);
    if (t->qkv) MHA__TRY(normalize_and_rotate(l, call, t->qkv, err));
    return mha__latent_attend(l, call, x, t, s, args, err);
}

/* ---- the operator ---- */

static void show(const mha_attn_layer *l, const mha_layer_activations *to, int64_t rows, const mha__attn_trace *t,
                 const float *x)
{
    mha__attn_show(l, rows, l->options.hidden, x, NULL, to->input);
    mha__attn_show(l, rows, mha__qkv_width(&l->options), t->qkv, t->half, to->qkv);
    mha__attn_show(l, rows, mha__context_width(l), t->context, t->context ? NULL : t->mixed, to->context);
}

/* Calls the caller's function for the attention of a sequence whose tokens are distributed over several processes. */
static mha_status attend_shard(const mha_attn_layer *l, const mha__attn_call *call, const mha_attn_args *args,
                               mha_error *err)
{
    const mha_layer_shard *shard = call->in->shard;
    mha_attn_desc desc;
    MHA__TRY(mha__attn_describe(l, call, &desc, err));
    return shard->attend(shard->user, shard->layer, &desc, args, err);
}

/* Computes q, k and v of all heads, and the context. */
static mha_status expand(const mha_attn_layer *l, const mha__attn_call *call, const void *x, const mha__attn_trace *t,
                         const mha__attn_scratch *s, mha_attn_args *args, mha_error *err)
{
    MHA__TRY(project(l, call, x, t, s, args, err));
    if (l->relative) mha__disentangled_fill(l, call, t, s);
    if (call->in->shard) return attend_shard(l, call, args, err);
    if (mha__attn_splits(l)) return mha__attn_split_run(l, call, t, args, NULL, NULL, err);
    return mha_attn_forward(call->plan, args, s->space, s->space_bytes, err);
}

mha_status mha__attn_attend(const mha_attn_layer *l, const mha__attn_call *call, const void *x,
                            const mha__attn_trace *t, const mha__attn_scratch *s, mha_error *err)
{
    const mha_layer_input *in = call->in;
    const int64_t rows = mha__attn_rows(call);
    if (in->context) return MHA_OK;
    mha_attn_args args = mha__attn_args(l, call, t, s);
    mha__attn_choose(l, in, x, &t->chosen);
    if (mha__latent_absorbs(l, in))
        MHA__TRY(absorb(l, call, x, t, s, &args, err));
    else
        MHA__TRY(expand(l, call, x, t, s, &args, err));
    if (t->mixed && t->context) mha__attn_convert(l, rows, mha__context_width(l), t->context, t->mixed, true);
    if (in->fills) mha__attn_fill(l, rows, in->fills, t->context);
    mha__edited(call->edit, MHA__EDIT_CONTEXT, 0, rows, t->context);
    if (in->activations) show(l, in->activations, rows, t, x);
    if (t->sum) mha__experts_sum(l, in, &t->chosen, t->context, t->sum);
    return MHA_OK;
}

void mha__attn_output(const mha_attn_layer *l, const mha__attn_call *call, const mha__attn_trace *t,
                      const mha__attn_scratch *s, int64_t first, int64_t rows, void *y)
{
    const mha_layer_input *in = call->in;
    const size_t real = mha__attn_real(l), width = (size_t)mha__context_width(l);
    mha__linear_call run = {.rows = rows, .y = y, .left = s->left};
    const char *x = in->context ? (const void *)in->context : t->sum ? t->sum : t->context;
    if (x)
        run.x = x + (size_t)first * (t->sum ? (size_t)l->options.hidden : width) * real;
    else
        run.left = t->mixed + (size_t)first * width;
    if (!l->o)
        memcpy(y, run.x, (size_t)rows * width * real);
    else if (mha__heads_output_skips(l, in))
        mha__heads_output(l, in, &t->chosen, t->context, first, rows, y);
    else
        mha__linear_run(l->o, &run);
    if (in->activations && in->activations->out)
        mha__attn_show(l, rows, l->out, y, NULL, in->activations->out + first * l->out);
}

/* ---- public functions ---- */

static mha_status run(const mha_attn_layer *layer, mha_layer_input *in, const mha_attn_plan *plan, void **own,
                      const float *x, float *y, mha_error *err)
{
    const mha__attn_call call = {.plan = plan, .in = in};
    mha__attn_trace trace;
    mha__attn_scratch scratch;
    size_t bytes = 0;
    MHA__TRY(mha__attn_layer_bytes(layer, &call, &bytes, err));
    MHA__TRY(mha__layer_workspace(layer->ctx, bytes, in, own, "an attention layer's workspace", err));
    mha__attn_layer_place(layer, &call, &trace, &scratch);
    MHA__TRY(mha__attn_attend(layer, &call, x, &trace, &scratch, err));
    mha__attn_output(layer, &call, &trace, &scratch, 0, in->batch * in->length, y);
    return MHA_OK;
}

mha_status mha_attn_layer_forward(const mha_attn_layer *layer, const mha_layer_input *input, const float *x, float *y,
                                  mha_error *err)
{
    mha_layer_input in;
    mha_attn_plan *plan = NULL;
    void *own = NULL;
    if (!layer || !x || !y) return mha__fail(err, MHA_ERR_ARG, "attention layer: layer, x and y must not be NULL");
    MHA__TRY(mha__layer_call_input(&in, input, err));
    MHA__TRY(mha__cross_input(layer, &in, true, err));
    MHA__TRY(mha__attn_plan(layer, &(mha__attn_call){.in = &in}, &plan, err));
    const mha_status status = run(layer, &in, plan, &own, x, y, err);
    mha_attn_plan_free(plan);
    mha__layer_workspace_end(layer->ctx, &in, own);
    return status;
}
