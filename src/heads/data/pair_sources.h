/* pair_sources.h - the sources of source/target pairs, in the order in which measures run the targets. */
#ifndef MHA_HEADS_DATA_PAIR_SOURCES_H
#define MHA_HEADS_DATA_PAIR_SOURCES_H

#include "heads/data/tokens/token_list.h"

typedef struct mha__pair_sources {
    int32_t *ids;           /* [starts[count]] in processing order; NULL = no pairs */
    int64_t *starts;        /* [count + 1] index of the first token of the source at each position */
    int64_t max;            /* maximum number of tokens in a source */
    int64_t *batch_starts;  /* for each batch, the starts of its sources from 0, then their token count */
    mha_model_input *batch; /* [batches] input of the encoder for each batch */
} mha__pair_sources;

/* Copies the collected sources in the order `order` [count]. Free with mha__pair_sources_free, also after a failure. */
mha_status mha__pair_sources_lay(mha_ctx *ctx, const mha__gather *sources, const int64_t *order, mha__pair_sources *to,
                                 mha_error *err);
/* Describes the inputs of the batches; batch n has the positions first[n] to first[n + 1] - 1. */
mha_status mha__pair_sources_divide(mha_ctx *ctx, mha__pair_sources *sources, const int64_t *first, int64_t batches,
                                    mha_error *err);
void mha__pair_sources_free(mha_ctx *ctx, mha__pair_sources *sources);

#endif
