/* cluster_model.h - runs a model over one long text whose sequence is divided among the ranks of a cp group
 * (libmha_mpi).
 *
 *     mha_cluster_options o = {.size = sizeof o, .cp = -1};                     all ranks form one cp group
 *     mha_cluster_open(&o, &cluster, &err);
 *     mha_cluster_ctx_create(cluster, NULL, 0, &ctx, &err);
 *     mha_model_open(ctx, folder, NULL, &model, &err);                          all ranks
 *     mha_cluster_model_score(cluster, model, MHA_CLUSTER_TREE, ids, count, logprob, &err);
 *
 * Every rank opens the whole model, computes the tokens of its part (mha_cluster_part_of) through all layers, and
 * attends to the keys of all ranks with mha_cluster_attention. In the modes tree and ordered, all results are bitwise
 * identical to those of one process. Chunks are multiples of MHA_ATTN_CHUNK tokens, so a text is divided only if it has
 * more than MHA_ATTN_CHUNK tokens.
 *
 * All functions are collective over the ranks of a cp group; all ranks must pass the same arguments. `model` must use a
 * context of mha_cluster_ctx_create. Invalid arguments and unsupported models fail on all ranks, before any transfer.
 * After any other failure, the other ranks may wait for the failed rank; the cluster then counts as broken
 * (mha_cluster_broken), and the program should call mha_cluster_abort.
 *
 * Memory per rank for n tokens of its part: the weights; 4 n (2 E + (2 H + 2 Hkv) D + R) bytes of activations, with R
 * rotated columns per head; the feed-forward activations of 512 tokens; and the memory of the mode (cluster.h) for one
 * layer. mha_cluster_model_generate also caches 2 n Hkv D elements per layer. */
#ifndef MHA_CLUSTER_MODEL_H
#define MHA_CLUSTER_MODEL_H

#include "mha/cluster.h"
#include "mha/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a model whose weights are divided among the ranks of a tp group ---- */

/* Returns the ranks of this rank's tp group (model_ranks.h), valid until the cluster is freed; NULL if the cluster is
 * NULL. tp must be at most MHA_RANK_GROUPS for mha_model_open to accept them:
 *
 *     mha_cluster_options o = {.size = sizeof o, .tp = 4};
 *     mha_cluster_open(&o, &cluster, &err);
 *     mha_cluster_ctx_create(cluster, NULL, 0, &ctx, &err);
 *     const mha_model_options how = {.size = sizeof how, .ranks = mha_cluster_model_ranks(cluster)};
 *     mha_model_open(ctx, folder, &how, &model, &err);
 *     mha_model_generate(model, prompts, count, &options, ids, lengths, &err);
 *
 * The model runs with the functions of model.h and generate.h, called by all ranks of the group. An exchange is one
 * message to and one from each other rank, without barriers. The functions below accept such a model, too: they divide
 * a long text among the cp ranks, and the weights among the tp ranks. If a rank fails during a pass (except with
 * MHA_ERR_ARG and MHA_ERR_UNSUPPORTED, which all ranks get), the other ranks wait for it until the timeout, so the
 * program should call mha_cluster_abort. */
MHA_API const mha_model_ranks *mha_cluster_model_ranks(mha_cluster *cluster);

/* ---- a sequence divided among the ranks of a cp group ---- */

/* Collective. Returns 1 if the functions below divide a text of `length` tokens; 0 if it has at most MHA_ATTN_CHUNK
 * tokens, if the cp group has one rank, or if the model does not support shards (mha_model_input.shard). */
MHA_API int mha_cluster_model_divides(const mha_cluster *cluster, const mha_model *model, int64_t length);

/* Collective. Runs mha_model_forward on the tokens of this rank's part. `input` describes the whole sequence, without a
 * shard. last_hidden, logits and on_hidden of `output` have the rows of this rank's part; pooled and last_logits are
 * written on all ranks. Errors: those of mha_model_forward with a shard; those of mha_cluster_attention. */
MHA_API mha_status mha_cluster_model_forward(mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode,
                                             const mha_model_input *input, const mha_model_output *output,
                                             mha_error *err);

/* Collective. Gathers the rows of all ranks' parts of a sequence of `length` tokens, `bytes` bytes per token. `own`
 * contains this rank's rows. On cp rank 0, `all` [length] receives all rows in order; other ranks do not use `all`. */
MHA_API mha_status mha_cluster_gather_rows(mha_cluster *cluster, int64_t length, size_t bytes, const void *own,
                                           void *all, mha_error *err);

/* Collective. Like mha_model_score, mha_model_embed and mha_model_generate; results are written on all ranks. Each rank
 * computes the whole text alone if mha_cluster_model_divides returns 0 for its length, and in mha_cluster_model_score
 * also if the model's rotary embedding depends on the length.
 *
 * embed: options->pool_long must be NULL.
 * generate: keys and values stay on the rank that computed them. Keys and values of new tokens extend the last chunk of
 * the prompt; later chunks are assigned to the ranks in turn. Every rank computes each new token and attends to its own
 * keys; partial results are merged over the ranks in the operator's tree, in log2(cp) exchanges of a few times (2 + D)
 * H elements, also in mode ring. Prompts run one after another: at_once and lookup are ignored, and options->forward
 * must be NULL. With cache_dtype or no_cache, every rank computes all prompts alone. */
MHA_API mha_status mha_cluster_model_score(mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode,
                                           const int32_t *ids, int64_t count, float *logprob, mha_error *err);
MHA_API mha_status mha_cluster_model_embed(mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode,
                                           const char *const *texts, int64_t count, const mha_embed_options *options,
                                           float *out, mha_error *err);
MHA_API mha_status mha_cluster_model_generate(mha_cluster *cluster, const mha_model *model, mha_cluster_mode mode,
                                              const mha_prompt *prompts, int64_t count,
                                              const mha_generate_options *options, int32_t *out, int64_t *lengths,
                                              mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
