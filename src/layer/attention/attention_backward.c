/* attention_backward.c - the attention layer's forward pass with a trace, and its backward pass. Probabilities are not
 * stored: the operator recomputes them from q, k and the log-sum-exp of each row. */
#include "layer/attention/attention_backward.h"
#include "base/ctx.h"
#include "base/error.h"
#include "layer/linear/linear.h"
#include "layer/norm.h"
#include "layer/selection/computed_heads.h"
#include "layer/selection/head_count_per_sequence.h"
#include "mha/attn_grads.h"
#include <string.h>

static int64_t qkv_width(const mha_attn_layer_options *o)
{
    return (o->heads + 2 * o->kv_heads) * o->head_dim;
}

static bool has_norms(const mha_attn_layer_options *o)
{
    return o->q_norm.weight || o->k_norm.weight;
}

/* ---- memory ---- */

void mha__attn_trace_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                          mha__attn_trace *trace)
{
    const mha_attn_layer_options *o = &layer->options;
    const size_t rows = (size_t)(in->batch * in->length), wide = (size_t)qkv_width(o) * sizeof(float);
    trace->plain = has_norms(o) ? mha__take(arena, rows, wide) : NULL;
    trace->qkv = mha__take(arena, rows, wide);
    trace->context = mha__take(arena, rows, (size_t)(o->heads * o->head_dim) * sizeof(float));
    trace->lse = mha__take(arena, rows, (size_t)mha__attn_most_heads(layer) * sizeof(float));
    mha__chosen_take(arena, layer, in, &trace->chosen);
}

void mha__attn_scratch_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                            size_t space_bytes, mha__attn_scratch *scratch)
{
    const mha_attn_layer_options *o = &layer->options;
    const size_t rows = (size_t)(in->batch * in->length);
    scratch->dqkv = mha__take(arena, rows, (size_t)qkv_width(o) * sizeof(float));
    scratch->dcontext = mha__take(arena, rows, (size_t)(o->heads * o->head_dim) * sizeof(float));
    mha__choice_grads_take(arena, layer, in, &scratch->choice);
    scratch->left = mha__take(arena, 1, mha__linear_left(layer->qkv, in->batch * in->length));
    scratch->space = mha__take(arena, 1, space_bytes);
    scratch->space_bytes = space_bytes;
}

/* ---- forward ---- */

mha_status mha__attn_plan_both(const mha_attn_layer *layer, const mha_layer_input *in, double dropout,
                               mha_attn_plan **plan, mha_error *err)
{
    mha_attn_desc desc;
    MHA__TRY(mha__attn_layer_describe(layer, in, &desc, err));
    mha__attn_desc_both(&desc, dropout);
    return mha_attn_plan_create(layer->ctx, &desc, plan, err);
}

static mha_attn_args operator_args(const mha_attn_layer *layer, const mha__attn_call *call,
                                   const mha__attn_trace *trace)
{
    static const float one = 1;
    const mha_layer_input *in = call->in;
    const mha_attn_layer_options *o = &layer->options;
    mha_attn_args args = mha__attn_layer_args(o, in, trace->qkv, trace->context);
    args.lse = (mha_view){trace->lse, {o->heads * in->length, in->length, 1}};
    args.dropout_seed = call->dropout_seed;
    if (layer->options.choice.of)
        mha__chosen_bind(layer, in, &trace->chosen, &args);
    else if (!in->gates.data)
        args.gates.data = &one;
    return args;
}

mha_status mha__attn_keep(const mha_attn_layer *layer, const mha__attn_call *call, const float *x,
                          const mha__attn_trace *trace, const mha__attn_scratch *scratch, float *y, mha_error *err)
{
    const int64_t rows = call->in->batch * call->in->length;
    const size_t bytes = (size_t)(rows * qkv_width(&layer->options)) * sizeof(float);
    mha_attn_args args = operator_args(layer, call, trace);
    mha__attn_choose(layer, call->in, x, &trace->chosen, &args);
    mha__heads_project(layer, call->in, &trace->chosen, x, scratch->left, trace->qkv);
    if (trace->plain) memcpy(trace->plain, trace->qkv, bytes);
    MHA__TRY(mha__attn_layer_prepare(layer, call->in, rows, trace->qkv, err));
    const mha__split split = {.args = &args, .chosen = &trace->chosen, .lse = trace->lse, .dropout = call->dropout};
    if (mha__attn_splits(layer))
        MHA__TRY(mha__attn_split_run(layer, call->in, &split, err));
    else
        MHA__TRY(mha_attn_forward(call->plan, &args, scratch->space, scratch->space_bytes, err));
    return mha_linear_forward(layer->o, trace->context, rows, y, err);
}

/* ---- backward ---- */

/* The gradients requested from the operator; `projections`: dq, dk and dv too. */
static mha_attn_grads operator_grads(const mha_attn_layer *layer, const mha__attn_call *call, bool projections,
                                     const mha__attn_trace *trace, const mha__attn_scratch *scratch)
{
    const mha_attn_layer_options *o = &layer->options;
    const int64_t L = call->in->length, D = o->head_dim, row = qkv_width(o), q_width = o->heads * D;
    mha_attn_grads grads = {.size = sizeof grads,
                            .dout = {scratch->dcontext, {L * q_width, D, q_width, 1}},
                            .out = {trace->context, {L * q_width, D, q_width, 1}},
                            .lse = {trace->lse, {o->heads * L, L, 1}},
                            .dgates = call->also.dgates,
                            .row_taylor = call->also.row_taylor};
    if (o->choice.of) grads.dgates = (mha_view){scratch->choice.dgates, {layer->score.out, 1}};
    if (!projections) return grads;
    grads.dq = (mha_view){scratch->dqkv, {L * row, D, row, 1}};
    grads.dk = (mha_view){scratch->dqkv + q_width, {L * row, D, row, 1}};
    grads.dv = (mha_view){scratch->dqkv + q_width + o->kv_heads * D, {L * row, D, row, 1}};
    return grads;
}

static mha_status operator_back(const mha_attn_layer *layer, const mha__attn_call *call, bool projections,
                                const mha__attn_trace *trace, const mha__attn_scratch *scratch, mha_error *err)
{
    const mha_attn_args args = operator_args(layer, call, trace);
    const mha_attn_grads grads = operator_grads(layer, call, projections, trace, scratch);
    const mha__split split = {&args, &trace->chosen, trace->lse, call->dropout, &grads, scratch->choice.dgates};
    const size_t dqkv = (size_t)(call->in->batch * call->in->length * qkv_width(&layer->options));
    if (!projections && !grads.dgates.data && !grads.row_taylor.data) return MHA_OK;
    if (!mha__attn_splits(layer))
        return mha_attn_backward(call->plan, &args, &grads, scratch->space, scratch->space_bytes, err);
    memset(scratch->dqkv, 0, dqkv * sizeof *scratch->dqkv); /* no sequence writes the rows of padding */
    return mha__attn_split_run(layer, call->in, &split, err);
}

/* Backward pass of the norm of the heads of q or k, whose columns begin at `first`. */
static mha_status norm_back(const mha_attn_layer *layer, const mha_norm *norm, const mha__grad_slot *slot, int64_t rows,
                            int64_t first, int64_t heads, const mha__attn_trace *trace, float *dqkv, mha_error *err)
{
    const int64_t row = qkv_width(&layer->options);
    if (!norm->weight) return MHA_OK;
    const mha__norm_back back = {.rows = rows,
                                 .groups = layer->options.whole_norms ? 1 : heads,
                                 .width = mha__attn_norm_width(&layer->options, heads),
                                 .x = trace->plain + first,
                                 .x_stride = row,
                                 .dy = dqkv + first,
                                 .y_stride = row,
                                 .dx = dqkv + first,
                                 .dweight = slot->dweight,
                                 .dbias = slot->dbias};
    return mha__norm_backward(layer->ctx, norm, &back, err);
}

/* Backward pass of rotation and norms, in place: dqkv becomes the gradient of the projections' outputs. */
static mha_status prepare_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__attn_slots *slots,
                               const mha__attn_trace *trace, float *dqkv, mha_error *err)
{
    const mha_attn_layer_options *o = &layer->options;
    const int64_t rows = in->batch * in->length, D = o->head_dim;
    if (o->rope)
        MHA__TRY(mha_rope_turn(layer->ctx, o->rope, in->cos, in->sin, rows, o->heads + o->kv_heads, dqkv, qkv_width(o),
                               D, 1, err));
    MHA__TRY(norm_back(layer, &o->q_norm, &slots->q_norm, rows, 0, o->heads, trace, dqkv, err));
    return norm_back(layer, &o->k_norm, &slots->k_norm, rows, o->heads * D, o->kv_heads, trace, dqkv, err);
}

/* Backward pass of the projection whose outputs begin at column `first`; adds to dx unless `first` is 0. */
static mha_status project_back(const mha_attn_layer *layer, const mha__grad_slot *slot, int64_t rows, int64_t first,
                               int64_t out, const float *x, const float *dqkv, float *dx, mha_error *err)
{
    const mha__linear_grad g = {.slot = *slot,
                                .rows = rows,
                                .in = layer->options.hidden,
                                .out = out,
                                .x = x,
                                .dy = dqkv + first,
                                .dy_stride = qkv_width(&layer->options),
                                .dx = dx,
                                .add_dx = first > 0};
    return mha__linear_backward(layer->ctx, &g, err);
}

/* Backward pass of the projections of q, k and v. */
static mha_status projections_back(const mha_attn_layer *layer, const mha__attn_slots *slots, int64_t rows,
                                   const float *x, const float *dqkv, float *dx, mha_error *err)
{
    const int64_t D = layer->options.head_dim, q_width = layer->options.heads * D;
    const int64_t k_width = layer->k_heads * D, v_width = layer->v_heads * D;
    if (slots->qkv.weight || slots->qkv.packed)
        return project_back(layer, &slots->qkv, rows, 0, q_width + k_width + v_width, x, dqkv, dx, err);
    MHA__TRY(project_back(layer, &slots->q, rows, 0, q_width, x, dqkv, dx, err));
    MHA__TRY(project_back(layer, &slots->k, rows, q_width, k_width, x, dqkv, dx, err));
    return project_back(layer, &slots->v, rows, q_width + k_width, v_width, x, dqkv, dx, err);
}

/* Backward pass of the output projection: the gradient of the context. */
static mha_status output_back(const mha_attn_layer *layer, const mha__grad_slot *slot, int64_t rows,
                              const mha__attn_trace *trace, const float *dy, float *dcontext, mha_error *err)
{
    const mha__linear_grad g = {.slot = *slot,
                                .rows = rows,
                                .in = layer->options.heads * layer->options.head_dim,
                                .out = layer->options.hidden,
                                .x = trace->context,
                                .dy = dy,
                                .dx = dcontext};
    return mha__linear_backward(layer->ctx, &g, err);
}

mha_status mha__attn_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_slots *slots,
                          const float *x, const mha__attn_trace *trace, const mha__attn_scratch *scratch,
                          const float *dy, float *dx, mha_error *err)
{
    const int64_t rows = call->in->batch * call->in->length;
    const mha__choice_slots choice = {slots->choice.dweight, slots->choice.dbias, slots->choice_hidden.dweight,
                                      slots->choice_hidden.dbias};
    const bool learns = mha__attn_learns(slots);
    MHA__TRY(output_back(layer, &slots->o, rows, trace, dy, scratch->dcontext, err));
    MHA__TRY(operator_back(layer, call, dx || learns, trace, scratch, err));
    mha__attn_choice_back(layer, call->in, &trace->chosen, &scratch->choice, &choice, call->also.dgates);
    if (!dx && !learns) return MHA_OK;
    MHA__TRY(prepare_back(layer, call->in, slots, trace, scratch->dqkv, err));
    mha__attn_layer_gather(layer, rows, scratch->dqkv);
    MHA__TRY(projections_back(layer, slots, rows, x, scratch->dqkv, dx, err));
    if (layer->options.choice.of && dx) mha__attn_mean_back(layer, call->in, scratch->choice.dmean, dx);
    return MHA_OK;
}
