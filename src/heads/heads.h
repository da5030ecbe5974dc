/* heads.h - the result of a measurement, inside. Public side: mha/heads.h. */
#ifndef MHA_HEADS_HEADS_H
#define MHA_HEADS_HEADS_H

#include "heads/stats.h"

struct mha_heads {
    mha_ctx *ctx;
    int64_t layers;
    int64_t *first;         /* [layers + 1] number of heads before each layer */
    mha__head_stats *stats; /* [heads of all layers] */
    mha_encoding *tokens;   /* with keep_maps: of the one text */
    float **maps;           /* with keep_maps: [layers], each [heads, n, n] */
};

/* An empty result for the heads of a model. *out may be half made after a failure: free it. */
mha_status mha__heads_create(const mha_model *model, mha_heads **out, mha_error *err);

/* Adds the probe scores of the texts ids [batch, length], each [start tokens] r r [...] with `period` tokens in r. */
mha_status mha__heads_probe(const mha_model *model, mha_heads *heads, const int32_t *ids, int64_t batch, int64_t length,
                            int64_t start, int64_t period, mha_error *err);

/* Draws the probe texts from `seed` and adds their scores. Does nothing (the scores stay NAN) when the model is too short or the
 * vocabulary too small for them. */
mha_status mha__heads_draw_probe(const mha_model *model, mha_heads *heads, uint64_t seed, mha_error *err);

#endif
