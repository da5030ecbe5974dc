/* variant_run.c - runs a variant: describes its call to the attention layer, forward and backward. */
#include "base/ctx.h"
#include "base/size.h"
#include "layer/selection/head_count_per_sequence.h"
#include "layer/variants/variant.h"
#include <string.h>

/* ---- description of the call ---- */

/* Discards the state of the last call and sets the sizes of the new call. */
static void begin(mha_trace *t, const mha_variant *v, const mha_variant_input *in)
{
    *t = (mha_trace){.ctx = t->ctx, .memory = t->memory, .capacity = t->capacity};
    t->B = in->batch;
    t->Lq = in->q_len;
    t->Ln = in->kv_len;
    t->P = in->past_len;
    t->Lk = t->P + t->Ln;
    t->in = (mha_layer_input){.size = sizeof t->in, .batch = t->B, .length = t->Lq};
    t->call = (mha__attn_call){
        .kv_length = t->Ln,
        .past = t->P,
        .outputs = MHA_ATTN_LSE | (in->want_weights ? MHA_ATTN_PROBS : 0u) | (in->want_scores ? MHA_ATTN_SCORES : 0u),
        .scores = in->want_scores ? in->score_stage : 0,
    };
    mha__look_at_masks(v, in, t);
}

/* Sets the pointers of the call to the caller's arrays. */
static void bind(const mha_variant_input *in, const mha_layer_input *own, mha__attn_call *call)
{
    call->in = own;
    call->key = in->key;
    call->value = in->value;
    call->past_key = in->past_key;
    call->past_value = in->past_value;
}

static void lay_out(mha__arena *arena, const mha_variant *v, const mha_variant_input *in, mha_trace *t)
{
    const size_t rows = (size_t)(t->B * t->Lq), half = (size_t)v->layer.rope.rotary_dim / 2;
    if (v->layer.options.rope) {
        t->positions = mha__take(arena, rows, sizeof *t->positions);
        t->cos = mha__take(arena, rows, half * sizeof *t->cos);
        t->sin = mha__take(arena, rows, half * sizeof *t->sin);
    }
    mha__attn_trace_take(arena, &v->layer, &t->call, &t->steps);
    mha__place_steps(v, arena, t);
    mha__place_masks(v, in, arena, t);
}

/* Clears the maps, because samples with fewer heads do not write all maps. */
static void clear_maps(const mha_variant *v, const mha_trace *t, void *maps)
{
    if (maps && mha__attn_splits(&v->layer))
        memset(maps, 0, (size_t)(t->B * t->n * t->Lq * t->Lk) * mha__attn_real(&v->layer));
}

static mha_status allocate(mha_trace *t, const mha_variant *v, const mha_variant_input *in, mha_error *err)
{
    mha__arena arena = {0};
    t->call.in = &t->in;
    lay_out(&arena, v, in, t);
    if (arena.overflow) return mha__no_memory(err, SIZE_MAX, "the trace of a layer");
    if (arena.used > t->capacity) {
        mha__free(t->ctx, t->memory);
        t->capacity = 0;
        t->memory = mha__alloc(t->ctx, arena.used);
        if (!t->memory) return mha__no_memory(err, arena.used, "the trace of a layer");
        t->capacity = arena.used;
    }
    arena = (mha__arena){.base = t->memory};
    lay_out(&arena, v, in, t);
    clear_maps(v, t, t->steps.probs);
    clear_maps(v, t, t->steps.scores);
    return MHA_OK;
}

/* Computes the rotation angles of the call's tokens. */
static mha_status find_angles(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err)
{
    const int64_t rows = t->B * t->Lq;
    if (!v->layer.options.rope) return MHA_OK;
    for (int64_t r = 0; r < rows; r++)
        t->positions[r] = in->positions ? in->positions[r] : t->P + r % t->Lq;
    t->in.cos = t->cos;
    t->in.sin = t->sin;
    return mha_rope_angles(&v->layer.rope, t->positions, rows, t->cos, t->sin, err);
}

/* Creates the plan of a call, unless each sample has its own plan. Free with mha_attn_plan_free. */
static mha_status plan(const mha_variant *v, mha__attn_call *call, mha_attn_plan **plan, mha_error *err)
{
    if (mha__attn_splits(&v->layer)) return MHA_OK;
    MHA__TRY(mha__attn_plan(&v->layer, call, plan, err));
    call->plan = *plan;
    return MHA_OK;
}

/* ---- forward pass ---- */

static mha_status attend(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha__attn_scratch *s,
                         void *output, mha_error *err)
{
    s->space_bytes = mha_attn_plan_workspace(t->call.plan);
    s->space = mha__alloc(v->layer.ctx, s->space_bytes);
    if (!s->space && s->space_bytes) return mha__no_memory(err, s->space_bytes, "the workspace of attention");
    MHA__TRY(mha__attn_attend(&v->layer, &t->call, in->query, &t->steps, s, err));
    mha__attn_output(&v->layer, &t->call, &t->steps, s, 0, t->B * t->Lq, output);
    return MHA_OK;
}

static mha_status run(const mha_variant *v, const mha_variant_input *in, void *output, mha_trace *t, mha_error *err)
{
    mha_attn_plan *own = NULL;
    mha__attn_scratch scratch = {0};
    begin(t, v, in);
    MHA__TRY(allocate(t, v, in, err));
    MHA__TRY(mha__fill_masks(v, in, t, err));
    MHA__TRY(find_angles(v, in, t, err));
    bind(in, &t->in, &t->call);
    mha_status status = plan(v, &t->call, &own, err);
    if (status == MHA_OK) status = attend(v, in, t, &scratch, output, err);
    mha_attn_plan_free(own);
    mha__free(v->layer.ctx, scratch.space);
    if (status != MHA_OK) return status;
    mha__show_steps(v, t);
    t->layer = v;
    return MHA_OK;
}

mha_status mha_variant_forward(const mha_variant *v, const mha_variant_input *input, void *output, mha_trace *trace,
                               mha_error *err)
{
    mha_variant_input in;
    if (trace) trace->layer = NULL;
    MHA__TRY(mha__variant_input(v, &in, input, err));
    if (!output) return mha__fail(err, MHA_ERR_ARG, "%s: output must not be NULL", v->name);
    if (trace) return run(v, &in, output, trace, err);
    mha_trace own = {.ctx = v->layer.ctx};
    const mha_status status = run(v, &in, output, &own, err);
    mha__free(v->layer.ctx, own.memory);
    return status;
}

/* ---- backward pass ---- */

static mha__grad_slot slot_of(const mha_variant *v, int dense)
{
    const mha__variant_projection *d = &v->dense[dense];
    return (mha__grad_slot){.dtype = v->layer.options.dtype,
                            .weight = d->weight,
                            .transposed = d->plain,
                            .dweight = d->dweight,
                            .dbias = d->dbiases};
}

static mha__attn_slots slots_of(const mha_variant *v)
{
    return (mha__attn_slots){.q = slot_of(v, MHA__Q),
                             .k = slot_of(v, MHA__K),
                             .v = slot_of(v, MHA__V),
                             .o = slot_of(v, MHA__O),
                             .choice = slot_of(v, MHA__CHOICE),
                             .choice_hidden = slot_of(v, MHA__CHOICE_HIDDEN),
                             .expert_o = slot_of(v, MHA__EXPERT_O),
                             .heads = mha__by_head(v)};
}

static mha_status back(const mha_variant *v, const mha_variant_input *in, const mha__attn_call *call,
                       const mha__attn_trace *steps, const void *dy, const mha__attn_inputs_grad *dx, mha_error *err)
{
    const size_t space_bytes = mha_attn_plan_workspace(call->plan);
    const mha__attn_slots slots = slots_of(v);
    mha__arena arena = {0};
    mha__attn_scratch scratch;
    mha__attn_scratch_take(&arena, &v->layer, call, space_bytes, &scratch);
    arena.base = arena.overflow ? NULL : mha__alloc(v->layer.ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.used, "the gradients of a layer");
    arena.used = 0;
    mha__attn_scratch_take(&arena, &v->layer, call, space_bytes, &scratch);
    const mha_status status = mha__attn_back(&v->layer, call, &slots, in->query, steps, &scratch, dy, dx, err);
    mha__free(v->layer.ctx, arena.base);
    return status;
}

static mha_status check_gradient(const mha_variant *v, const mha_variant_input *given, const mha_trace *trace,
                                 const mha_variant_gradient *g, mha_error *err)
{
    const int64_t kv_len = given->kv_len ? given->kv_len : given->q_len;
    if (!trace || trace->layer != v || trace->B != given->batch || trace->Lq != given->q_len || trace->Ln != kv_len ||
        trace->P != given->past_len)
        return mha__fail(err, MHA_ERR_ARG, "%s: trace must be from a forward call with the same input", v->name);
    if (!g->output) return mha__fail(err, MHA_ERR_ARG, "%s: the gradient of the output must not be NULL", v->name);
    if (g->key && !given->key)
        return mha__fail(err, MHA_ERR_ARG, "%s: gradient of key must be NULL if key of the input is NULL", v->name);
    if (g->value && !given->value)
        return mha__fail(err, MHA_ERR_ARG, "%s: gradient of value must be NULL if value of the input is NULL", v->name);
    if ((g->past_key || g->past_value) && !v->takes_past)
        return mha__fail(err, MHA_ERR_ARG, "%s: gradient of past_%s must be NULL without past tokens", v->name,
                         g->past_key ? "key" : "value");
    return MHA_OK;
}

mha_status mha_variant_backward(mha_variant *v, const mha_variant_input *input, const mha_trace *trace,
                                const mha_variant_gradient *gradient, mha_error *err)
{
    mha_variant_input in, given;
    mha_variant_gradient g;
    mha_attn_plan *own = NULL;
    MHA__TRY(mha__variant_input(v, &in, input, err));
    MHA__TRY(mha__options_read(&given, sizeof given, input, "mha_variant_input", err));
    MHA__TRY(mha__options_read(&g, sizeof g, gradient, "mha_variant_gradient", err));
    MHA__TRY(check_gradient(v, &given, trace, &g, err));
    if (!v->gradient_memory) MHA__TRY(mha_variant_zero_gradients(v, err));
    mha__attn_call call = trace->call;
    mha__attn_trace steps = trace->steps;
    steps.probs = steps.scores = NULL; /* only the forward call outputs probabilities and scores */
    call.outputs = MHA__ATTN_BOTH;
    call.scores = 0;
    bind(&in, &trace->in, &call);
    void *const dkey = given.key ? g.key : g.query, *const dvalue = given.value ? g.value : dkey;
    const mha__attn_inputs_grad dx = {{g.query, dkey, dvalue}, g.past_key, g.past_value};
    mha_status status = plan(v, &call, &own, err);
    if (status == MHA_OK) status = back(v, &in, &call, &steps, g.output, &dx, err);
    mha_attn_plan_free(own);
    return status;
}
