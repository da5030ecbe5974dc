/* variant_forward.c - a layer from its inputs to its output: select, project, rotate, attend, project. */
#include "base/ctx.h"
#include "base/size.h"
#include "layer/variants/variant.h"
#include <string.h>

/* ---- memory of a call ---- */

static void lay_out(mha__arena *arena, const mha_variant *v, const mha_variant_input *in, mha_trace *t)
{
    const mha__dense *d = v->dense;
    const size_t real = v->real, rows = (size_t)(t->B * t->Lq), kv_rows = (size_t)(t->B * t->Ln);
    const size_t per_sample = (size_t)t->B * real, planes = (size_t)(t->B * t->n);
    t->query_q = mha__take(arena, rows, (size_t)d[MHA__Q].out * real);
    t->key_k = mha__take(arena, kv_rows, (size_t)d[MHA__K].out * real);
    t->value_v = mha__take(arena, kv_rows, (size_t)d[MHA__V].out * real);
    t->context = mha__take(arena, rows, (size_t)t->width * real);
    t->lse = mha__take(arena, planes, (size_t)t->Lq * real);
    t->offsets = mha__take(arena, (size_t)t->B, sizeof *t->offsets);
    if (t->P) {
        t->past_k = mha__take(arena, (size_t)(t->B * t->Lk), (size_t)(v->kv_heads * v->head_dim) * real);
        t->past_v = mha__take(arena, (size_t)(t->B * t->Lk), (size_t)(v->kv_heads * v->head_dim) * real);
    }
    if (v->rotary) {
        t->cos = mha__take(arena, rows, (size_t)v->rope.rotary_dim / 2 * sizeof *t->cos);
        t->sin = mha__take(arena, rows, (size_t)v->rope.rotary_dim / 2 * sizeof *t->sin);
    }
    if (in->want_weights) t->weights = mha__take(arena, planes, (size_t)(t->Lq * t->Lk) * real);
    if (in->want_scores) t->scores = mha__take(arena, planes, (size_t)(t->Lq * t->Lk) * real);
    if (v->choice.of) {
        t->mean = mha__take(arena, (size_t)v->d_in, per_sample);
        t->hidden = mha__take(arena, (size_t)d[MHA__CHOICE_HIDDEN].out, per_sample);
        t->logits = mha__take(arena, (size_t)v->choices, per_sample);
        t->gates = mha__take(arena, (size_t)mha__gate_row(v, t), per_sample);
        t->gate = mha__take(arena, (size_t)v->choice.keep, per_sample);
        t->choice = mha__take(arena, (size_t)v->choice.keep, (size_t)t->B * sizeof *t->choice);
        t->parts = mha__take(arena, (size_t)v->choices, 1);
        t->soft = mha__take(arena, (size_t)(t->B * v->choices), sizeof *t->soft);
        t->choice_gate = mha__take(arena, (size_t)v->choices, sizeof *t->choice_gate);
    }
    if (v->choice.of == MHA_CHOICE_OPTIONS) t->heads = mha__take(arena, (size_t)t->B, sizeof *t->heads);
    if (v->choice.of == MHA_CHOICE_EXPERTS) t->mixed = mha__take(arena, rows, (size_t)v->d_in * real);
    mha__place_masks(v, in, arena, t);
}

/* Discards the last call and sets the sizes of this one. */
static void begin(mha_trace *t, const mha_variant *v, const mha_variant_input *in)
{
    *t = (mha_trace){.ctx = t->ctx, .memory = t->memory, .capacity = t->capacity};
    t->B = in->batch;
    t->Lq = in->q_len;
    t->Ln = in->kv_len;
    t->P = in->past_len;
    t->Lk = t->P + t->Ln;
    t->chosen = v->choice.keep;
    t->n = mha__leaves_heads_out(v) ? v->choice.keep : v->heads;
    for (int64_t o = 0; v->choice.of == MHA_CHOICE_OPTIONS && o < v->choices; o++)
        t->n = mha__max64(t->n, v->choice.options[o]);
    t->width = v->choice.of == MHA_CHOICE_OPTIONS ? v->d_in : t->n * v->head_dim;
    mha__look_at_masks(v, in, t);
}

static mha_status allocate(mha_trace *t, const mha_variant *v, const mha_variant_input *in, mha_error *err)
{
    mha__arena arena = {0};
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
    for (int64_t b = 0; b < t->B; b++)
        t->offsets[b] = t->P;
    /* samples with fewer heads do not write the remaining rows */
    if (v->choice.of == MHA_CHOICE_OPTIONS && t->weights)
        memset(t->weights, 0, (size_t)(t->B * t->n * t->Lq * t->Lk) * v->real);
    if (v->choice.of == MHA_CHOICE_OPTIONS && t->scores)
        memset(t->scores, 0, (size_t)(t->B * t->n * t->Lq * t->Lk) * v->real);
    return MHA_OK;
}

/* ---- projections ---- */

static void project(const mha_variant *v, mha_trace *t, int dense, const void *x, int64_t L, char *y)
{
    const mha__dense *d = &v->dense[dense];
    if (!mha__leaves_heads_out(v)) {
        mha__linear_run(d->linear, &(mha__linear_call){.x = x, .rows = t->B * L, .y = y});
        t->flops += 2 * t->B * L * d->in * d->out;
        return;
    }
    for (int64_t b = 0; b < t->B; b++) {
        mha__chosen_parts(v, t, b, t->parts);
        mha__linear_run(d->linear, &(mha__linear_call){.x = (const char *)x + (size_t)(b * L * d->in) * v->real,
                                                       .rows = L,
                                                       .y = y + (size_t)(b * L * d->out) * v->real,
                                                       .parts = t->parts});
        t->flops += 2 * L * d->in * (d->out / d->parts) * v->choice.keep;
    }
}

/* Computes the angles of this call's tokens and rotates q and the new keys. */
static mha_status rotate(const mha_variant *v, const mha_variant_input *in, mha_trace *t, mha_error *err)
{
    if (!v->rotary) return MHA_OK;
    const int64_t rows = t->B * t->Lq, D = v->head_dim;
    int64_t *positions = mha__calloc(v->ctx, (size_t)rows, sizeof *positions);
    if (!positions) return mha__no_memory(err, (size_t)rows * sizeof *positions, "the positions of tokens");
    for (int64_t r = 0; r < rows; r++)
        positions[r] = in->positions ? in->positions[r] : t->P + r % t->Lq;
    mha_status status = mha_rope_angles(&v->rope, positions, rows, t->cos, t->sin, err);
    mha__free(v->ctx, positions);
    if (status == MHA_OK)
        status = mha_rope_turn(v->ctx, &v->rope, t->cos, t->sin, rows, v->heads, (float *)t->query_q,
                               v->dense[MHA__Q].out, D, 0, err);
    if (status == MHA_OK)
        status = mha_rope_turn(v->ctx, &v->rope, t->cos, t->sin, rows, v->kv_heads, (float *)t->key_k,
                               v->dense[MHA__K].out, D, 0, err);
    return status;
}

/* Joins the caller's [B, Hkv, P, D] and this call's [B Ln, Hkv D] into [B, Hkv, P + Ln, D]. */
static void append(const mha_variant *v, const mha_trace *t, const char *past, const char *fresh, char *all)
{
    const int64_t H = v->kv_heads, D = v->head_dim;
    const size_t row = (size_t)D * v->real;
    for (int64_t b = 0; b < t->B; b++)
        for (int64_t h = 0; h < H; h++, all += (size_t)t->Lk * row, past += (size_t)t->P * row) {
            memcpy(all, past, (size_t)t->P * row);
            for (int64_t i = 0; i < t->Ln; i++)
                memcpy(all + (size_t)(t->P + i) * row, fresh + (size_t)((b * t->Ln + i) * H + h) * row, row);
        }
}

/* ---- from heads to output ---- */

/* y [rows, out] = the bias of o_proj, for samples that keep no head. */
static void bias_alone(const mha_variant *v, int64_t rows, char *y)
{
    const mha__dense *o = &v->dense[MHA__O];
    const size_t bytes = (size_t)o->out * v->real;
    for (int64_t r = 0; r < rows; r++)
        memcpy(y + (size_t)r * bytes, mha__value(v, o->first + 1), bytes);
}

/* o_proj reads the columns of the selected heads only. */
static void output_of_heads(const mha_variant *v, mha_trace *t, int64_t b, char *y)
{
    const int64_t D = v->head_dim;
    const char *context = t->context + (size_t)(b * t->Lq * t->width) * v->real;
    if (!v->choice.keep) bias_alone(v, t->Lq, y);
    for (int64_t i = 0; i < v->choice.keep; i++)
        mha__linear_run(v->dense[MHA__O].linear, &(mha__linear_call){.x = context + (size_t)(i * D) * v->real,
                                                                     .x_stride = t->width,
                                                                     .rows = t->Lq,
                                                                     .y = y,
                                                                     .first = t->choice[b * v->choice.keep + i] * D,
                                                                     .depth = D,
                                                                     .accumulate = i > 0});
    t->flops += 2 * t->Lq * v->choice.keep * D * v->d_out;
}

static void add_bias(const mha_variant *v, const mha_trace *t, const char *bias, double gate, char *y)
{
    for (int64_t i = 0; i < t->Lq; i++)
        for (int64_t e = 0; e < v->d_in; e++) {
            const int64_t at = i * v->d_in + e;
            mha__put(v->dtype, y, at, mha__get(v->dtype, y, at) + gate * mha__get(v->dtype, bias, e));
        }
}

/* y += the output of expert i of the sample's list. The operator applied the gate already, except to the bias. */
static void add_expert(const mha_variant *v, mha_trace *t, int64_t b, int64_t i, char *y)
{
    const int64_t D = v->head_dim, E = v->d_in, e = t->choice[b * v->choice.keep + i];
    const char *found = t->context + (size_t)(b * t->Lq * t->width + i * D) * v->real;
    const mha__dense *o = &v->dense[MHA__EXPERT_O];
    if (v->expert_output == MHA_EXPERT_PROJECT) {
        memset(t->parts, 0, (size_t)v->choices);
        t->parts[e] = 1;
        mha__linear_run(o->linear, &(mha__linear_call){.x = found,
                                                       .x_stride = t->width,
                                                       .rows = t->Lq,
                                                       .y = y,
                                                       .y_stride = E,
                                                       .y_first = e * E,
                                                       .parts = t->parts,
                                                       .accumulate = true});
        add_bias(v, t, mha__value(v, o->first + (int)e * o->step + 1),
                 mha__get(v->dtype, t->gate, b * v->choice.keep + i), y);
        t->flops += 2 * t->Lq * D * E;
        return;
    }
    const int64_t column = v->expert_output == MHA_EXPERT_SLOT ? e * D : 0;
    for (int64_t r = 0; r < t->Lq; r++)
        for (int64_t d = 0; d < D; d++) {
            const int64_t at = r * E + column + d;
            mha__put(v->dtype, y, at, mha__get(v->dtype, y, at) + mha__get(v->dtype, found, r * t->width + d));
        }
}

static void mix_experts(const mha_variant *v, mha_trace *t)
{
    memset(t->mixed, 0, (size_t)(t->B * t->Lq * v->d_in) * v->real);
    for (int64_t b = 0; b < t->B; b++)
        for (int64_t i = 0; i < v->choice.keep; i++)
            add_expert(v, t, b, i, t->mixed + (size_t)(b * t->Lq * v->d_in) * v->real);
}

static void write_output(const mha_variant *v, mha_trace *t, char *y)
{
    const mha__dense *o = &v->dense[MHA__O];
    const int64_t rows = t->B * t->Lq;
    if (!o->out) {
        memcpy(y, t->context, (size_t)(rows * t->width) * v->real);
    } else if (v->choice.of == MHA_CHOICE_HEADS) {
        for (int64_t b = 0; b < t->B; b++)
            output_of_heads(v, t, b, y + (size_t)(b * t->Lq * v->d_out) * v->real);
    } else {
        if (t->mixed) mix_experts(v, t);
        mha__linear_run(o->linear, &(mha__linear_call){.x = t->mixed ? t->mixed : t->context, .rows = rows, .y = y});
        t->flops += 2 * rows * o->in * o->out;
    }
}

/* ---- the whole ---- */

static mha_status run(const mha_variant *v, const mha_variant_input *in, void *output, mha_trace *t, mha_error *err)
{
    begin(t, v, in);
    MHA__TRY(allocate(t, v, in, err));
    MHA__TRY(mha__fill_masks(v, in, t, err));
    mha__select(v, in, t);
    project(v, t, MHA__Q, in->query, t->Lq, t->query_q);
    project(v, t, MHA__K, in->key, t->Ln, t->key_k);
    project(v, t, MHA__V, in->value, t->Ln, t->value_v);
    MHA__TRY(rotate(v, in, t, err));
    if (t->P) {
        append(v, t, in->past_key, t->key_k, t->past_k);
        append(v, t, in->past_value, t->value_v, t->past_v);
    }
    mha__clear_empty_rows(v, t, t->query_q);
    MHA__TRY(mha__attend(v, in, t, err));
    write_output(v, t, output);
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
    mha_trace own = {.ctx = v->ctx};
    const mha_status status = run(v, &in, output, &own, err);
    mha__free(v->ctx, own.memory);
    return status;
}
