/* host_memory.c - computes how a layout divides a job, and the memory that one host requires.
 *
 * The counts describe the memory that the following code allocates: cluster_model.h (a pass over part of a text),
 * generate.h (pieces of a text that is not divided), cluster.h (ring buffers and partial results), train.h (weights,
 * gradients and moments) and model_grads.h (activations of a training step). */
#include "base/size.h"
#include "heads/plan/host_cost.h"
#include "math/types/element.h"
#include "mha/attn.h"
#include <math.h>

enum {
    BLOCK_TOKENS = 512,  /* tokens per block of the feed-forward */
    BATCH_TOKENS = 2048, /* tokens per batch of short texts when heads are measured */
    SCORE_PIECE = 64,    /* tokens per pass, and rows of logits, when a text is scored through a cache */
    PREFILL_PIECE = 512  /* tokens per pass over a prompt */
};
static const double F32 = sizeof(float);

int mha__host_steps(int64_t ranks)
{
    int steps = 0;
    while ((INT64_C(1) << steps) < ranks)
        steps++;
    return steps;
}

/* ---- division of a job ---- */

/* Counts the tokens of one rank (two chunks, as in cluster.h) and their (query, key) pairs, and updates the maximum
 * over the ranks. */
static void count_rank(mha__host_job *job, int64_t chunk, int64_t rank)
{
    const int64_t N = job->o->seq;
    double tokens = 0, pairs = 0;
    for (int half = 0; half < 2; half++) {
        const int64_t start = mha__min64(N, chunk * (half == 0 ? rank : 2 * job->cp - 1 - rank));
        const double length = (double)mha__min64(chunk, N - start), before = (double)start;
        tokens += length;
        pairs += job->model->bidirectional ? length * (double)N : length * (before + (length + 1) / 2);
    }
    job->tokens = fmax(job->tokens, tokens);
    job->pairs = fmax(job->pairs, pairs);
}

/* Divides a text into chunks, which are multiples of MHA_ATTN_CHUNK tokens. All ranks with two full chunks have the
 * same work, so only one of them, the ranks at the end of the text and the last rank are counted. */
static void divide_text(mha__host_job *job)
{
    const int64_t N = job->o->seq, cp = job->cp;
    job->divided = cp > 1 && N > MHA_ATTN_CHUNK;
    if (!job->divided) {
        job->tokens = (double)N;
        job->pairs = job->tokens * (job->model->bidirectional ? job->tokens : (job->tokens + 1) / 2);
        return;
    }
    const int64_t chunk = mha__ceil_div(N, 2 * cp * MHA_ATTN_CHUNK) * MHA_ATTN_CHUNK, full = N / chunk;
    const int64_t ranks[] = {cp - 1, 2 * cp - full, 2 * cp - 1 - full, full - 1, full};
    for (size_t n = 0; n < sizeof ranks / sizeof *ranks; n++)
        count_rank(job, chunk, mha__max64(0, mha__min64(cp - 1, ranks[n])));
}

mha__host_job mha__host_divide(const mha_host_model *model, const mha_host_options *options, int64_t tp, int64_t cp,
                               int64_t dp)
{
    mha__host_job job = {.model = model, .o = options, .tp = tp, .cp = cp, .dp = dp};
    const int64_t groups = mha__ceil_div(MHA__TP_GROUPS, tp);
    job.share = tp <= MHA__TP_GROUPS ? (double)groups / MHA__TP_GROUPS : 1 / (double)tp;
    job.heads = (double)model->heads * job.share;
    job.kv_heads = fmax(1, (double)model->kv_heads * job.share);
    divide_text(&job);
    job.piece = job.tokens;
    if (options->job == MHA_HOSTS_HEADS)
        job.piece = fmax(job.tokens, fmin(BATCH_TOKENS, job.tokens * (double)options->batch));
    if (job.divided || model->bidirectional) return job;
    if (options->job == MHA_HOSTS_SCORE) job.piece = fmin(SCORE_PIECE, job.tokens);
    if (options->job == MHA_HOSTS_GENERATE) job.piece = fmin(PREFILL_PIECE, job.tokens);
    return job;
}

/* ---- element counts and sizes ---- */

static double element_bytes(mha_dtype type)
{
    return type == MHA_Q8_0 ? 34.0 / 32 : (double)mha_dtype_size(type);
}

/* Returns the size of a packed weight: in q8_0, 128 weights share a scale and, on some ISAs, a sum of 16 bits. */
static double weight_bytes(mha_dtype type)
{
    return type == MHA_Q8_0 ? 33.0 / 32 : (double)mha_dtype_size(type);
}

double mha__host_key_bytes(const mha_host_options *options)
{
    return element_bytes(mha__attention_dtype(options->dtype));
}

double mha__host_parameters(const mha_host_model *model)
{
    const double tables = (double)model->word_weights + (double)model->other_weights;
    return (double)model->layer_weights + tables + (model->tied ? 0 : (double)model->output_weights);
}

double mha__host_packed_bytes(const mha__host_job *job)
{
    const mha_host_model *m = job->model;
    return weight_bytes(job->o->dtype) * ((double)m->layer_weights + (double)m->output_weights) * job->share;
}

/* Return the width per token, on one rank, of q and the heads' output, and of k and v. */
static double query_width(const mha__host_job *job)
{
    return job->heads * (double)job->model->head_dim;
}

static double key_width(const mha__host_job *job)
{
    return job->kv_heads * (double)job->model->head_dim;
}

/* ---- parts of the memory ---- */

/* Returns the memory for the activations of a pass over a piece, its feed-forward in blocks, and its logits. */
static double pass_bytes(const mha__host_job *job)
{
    const double tokens = job->piece;
    const mha_host_model *m = job->model;
    const double wide = (double)m->feed_forward * job->share * (m->gated ? 2 : 1);
    const double row = 2 * (double)m->hidden + 2 * query_width(job) + 2 * key_width(job);
    const double logits = job->o->job == MHA_HOSTS_HEADS ? 0 : (double)m->output_weights / (double)m->hidden;
    return F32 * (tokens * row + fmin(tokens, BLOCK_TOKENS) * (wide + (double)m->hidden) +
                  fmin(tokens, SCORE_PIECE) * logits);
}

/* Returns the memory for the ring exchange: keys and values of two ranks, and partial results of the rank's rows. The
 * maximum number of unmerged partial results in the mode `tree` was found by simulation. */
static double ring_bytes(const mha__host_job *job)
{
    if (!job->divided) return 0;
    const double parts = fmax(2, 3 * mha__host_steps(job->cp) - 2);
    const double part = job->heads * ((double)job->model->head_dim + 2) * F32;
    return job->tokens * (2 * 2 * key_width(job) * mha__host_key_bytes(job->o) + parts * part);
}

/* Returns the memory for the sums of the column groups of all ranks, and for messages. */
static double allreduce_bytes(const mha__host_job *job)
{
    return job->tp == 1 ? 0 : F32 * MHA__TP_ROWS * (double)job->model->hidden * (6 + MHA__TP_GROUPS);
}

static void train_memory(const mha__host_job *job, mha_host_layout *row)
{
    const mha_host_model *m = job->model;
    const double dense = (double)m->layer_weights + (double)m->output_weights;
    const double all = mha__host_parameters(m);
    const double E = (double)m->hidden, tokens = (double)job->o->seq * (double)job->o->batch;
    const double trace =
        2 * E + (double)m->feed_forward * (m->gated ? 2 : 1) + 2 * query_width(job) + 2 * key_width(job);
    const double scratch = 6 * E + 4 * (query_width(job) + key_width(job));
    row->weights = F32 * (2 * all + dense);
    row->activations = F32 * tokens * ((double)m->layers * trace + scratch);
    const double moments = 2 * (double)mha_dtype_size(job->o->moments) / (double)job->dp;
    row->optimizer = all * (moments + F32 * mha__host_steps(job->o->workers / job->dp));
}

static void pass_memory(const mha__host_job *job, mha_host_layout *row)
{
    const mha_host_options *o = job->o;
    row->weights = mha__host_packed_bytes(job) +
                   F32 * ((double)job->model->word_weights * job->share + (double)job->model->other_weights);
    row->activations = pass_bytes(job);
    row->exchange = ring_bytes(job) + allreduce_bytes(job);
    const int64_t latent = job->model->cached_width;
    const double keys = (double)job->model->layers * job->tokens * (latent ? (double)latent : 2 * key_width(job));
    if (o->job == MHA_HOSTS_GENERATE) row->cache = (double)o->batch * keys * element_bytes(o->kv_dtype);
    if (o->job == MHA_HOSTS_SCORE && job->piece < job->tokens) row->cache = keys * mha__host_key_bytes(o);
}

void mha__host_memory(const mha__host_job *job, mha_host_layout *row)
{
    row->weights = row->cache = row->activations = row->exchange = row->optimizer = 0;
    if (job->o->job == MHA_HOSTS_TRAIN)
        train_memory(job, row);
    else
        pass_memory(job, row);
    row->bytes = row->weights + row->cache + row->activations + row->exchange + row->optimizer;
}
