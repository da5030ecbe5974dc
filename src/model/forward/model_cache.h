/* model_cache.h - inside of a model's cache. */
#ifndef MHA_MODEL_FORWARD_MODEL_CACHE_H
#define MHA_MODEL_FORWARD_MODEL_CACHE_H

#include "model/model_struct.h"

struct mha_model_cache {
    mha_ctx *ctx;
    const mha_model *model;
    int64_t batch, tokens; /* sequences, and room for each */
    mha_cache *layer[];    /* [layers], of equal lengths */
};

#endif
