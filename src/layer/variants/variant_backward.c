/* variant_backward.c - the steps of variant_forward.c in reverse. Probabilities are not stored: the operator recomputes
 * them from q, k and the log-sum-exp of each row. */
#include "base/ctx.h"
#include "base/size.h"
#include "layer/variants/variant.h"
#include <string.h>

/* ---- one projection ---- */

mha_status mha__dense_backward(mha_variant *v, int dense, const mha__dense_grad *g, mha_error *err)
{
    const mha__dense *d = &v->dense[dense];
    const int count = g->parts ? d->parts : d->tensors, per_tensor = count / d->tensors;
    const int64_t out = d->out / count, depth = g->depth ? g->depth : d->in;
    bool add = g->add_dx;
    for (int p = 0; p < count; p++) {
        if (g->parts && !g->parts[p]) continue;
        const int parameter = d->first + p / per_tensor * d->step;
        const int64_t row = p % per_tensor * out;
        const size_t at = (size_t)(d->plain ? row : row * d->in + g->first) * v->real;
        MHA__TRY(mha__linear_backward(
            v->ctx,
            &(mha__linear_grad){
                .slot = {.dtype = v->dtype,
                         .weight = mha__value(v, parameter) + at,
                         .transposed = d->plain,
                         .dweight = g->bias_only ? NULL : mha__gradient(v, parameter) + at,
                         .dbias =
                             d->bias && !g->skip_bias ? mha__gradient(v, parameter + 1) + (size_t)row * v->real : NULL},
                .rows = g->rows,
                .in = depth,
                .out = out,
                .x = g->x,
                .x_stride = g->x_stride,
                .dy = g->dy + (size_t)(p * out - g->dy_first) * v->real,
                .dy_stride = g->dy_stride ? g->dy_stride : d->out,
                .dx = g->bias_only ? NULL : g->dx,
                .dx_stride = g->dx_stride,
                .add_dx = add,
                .weight_row = d->plain ? d->out / d->tensors : d->in,
            },
            err));
        add = true;
    }
    return MHA_OK;
}

/* ---- memory ---- */

typedef struct backward {
    mha_variant *v;
    const mha_variant_input *in;
    const mha_trace *t;
    const char *doutput;
    char *dcontext; /* as context */
    char *dmixed;
    double *dgate; /* [B, choices] */
    mha__attend_grads attend;
    char *dk_new, *dv_new; /* [B Ln, Hkv D]; attend.dk and attend.dv themselves without past tokens */
    uint8_t *parts;
} backward;

static void lay_out(mha__arena *arena, backward *b)
{
    const mha_variant *v = b->v;
    const mha_trace *t = b->t;
    const size_t real = v->real, rows = (size_t)(t->B * t->Lq), kv_rows = (size_t)(t->B * t->Ln);
    const size_t all_keys = (size_t)(t->B * t->Lk), kv_width = (size_t)v->dense[MHA__K].out * real;
    b->dcontext = mha__take(arena, rows, (size_t)t->width * real);
    if (t->mixed) b->dmixed = mha__take(arena, rows, (size_t)v->d_in * real);
    b->attend.dq = mha__take(arena, rows, (size_t)v->dense[MHA__Q].out * real);
    b->dk_new = b->attend.dk = mha__take(arena, kv_rows, kv_width);
    b->dv_new = b->attend.dv = mha__take(arena, kv_rows, kv_width);
    if (t->P) b->attend.dk = mha__take(arena, all_keys, kv_width);
    if (t->P) b->attend.dv = mha__take(arena, all_keys, kv_width);
    if (!v->choice.of) return;
    b->dgate = mha__take(arena, (size_t)(t->B * v->choices), sizeof *b->dgate);
    b->attend.dgates = mha__take(arena, (size_t)(t->B * mha__gate_row(v, t)), real);
    b->parts = mha__take(arena, (size_t)v->choices, 1);
}

/* ---- from output to heads ---- */

static char *sample(const mha_variant *v, const char *data, int64_t b, int64_t L, int64_t width)
{
    return (char *)data + (size_t)(b * L * width) * v->real;
}

/* o_proj reads the columns of the kept heads only, so only these have gradients. */
static mha_status heads_backward(const backward *w, int64_t b, mha_error *err)
{
    const mha_variant *v = w->v;
    const mha_trace *t = w->t;
    const int64_t D = v->head_dim;
    mha__dense_grad g = {.rows = t->Lq, .dy = sample(v, w->doutput, b, t->Lq, v->d_out)};
    if (!v->choice.keep) {
        g.bias_only = true;
        return mha__dense_backward(w->v, MHA__O, &g, err);
    }
    g.x_stride = g.dx_stride = t->width;
    g.depth = D;
    for (int64_t i = 0; i < v->choice.keep; i++) {
        g.x = sample(v, t->context, b, t->Lq, t->width) + (size_t)(i * D) * v->real;
        g.dx = sample(v, w->dcontext, b, t->Lq, t->width) + (size_t)(i * D) * v->real;
        g.first = t->choice[b * v->choice.keep + i] * D;
        g.skip_bias = i > 0;
        MHA__TRY(mha__dense_backward(w->v, MHA__O, &g, err));
    }
    return MHA_OK;
}

/* The gate multiplies the expert's bias, so both receive a gradient. */
static void expert_bias_backward(const backward *w, int64_t b, int64_t i, const char *dy)
{
    mha_variant *v = w->v;
    const mha__dense *o = &v->dense[MHA__EXPERT_O];
    const int64_t at = b * v->choice.keep + i, E = v->d_in;
    const int32_t expert = w->t->choice[at];
    const int parameter = o->first + expert * o->step + 1;
    char *dbias = mha__gradient(v, parameter);
    const double gate = mha__get(v->dtype, w->t->gate, at);
    for (int64_t e = 0; e < E; e++) {
        double sum = 0;
        for (int64_t r = 0; r < w->t->Lq; r++)
            sum += mha__get(v->dtype, dy, r * E + e);
        mha__put(v->dtype, dbias, e, mha__get(v->dtype, dbias, e) + gate * sum);
        w->dgate[b * v->choices + expert] += sum * mha__get(v->dtype, mha__value(v, parameter), e);
    }
}

static mha_status expert_backward(const backward *w, int64_t b, int64_t i, mha_error *err)
{
    mha_variant *v = w->v;
    const mha_trace *t = w->t;
    const int64_t D = v->head_dim, E = v->d_in, e = t->choice[b * v->choice.keep + i];
    const char *dy = sample(v, w->dmixed, b, t->Lq, E);
    char *dx = sample(v, w->dcontext, b, t->Lq, t->width) + (size_t)(i * D) * v->real;
    if (v->expert_output != MHA_EXPERT_PROJECT) {
        const int64_t column = v->expert_output == MHA_EXPERT_SLOT ? e * D : 0;
        for (int64_t r = 0; r < t->Lq; r++)
            memcpy(dx + (size_t)(r * t->width) * v->real, dy + (size_t)(r * E + column) * v->real, (size_t)D * v->real);
        return MHA_OK;
    }
    memset(w->parts, 0, (size_t)v->choices);
    w->parts[e] = 1;
    expert_bias_backward(w, b, i, dy);
    return mha__dense_backward(v, MHA__EXPERT_O,
                               &(mha__dense_grad){
                                   .rows = t->Lq,
                                   .x = sample(v, t->context, b, t->Lq, t->width) + (size_t)(i * D) * v->real,
                                   .x_stride = t->width,
                                   .dy = dy,
                                   .dy_stride = E,
                                   .dy_first = e * E,
                                   .dx = dx,
                                   .dx_stride = t->width,
                                   .parts = w->parts,
                                   .skip_bias = true,
                               },
                               err);
}

static mha_status output_backward(const backward *w, mha_error *err)
{
    const mha_variant *v = w->v;
    const mha_trace *t = w->t;
    const int64_t rows = t->B * t->Lq;
    if (!v->dense[MHA__O].out) {
        memcpy(w->dcontext, w->doutput, (size_t)(rows * t->width) * v->real);
        return MHA_OK;
    }
    for (int64_t b = 0; v->choice.of == MHA_CHOICE_HEADS && b < t->B; b++)
        MHA__TRY(heads_backward(w, b, err));
    if (v->choice.of == MHA_CHOICE_HEADS) return MHA_OK;
    const mha__dense_grad g = {.rows = rows,
                               .x = t->mixed ? t->mixed : t->context,
                               .dy = w->doutput,
                               .dx = t->mixed ? w->dmixed : w->dcontext};
    MHA__TRY(mha__dense_backward(w->v, MHA__O, &g, err));
    for (int64_t b = 0; t->mixed && b < t->B; b++)
        for (int64_t i = 0; i < v->choice.keep; i++)
            MHA__TRY(expert_backward(w, b, i, err));
    return MHA_OK;
}

/* ---- from heads to inputs ---- */

/* Splits [B, Hkv, P + Ln, D] into the caller's [B, Hkv, P, D] (or NULL) and [B Ln, Hkv D]. */
static void split_past(const mha_variant *v, const mha_trace *t, const char *all, char *past, char *fresh)
{
    const int64_t H = v->kv_heads;
    const size_t row = (size_t)v->head_dim * v->real;
    for (int64_t b = 0; b < t->B; b++)
        for (int64_t h = 0; h < H; h++, all += (size_t)t->Lk * row) {
            if (past) memcpy(past + (size_t)((b * H + h) * t->P) * row, all, (size_t)t->P * row);
            for (int64_t i = 0; i < t->Ln; i++)
                memcpy(fresh + (size_t)((b * t->Ln + i) * H + h) * row, all + (size_t)(t->P + i) * row, row);
        }
}

static mha_status rotate_back(const backward *w, mha_error *err)
{
    const mha_variant *v = w->v;
    const mha_trace *t = w->t;
    const int64_t rows = t->B * t->Lq, D = v->head_dim;
    if (!v->rotary) return MHA_OK;
    MHA__TRY(mha_rope_turn(v->ctx, &v->rope, t->cos, t->sin, rows, v->heads, (float *)w->attend.dq,
                           v->dense[MHA__Q].out, D, 1, err));
    return mha_rope_turn(v->ctx, &v->rope, t->cos, t->sin, rows, v->kv_heads, (float *)w->dk_new, v->dense[MHA__K].out,
                         D, 1, err);
}

/* Adds to dx unless it is NULL. */
static mha_status project_backward(const backward *w, int dense, const void *x, int64_t L, const char *dy, char *dx,
                                   mha_error *err)
{
    const mha_variant *v = w->v;
    const mha__dense *d = &v->dense[dense];
    if (!mha__leaves_heads_out(v))
        return mha__dense_backward(
            w->v, dense, &(mha__dense_grad){.rows = w->t->B * L, .x = x, .dy = dy, .dx = dx, .add_dx = true}, err);
    for (int64_t b = 0; b < w->t->B; b++) {
        mha__chosen_parts(v, w->t, b, w->parts);
        MHA__TRY(mha__dense_backward(w->v, dense,
                                     &(mha__dense_grad){.rows = L,
                                                        .x = sample(v, x, b, L, d->in),
                                                        .dy = sample(v, dy, b, L, d->out),
                                                        .dx = dx ? sample(v, dx, b, L, d->in) : NULL,
                                                        .add_dx = true,
                                                        .parts = w->parts},
                                     err));
    }
    return MHA_OK;
}

/* Sums the operator's gradients of gates into gradients of the selected choices. */
static void collect_gates(const backward *w)
{
    const mha_variant *v = w->v;
    const int64_t row = mha__gate_row(v, w->t);
    for (int64_t b = 0; b < w->t->B; b++) {
        const int32_t *list = w->t->choice + b * v->choice.keep;
        const int64_t gates = w->t->heads ? w->t->heads[b] : v->choice.keep;
        for (int64_t i = 0; i < gates; i++)
            w->dgate[b * v->choices + list[w->t->heads ? 0 : i]] +=
                mha__get(v->dtype, w->attend.dgates, b * row + (w->t->heads ? i : list[i]));
    }
}

/* ---- the whole ---- */

static void clear(const mha_variant *v, void *x, int64_t rows)
{
    if (x) memset(x, 0, (size_t)(rows * v->d_in) * v->real);
}

static mha_status run(backward *w, const mha_variant_input *given, const mha_variant_gradient *g, mha_error *err)
{
    mha_variant *v = w->v;
    const mha_trace *t = w->t;
    void *const dkey = given->key ? g->key : g->query, *const dvalue = given->value ? g->value : dkey;
    clear(v, g->query, t->B * t->Lq);
    if (given->key) clear(v, g->key, t->B * t->Ln);
    if (given->value) clear(v, g->value, t->B * t->Ln);
    MHA__TRY(output_backward(w, err));
    MHA__TRY(mha__attend_backward(v, w->in, t, w->dcontext, &w->attend, err));
    mha__clear_empty_rows(v, t, w->attend.dq);
    if (t->P) split_past(v, t, w->attend.dk, g->past_key, w->dk_new);
    if (t->P) split_past(v, t, w->attend.dv, g->past_value, w->dv_new);
    MHA__TRY(rotate_back(w, err));
    MHA__TRY(project_backward(w, MHA__Q, w->in->query, t->Lq, w->attend.dq, g->query, err));
    MHA__TRY(project_backward(w, MHA__K, w->in->key, t->Ln, w->dk_new, dkey, err));
    MHA__TRY(project_backward(w, MHA__V, w->in->value, t->Ln, w->dv_new, dvalue, err));
    if (!mha__gated(v) || !v->choice.keep) return MHA_OK;
    collect_gates(w);
    return mha__select_backward(v, t, w->dgate, g->query, err);
}

mha_status mha_variant_backward(mha_variant *v, const mha_variant_input *input, const mha_trace *trace,
                                const mha_variant_gradient *gradient, mha_error *err)
{
    mha_variant_input in, given;
    mha_variant_gradient g;
    MHA__TRY(mha__variant_input(v, &in, input, err));
    MHA__TRY(mha__options_read(&given, sizeof given, input, "mha_variant_input", err));
    MHA__TRY(mha__options_read(&g, sizeof g, gradient, "mha_variant_gradient", err));
    if (!trace || trace->layer != v || trace->B != in.batch || trace->Lq != in.q_len || trace->Ln != in.kv_len ||
        trace->P != in.past_len)
        return mha__fail(err, MHA_ERR_ARG, "%s: trace must be that of a forward call with this input", v->name);
    if (!g.output) return mha__fail(err, MHA_ERR_ARG, "%s: the gradient of the output must not be NULL", v->name);
    if (g.key && !given.key)
        return mha__fail(err, MHA_ERR_ARG, "%s: gradient of key must be NULL where the input has no key", v->name);
    if (g.value && !given.value)
        return mha__fail(err, MHA_ERR_ARG, "%s: gradient of value must be NULL where the input has no value", v->name);
    if ((g.past_key || g.past_value) && !v->takes_past)
        return mha__fail(err, MHA_ERR_ARG, "%s: gradient of past_%s must be NULL without past tokens", v->name,
                         g.past_key ? "key" : "value");
    if (!mha__gradient(v, 0)) MHA__TRY(mha_variant_zero_gradients(v, err));
    backward w = {.v = v, .in = &in, .t = trace, .doutput = g.output};
    mha__arena arena = {0};
    lay_out(&arena, &w);
    arena.base = arena.overflow ? NULL : mha__calloc(v->ctx, 1, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.used, "the gradients of a layer");
    arena.used = 0;
    lay_out(&arena, &w);
    const mha_status status = run(&w, &given, &g, err);
    mha__free(v->ctx, arena.base);
    return status;
}
