/* pair_sources.c - see pair_sources.h. */
#include "heads/data/pair_sources.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include <string.h>

mha_status mha__pair_sources_lay(mha_ctx *ctx, const mha__gather *g, const int64_t *order, mha__pair_sources *to,
                                 mha_error *err)
{
    const size_t count = (size_t)g->count, tokens = (size_t)g->starts[g->count];
    to->ids = mha__alloc(ctx, tokens * sizeof *to->ids);
    to->starts = mha__alloc(ctx, (count + 1) * sizeof *to->starts);
    if (!to->ids || !to->starts) return mha__no_memory(err, tokens * sizeof *to->ids, "the tokens of all sources");
    to->starts[0] = 0;
    for (int64_t p = 0; p < g->count; p++) {
        const int64_t length = mha__gather_length(g, order[p]);
        memcpy(to->ids + to->starts[p], g->ids + g->starts[order[p]], (size_t)length * sizeof *to->ids);
        to->starts[p + 1] = to->starts[p] + length;
        to->max = mha__max64(to->max, length);
    }
    return MHA_OK;
}

mha_status mha__pair_sources_divide(mha_ctx *ctx, mha__pair_sources *s, const int64_t *first, int64_t batches,
                                    mha_error *err)
{
    const size_t starts = (size_t)(first[batches] + batches), count = (size_t)batches;
    s->batch_starts = mha__alloc(ctx, starts * sizeof *s->batch_starts);
    s->batch = mha__alloc(ctx, count * sizeof *s->batch);
    if (!s->batch_starts || !s->batch) return mha__no_memory(err, count * sizeof *s->batch, "the batches of sources");
    for (int64_t n = 0; n < batches; n++) {
        int64_t *own = s->batch_starts + first[n] + n;
        for (int64_t p = first[n]; p <= first[n + 1]; p++)
            own[p - first[n]] = s->starts[p] - s->starts[first[n]];
        s->batch[n] = (mha_model_input){.size = sizeof *s->batch,
                                        .batch = first[n + 1] - first[n],
                                        .ids = s->ids + s->starts[first[n]],
                                        .starts = own};
    }
    return MHA_OK;
}

void mha__pair_sources_free(mha_ctx *ctx, mha__pair_sources *s)
{
    mha__free(ctx, s->ids);
    mha__free(ctx, s->starts);
    mha__free(ctx, s->batch_starts);
    mha__free(ctx, s->batch);
}
