/* pooler_logits.c - computes the pooler output and the logits. */
#include "model/forward/pooler_logits.h"

#include "base/error.h"
#include "layer/activation.h"
#include "layer/elementwise.h"
#include "model/forward/rank_gather.h"
#include <math.h>
#include <string.h>

/* Returns the part that a model without logits lacks. */
static mha__role first_of_head(const mha_model *m)
{
    const mha__family *family = m->config.family;
    if (!family->causal && family->parts[MHA__LM_DENSE].name) return MHA__LM_DENSE;
    return family->causal && m->config.tied && family->parts[MHA__LM_BIAS].name ? MHA__LM_BIAS : MHA__LM_HEAD;
}

mha_status mha__head_check(const mha_model *m, bool pooled, bool logits, mha_error *err)
{
    if (pooled && !m->pooler && !m->config.family->pools)
        return mha__fail(
            err, MHA_ERR_UNSUPPORTED, "checkpoint must have a pooler for pooled output (%s.weight is absent)",
            m->config.family->parts[MHA__POOLER].name ? m->config.family->parts[MHA__POOLER].name : "pooler.dense");
    if (logits && !m->lm_head) {
        const mha__role role = first_of_head(m);
        const mha__part *part = &m->config.family->parts[role];
        const char *name = m->config.discriminator ? part->other : part->name;
        const char *suffix = role == MHA__LM_BIAS ? "" : ".weight"; /* the name of the bias is complete */
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "checkpoint must have an output head for logits (%s%s is absent)",
                         name ? name + 1 : "the head of ", name ? suffix : m->info.family);
    }
    return MHA_OK;
}

mha_status mha__head_check_tokens(const mha_model *m, mha_error *err)
{
    MHA__TRY(mha__head_check(m, false, true, err));
    if (!m->config.discriminator) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "model must have logits of tokens (got the discriminator of %s, with one logit per token)",
                     m->info.family);
}

mha_status mha__head_check_vision(const mha_model *m, const mha__batch *batch, bool pooled, bool last_logits,
                                  bool embedding, mha_error *err)
{
    if (embedding && !m->projection)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "embedding must be NULL unless the model is a CLIP model with projections (got %s)",
                         m->info.family);
    if (last_logits && m->config.channels)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "last_logits must be NULL for a model of images (got %s)",
                         m->info.family);
    if ((pooled || embedding) && m->config.family->pools && !m->config.channels && !batch->in.ids)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: ids must not be NULL for pooled output of a CLIP model");
    return MHA_OK;
}

/* ---- pooling ---- */

/* Returns the token that CLIP pools in a text: the first end-of-text token; in old files, the largest id. */
static int64_t end_of_text(const mha__config *c, const int32_t *ids, int64_t count)
{
    int64_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        if (c->pool_token != MHA__POOL_LARGEST && ids[i] == c->pool_token) return i;
        if (c->pool_token == MHA__POOL_LARGEST && ids[i] > ids[largest]) largest = i;
    }
    return largest;
}

int64_t mha__head_pooled_row(const mha_model *m, const mha__batch *p, int64_t b)
{
    const int64_t first = mha__batch_first(p, b);
    if (!m->config.family->pools || m->config.channels) return first;
    return first +
           end_of_text(&m->config, p->in.ids + first, p->in.starts ? p->in.starts[b + 1] - first : p->in.length);
}

mha_status mha__head_pool(const mha_model *m, const mha__batch *batch, const float *x, float *first, float *pooled,
                          mha_error *err)
{
    const int64_t width = m->config.hidden, count = batch->sequences;
    for (int64_t b = 0; b < count; b++)
        memcpy(first + b * width, x + mha__head_pooled_row(m, batch, b) * width, (size_t)width * sizeof *x);
    if (m->pooler) return mha_linear_forward(m->pooler, first, count, pooled, err);
    if (m->pool_norm.weight) return mha_norm_forward(m->ctx, &m->pool_norm, count, width, first, NULL, pooled, err);
    if (pooled != first) memcpy(pooled, first, (size_t)(count * width) * sizeof *pooled);
    return MHA_OK;
}

void mha__head_normalize(float *x, int64_t count, int64_t width)
{
    for (int64_t r = 0; r < count; r++, x += width) {
        double square = 0;
        for (int64_t i = 0; i < width; i++)
            square += (double)x[i] * (double)x[i];
        const double norm = fmax(sqrt(square), 1e-12);
        for (int64_t i = 0; i < width; i++)
            x[i] = (float)((double)x[i] / norm);
    }
}

mha_status mha__head_embed(const mha_model *m, const mha__batch *batch, const float *x, float *first, float *embedding,
                           mha_error *err)
{
    MHA__TRY(mha__head_pool(m, batch, x, first, first, err));
    MHA__TRY(mha_linear_forward(m->projection, first, batch->sequences, embedding, err));
    mha__head_normalize(embedding, batch->sequences, m->config.projection);
    return MHA_OK;
}

/* ---- logits ---- */

int64_t mha__head_rows(const mha_model *m, const mha__batch *batch, const float *x, float *first, const float **from)
{
    const int64_t width = m->config.hidden;
    *from = x;
    if (!m->config.channels) return batch->in.batch * batch->in.length;
    for (int64_t b = 0; b < batch->sequences; b++)
        memcpy(first + b * width, x + mha__batch_first(batch, b) * width, (size_t)width * sizeof *x);
    *from = first;
    return batch->sequences;
}

mha_status mha__head_input(const mha_model *m, int64_t rows, const float *x, float *room, const float **input,
                           mha_error *err)
{
    *input = x;
    if (!m->lm_dense) return MHA_OK;
    *input = room;
    MHA__TRY(mha_linear_forward(m->lm_dense, x, rows, room, err));
    if (!m->lm_norm.weight) return MHA_OK;
    return mha_norm_forward(m->ctx, &m->lm_norm, rows, m->config.head_width, room, NULL, room, err);
}

mha_status mha__head_logits(const mha_model *m, int64_t rows, const float *input, float *logits, mha_error *err)
{
    MHA__TRY(m->ranks.ranks ? mha__rank_logits(m, rows, input, logits, err)
                            : mha_linear_forward(m->lm_head, input, rows, logits, err));
    if (m->config.logit_scale != 1) mha__scale(m->ctx, m->config.logit_scale, rows * m->config.logit_width, logits);
    if (m->config.logit_cap != 0) mha__softcap(m->ctx, m->config.logit_cap, rows * m->config.logit_width, logits);
    return MHA_OK;
}
