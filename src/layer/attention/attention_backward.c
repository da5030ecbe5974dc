/* attention_backward.c - the backward pass of attention_forward.c, for a call that recorded its activations.
 * Probabilities are not stored: the operator recomputes them from q, k and the log-sum-exp of each row. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/disentangled.h"
#include "layer/attention/latent.h"
#include "layer/norm.h"
#include "layer/selection/computed_heads.h"
#include "layer/selection/expert_output.h"
#include "layer/selection/head_count_per_sequence.h"
#include <string.h>

/* ---- backward pass of the output projection ---- */

/* Backward pass of the output projection: computes the gradient of the context, or of the sum of experts. */
static mha_status output_back(const mha_attn_layer *l, const mha__attn_call *call, const mha__attn_slots *slots,
                              const mha__attn_trace *t, const mha__attn_scratch *s, const void *dy, mha_error *err)
{
    const int64_t width = mha__context_width(l);
    const mha__linear_grad g = {.slot = slots->o,
                                .rows = mha__attn_rows(call),
                                .in = t->sum ? l->options.hidden : width,
                                .out = l->out,
                                .x = t->sum ? t->sum : t->context,
                                .dy = dy,
                                .dx = t->sum ? s->dsum : s->dcontext};
    if (l->o) MHA__TRY(mha__linear_backward(l->ctx, &g, err));
    if (!l->o) memcpy(s->dcontext, dy, (size_t)(mha__attn_rows(call) * width) * mha__attn_real(l));
    if (!t->sum) return MHA_OK;
    return mha__experts_back(l, call->in, &t->chosen, &slots->expert_o, t->context, s->dsum, s->dcontext, err);
}

/* ---- backward pass of the operator ---- */

static mha_view writable(mha_cview view, void *data)
{
    mha_view own = {.data = data};
    memcpy(own.stride, view.stride, sizeof own.stride);
    return own;
}

static mha_cview readable(mha_view view, const void *data)
{
    mha_cview own = {.data = data};
    memcpy(own.stride, view.stride, sizeof own.stride);
    return own;
}

/* Returns the gradient arrays that the operator writes, in the layout of its arguments. dq, dk and dv are only included
 * if `projections` is set, and dsinks if `sinks` is set. */
static mha_attn_grads grads_of(const mha_attn_layer *l, const mha__attn_call *call, bool projections, bool sinks,
                               const mha_attn_args *args, const mha__attn_scratch *s)
{
    const mha__qkv at = mha__qkv_of(l, call, s->dqkv, mha__attn_real(l));
    mha_attn_grads grads = {.size = sizeof grads,
                            .dout = readable(args->out, s->dcontext),
                            .out = readable(args->out, args->out.data),
                            .lse = readable(args->lse, args->lse.data),
                            .dgates = call->also.dgates,
                            .row_taylor = call->also.row_taylor,
                            .dbias = call->also.dbias};
    if (l->relative && projections) grads.dbias = mha__disentangled_view(l, call->in, s->dbias);
    if (sinks) grads.dsinks = (mha_view){s->dsinks, {0, 1}};
    if (l->options.choice.of) grads.dgates = (mha_view){s->choice.dgates, {l->score.out, 1}};
    if (!projections) return grads;
    grads.dq = writable(args->q, at.q);
    grads.dk = writable(args->k, call->past ? s->dpast_k : at.k);
    grads.dv = writable(args->v, call->past ? s->dpast_v : at.v);
    return grads;
}

static mha_status operator_back(const mha_attn_layer *l, const mha__attn_call *call, bool projections, bool sinks,
                                const mha__attn_trace *t, const mha__attn_scratch *s, mha_error *err)
{
    const mha__qkv at = mha__qkv_of(l, call, s->dqkv, mha__attn_real(l));
    const mha_attn_args args = mha__attn_args(l, call, t, s);
    const mha_attn_grads grads = grads_of(l, call, projections, sinks, &args, s);
    const bool reads = grads.dgates.data || grads.row_taylor.data || grads.dbias.data || grads.dsinks.data;
    if (!projections && !reads) return MHA_OK;
    if (l->relative) mha__disentangled_fill(l, call, t, s);
    if (!mha__attn_splits(l)) return mha_attn_backward(call->plan, &args, &grads, s->space, s->space_bytes, err);
    if (!mha__experts_summed(l)) /* clear padding rows, which the operator does not write */
        memset(s->dqkv, 0, (size_t)at.elements * mha__attn_real(l));
    return mha__attn_split_run(l, call, t, &args, &grads, s->choice.dgates, err);
}

/* ---- backward pass of rotation, norms and projections ---- */

/* Backward pass of the norm of the q or k heads, whose columns begin at `first`. */
static mha_status norm_back(const mha_attn_layer *layer, const mha_norm *norm, const mha__grad_slot *slot, int64_t rows,
                            int64_t first, int64_t heads, const mha__attn_trace *trace, float *dqkv, mha_error *err)
{
    const int64_t row = mha__qkv_width(&layer->options);
    if (!norm->weight) return MHA_OK;
    const mha__norm_back back = {.rows = rows,
                                 .groups = layer->options.whole_norms ? 1 : heads,
                                 .width = mha__attn_norm_width(&layer->options, heads),
                                 .x = (const float *)trace->plain + first,
                                 .x_stride = row,
                                 .dy = dqkv + first,
                                 .y_stride = row,
                                 .dx = dqkv + first,
                                 .own = layer->options.head_gains,
                                 .dweight = slot->dweight,
                                 .dbias = slot->dbias};
    return mha__norm_backward(layer->ctx, norm, &back, err);
}

/* Backward pass of rotation and norms, in place: dqkv becomes the gradient of the projections' outputs. */
static mha_status prepare_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_slots *slots,
                               const mha__attn_trace *trace, float *dqkv, mha_error *err)
{
    const mha_attn_layer_options *o = &layer->options;
    const mha_layer_input *in = call->in;
    const int64_t rows = in->batch * in->length, D = o->head_dim;
    if (call->empty.data) mha__attn_clear_empty(layer, call, dqkv);
    if (o->rope)
        MHA__TRY(mha_rope_turn(layer->ctx, o->rope, in->cos, in->sin, rows, o->heads + o->kv_heads, dqkv,
                               mha__qkv_width(o), D, 1, err));
    MHA__TRY(norm_back(layer, &o->q_norm, &slots->q_norm, rows, 0, o->heads, trace, dqkv, err));
    MHA__TRY(norm_back(layer, &o->k_norm, &slots->k_norm, rows, o->heads * D, o->kv_heads, trace, dqkv, err));
    mha__attn_repeat_kv_heads(layer, rows, true, dqkv);
    return MHA_OK;
}

/* One projection in the backward pass: its arrays and strides. */
typedef struct projection {
    const mha__grad_slot *slot;
    int64_t rows, out;
    const void *x;
    char *dy;
    int64_t dy_stride;
    void *dx;
    bool add; /* add to dx, which contains the gradient of an earlier projection */
} projection;

static mha_status project_back(const mha_attn_layer *l, const projection *p, mha_error *err)
{
    const mha__linear_grad g = {.slot = *p->slot,
                                .rows = p->rows,
                                .in = l->options.hidden,
                                .out = p->out,
                                .x = p->x,
                                .dy = p->dy,
                                .dy_stride = p->dy_stride,
                                .dx = p->dx,
                                .add_dx = p->add};
    return mha__linear_backward(l->ctx, &g, err);
}

/* Computes the gradients of q, k and v head by head. Two kinds of layers require this: layers of variants with
 * transposed per-head matrices, and layers whose calls may skip heads, where the gradients of skipped heads stay
 * unchanged. Other layers process packed or fused matrices as a whole. */
static mha_status heads_back(const mha_attn_layer *l, const mha__attn_call *call, const mha__attn_trace *t, void *dqkv,
                             const projection p[3], mha_error *err)
{
    for (int n = 0; n < 3; n++)
        if (p[n].dx && !p[n].add) memset(p[n].dx, 0, (size_t)(p[n].rows * l->options.hidden) * mha__attn_real(l));
    for (int n = 0; n < 3; n++)
        MHA__TRY(mha__heads_project_back(l, call, &t->chosen, n, p[n].slot, p[n].x, dqkv, p[n].dx, err));
    return MHA_OK;
}

/* Backward pass of the projections of q, k and v. */
static mha_status projections_back(const mha_attn_layer *l, const mha__attn_call *call, const mha__attn_slots *slots,
                                   const void *x, const mha__attn_trace *t, void *dqkv, void *const dx[3],
                                   mha_error *err)
{
    const mha__qkv at = mha__qkv_of(l, call, dqkv, mha__attn_real(l));
    const int64_t D = l->options.head_dim, q = l->options.heads * D, k = l->k_heads * D, v = l->v_heads * D;
    const void *key = call->key ? call->key : x, *value = call->value ? call->value : x;
    const projection p[] = {
        {&slots->q, at.q_rows, q, x, at.q, at.q_row, dx[0], false},
        {&slots->k, at.kv_rows, k, key, at.k, at.kv_row, dx[1], dx[1] == dx[0]},
        {&slots->v, at.kv_rows, v, value, at.written_v, at.kv_row, dx[2], dx[2] == dx[0] || dx[2] == dx[1]},
        {&slots->qkv, at.q_rows, q + k + v, x, at.q, at.q_row, dx[0], false},
    };
    if (slots->qkv.weight || slots->qkv.packed) return project_back(l, &p[3], err);
    if (slots->heads) return heads_back(l, call, t, dqkv, p, err);
    for (int n = 0; n < 3; n++)
        MHA__TRY(project_back(l, &p[n], err));
    return MHA_OK;
}

mha_status mha__attn_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_slots *slots,
                          const void *x, const mha__attn_trace *trace, const mha__attn_scratch *scratch, const void *dy,
                          const mha__attn_inputs_grad *dx, mha_error *err)
{
    const mha__chosen *chosen = &trace->chosen;
    const bool beyond_operator =
        dx->x[0] || dx->x[1] || dx->x[2] || dx->past_key || dx->past_value || mha__attn_learns(slots);
    MHA__TRY(output_back(layer, call, slots, trace, scratch, dy, err));
    MHA__TRY(operator_back(layer, call, beyond_operator, slots->sinks.dweight != NULL, trace, scratch, err));
    for (int64_t h = 0; slots->sinks.dweight && h < layer->options.heads; h++)
        ((float *)slots->sinks.dweight)[h] += scratch->dsinks[h];
    if (trace->sum)
        mha__experts_gates_back(layer, call->in, chosen, &slots->expert_o, scratch->dsum, scratch->choice.dgates);
    mha__attn_choice_back(layer, call->in, chosen, &scratch->choice, slots, call->also.dgates);
    if (!beyond_operator) return MHA_OK;
    mha__attn_move_past(layer, call, false, scratch->dqkv, scratch->dpast_k, scratch->dpast_v, dx->past_key,
                        dx->past_value);
    if (layer->relative) MHA__TRY(mha__disentangled_back(layer, call, slots, trace, scratch, err));
    MHA__TRY(prepare_back(layer, call, slots, trace, scratch->dqkv, err));
    if (layer->latent) return mha__latent_back(layer, call, slots, x, trace, scratch, dx->x[0], err);
    MHA__TRY(projections_back(layer, call, slots, x, trace, scratch->dqkv, dx->x, err));
    if (layer->options.choice.of && dx->x[0]) mha__attn_mean_back(layer, call->in, scratch->choice.dmean, dx->x[0]);
    return MHA_OK;
}
