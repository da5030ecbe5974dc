/* head_selection_backward.c - backpropagates from the gates to the scores, the scorer's weights and the mean of the
 * tokens. */
#include "base/ctx.h"
#include "layer/selection/head_selection.h"
#include "layer/selection/selection_gates.h"
#include <string.h>

void mha__choice_grads_take(mha__arena *arena, const mha_attn_layer *layer, const mha_layer_input *in,
                            mha__choice_grads *grads)
{
    const size_t sequences = (size_t)mha__layer_sequences(in), scores = (size_t)layer->score.out;
    *grads = (mha__choice_grads){0};
    if (!layer->options.choice.of) return;
    grads->dgates = mha__take(arena, sequences, scores * mha__attn_real(layer));
    grads->dscore = mha__take(arena, sequences, scores * sizeof *grads->dscore);
    grads->dhidden = mha__take(arena, sequences, (size_t)layer->hidden.out * sizeof *grads->dhidden);
    grads->dmean = mha__take(arena, sequences, (size_t)layer->options.hidden * sizeof *grads->dmean);
}

typedef struct back_job {
    const mha_attn_layer *layer;
    const mha_layer_input *in;
    const mha__chosen *chosen;
    const mha__choice_grads *grads;
    /* scorer whose weight gradients are computed, and its arrays */
    const mha__scorer *scorer;
    const double *x, *dy;
    void *dweight, *dbias;
} back_job;

/* Computes dx = W^T dy. */
static void predict_back(const mha__scorer *s, const double *dy, double *dx)
{
    memset(dx, 0, (size_t)s->in * sizeof *dx);
    for (int64_t o = 0; o < s->out; o++)
        for (int64_t i = 0; dy[o] != 0 && i < s->in; i++)
            dx[i] += dy[o] * s->weight[o * s->in + i];
}

/* Computes the gradients of the scores of sequence n. */
static void find_dscore(const back_job *job, int64_t n, double *dscore)
{
    const mha__chosen *k = job->chosen;
    const mha_dtype dtype = job->layer->options.dtype;
    const int64_t S = job->layer->score.out, at = n * S;
    for (int64_t s = 0; s < S; s++)
        dscore[s] =
            k->kept[at + s]
                ? mha__rounded(dtype, mha__get(dtype, job->grads->dgates, at + s) * mha__call_gate(job->in, n, s))
                : 0;
    mha__choice_gates_back(&job->layer->options.choice, S, k->list + at, k->soft + at, dscore);
}

static void score_back_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const back_job *job = arg;
    const mha_attn_layer *l = job->layer;
    const int64_t P = l->hidden.out;
    const double *hidden = job->chosen->hidden + n * P;
    double *dscore = job->grads->dscore + n * l->score.out, *dmean = job->grads->dmean + n * l->options.hidden;
    double *dhidden = job->grads->dhidden + n * P;
    find_dscore(job, n, dscore);
    predict_back(&l->score, dscore, P ? dhidden : dmean);
    for (int64_t p = 0; p < P; p++)
        if (!(hidden[p] > 0)) dhidden[p] = 0;
    if (P) predict_back(&l->hidden, dhidden, dmean);
}

static void weight_back_task(void *arg, int64_t o, int worker)
{
    (void)worker;
    const back_job *job = arg;
    const mha_dtype dtype = job->layer->options.dtype;
    const int64_t in = job->scorer->in, out = job->scorer->out;
    for (int64_t n = 0; n < mha__layer_sequences(job->in); n++) {
        const double d = job->dy[n * out + o];
        for (int64_t i = 0; d != 0 && i < in; i++)
            mha__add_to(dtype, job->dweight, o * in + i, d * job->x[n * in + i]);
        mha__add_to(dtype, job->dbias, o, d);
    }
}

static void weights_back(back_job job, const mha__scorer *scorer, const double *x, const double *dy,
                         const mha__grad_slot *slot)
{
    job.scorer = scorer;
    job.x = x;
    job.dy = dy;
    job.dweight = slot->dweight;
    job.dbias = slot->dbias;
    if (slot->dweight) mha__parallel(job.layer->ctx, scorer->out, weight_back_task, &job);
}

void mha__attn_choice_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                           const mha__choice_grads *grads, const mha__attn_slots *slots, mha_view dgates)
{
    const int64_t S = layer->score.out, sequences = mha__layer_sequences(in);
    back_job job = {.layer = layer, .in = in, .chosen = chosen, .grads = grads};
    if (!layer->options.choice.of) return;
    mha__parallel(layer->ctx, sequences, score_back_task, &job);
    weights_back(job, &layer->score, layer->hidden.out ? chosen->hidden : chosen->mean, grads->dscore, &slots->choice);
    weights_back(job, &layer->hidden, chosen->mean, grads->dhidden, &slots->choice_hidden);
    for (int64_t n = 0; dgates.data && n < sequences; n++)
        for (int64_t s = 0; s < S; s++)
            ((float *)dgates.data)[n * dgates.stride[0] + s * dgates.stride[1]] =
                ((const float *)grads->dgates)[n * S + s] * (float)chosen->gate[n * S + s];
}
