/* knockout.c - attention knockout: removes edges from queries to keys, before or after the softmax. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/prompt_pair.h"
#include <string.h>

/* The edges that one copy of the run removes: `count` edges from `edge` on. */
typedef struct knockout_job {
    int64_t first, count, to; /* first edge, and the index of the result */
} knockout_job;

/* The copies of one batch. */
typedef struct batch {
    const mha_prompt_pair *pair;
    mha_knockout_mode mode;
    const mha_attention_edge *edges;
    const knockout_job *jobs;
    int64_t count;
    uint8_t *keep; /* [copies, H, T, T] for the layer that runs: 0 = removed */
    bool removes;  /* the layer that runs loses edges */
    const float *qkv, *maps;
} batch;

/* Sets keep for a layer; returns false if no copy loses an edge in it. */
static bool set_keep(const batch *b, int64_t layer)
{
    const int64_t T = b->pair->length, H = b->pair->info->heads_per_layer[layer];
    bool any = false;
    memset(b->keep, 1, (size_t)(b->count * H * T * T));
    for (int64_t n = 0; n < b->count; n++) {
        const knockout_job *job = &b->jobs[n];
        any |= mha__remove_edges(b->edges + job->first, job->count, layer, H, T, b->keep + n * H * T * T);
    }
    return any;
}

static void begin(void *user, int64_t layer, mha_layer_input *in)
{
    static const uint8_t all = 1;
    batch *b = user;
    const int64_t T = b->pair->length, H = b->pair->info->heads_per_layer[layer];
    b->maps = in->probs;
    b->removes = set_keep(b, layer);
    if (b->mode != MHA_KNOCKOUT_RENORM) return;
    in->keep = b->removes ? (mha_cview){b->keep, {H * T * T, T * T, T, 1}} : (mha_cview){&all, {0}};
}

/* Returns true if a removed key of a row has a weight: keys that the mask excludes have none. */
static bool loses_weight(const batch *b, int64_t row)
{
    for (int64_t j = 0; j < b->pair->length; j++)
        if (!b->keep[row + j] && b->maps[row + j] != 0) return true;
    return false;
}

/* Computes the context of row i of a head again, without the removed keys; unchanged if they have no weight. */
static void zero_row(const batch *b, int64_t layer, int64_t n, int64_t h, int64_t i, float *z)
{
    const mha_attn_layer *attn = mha__pair_attn(b->pair, layer);
    const int64_t T = b->pair->length, D = attn->options.head_dim, width = mha__qkv_width(&attn->options);
    const int64_t row = ((n * attn->options.heads + h) * T + i) * T;
    const float *v = b->qkv + n * T * width + mha__value_offset(attn, h);
    if (!loses_weight(b, row)) return;
    for (int64_t d = 0; d < D; d++) {
        double sum = 0;
        for (int64_t j = 0; j < T; j++)
            if (b->keep[row + j]) sum += (double)b->maps[row + j] * (double)v[j * width + d];
        z[d] = (float)sum;
    }
}

static void change(void *user, int64_t layer, mha__edit_site site, int64_t first, int64_t rows, float *x)
{
    batch *b = user;
    (void)first, (void)rows;
    if (site == MHA__EDIT_QKV) b->qkv = x;
    if (site != MHA__EDIT_CONTEXT || b->mode != MHA_KNOCKOUT_ZERO || !b->removes) return;
    const mha_attn_layer *attn = mha__pair_attn(b->pair, layer);
    const int64_t T = b->pair->length, H = attn->options.heads, D = attn->options.head_dim;
    for (int64_t n = 0; n < b->count; n++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = 0; i < T; i++)
                zero_row(b, layer, n, h, i, x + ((n * T + i) * H + h) * D);
}

/* ---- batches ---- */

/* Returns the first layer in which a job removes edges. */
static int64_t layer_of(const mha_prompt_pair *pair, const mha_attention_edge *edges, const knockout_job *job)
{
    int64_t first = pair->info->layers - 1;
    for (int64_t k = 0; k < job->count; k++)
        first = mha__min64(first, mha__max64(edges[job->first + k].layer, 0));
    return first;
}

static mha_status run_batch(batch *b, const mha__run_record *base, int64_t layer, double *metrics, int64_t stride,
                            mha_error *err)
{
    const mha_prompt_pair *p = b->pair;
    const size_t keep = (size_t)(b->count * p->info->heads * p->length * p->length);
    const size_t bytes = (size_t)b->count * MHA_CIRCUIT_METRICS * sizeof(double) + keep;
    double *own = mha__alloc(p->ctx, bytes);
    if (!own) return mha__no_memory(err, bytes, "masks of a knockout");
    b->keep = (uint8_t *)(own + b->count * MHA_CIRCUIT_METRICS);
    const mha__replay replay = {.pair = p,
                                .base = base,
                                .layer = layer,
                                .count = b->count,
                                .maps = b->mode == MHA_KNOCKOUT_ZERO,
                                .edit = {.begin = begin, .change = change, .user = b}};
    const mha_status status = mha__replay_run(&replay, own, b->count, err);
    for (int m = 0; status == MHA_OK && m < MHA_CIRCUIT_METRICS; m++)
        for (int64_t n = 0; n < b->count; n++)
            metrics[m * stride + b->jobs[n].to] = own[m * b->count + n];
    mha__free(p->ctx, own);
    return status;
}

static mha_status run_jobs(const mha_prompt_pair *pair, const mha__run_record *base, mha_knockout_mode mode,
                           const mha_attention_edge *edges, const knockout_job *jobs, int64_t count, double *metrics,
                           int64_t stride, mha_error *err)
{
    const int64_t max = mha__pair_batch(pair);
    for (int64_t done = 0; done < count;) {
        batch b = {.pair = pair, .mode = mode, .edges = edges, .jobs = jobs + done};
        const int64_t layer = layer_of(pair, edges, &jobs[done]);
        while (b.count < max && done + b.count < count && layer_of(pair, edges, &b.jobs[b.count]) == layer)
            b.count++;
        MHA__TRY(run_batch(&b, base, layer, metrics, stride, err));
        done += b.count;
        MHA__TRY(mha__progress(pair->ctx, "knockout", done, count, err));
    }
    return MHA_OK;
}

/* ---- edges together ---- */

static mha_status check_mode(mha_knockout_mode mode, mha_error *err)
{
    if (mode == MHA_KNOCKOUT_RENORM || mode == MHA_KNOCKOUT_ZERO) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mode must be MHA_KNOCKOUT_RENORM or MHA_KNOCKOUT_ZERO (got %d)", (int)mode);
}

mha_status mha_knockout(const mha_prompt_pair *pair, mha_prompt_run run, mha_knockout_mode mode,
                        const mha_attention_edge *edges, int64_t count, double *metrics, mha_error *err)
{
    MHA__TRY(mha__pair_check(pair, MHA_NOISE, metrics, "mha_knockout", err));
    MHA__TRY(check_mode(mode, err));
    if (count < 0 || (count > 0 && !edges) || (run != MHA_RUN_CLEAN && run != MHA_RUN_CORRUPTED))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_knockout: edges must have `count` elements (got %lld), and run must be MHA_RUN_CLEAN or "
                         "MHA_RUN_CORRUPTED (got %d)",
                         (long long)count, (int)run);
    MHA__TRY(mha__edges_check(pair->info, pair->length, edges, count, err));
    mha__fill_metrics(&pair->run[run], 1, metrics);
    if (count == 0) return MHA_OK;
    const knockout_job job = {0, count, 0};
    return run_jobs(pair, &pair->run[run], mode, edges, &job, 1, metrics, 1, err);
}

/* ---- sweeps ---- */

int mha_knockout_shape(const mha_prompt_pair *pair, mha_knockout_sweep sweep, int64_t shape[3])
{
    if (!pair || !shape || (int)sweep < 0 || sweep > MHA_KNOCKOUT_ROW) return 0;
    const int64_t L = pair->info->layers, H = pair->info->heads, T = pair->length;
    const int64_t shapes[][3] = {{L, H, T}, {L, T, 1}, {T, 1, 1}, {L, T, 1}, {L, H, 1}};
    memcpy(shape, shapes[sweep], sizeof shapes[sweep]);
    return sweep == MHA_KNOCKOUT_HEAD ? 3 : sweep == MHA_KNOCKOUT_ALL ? 1 : 2;
}

/* Appends the edges of part n of a sweep to `edges`, and returns their count: 0 if the part removes nothing. */
static int64_t edges_of(const mha_prompt_pair *pair, mha_knockout_sweep sweep, int64_t n, mha_attention_edge *edges)
{
    const int64_t T = pair->length, p = pair->position, H = pair->info->heads, j = n % T;
    int64_t count = 0;
    mha_attention_edge e = {-1, -1, p, j};
    switch (sweep) {
    case MHA_KNOCKOUT_HEAD:
        e = (mha_attention_edge){n / T / H, n / T % H, p, j};
        break;
    case MHA_KNOCKOUT_LAYER:
        e.layer = n / T;
        break;
    case MHA_KNOCKOUT_ROW:
        e = (mha_attention_edge){n / H, n % H, p, -1};
        break;
    case MHA_KNOCKOUT_COLUMN:
        e.layer = n / T;
        for (int64_t i = pair->info->causal ? j + 1 : 0; i < T; i++)
            if (i != j) edges[count++] = (mha_attention_edge){e.layer, -1, i, j};
        return count;
    default:
        break;
    }
    if (pair->info->causal && e.key > p) return 0;
    if (e.layer >= 0 && e.head >= pair->info->heads_per_layer[e.layer]) return 0;
    edges[count++] = e;
    return count;
}

mha_status mha_knockout_each(const mha_prompt_pair *pair, mha_knockout_mode mode, mha_knockout_sweep sweep, double *out,
                             mha_error *err)
{
    int64_t shape[3], all = 1, count = 0, used = 0;
    MHA__TRY(mha__pair_check(pair, MHA_NOISE, out, "mha_knockout_each", err));
    MHA__TRY(check_mode(mode, err));
    const int rank = mha_knockout_shape(pair, sweep, shape);
    if (rank == 0)
        return mha__fail(err, MHA_ERR_ARG, "sweep must be a value of mha_knockout_sweep (got %d)", (int)sweep);
    for (int n = 0; n < rank; n++)
        all *= shape[n];
    const int64_t max = sweep == MHA_KNOCKOUT_COLUMN ? pair->length : 1;
    const size_t each = sizeof(knockout_job) + (size_t)max * sizeof(mha_attention_edge);
    knockout_job *jobs = mha__calloc(pair->ctx, (size_t)all, each);
    if (!jobs) return mha__no_memory(err, (size_t)all * each, "edges of a knockout");
    mha_attention_edge *edges = (mha_attention_edge *)(jobs + all);
    mha__fill_metrics(&pair->run[MHA_RUN_CLEAN], all, out);
    for (int64_t n = 0; n < all; n++) {
        const int64_t added = edges_of(pair, sweep, n, edges + used);
        if (added) jobs[count++] = (knockout_job){used, added, n};
        used += added;
    }
    const mha_status status = run_jobs(pair, &pair->run[MHA_RUN_CLEAN], mode, edges, jobs, count, out, all, err);
    mha__free(pair->ctx, jobs);
    return status;
}
