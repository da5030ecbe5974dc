/* attn_choice.c - heads that an attention layer chooses for each sequence: gates for the operator, and the way back of
 * these to the scores, their weights, and the tokens whose mean was scored. */
#include "layer/attn_choice.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/linalg.h"
#include "layer/choice.h"
#include <math.h>
#include <string.h>

/* ---- the mean token ---- */

int64_t mha__layer_sequences(const mha_layer_input *in)
{
    return in->starts ? in->sequences : in->batch;
}

int64_t mha__layer_first_row(const mha_layer_input *in, int64_t n)
{
    return in->starts ? in->starts[n] : n * in->length;
}

static int64_t end_row(const mha_layer_input *in, int64_t n)
{
    return in->lengths ? mha__layer_first_row(in, n) + in->lengths[n] : mha__layer_first_row(in, n + 1);
}

static bool counts(const mha_layer_input *in, int64_t row)
{
    return !in->real || in->real[row];
}

static int64_t count_real(const mha_layer_input *in, int64_t n)
{
    int64_t count = 0;
    for (int64_t r = mha__layer_first_row(in, n); r < end_row(in, n); r++)
        count += counts(in, r);
    return count;
}

void mha__attn_mean(const mha_attn_layer *layer, const mha_layer_input *in, const float *x, int64_t n, double *to)
{
    const int64_t E = layer->options.hidden, count = count_real(in, n);
    memset(to, 0, (size_t)E * sizeof *to);
    for (int64_t r = mha__layer_first_row(in, n); r < end_row(in, n); r++)
        for (int64_t e = 0; counts(in, r) && e < E; e++)
            to[e] += (double)x[r * E + e];
    for (int64_t e = 0; count && e < E; e++)
        to[e] /= (double)count;
}

/* ---- creation ---- */

mha_status mha__attn_choice_check(const mha_attn_layer_options *o, mha_error *err)
{
    const mha_layer_choice *c = &o->choice;
    if ((int)c->of < MHA_CHOICE_NONE || c->of > MHA_CHOICE_HEADS)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: choice.of is %d, which is no mha_choice", (int)c->of);
    if (!c->of) return MHA_OK;
    if ((int)c->selection < MHA_SELECTION_HARD || c->selection > MHA_SELECTION_STRAIGHT_THROUGH)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: choice.selection is %d, which is no mha_selection",
                         (int)c->selection);
    if (c->keep < 1 || c->keep > o->heads)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: choice.keep is %lld, not 1..heads %lld",
                         (long long)c->keep, (long long)o->heads);
    if (!c->score.weight || !c->score.bias || c->score.transposed)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: choice.score needs a weight [heads, hidden] and a bias");
    if (!o->causal && !o->by_head) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "attention layer: a choice with %s",
                     o->by_head ? "by_head" : "causal: it would tell a token of later ones");
}

mha_status mha__attn_choice_create(mha_attn_layer *l, const mha_attn_layer_options *o, mha_error *err)
{
    const size_t count = (size_t)o->heads * ((size_t)o->hidden + 1);
    if (!o->choice.of) return MHA_OK;
    l->score = mha__calloc(l->ctx, count, sizeof *l->score);
    if (!l->score) return mha__no_memory(err, count * sizeof *l->score, "the scores of an attention layer's heads");
    mha__attn_choice_keep(l, o);
    return MHA_OK;
}

void mha__attn_choice_keep(mha_attn_layer *l, const mha_attn_layer_options *o)
{
    const int64_t weights = l->score ? o->heads * o->hidden : 0;
    for (int64_t n = 0; n < weights; n++)
        l->score[n] = (double)o->choice.score.weight[n];
    for (int64_t h = 0; l->score && h < o->heads; h++)
        l->score[weights + h] = (double)o->choice.score.bias[h];
}

/* ---- forward ---- */

void mha__chosen_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in, mha__chosen *chosen)
{
    const size_t sequences = (size_t)mha__layer_sequences(in), heads = (size_t)layer->options.heads;
    *chosen = (mha__chosen){0};
    if (!layer->options.choice.of) return;
    chosen->mean = mha__take(arena, sequences, (size_t)layer->options.hidden * sizeof *chosen->mean);
    chosen->score = mha__take(arena, sequences, heads * sizeof *chosen->score);
    chosen->soft = mha__take(arena, sequences, heads * sizeof *chosen->soft);
    chosen->own = mha__take(arena, sequences, heads * sizeof *chosen->own);
    chosen->gates = mha__take(arena, sequences, heads * sizeof *chosen->gates);
    chosen->kept = mha__take(arena, sequences, heads);
}

typedef struct choice_job {
    const mha_attn_layer *layer;
    const mha_layer_input *in;
    const float *x;
    const mha__chosen *chosen;
    const mha__choice_grads *grads;
    float *dweight, *dbias, *dx;
} choice_job;

/* 1 where the call has none. */
static float call_gate(const mha_layer_input *in, int64_t n, int64_t h)
{
    return in->gates.data ? ((const float *)in->gates.data)[n * in->gates.stride[0] + h * in->gates.stride[1]] : 1;
}

static bool is_softmax(const mha_layer_choice *c)
{
    return c->of == MHA_CHOICE_EXPERTS;
}

static void choose_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const choice_job *job = arg;
    const mha_layer_choice *c = &job->layer->options.choice;
    const int64_t E = job->layer->options.hidden, H = job->layer->options.heads, at = n * H;
    const bool soft = is_softmax(c) || c->selection == MHA_SELECTION_SOFT;
    const mha__chosen *k = job->chosen;
    const double *weight = job->layer->score;
    int64_t kept = 0;
    mha__attn_mean(job->layer, job->in, job->x, n, k->mean + n * E);
    for (int64_t h = 0; h < H; h++) {
        const double s = weight[H * E + h] + mha__dot(E, weight + h * E, k->mean + n * E);
        k->score[at + h] = isnan(s) ? -INFINITY : s;
    }
    for (int64_t h = 0; h < H; h++) {
        k->kept[at + h] = mha__score_rank(H, k->score + at, h) < c->keep;
        if (k->kept[at + h]) k->soft[at + kept++] = k->score[at + h];
    }
    mha__soft_gates(is_softmax(c), kept, k->soft + at, k->soft + at);
    for (int64_t h = 0, i = 0; h < H; h++) {
        k->own[at + h] = !k->kept[at + h] ? 0 : soft ? (float)k->soft[at + i] : 1;
        k->gates[at + h] = k->own[at + h] * call_gate(job->in, n, h);
        i += k->kept[at + h];
    }
}

void mha__attn_choose(const mha_attn_layer *layer, const mha_layer_input *in, const float *x, const mha__chosen *chosen,
                      mha_attn_args *args)
{
    choice_job job = {.layer = layer, .in = in, .x = x, .chosen = chosen};
    if (!layer->options.choice.of) return;
    mha__parallel(layer->ctx, mha__layer_sequences(in), choose_task, &job);
    args->gates = (mha_cview){chosen->gates, {layer->options.heads, 1}};
}

/* ---- backward ---- */

void mha__choice_grads_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                            mha__choice_grads *grads)
{
    const size_t sequences = (size_t)mha__layer_sequences(in), heads = (size_t)layer->options.heads;
    *grads = (mha__choice_grads){0};
    if (!layer->options.choice.of) return;
    grads->dgates = mha__take(arena, sequences, heads * sizeof *grads->dgates);
    grads->dscore = mha__take(arena, sequences, heads * sizeof *grads->dscore);
    grads->dmean = mha__take(arena, sequences, (size_t)layer->options.hidden * sizeof *grads->dmean);
}

/* Of the scores of one sequence, and of its mean token. */
static void score_back_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const choice_job *job = arg;
    const mha_layer_choice *c = &job->layer->options.choice;
    const int64_t E = job->layer->options.hidden, H = job->layer->options.heads, at = n * H;
    const mha__chosen *k = job->chosen;
    double *dscore = job->grads->dscore + at, *dmean = job->grads->dmean + n * E;
    const bool learns = is_softmax(c) || c->selection != MHA_SELECTION_HARD;
    int64_t kept = 0;
    for (int64_t h = 0; h < H; h++)
        if (k->kept[at + h]) dscore[kept++] = (double)(job->grads->dgates[at + h] * call_gate(job->in, n, h));
    mha__soft_gates_back(is_softmax(c), kept, k->soft + at, dscore, dscore);
    for (int64_t h = H; h-- > 0;) /* from the list of the kept to all, in place */
        dscore[h] = k->kept[at + h] && learns ? dscore[--kept] : 0;
    memset(dmean, 0, (size_t)E * sizeof *dmean);
    for (int64_t h = 0; h < H; h++)
        for (int64_t e = 0; dscore[h] != 0 && e < E; e++)
            dmean[e] += dscore[h] * job->layer->score[h * E + e];
}

static void weight_back_task(void *arg, int64_t h, int worker)
{
    (void)worker;
    const choice_job *job = arg;
    const int64_t E = job->layer->options.hidden, H = job->layer->options.heads;
    for (int64_t n = 0; n < mha__layer_sequences(job->in); n++) {
        const double d = job->grads->dscore[n * H + h];
        for (int64_t e = 0; d != 0 && e < E; e++)
            job->dweight[h * E + e] += (float)(d * job->chosen->mean[n * E + e]);
        job->dbias[h] += (float)d;
    }
}

void mha__attn_choice_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                           const mha__choice_grads *grads, float *dweight, float *dbias, mha_view dgates)
{
    const int64_t H = layer->options.heads, sequences = mha__layer_sequences(in);
    choice_job job = {.layer = layer, .in = in, .chosen = chosen, .grads = grads, .dweight = dweight, .dbias = dbias};
    if (!layer->options.choice.of) return;
    mha__parallel(layer->ctx, sequences, score_back_task, &job);
    if (dweight) mha__parallel(layer->ctx, H, weight_back_task, &job);
    for (int64_t n = 0; dgates.data && n < sequences; n++)
        for (int64_t h = 0; h < H; h++)
            ((float *)dgates.data)[n * dgates.stride[0] + h * dgates.stride[1]] =
                grads->dgates[n * H + h] * chosen->own[n * H + h];
}

static void spread_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const choice_job *job = arg;
    const int64_t E = job->layer->options.hidden, count = count_real(job->in, n);
    const double *dmean = job->grads->dmean + n * E;
    for (int64_t r = mha__layer_first_row(job->in, n); r < end_row(job->in, n); r++)
        for (int64_t e = 0; counts(job->in, r) && e < E; e++)
            job->dx[r * E + e] += (float)(dmean[e] / (double)count);
}

void mha__attn_choice_spread(const mha_attn_layer *layer, const mha_layer_input *in, const mha__choice_grads *grads,
                             float *dx)
{
    choice_job job = {.layer = layer, .in = in, .grads = grads, .dx = dx};
    if (layer->options.choice.of && dx) mha__parallel(layer->ctx, mha__layer_sequences(in), spread_task, &job);
}
