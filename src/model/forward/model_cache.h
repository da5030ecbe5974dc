/* model_cache.h - internals of a model's cache. */
#ifndef MHA_MODEL_FORWARD_MODEL_CACHE_H
#define MHA_MODEL_FORWARD_MODEL_CACHE_H

#include "model/model_struct.h"

struct mha_model_cache {
    mha_ctx *ctx;
    const mha_model *model;
    int64_t batch, tokens; /* number of sequences, and capacity of each sequence */
    mha_cache *layer[];    /* [layers], all of the same length */
};

#endif
