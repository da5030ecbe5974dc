/* key_shards.h - the keys and values that one rank caches for a sequence distributed over a cp group, and the attention
 * of one new token to the keys of all ranks. */
#ifndef MHA_MPI_KEY_SHARDS_H
#define MHA_MPI_KEY_SHARDS_H

#include "library/model/key_layout.h"
#include "library/model/partial_exchange.h"
#include "mha/cache.h"

typedef struct mha__key_shards {
    mha_cluster *cluster;
    mha_ctx *ctx;
    mha_cluster_mode mode;
    mha__key_layout layout;
    int64_t room; /* maximum length */
    int64_t layers;
    mha_cache **cache; /* [layers] caches with one sequence per range of this rank; NULL before the layer's first
                        * call */
    mha__exchange exchange;
} mha__key_shards;

/* Begins a sequence whose prompt has `prompt` tokens; removes all cached keys. */
void mha__shards_begin(mha__key_shards *shards, int64_t prompt);
/* Extends the sequence by one token. Fails if the sequence has the maximum length. */
mha_status mha__shards_grow(mha__key_shards *shards, mha_error *err);
void mha__shards_free(mha__key_shards *shards);

/* Functions for mha_model_shard.attend; `user` is an mha__key_shards. mha__shards_prefill computes and caches this
 * rank's part of the prompt; mha__shards_decode computes the last token of the sequence, which every rank passes. */
mha_status mha__shards_prefill(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                               mha_error *err);
mha_status mha__shards_decode(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                              mha_error *err);

#endif
