/* host_time.c - predicts the time of a layout with the alpha-beta model (host_layouts.h).
 *
 * A forward pass has two operations per matrix element and token, and four operations of attention per (query, key)
 * pair, query head and element of a head. A backward pass has twice as many operations in matrix products, and five
 * attention products instead of two. */
#include "heads/plan/host_cost.h"
#include <math.h>

enum {
    STEP_TOKENS = 2048,  /* tokens per step when heads are measured */
    STATISTICS = 64,     /* sums per head */
    STATISTIC_BYTES = 32 /* size of a sum in units of 2^-80 */
};
/* Operations of attention when heads are measured, relative to a forward pass: the statistics of a layer recompute its
 * scores. */
static const double STATISTICS_ATTENTION = 2;

/* ---- messages ---- */

static double message(const mha_host_network *n, double bytes)
{
    return n->latency + bytes / n->bandwidth;
}

/* Returns the time of a reduce-scatter by recursive halving, followed by an all-gather. */
static double reduce_gather(const mha_host_network *n, int64_t ranks, double bytes)
{
    const double P = (double)ranks;
    return ranks == 1 ? 0 : 2 * mha__host_steps(ranks) * n->latency + 2 * bytes * (P - 1) / (P * n->bandwidth);
}

static double doubling(const mha_host_network *n, int64_t ranks, double bytes)
{
    return ranks == 1 ? 0 : mha__host_steps(ranks) * message(n, bytes);
}

static double allreduce(const mha_host_network *n, int64_t ranks, double bytes)
{
    return fmin(doubling(n, ranks, bytes), reduce_gather(n, ranks, bytes));
}

/* Returns the time of the messages of tensor parallelism: in every layer, the outputs of attention and feed-forward are
 * summed, and at the end, the logits are gathered. */
static double tp_exchange(const mha__host_job *job, double tokens)
{
    if (job->tp == 1) return 0;
    const mha_host_model *m = job->model;
    const mha_host_network *n = &job->o->network;
    const double rows = fmin(fmin(tokens, job->piece), MHA__TP_ROWS), bytes = rows * (double)m->hidden * sizeof(float);
    const double logits = tokens * (double)m->output_weights / (double)m->hidden * sizeof(float);
    const double sums = 2 * (double)m->layers * ceil(tokens / rows) * allreduce(n, job->tp, bytes);
    return m->output_weights == 0 ? sums : sums + message(n, logits * (double)(job->tp - 1) / (double)job->tp);
}

/* ---- computation ---- */

/* Returns the operations that multiply `tokens` tokens by the matrices of a rank. */
static double product_flops(const mha__host_job *job, double tokens, bool logits)
{
    const mha_host_model *m = job->model;
    return 2 * tokens * job->share * ((double)m->layer_weights + (logits ? (double)m->output_weights : 0));
}

static double products(const mha__host_job *job, double tokens)
{
    const mha_host_speed *s = &job->o->speed;
    return fmax(product_flops(job, tokens, true) / s->flops, mha__host_packed_bytes(job) / s->bandwidth);
}

static double attention_flops(const mha__host_job *job, double pairs)
{
    return 4 * pairs * (double)job->model->layers * job->heads * (double)job->model->head_dim;
}

/* ---- time of each job ---- */

/* Computes the time of the ring exchange. In each layer, keys and values are passed around the ring while attention is
 * computed. */
static void ring_time(const mha__host_job *job, double attention, mha_host_layout *row)
{
    if (!job->divided) return;
    const double bytes = 2 * job->tokens * job->kv_heads * (double)job->model->head_dim * mha__host_key_bytes(job->o);
    const double steps = (double)job->model->layers * (double)(job->cp - 1);
    const double step = attention / ((double)job->model->layers * (double)job->cp);
    const double exchange = message(&job->o->network, bytes);
    row->hidden = steps * fmin(exchange, step);
    row->exposed += steps * fmax(0, exchange - step);
}

static void score_time(const mha__host_job *job, mha_host_layout *row)
{
    const double texts = (double)job->o->batch;
    const double attention = attention_flops(job, job->pairs) / job->o->speed.flops;
    const double pieces = ceil(job->tokens / job->piece); /* each piece reads all weights */
    row->compute = texts * (pieces * products(job, job->tokens / pieces) + attention);
    row->exposed = tp_exchange(job, job->tokens);
    ring_time(job, attention, row);
    row->hidden *= texts;
    row->exposed *= texts;
    row->tokens_per_second = texts * (double)job->o->seq / (row->compute + row->exposed);
}

/* Computes the time to generate the next token of each text. On cp ranks, texts are decoded one after another; each
 * rank reads the keys that it has cached, and partial results are merged by recursive doubling. */
static void generate_time(const mha__host_job *job, mha_host_layout *row)
{
    const mha_host_model *m = job->model;
    const mha_host_options *o = job->o;
    const double texts = (double)o->batch, together = job->cp == 1 ? texts : 1;
    const double part = together * job->heads * ((double)m->head_dim + 2) * sizeof(float);
    row->compute = texts / together * products(job, together) + row->cache / o->speed.bandwidth;
    row->exposed = tp_exchange(job, together) + (double)m->layers * doubling(&o->network, job->cp, part);
    row->exposed *= texts / together;
    row->tokens_per_second = texts / (row->compute + row->exposed);
}

/* Computes the time to measure heads. The ranks take steps from a counter on rank 0, and add their sums at the end. */
static void heads_time(const mha__host_job *job, mha_host_layout *row)
{
    const mha_host_model *m = job->model;
    const mha_host_options *o = job->o;
    const double texts = (double)o->batch, tokens = (double)o->seq;
    const double together = fmin(texts, fmax(1, floor(STEP_TOKENS / tokens)));
    const double steps = ceil(ceil(texts / together) / (double)job->dp);
    const double flops = product_flops(job, together * tokens, false) +
                         STATISTICS_ATTENTION * attention_flops(job, together * job->pairs);
    const double sums = (double)m->layers * (double)m->heads * STATISTICS * STATISTIC_BYTES;
    row->compute = steps * flops / o->speed.flops;
    row->exposed = job->dp == 1 ? 0 : steps * 2 * o->network.latency + allreduce(&o->network, job->dp, sums);
    row->tokens_per_second = texts * tokens / (row->compute + row->exposed);
}

/* Computes the time of a training step. A rank runs workers / dp batches, adds the gradients of all ranks, updates its
 * part of the weights, gathers the other parts, and packs all weights. */
static void train_time(const mha__host_job *job, mha_host_layout *row)
{
    enum { UPDATE_BYTES = 32, PACK_BYTES = 12 }; /* bytes read and written per parameter */
    const mha_host_options *o = job->o;
    const double texts = (double)o->batch, batches = ceil((double)o->workers / (double)job->dp);
    const double all = mha__host_parameters(job->model);
    const double flops =
        3 * product_flops(job, texts * (double)o->seq, true) + 3.5 * attention_flops(job, texts * job->pairs);
    row->compute = batches * flops / o->speed.flops;
    row->compute += all * (UPDATE_BYTES / (double)job->dp + PACK_BYTES) / o->speed.bandwidth;
    row->exposed = reduce_gather(&o->network, job->dp, all * sizeof(float));
    row->tokens_per_second = (double)o->workers * texts * (double)o->seq / (row->compute + row->exposed);
}

void mha__host_time(const mha__host_job *job, mha_host_layout *row)
{
    static void (*const predict[])(const mha__host_job *, mha_host_layout *) = {[MHA_HOSTS_HEADS] = heads_time,
                                                                                [MHA_HOSTS_SCORE] = score_time,
                                                                                [MHA_HOSTS_GENERATE] = generate_time,
                                                                                [MHA_HOSTS_TRAIN] = train_time};
    row->compute = row->hidden = row->exposed = 0;
    predict[job->o->job](job, row);
    row->seconds = row->compute + row->exposed;
}
