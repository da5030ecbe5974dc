/* patch_run.c - runs patches in batches: each copy of the base run gets the parts of one job. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/prompt_pair.h"
#include <string.h>

/* The jobs of one batch; copy n of the base run is job n. */
typedef struct batch {
    const mha_prompt_pair *pair;
    const mha__run_record *base, *source;
    const mha__patch_job *jobs;
    int64_t count, layer;
    const float *qkv; /* q, k and v of the layer that runs; NULL if the layer starts at its context */
} batch;

/* ---- where a patch is applied ---- */

/* Returns the site whose edit replaces the part. resid_pre is replaced at the end of the previous layer, or in the
 * input of the first layer that runs. */
static mha__edit_site edit_of(mha_site site)
{
    switch (site) {
    case MHA_SITE_Q:
    case MHA_SITE_K:
    case MHA_SITE_V:
        return MHA__EDIT_QKV;
    case MHA_SITE_Z:
    case MHA_SITE_PATTERN:
        return MHA__EDIT_CONTEXT;
    case MHA_SITE_ATTN_OUT:
        return MHA__EDIT_ATTN_OUT;
    case MHA_SITE_RESID_MID:
        return MHA__EDIT_RESID_MID;
    case MHA_SITE_MLP_OUT:
        return MHA__EDIT_MLP_OUT;
    default:
        return MHA__EDIT_RESID_POST;
    }
}

/* Returns the first layer that a part changes. */
static int64_t first_layer(const mha_prompt_pair *pair, const mha_patch_part *part)
{
    return part->site == MHA_SITE_RESID_POST ? mha__min64(part->layer + 1, pair->info->layers - 1) : part->layer;
}

static int64_t layer_of(const mha_prompt_pair *pair, const mha__patch_job *job)
{
    int64_t first = pair->info->layers - 1;
    for (int64_t n = 0; n < job->count; n++)
        first = mha__min64(first, first_layer(pair, &job->patch[n].part));
    return first;
}

/* Returns true if no part of the job changes the input, queries, keys or values of its first layer. */
static bool from_context(const mha__patch_job *job, int64_t layer)
{
    for (int64_t n = 0; n < job->count; n++) {
        const mha_patch_part *part = &job->patch[n].part;
        const bool before =
            part->site == MHA_SITE_RESID_POST
                ? part->layer < layer
                : part->layer == layer && (part->site == MHA_SITE_RESID_PRE || edit_of(part->site) == MHA__EDIT_QKV);
        if (before) return false;
    }

    return true;
}

/* ---- applying patches ---- */

/* Replaces rows of a copy that are among rows [first, first + rows) of x, whose row width is `width`. */
static void replace(const batch *b, const mha__patch *patch, int64_t n, int64_t first, int64_t rows, int64_t width,
                    float *x)
{
    const mha__part_span at = mha__part_columns(b->pair, &patch->part);
    const int64_t begin = mha__max64(patch->part.position, 0);
    const int64_t end = patch->part.position < 0 ? b->pair->length : begin + 1;
    for (int64_t t = begin; t < end; t++) {
        const int64_t r = n * b->pair->length + t - first;
        if (r < 0 || r >= rows) continue;
        memcpy(x + r * width + at.offset, patch->value + (t - begin) * patch->stride, (size_t)at.width * sizeof *x);
    }
}

/* Replaces rows of a map: z of the source run plus the change of the values, weighted by the source's map. So z is
 * that of the source run to the bit if the values are. */
static void replace_map(const batch *b, const mha__patch *patch, int64_t n, float *context)
{
    const mha_prompt_pair *p = b->pair;
    const mha_attn_layer *attn = mha__pair_attn(p, patch->part.layer);
    const int64_t T = p->length, D = attn->options.head_dim, width = mha__context_width(attn);
    const int64_t layer = patch->part.layer * T, head = patch->part.head, v_at = mha__value_offset(attn, head);
    const int64_t qkv = b->qkv ? mha__qkv_width(&attn->options) : p->qkv_width;
    const float *v = (b->qkv ? b->qkv + n * T * qkv : b->base->qkv + layer * qkv) + v_at;
    const float *v1 = b->source->qkv + layer * p->qkv_width + v_at, *z1 = b->source->z + layer * p->z_width + head * D;
    const int64_t begin = mha__max64(patch->part.position, 0), end = patch->part.position < 0 ? T : begin + 1;
    for (int64_t i = begin; i < end; i++) {
        const float *row = patch->value + (i - begin) * patch->stride;
        float *z = context + (n * T + i) * width + head * D;
        for (int64_t d = 0; d < D; d++) {
            double sum = 0;
            for (int64_t j = 0; j < T; j++)
                sum += (double)row[j] * ((double)v[j * qkv + d] - (double)v1[j * p->qkv_width + d]);
            z[d] = z1[i * p->z_width + d] + (float)sum;
        }
    }
}

/* Returns the width of the rows of an edit. */
static int64_t width_of(const batch *b, int64_t layer, mha__edit_site site)
{
    const mha_attn_layer *attn = mha__pair_attn(b->pair, layer);
    return site == MHA__EDIT_QKV       ? mha__qkv_width(&attn->options)
           : site == MHA__EDIT_CONTEXT ? mha__context_width(attn)
                                       : b->pair->width;
}

/* Returns true if the patch changes this site of this layer. */
static bool is_here(const mha_patch_part *part, int64_t layer, mha__edit_site site)
{
    const int64_t at = part->site == MHA_SITE_RESID_PRE ? part->layer - 1 : part->layer;
    return at == layer && edit_of(part->site) == site;
}

/* Applies the patches of all jobs; maps first, since z replaces them. */
static void change(void *user, int64_t layer, mha__edit_site site, int64_t first, int64_t rows, float *x)
{
    batch *b = user;
    if (site == MHA__EDIT_EMBEDDED) return;
    const int64_t width = width_of(b, layer, site);
    if (site == MHA__EDIT_QKV) b->qkv = x;
    for (int maps = 1; maps >= 0; maps--)
        for (int64_t n = 0; n < b->count; n++)
            for (int64_t k = 0; k < b->jobs[n].count; k++) {
                const mha__patch *patch = &b->jobs[n].patch[k];
                if (!is_here(&patch->part, layer, site) || (patch->part.site == MHA_SITE_PATTERN) != maps) continue;
                if (maps)
                    replace_map(b, patch, n, x);
                else
                    replace(b, patch, n, first, rows, width, x);
            }
}

/* Changes the input of the first layer and, if it starts there, its context. */
static void start(void *user, float *hidden, float *context)
{
    batch *b = user;
    const int64_t rows = b->count * b->pair->length;
    b->qkv = NULL;
    for (int64_t n = 0; n < b->count; n++)
        for (int64_t k = 0; k < b->jobs[n].count; k++) {
            const mha__patch *patch = &b->jobs[n].patch[k];
            if (is_here(&patch->part, b->layer - 1, MHA__EDIT_RESID_POST))
                replace(b, patch, n, 0, rows, b->pair->width, hidden);
        }
    if (context) change(b, b->layer, MHA__EDIT_CONTEXT, 0, rows, context);
}

/* ---- batches ---- */

/* Runs jobs with the same first layer in one batch. */
static mha_status run_batch(batch *b, bool at_context, double *metrics, int64_t stride, mha_error *err)
{
    const mha__replay replay = {.pair = b->pair,
                                .base = b->base,
                                .layer = b->layer,
                                .count = b->count,
                                .from_context = at_context,
                                .start = start,
                                .edit = {.change = change, .user = b}};
    double *own = mha__calloc(b->pair->ctx, (size_t)b->count, MHA_CIRCUIT_METRICS * sizeof *own);
    if (!own) return mha__no_memory(err, (size_t)b->count * sizeof *own, "metrics");
    const mha_status status = mha__replay_run(&replay, own, b->count, err);
    for (int m = 0; status == MHA_OK && m < MHA_CIRCUIT_METRICS; m++)
        for (int64_t n = 0; n < b->count; n++)
            metrics[m * stride + b->jobs[n].to] = own[m * b->count + n];
    mha__free(b->pair->ctx, own);
    return status;
}

/* Stores and reports that `done` of `count` jobs are finished. */
static mha_status finish(const mha_prompt_pair *pair, mha__patch_steps *steps, int64_t done, int64_t count,
                         mha_error *err)
{
    steps->done = done;
    if (steps->state) MHA__TRY(mha__state_keep(steps->state, done, err));
    return mha__progress(pair->ctx, steps->what, done, count, err);
}

mha_status mha__patch_jobs(const mha_prompt_pair *pair, const mha__run_record *base, const mha__run_record *source,
                           const mha__patch_job *jobs, int64_t count, double *metrics, int64_t stride,
                           mha__patch_steps *steps, mha_error *err)
{
    const int64_t max = mha__pair_batch(pair);
    for (int64_t done = steps ? steps->done : 0; done < count;) {
        batch b = {pair, base, source, jobs + done, 0, layer_of(pair, &jobs[done]), NULL};
        const bool at_context = from_context(&jobs[done], b.layer);
        while (b.count < max && done + b.count < count && layer_of(pair, &b.jobs[b.count]) == b.layer &&
               from_context(&b.jobs[b.count], b.layer) == at_context)
            b.count++;
        MHA__TRY(run_batch(&b, at_context, metrics, stride, err));
        done += b.count;
        if (steps) MHA__TRY(finish(pair, steps, done, count, err));
    }
    return MHA_OK;
}
