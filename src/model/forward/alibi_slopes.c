/* alibi_slopes.c - computes ALiBi slopes (Press et al. 2022) from the head number in the unpruned model, so removing or
 * reordering heads does not change the slopes of other heads. */
#include "base/ctx.h"
#include "base/error.h"
#include "model/model_struct.h"
#include <math.h>

/* Returns 2^(-8 (h + 1) / H), where h is `head` and H is `heads`, if H is a power of two. Otherwise the slopes are
 * those of the power of two below H, followed by every second slope of the next power of two. */
static double slope_of(int64_t head, int64_t heads)
{
    int64_t power = 1;
    while (2 * power <= heads)
        power *= 2;
    if (head < power) return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}

mha_status mha__model_slopes(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    const int64_t cells = c->layers * c->heads;
    bool any = false;
    for (int64_t layer = 0; layer < c->layers; layer++)
        any |= c->attention[layer].alibi;
    if (!any) return MHA_OK;
    m->slopes = mha__calloc(m->ctx, (size_t)cells, sizeof *m->slopes);
    if (!m->slopes) return mha__no_memory(err, (size_t)cells * sizeof *m->slopes, "slopes");
    for (int64_t n = 0; n < cells; n++)
        if (m->head_numbers[n] >= 0) m->slopes[n] = (float)slope_of(m->head_numbers[n], c->original_heads);
    return MHA_OK;
}
