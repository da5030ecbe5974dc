/* head_selection.c - selects the heads of an attention layer for each sequence by scores, which are computed from the
 * mean of the sequence's tokens. */
#include "layer/selection/head_selection.h"

#include "base/ctx.h"
#include "layer/selection/computed_heads.h"
#include "layer/selection/selection_gates.h"
#include "math/linalg.h"
#include <string.h>

void mha__chosen_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in, mha__chosen *chosen)
{
    const size_t sequences = (size_t)mha__layer_sequences(in), scores = (size_t)layer->score.out;
    *chosen = (mha__chosen){0};
    if (!layer->options.choice.of) return;
    chosen->mean = mha__take(arena, sequences, (size_t)layer->options.hidden * sizeof *chosen->mean);
    chosen->hidden = mha__take(arena, sequences, (size_t)layer->hidden.out * sizeof *chosen->hidden);
    chosen->score = mha__take(arena, sequences, scores * sizeof *chosen->score);
    chosen->soft = mha__take(arena, sequences, scores * sizeof *chosen->soft);
    chosen->gate = mha__take(arena, sequences, scores * sizeof *chosen->gate);
    chosen->gates = mha__take(arena, sequences, scores * mha__attn_real(layer));
    chosen->kept = mha__take(arena, sequences, scores);
    chosen->list = mha__take(arena, sequences, scores * sizeof *chosen->list);
    if (!layer->as_published) return;
    const size_t widths = (size_t)(layer->options.hidden + layer->hidden.out) + scores;
    chosen->rounded = mha__take(arena, sequences, widths * mha__attn_real(layer));
}

typedef struct choice_job {
    const mha_attn_layer *layer;
    const mha_layer_input *in;
    const void *x;
    const mha__chosen *chosen;
} choice_job;

double mha__call_gate(const mha_layer_input *in, int64_t n, int64_t h)
{
    return in->gates.data ? (double)((const float *)in->gates.data)[n * in->gates.stride[0] + h * in->gates.stride[1]]
                          : 1;
}

/* Computes y = W x + b. `rounded` is scratch for x and y in the dtype; unused without s->linear. */
static void predict(mha_dtype dtype, const mha__scorer *s, const double *x, double *y, char *rounded)
{
    char *found = s->linear ? rounded + (size_t)s->in * mha_dtype_size(dtype) : NULL;
    for (int64_t i = 0; found && i < s->in; i++)
        mha__put(dtype, rounded, i, x[i]);
    if (found) mha__linear_run(s->linear, &(mha__linear_call){.x = rounded, .rows = 1, .y = found});
    for (int64_t o = 0; o < s->out; o++)
        y[o] = found ? mha__get(dtype, found, o) : s->bias[o] + mha__dot(s->in, s->weight + o * s->in, x);
}

static void find_scores(const choice_job *job, int64_t n)
{
    const mha_attn_layer *l = job->layer;
    const mha_dtype dtype = l->options.dtype;
    const int64_t E = l->options.hidden, P = l->hidden.out, S = l->score.out;
    double *mean = job->chosen->mean + n * E, *hidden = job->chosen->hidden + n * P;
    char *rounded = job->chosen->rounded;
    if (rounded) rounded += (size_t)(n * (E + P + S)) * mha__attn_real(l);
    mha__attn_mean(l, job->in, job->x, n, mean);
    predict(dtype, &l->hidden, mean, hidden, rounded);
    for (int64_t p = 0; p < P; p++)
        hidden[p] = hidden[p] < 0 ? 0 : hidden[p]; /* ReLU, written so that NaN is preserved */
    predict(dtype, &l->score, P ? hidden : mean, job->chosen->score + n * S, rounded);
}

static void choose_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const choice_job *job = arg;
    const mha_attn_layer *l = job->layer;
    const mha_layer_choice *c = &l->options.choice;
    const mha__chosen *k = job->chosen;
    const int64_t S = l->score.out, at = n * S;
    find_scores(job, n);
    mha__score_best(S, k->score + at, c->keep, k->list + at);
    memset(k->kept + at, 0, (size_t)S);
    for (int64_t i = 0; i < c->keep; i++)
        k->kept[at + k->list[at + i]] = 1;
    if (job->in->kept) memcpy(job->in->kept + at, k->kept + at, (size_t)S);
    for (int64_t s = 0, i = 0; !l->as_published && s < S; s++)
        if (k->kept[at + s]) k->list[at + i++] = (int32_t)s;
    mha__choice_gates(c, S, k->score + at, k->list + at, k->soft + at, k->gate + at);
    for (int64_t s = 0; s < S; s++)
        mha__put(l->options.dtype, k->gates, at + s,
                 mha__rounded(l->options.dtype, k->gate[at + s]) * mha__call_gate(job->in, n, s));
}

void mha__chosen_bind(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                      mha_attn_args *args)
{
    const int64_t S = layer->score.out;
    if (!layer->options.choice.of) return;
    args->gates = (mha_cview){chosen->gates, {S, 1}};
    if (mha__heads_skipped(layer, in) && !mha__experts_summed(layer))
        args->block_keep = (mha_cview){chosen->kept, {S, 1, 0, 0}};
}

void mha__attn_choose(const mha_attn_layer *layer, const mha_layer_input *in, const void *x, const mha__chosen *chosen)
{
    choice_job job = {.layer = layer, .in = in, .x = x, .chosen = chosen};
    if (!layer->options.choice.of) return;
    mha__parallel(layer->ctx, mha__layer_sequences(in), choose_task, &job);
}
