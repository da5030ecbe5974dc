/* key_shards.h - the keys and values that one rank caches for a sequence that the ranks of a cp group share, and
 * attention of one new token to the keys of all ranks. */
#ifndef MHA_MPI_KEY_SHARDS_H
#define MHA_MPI_KEY_SHARDS_H

#include "key_layout.h"
#include "mha/cache.h"
#include "partial_exchange.h"

typedef struct mha__key_shards {
    mha_cluster *cluster;
    mha_ctx *ctx;
    mha_cluster_mode mode;
    mha__key_layout layout;
    int64_t room; /* maximum length */
    int64_t layers;
    mha_cache **cache; /* [layers] a sequence per range of this rank; NULL before the layer's first call */
    mha__exchange exchange;
} mha__key_shards;

/* Starts a sequence with the prompt of layout.length tokens: removes all cached keys. */
void mha__shards_begin(mha__key_shards *shards, int64_t prompt);
/* Prepares for one more token. */
mha_status mha__shards_grow(mha__key_shards *shards, mha_error *err);
void mha__shards_free(mha__key_shards *shards);

/* Functions for mha_model_shard.attend; `user` is a mha__key_shards. The first computes and caches this rank's part of
 * the prompt, the second the last token of the sequence, which every rank passes. */
mha_status mha__shards_prefill(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                               mha_error *err);
mha_status mha__shards_decode(void *user, int64_t layer, const mha_attn_desc *desc, const mha_attn_args *args,
                              mha_error *err);

#endif
