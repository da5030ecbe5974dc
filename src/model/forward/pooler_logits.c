/* pooler_logits.c - computes the pooler output and the logits. */
#include "model/forward/pooler_logits.h"
#include "base/error.h"
#include "layer/activation.h"
#include "layer/elementwise.h"
#include "model/forward/rank_gather.h"
#include <string.h>

mha_status mha__head_check(const mha_model *m, bool pooled, bool logits, mha_error *err)
{
    if (pooled && !m->pooler)
        return mha__fail(
            err, MHA_ERR_UNSUPPORTED, "checkpoint must have a pooler for pooled output (%s.weight is absent)",
            m->config.family->parts[MHA__POOLER].name ? m->config.family->parts[MHA__POOLER].name : "pooler.dense");
    if (logits && !m->lm_head) {
        const char *name = m->config.family->parts[m->info.causal ? MHA__LM_HEAD : MHA__LM_DENSE].name;
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "checkpoint must have an output head for logits (%s.weight is absent)", name + 1);
    }
    return MHA_OK;
}

mha_status mha__head_pool(const mha_model *m, const mha__batch *batch, const float *x, float *first, float *pooled,
                          mha_error *err)
{
    const int64_t width = m->config.hidden;
    for (int64_t b = 0; b < batch->sequences; b++)
        memcpy(first + b * width, x + mha__batch_first(batch, b) * width, (size_t)width * sizeof *x);
    return mha_linear_forward(m->pooler, first, batch->sequences, pooled, err);
}

mha_status mha__head_input(const mha_model *m, int64_t rows, const float *x, float *room, const float **input,
                           mha_error *err)
{
    *input = x;
    if (!m->lm_dense) return MHA_OK;
    *input = room;
    MHA__TRY(mha_linear_forward(m->lm_dense, x, rows, room, err));
    return mha_norm_forward(m->ctx, &m->lm_norm, rows, m->config.embed_width, room, NULL, room, err);
}

mha_status mha__head_logits(const mha_model *m, int64_t rows, const float *input, float *logits, mha_error *err)
{
    MHA__TRY(m->ranks.ranks ? mha__rank_logits(m, rows, input, logits, err)
                            : mha_linear_forward(m->lm_head, input, rows, logits, err));
    if (m->config.logit_scale != 1) mha__scale(m->ctx, m->config.logit_scale, rows * m->config.vocab, logits);
    if (m->config.logit_cap != 0) mha__softcap(m->ctx, m->config.logit_cap, rows * m->config.vocab, logits);
    return MHA_OK;
}
