/* model_ranks.h - one model run by several processes, each of which stores a part of its weights (tensor
 * parallelism).
 *
 * Tensor parallelism is for models that do not fit in the memory of one machine. Each process (rank) opens the same
 * folder with its own mha_model_ranks, and then makes the same calls in the same order, with the same arguments:
 *
 *     mha_model_ranks ranks = {.size = sizeof ranks, .rank = 1, .ranks = 4, .exchange = exchange};
 *     const mha_model_options options = {.size = sizeof options, .ranks = &ranks};
 *     mha_model_open(ctx, folder, &options, &model, &err);
 *     mha_model_score(model, ids, count, logprob, &err);
 *
 * The library divides the weights and adds the results; the caller's `exchange` only moves bytes. libmha_mpi provides
 * one (mha_cluster_model_ranks in cluster_model.h).
 *
 * Division: the heads of a layer, the columns of its feed-forward and the tokens of the vocabulary are each divided
 * into MHA_RANK_GROUPS groups. Group g of N items begins at item g N / 8, rounded down. Rank r of P holds the groups
 * from 8 r / P up to 8 (r + 1) / P, both rounded down (mha_model_ranks_range): the rows of q, k and v and the columns
 * of the output projection of its heads, the rows of gate and up and the columns of down of its feed-forward columns,
 * and the embeddings and output rows of its tokens. It reads only these parts of the files. Ranks whose heads read one
 * key head hold copies of it; if the heads of a rank read several key heads unevenly, it holds one for each group of
 * gcd(first head, heads, heads that share a key head) of its heads. All ranks hold the norms, the biases of the output
 * projection and of down, the position embeddings, and the dense layers before the first and after the last layer. Any
 * head count and 1 to 8 ranks are supported; a rank without heads computes one head, which is not used.
 *
 * Results: the output projection and down are computed group by group, and the results of the groups are added in the
 * tree ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), then the bias. All results are therefore bitwise identical on all
 * ranks and for any number of ranks, including 1. A model opened without ranks adds in another order, so its results
 * differ within rounding (logits of the small test models in f32: by at most 2e-6 of the largest).
 *
 * Messages per pass and rank, for L tokens: an exchange of embeddings, two exchanges per layer (4 L E bytes to each
 * other rank for each subtree of groups that the rank holds), and an exchange of logits. With more than 2 ranks, if
 * 4 L E exceeds 32 KiB, each rank adds a part of the elements, and a second exchange distributes the sums, which
 * sends fewer bytes. Long passes exchange 128 tokens at a time.
 *
 * Memory of a rank, where f is its number of groups / 8, and w the bytes per packed weight (mha_model_options.dtype):
 *
 *     f w (weights of all layers and of the output matrix, which is packed even if it is tied)
 *     + f 4 vocab E           word embeddings in f32, or pages of the file if they are used in place
 *     + norms, biases and position embeddings
 *     + f (keys and values)   of the cache; copied key heads count here and in the weights
 *     + while the model is opened, f (4 + bytes per stored weight) (weights of one layer)
 *     + at most 4 128 E 7     workspace of the sums
 *     + the activations of a pass, of which q, k, v, the context and the feed-forward are divided
 *
 * Supported: decoders and encoders of every family, with these exceptions, which mha_model_open rejects with
 * MHA_ERR_UNSUPPORTED before it reads a weight: encoder-decoders, relative positions (such as MPNet), latent attention
 * (DeepSeek-V3), norms over all heads (OLMo 2), experts (such as Mixtral), head selection per text, and a vocabulary of
 * less than MHA_RANK_GROUPS tokens. The model runs with mha_model_forward, mha_model_embed,
 * mha_model_fingerprint and the functions of generate.h. Gates, fills, context, kept, and all callbacks except
 * on_hidden are MHA_ERR_UNSUPPORTED, as are functions that compute gradients.
 *
 * Failures: if a rank fails in mha_model_open, the other ranks fail with its message after "rank R: ". After any other
 * failure except MHA_ERR_ARG and MHA_ERR_UNSUPPORTED, the other ranks may wait for this one in `exchange`, which
 * should then time out. */
#ifndef MHA_MODEL_RANKS_H
#define MHA_MODEL_RANKS_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MHA_RANK_GROUPS = 8 };

typedef struct mha_model_ranks {
    size_t size;
    int rank, ranks; /* index of this process; number of processes, 1 to MHA_RANK_GROUPS */
    /* Collective: all ranks call it with matching sizes. Sends send[r] to rank r and receives receive[r] from rank r,
     * for each other rank r; the entries of this rank are unused, and 0 bytes are neither sent nor received. Returns
     * once all bytes have arrived and `send` may be changed. Called on the thread that runs the model; may be NULL with
     * 1 rank. A failure ends the call with this status and message; `err` is never NULL. */
    mha_status (*exchange)(void *user, const void *const *send, const size_t *send_bytes, void *const *receive,
                           const size_t *receive_bytes, mha_error *err);
    void *user; /* must remain valid as long as the model exists */
} mha_model_ranks;

typedef struct mha_model_range {
    int64_t first, count;
} mha_model_range;

/* Returns the part of `items` heads, columns or tokens that belongs to a rank. All fields are 0 for invalid
 * arguments. */
MHA_API mha_model_range mha_model_ranks_range(int64_t items, int ranks, int rank);

#ifdef __cplusplus
}
#endif
#endif
