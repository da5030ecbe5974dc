/* path_patch.c - path patching: the direct path from a sender's output through the residual stream to a receiver's
 * queries, keys or values, or to the logits. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/prompt_pair.h"
#include "model/forward/observers.h"
#include <math.h>
#include <string.h>

typedef struct paths {
    const mha_prompt_pair *pair;
    mha_path_receiver to;
    const mha__run_record *base, *source;
    mha_site site;     /* of the receiver */
    int64_t receivers; /* heads per layer in the results */
    int64_t columns;   /* R of the results */
    double *out;
    float *write; /* [T, E] change of the residual stream by the sender */
    float *wo;    /* [E, D] the sender's columns of the output projection */
} paths;

/* ---- the sender's change of the residual stream ---- */

/* Computes the sender's columns of the output projection: the projection of unit vectors, without its bias. */
static mha_status read_output(const paths *p, int64_t layer, int64_t head, mha_error *err)
{
    const mha_attn_layer *attn = mha__pair_attn(p->pair, layer);
    const int64_t D = attn->options.head_dim, width = mha__context_width(attn), E = p->pair->width;
    const size_t bytes = (size_t)((D + 1) * (width + E)) * sizeof(float);
    float *unit = mha__calloc(p->pair->ctx, 1, bytes);
    if (!unit) return mha__no_memory(err, bytes, "an output projection");
    float *y = unit + (D + 1) * width;
    for (int64_t d = 0; d < D; d++)
        unit[d * width + head * D + d] = 1;
    const mha_status status = mha_linear_forward(attn->o, unit, D + 1, y, err); /* the last row is the bias */
    for (int64_t e = 0; e < E; e++)
        for (int64_t d = 0; d < D; d++)
            p->wo[e * D + d] = y[d * E + e] - y[D * E + e];
    mha__free(p->pair->ctx, unit);
    return status;
}

/* Returns the factor of column e of the change: the norm after the output projection with its scale in the base run,
 * and the residual factor. */
static double after_output(const paths *p, int64_t layer, int64_t e, double scale)
{
    const mha_block *block = p->pair->model->block[layer];
    const mha_norm *norm = &block->norm[MHA__BLOCK_ATTN_OUT_NORM];
    return (norm->weight ? (double)norm->weight[e] * scale : 1) * (double)block->residual_scale;
}

/* Returns 1 / sqrt(mean square) of the attention output of a token in the base run; 1 without a norm after it. */
static double frozen_scale(const paths *p, int64_t layer, int64_t t)
{
    const mha_norm *norm = &p->pair->model->block[layer]->norm[MHA__BLOCK_ATTN_OUT_NORM];
    const int64_t E = p->pair->width;
    const float *o = p->base->attn_out + (layer * p->pair->length + t) * E;
    double sum = 0;
    for (int64_t e = 0; norm->weight && e < E; e++)
        sum += (double)o[e] * (double)o[e];
    return norm->weight ? 1 / sqrt(sum / (double)E + norm->eps) : 1;
}

static void set_write(const paths *p, int64_t layer, int64_t head)
{
    const mha_prompt_pair *pair = p->pair;
    const int64_t D = mha__pair_attn(pair, layer)->options.head_dim, E = pair->width;
    for (int64_t t = 0; t < pair->length; t++) {
        const int64_t at = (layer * pair->length + t) * pair->z_width + head * D;
        const double scale = frozen_scale(p, layer, t);
        for (int64_t e = 0; e < E; e++) {
            double sum = 0;
            for (int64_t d = 0; d < D; d++)
                sum += ((double)p->source->z[at + d] - (double)p->base->z[at + d]) * (double)p->wo[e * D + d];
            p->write[t * E + e] = (float)(sum * after_output(p, layer, e, scale));
        }
    }
}

/* ---- the receiver's queries, keys and values ---- */

typedef struct projection {
    const paths *paths;
    float *qkv; /* [T, qkv_width] */
} projection;

static void keep_qkv(void *user, int64_t layer, mha__edit_site site, int64_t first, int64_t rows, float *x)
{
    const projection *p = user;
    const mha_prompt_pair *pair = p->paths->pair;
    if (site != MHA__EDIT_QKV) return;
    const int64_t width = mha__qkv_width(&mha__pair_attn(pair, layer)->options);
    for (int64_t r = 0; r < rows; r++)
        memcpy(p->qkv + (first + r) * pair->qkv_width, x + r * width, (size_t)width * sizeof *x);
}

static int stop(void *user, int64_t layer, int64_t heads, const float *probs)
{
    (void)user, (void)layer, (void)heads, (void)probs;
    return 1;
}

/* Computes q, k and v of a layer from resid_pre of the base run plus the sender's write. */
static mha_status project(const paths *p, int64_t layer, float *hidden, float *qkv, mha_error *err)
{
    const mha_prompt_pair *pair = p->pair;
    const int64_t count = pair->length * pair->width;
    const float *x = p->base->resid + layer * count;
    for (int64_t n = 0; n < count; n++)
        hidden[n] = x[n] + p->write[n];
    projection user = {p, qkv};
    mha__site_edit edit = {.change = keep_qkv, .user = &user};
    const mha_model_input in = {
        .size = sizeof in, .batch = 1, .length = pair->length, .first_layer = layer, .hidden = hidden};
    const mha_model_output out = {.size = sizeof out, .on_attention = stop, .user = &user};
    mha_error own = {0};
    const mha_status status = mha__model_forward_edited(pair->model, &in, &out, &edit, &own);
    if (status == MHA_OK || status == MHA_ERR_CANCELLED) return MHA_OK;
    if (err) *err = own;
    return status;
}

/* Repeats the base run with the receivers of a layer replaced, each in its own copy. */
static mha_status to_heads(paths *p, int64_t sender, int64_t layer, const float *qkv, mha_error *err)
{
    const mha_prompt_pair *pair = p->pair;
    const int64_t heads = mha__site_heads(pair, p->site, layer), all = pair->info->layers * pair->info->heads;
    const size_t bytes = (size_t)heads * (sizeof(mha__patch) + sizeof(mha__patch_job));
    mha__patch_job *jobs = mha__alloc(pair->ctx, bytes);
    if (!jobs) return mha__no_memory(err, bytes, "receivers");
    mha__patch *patches = (mha__patch *)(jobs + heads);
    for (int64_t h = 0; h < heads; h++) {
        const mha_patch_part part = {p->site, layer, h, -1};
        patches[h] = (mha__patch){part, qkv + mha__part_columns(pair, &part).offset, pair->qkv_width};
        jobs[h] = (mha__patch_job){&patches[h], 1, sender * p->columns + layer * p->receivers + h};
    }
    const mha_status status =
        mha__patch_jobs(pair, p->base, p->source, jobs, heads, p->out, all * p->columns, NULL, err);
    mha__free(pair->ctx, jobs);
    return status;
}

/* Adds the write to the final residual of a copy of the base run. */
static mha_status to_logits(paths *p, int64_t sender, float *hidden, mha_error *err)
{
    const mha_prompt_pair *pair = p->pair;
    const int64_t last = pair->info->layers, count = pair->length * pair->width;
    const float *x = p->base->resid + last * count;
    for (int64_t n = 0; n < count; n++)
        hidden[n] = x[n] + p->write[n];
    const mha__patch patch = {{MHA_SITE_RESID_POST, last - 1, -1, -1}, hidden, pair->width};
    const mha__patch_job job = {&patch, 1, sender};
    return mha__patch_jobs(pair, p->base, p->source, &job, 1, p->out, last * pair->info->heads, NULL, err);
}

/* ---- all senders ---- */

/* Returns true if the sender's output is the same in both runs. */
static bool is_equal(const paths *p, int64_t layer, int64_t head)
{
    const mha_patch_part part = {MHA_SITE_Z, layer, head, -1};
    return mha__part_equal(p->pair, &part);
}

static mha_status send(paths *p, int64_t layer, int64_t head, float *hidden, float *qkv, mha_error *err)
{
    const int64_t sender = layer * p->pair->info->heads + head;
    if (is_equal(p, layer, head)) return MHA_OK;
    MHA__TRY(read_output(p, layer, head, err));
    set_write(p, layer, head);
    if (p->to == MHA_PATH_LOGITS) return to_logits(p, sender, hidden, err);
    for (int64_t l = layer + 1; l < p->pair->info->layers; l++) {
        MHA__TRY(project(p, l, hidden, qkv, err));
        MHA__TRY(to_heads(p, sender, l, qkv, err));
    }
    return MHA_OK;
}

static mha_status check(const mha_prompt_pair *pair, mha_path_receiver to, mha_error *err)
{
    if ((int)to < 0 || to > MHA_PATH_LOGITS)
        return mha__fail(err, MHA_ERR_ARG, "mha_path_patch: to must be a value of mha_path_receiver (got %d)", (int)to);
    for (int64_t layer = 0; layer < pair->info->layers; layer++) {
        const mha_block *block = pair->model->block[layer];
        if (!block->pre_norm)
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             "mha_path_patch: model must be pre-norm (got %s, which is post-norm: a norm lies on every "
                             "path between its layers)",
                             pair->info->family);
        if (!block->attn->o)
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             "mha_path_patch: model must have an output projection in every layer");
    }
    return MHA_OK;
}

mha_status mha_path_patch(const mha_prompt_pair *pair, mha_path_receiver to, mha_patch_direction direction, double *out,
                          mha_error *err)
{
    static const mha_site sites[] = {MHA_SITE_Q, MHA_SITE_K, MHA_SITE_V};
    MHA__TRY(mha__pair_check(pair, (int)direction, out, "mha_path_patch", err));
    MHA__TRY(check(pair, to, err));
    const int64_t L = pair->info->layers, H = pair->info->heads, T = pair->length, E = pair->width;
    paths p = {.pair = pair,
               .to = to,
               .base = mha__base_run(pair, direction),
               .source = mha__source_run(pair, direction),
               .site = to == MHA_PATH_LOGITS ? MHA_SITE_RESID_POST : sites[to],
               .out = out};
    int64_t widest = 0; /* head width */
    for (int64_t layer = 0; layer < L; layer++)
        widest = mha__max64(widest, mha__pair_attn(pair, layer)->options.head_dim);
    p.receivers = mha__site_most_heads(pair, p.site);
    p.columns = to == MHA_PATH_LOGITS ? 1 : L * p.receivers;
    mha__fill_metrics(p.base, L * H * p.columns, out);
    const size_t bytes = (size_t)(T * (2 * E + pair->qkv_width) + E * widest) * sizeof(float);
    float *memory = mha__calloc(pair->ctx, 1, bytes);
    if (!memory) return mha__no_memory(err, bytes, "a path");
    p.write = memory;
    p.wo = memory + 2 * T * E + T * pair->qkv_width;
    mha_status status = MHA_OK;
    for (int64_t n = 0; status == MHA_OK && n < L * H; n++) {
        if (n % H < pair->info->heads_per_layer[n / H])
            status = send(&p, n / H, n % H, memory + T * E, memory + 2 * T * E, err);
        if (status == MHA_OK) status = mha__progress(pair->ctx, "path", n + 1, L * H, err);
    }
    mha__free(pair->ctx, memory);
    return status;
}
