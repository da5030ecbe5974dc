/* model_cache.h - internals of a model's cache. */
#ifndef MHA_MODEL_FORWARD_MODEL_CACHE_H
#define MHA_MODEL_FORWARD_MODEL_CACHE_H

#include "model/forward/source_store.h"

struct mha_model_cache {
    mha_ctx *ctx;
    const mha_model *model;
    int64_t batch, tokens; /* number of sequences, and capacity of each sequence */
    mha__sources sources;  /* encoder-decoders: keys and values of the sources; kv NULL for other models */
    void *source_memory;
    size_t source_bytes;
    mha_cache *layer[]; /* [layers], all of the same length */
};

#endif
