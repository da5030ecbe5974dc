/* path_write.c - the senders of paths: the change of the residual stream if one head, feed-forward part or the
 * embedding takes its output from the other run. */
#include "base/ctx.h"
#include "base/error.h"
#include "circuits/path.h"
#include <math.h>

/* ---- the way from an output to the residual stream ---- */

/* Returns 1 / sqrt(mean square) of a token's output in the base run, before the norm after it; 1 without such a norm.
 */
static double frozen_scale(const mha__path *p, const mha_norm *norm, const float *output)
{
    const int64_t E = p->pair->width;
    double sum = 0;
    for (int64_t e = 0; norm->weight && e < E; e++)
        sum += (double)output[e] * (double)output[e];
    return norm->weight ? 1 / sqrt(sum / (double)E + norm->eps) : 1;
}

/* Multiplies a token's change by the norm after the output, with its scale in the base run, and by the residual
 * factor. `output` is the output in the base run. */
static void join(const mha__path *p, const mha_block *block, int which, const float *output, float *change)
{
    const mha_norm *norm = &block->norm[which];
    const double scale = frozen_scale(p, norm, output) * (double)block->residual_scale;
    for (int64_t e = 0; e < p->pair->width; e++)
        change[e] = (float)((double)change[e] * scale * (norm->weight ? (double)norm->weight[e] : 1));
}

/* ---- heads ---- */

/* Computes the sender's columns of the output projection: the projection of unit vectors, without its bias. */
static mha_status read_output(const mha__path *p, int64_t layer, int64_t head, mha_error *err)
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

mha_status mha__path_from_head(const mha__path *p, int64_t layer, int64_t head, bool *changes, mha_error *err)
{
    const mha_prompt_pair *pair = p->pair;
    const int64_t D = mha__pair_attn(pair, layer)->options.head_dim, E = pair->width;
    *changes = !mha__part_equal(pair, &(mha_patch_part){MHA_SITE_Z, layer, head, -1});
    if (!*changes) return MHA_OK;
    MHA__TRY(read_output(p, layer, head, err));
    for (int64_t t = 0; t < pair->length; t++) {
        const int64_t at = (layer * pair->length + t) * pair->z_width + head * D;
        float *change = p->write + t * E;
        for (int64_t e = 0; e < E; e++) {
            double sum = 0;
            for (int64_t d = 0; d < D; d++)
                sum += ((double)p->source->z[at + d] - (double)p->base->z[at + d]) * (double)p->wo[e * D + d];
            change[e] = (float)sum;
        }
        join(p, pair->model->block[layer], MHA__BLOCK_ATTN_OUT_NORM, p->base->attn_out + (layer * pair->length + t) * E,
             change);
    }
    return MHA_OK;
}

/* ---- feed-forward and embedding ---- */

/* Sets `write` to the difference of both runs. */
static void set_difference(const mha__path *p, const float *source, const float *base)
{
    for (int64_t n = 0; n < p->pair->length * p->pair->width; n++)
        p->write[n] = source[n] - base[n];
}

void mha__path_from_mlp(const mha__path *p, int64_t layer, bool *changes)
{
    const int64_t T = p->pair->length, E = p->pair->width, first = layer * T * E;
    *changes = !mha__part_equal(p->pair, &(mha_patch_part){MHA_SITE_MLP_OUT, layer, -1, -1});
    set_difference(p, p->source->mlp_out + first, p->base->mlp_out + first);
    for (int64_t t = 0; t < T; t++)
        join(p, p->pair->model->block[layer], MHA__BLOCK_MLP_OUT_NORM, p->base->mlp_out + first + t * E,
             p->write + t * E);
}

void mha__path_from_embedding(const mha__path *p, bool *changes)
{
    *changes = !mha__part_equal(p->pair, &(mha_patch_part){MHA_SITE_RESID_PRE, 0, -1, -1});
    set_difference(p, p->source->resid, p->base->resid);
}
