/* heads.h - the result of a measurement, inside. Public side: mha/heads.h. */
#ifndef MHA_HEADS_HEADS_H
#define MHA_HEADS_HEADS_H

#include "heads/frame.h"

struct mha_heads {
    mha_ctx *ctx;
    int64_t layers;
    mha__frame frame;
    int64_t *first;         /* [layers + 1] number of heads before each layer */
    mha__head_stats *stats; /* [heads of all layers] */
    mha_encoding *tokens;   /* with keep_maps: of the one text */
    float **maps;           /* with keep_maps: [layers], each [heads, n, n] */
};

/* An empty result for the heads of a model. *out may be half made after a failure: free it. */
mha_status mha__heads_create(const mha_model *model, mha_heads **out, mha_error *err);

/* Adds the scores of the probe texts, of `wanted` or drawn from `seed`. Does nothing (the scores stay NAN) when no
 * texts are given and the model is too short or the vocabulary too small for drawn ones. */
mha_status mha__heads_probe(const mha_model *model, mha_heads *heads, const mha_head_probe *wanted, uint64_t seed,
                            mha_error *err);

#endif
