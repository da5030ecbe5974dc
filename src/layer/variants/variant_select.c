/* variant_select.c - the selector: from the mean of a sample's query tokens, which experts or heads are computed, or
 * into how many heads the sample is split; and its backward pass. */
#include "base/ctx.h"
#include "base/size.h"
#include "layer/variants/variant.h"
#include <string.h>

/* ---- its opinion ---- */

static void mean_tokens(const mha_variant *v, const mha_variant_input *in, const mha_trace *t)
{
    for (int64_t b = 0; b < t->B; b++)
        for (int64_t e = 0; e < v->d_in; e++) {
            double sum = 0;
            for (int64_t i = 0; i < t->Lq; i++)
                sum += mha__get(v->dtype, in->query, (b * t->Lq + i) * v->d_in + e);
            mha__put(v->dtype, t->mean, b * v->d_in + e, sum / (double)t->Lq);
        }
}

static void run_dense(const mha_variant *v, mha_trace *t, int dense, const void *x, void *y)
{
    const mha__dense *d = &v->dense[dense];
    mha__linear_run(d->linear, &(mha__linear_call){.x = x, .rows = t->B, .y = y});
    t->flops += 2 * t->B * d->in * d->out;
}

static void relu(const mha_variant *v, char *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (mha__get(v->dtype, x, i) < 0) mha__put(v->dtype, x, i, 0);
}

bool mha__gated(const mha_variant *v)
{
    return v->choice.of && mha__choice_learns(&v->choice);
}

int64_t mha__gate_row(const mha_variant *v, const mha_trace *t)
{
    return v->choice.of == MHA_CHOICE_OPTIONS ? t->n : v->heads;
}

static void choose(const mha_variant *v, mha_trace *t, int64_t b)
{
    const int64_t row = mha__gate_row(v, t);
    double *gate = t->choice_gate;
    int32_t *list = t->choice + b * v->choice.keep;
    for (int64_t c = 0; c < v->choices; c++)
        gate[c] = mha__get(v->dtype, t->logits, b * v->choices + c);
    mha__score_best(v->choices, gate, v->choice.keep, list);
    mha__choice_gates(&v->choice, v->choices, gate, list, t->soft + b * v->choices, gate);
    for (int64_t i = 0; i < v->choice.keep; i++)
        mha__put(v->dtype, t->gate, b * v->choice.keep + i, gate[list[i]]);
    for (int64_t h = 0; h < row; h++)
        mha__put(v->dtype, t->gates, b * row + h, gate[t->heads ? *list : h]);
    if (t->heads) t->heads[b] = v->choice.options[*list];
}

void mha__select(const mha_variant *v, const mha_variant_input *in, mha_trace *t)
{
    if (!v->choice.of) return;
    mean_tokens(v, in, t);
    const char *x = t->mean;
    if (v->dense[MHA__CHOICE_HIDDEN].out) {
        run_dense(v, t, MHA__CHOICE_HIDDEN, x, t->hidden);
        relu(v, t->hidden, t->B * v->dense[MHA__CHOICE_HIDDEN].out);
        x = t->hidden;
    }
    run_dense(v, t, MHA__CHOICE, x, t->logits);
    for (int64_t b = 0; b < t->B; b++)
        choose(v, t, b);
}

/* ---- what it means for the operator ---- */

int64_t mha__runs(const mha_variant *v, const mha_trace *t)
{
    return !v->choice.of ? 1 : v->choice.keep ? t->B : 0;
}

mha__run mha__run_of(const mha_variant *v, const mha_trace *t, int64_t r)
{
    if (!v->choice.of) return (mha__run){.count = t->B, .heads = v->heads, .head_dim = v->head_dim, .listed = v->heads};
    const int32_t *choice = t->choice + r * v->choice.keep;
    if (v->choice.of == MHA_CHOICE_OPTIONS) {
        const int64_t heads = v->choice.options[*choice];
        return (mha__run){.first = r, .count = 1, .heads = heads, .head_dim = v->d_in / heads, .listed = heads};
    }
    return (mha__run){
        .first = r, .count = 1, .heads = v->heads, .head_dim = v->head_dim, .list = choice, .listed = v->choice.keep};
}

bool mha__leaves_heads_out(const mha_variant *v)
{
    return v->choice.of == MHA_CHOICE_EXPERTS || v->choice.of == MHA_CHOICE_HEADS;
}

void mha__chosen_parts(const mha_variant *v, const mha_trace *t, int64_t b, uint8_t *parts)
{
    memset(parts, 0, (size_t)v->choices);
    for (int64_t i = 0; i < v->choice.keep; i++)
        parts[t->choice[b * v->choice.keep + i]] = 1;
}

/* ---- backward ---- */

typedef struct gradients {
    char *logits, *hidden, *mean;
} gradients;

static gradients lay_out(mha__arena *arena, const mha_variant *v, const mha_trace *t)
{
    const size_t row = (size_t)t->B * v->real;
    return (gradients){.logits = mha__take(arena, (size_t)v->choices, row),
                       .hidden = mha__take(arena, (size_t)v->dense[MHA__CHOICE_HIDDEN].out, row),
                       .mean = mha__take(arena, (size_t)v->d_in, row)};
}

static mha_status predictor_backward(mha_variant *v, const mha_trace *t, const gradients *g, mha_error *err)
{
    const int64_t width = v->dense[MHA__CHOICE_HIDDEN].out;
    mha__dense_grad choice = {.rows = t->B, .x = t->mean, .dy = g->logits, .dx = g->mean};
    if (!width) return mha__dense_backward(v, MHA__CHOICE, &choice, err);
    choice.x = t->hidden;
    choice.dx = g->hidden;
    MHA__TRY(mha__dense_backward(v, MHA__CHOICE, &choice, err));
    for (int64_t i = 0; i < t->B * width; i++)
        if (!(mha__get(v->dtype, t->hidden, i) > 0)) mha__put(v->dtype, g->hidden, i, 0);
    return mha__dense_backward(v, MHA__CHOICE_HIDDEN,
                               &(mha__dense_grad){.rows = t->B, .x = t->mean, .dy = g->hidden, .dx = g->mean}, err);
}

mha_status mha__select_backward(mha_variant *v, const mha_trace *t, double *dgate, char *dquery, mha_error *err)
{
    mha__arena arena = {0};
    lay_out(&arena, v, t);
    arena.base = mha__calloc(v->ctx, 1, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.used, "the gradients of a selector");
    arena.used = 0;
    const gradients g = lay_out(&arena, v, t);
    for (int64_t b = 0; b < t->B; b++)
        mha__choice_gates_back(&v->choice, v->choices, t->choice + b * v->choice.keep, t->soft + b * v->choices,
                               dgate + b * v->choices);
    for (int64_t n = 0; n < t->B * v->choices; n++)
        mha__put(v->dtype, g.logits, n, dgate[n]);
    const mha_status status = predictor_backward(v, t, &g, err);
    for (int64_t n = 0; status == MHA_OK && dquery && n < t->B * t->Lq * v->d_in; n++) {
        const int64_t b = n / (t->Lq * v->d_in), e = n % v->d_in;
        const double share = mha__get(v->dtype, g.mean, b * v->d_in + e) / (double)t->Lq;
        mha__put(v->dtype, dquery, n, mha__get(v->dtype, dquery, n) + share);
    }
    mha__free(v->ctx, arena.base);
    return status;
}
