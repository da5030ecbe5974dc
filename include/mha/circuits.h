/* circuits.h - what the parts of a model do to its answer: activation patching, attribution patching, path patching and
 * attention knockout on a clean and a corrupted prompt.
 *
 *     const mha_prompt_pair_options o = {.size = sizeof o, .clean = ids, .corrupted = other, .length = T,
 *                                        .answer = a, .wrong = b};
 *     mha_prompt_pair *pair;
 *     double effect[MHA_CIRCUIT_METRICS * layers * heads];
 *     mha_prompt_pair_create(model, &o, &pair, &err);            runs both prompts and keeps their activations
 *     mha_patch(pair, MHA_SITE_Z, MHA_BY_HEAD, MHA_DENOISE, effect, &err);
 *
 * Supported: all decoders and masked LMs of model.h with logits, opened in f32, grouped heads, pruned layers and
 * experts included. MHA_ERR_UNSUPPORTED, with the reason, for encoder-decoders, layers that select heads per text,
 * models that are divided among processes or opened in another type, and for measures that a family does not define
 * (below).
 *
 * Sources: Vig et al. 2020; Meng et al. 2022 (causal tracing); Nanda 2023, Syed et al. 2023 (attribution patching);
 * Kramar et al. 2024 (AtP*); Hanna et al. 2024 (EAP-IG); Wang et al. 2022, Goldowsky-Dill et al. 2023 (path patching);
 * Geva et al. 2023 (knockout). */
#ifndef MHA_CIRCUITS_H
#define MHA_CIRCUITS_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a pair of prompts ---- */

/* A model, a clean and a corrupted prompt, the activations of both runs, and the position where the answer is
 * predicted. Immutable: several threads may use one pair. */
typedef struct mha_prompt_pair mha_prompt_pair;

/* The metrics at the position, from its logits g, in nats. Results have one block per metric, in this order. */
typedef enum mha_circuit_metric {
    MHA_LOGIT_DIFF = 0, /* g[answer] - g[wrong] */
    MHA_LOGPROB,        /* log softmax(g)[answer] */
    MHA_KL,             /* sum over v of P_clean(v) (log P_clean(v) - log P(v)): 0 in the clean run */
    MHA_CIRCUIT_METRICS
} mha_circuit_metric;

typedef enum mha_prompt_run { MHA_RUN_CLEAN = 0, MHA_RUN_CORRUPTED } mha_prompt_run;

typedef struct mha_prompt_pair_options {
    size_t size;
    const int32_t *clean, *corrupted; /* [length] token ids of both prompts; required */
    int64_t length;                   /* T > 0, the same for both */
    int32_t answer, wrong;            /* the right token and the token that it is compared with */
    const int64_t *position;          /* 0 .. T-1, the token whose logits are measured; NULL = the last */
    /* [T, W] added to the word embeddings of the corrupted prompt, before positions and scaling; W is the width of the
     * embedding table. For corruption by noise (Meng et al. 2022), `corrupted` has the ids of the clean prompt. NULL =
     * none. */
    const float *noise;
} mha_prompt_pair_options;

/* Runs both prompts. `model` must outlive the pair; ids and noise may be freed. Memory: both runs keep about
 * 5 E + (2 H + 2 Hkv) D floats per token and layer, and the maps. Errors: MHA_ERR_ARG for an id outside the vocabulary
 * or a position outside the prompt, MHA_ERR_UNSUPPORTED, MHA_ERR_MEMORY, MHA_ERR_CANCELED. */
MHA_API mha_status mha_prompt_pair_create(const mha_model *model, const mha_prompt_pair_options *options,
                                          mha_prompt_pair **out, mha_error *err);
MHA_API void mha_prompt_pair_free(mha_prompt_pair *pair);

/* Writes the metrics of an unchanged run: metrics [MHA_CIRCUIT_METRICS]. */
MHA_API mha_status mha_prompt_pair_metrics(const mha_prompt_pair *pair, mha_prompt_run run, double *metrics,
                                           mha_error *err);
/* Returns the logits [vocab] of an unchanged run at the position. Valid until the pair is freed; NULL for an unknown
 * run. */
MHA_API const float *mha_prompt_pair_logits(const mha_prompt_pair *pair, mha_prompt_run run);
/* Returns the attention map [T, T] of a head in an unchanged run; NULL for an unknown head. */
MHA_API const float *mha_prompt_pair_map(const mha_prompt_pair *pair, mha_prompt_run run, int64_t layer, int64_t head);
MHA_API int64_t mha_prompt_pair_length(const mha_prompt_pair *pair);
MHA_API int64_t mha_prompt_pair_position(const mha_prompt_pair *pair);

/* Returns W, the width of the word embeddings. */
MHA_API int64_t mha_prompt_noise_width(const mha_model *model);
/* Writes noise [length, W] for mha_prompt_pair_options: at the given positions s std(E) n, where std(E) is the standard
 * deviation of the whole embedding table, s is `times_std` (3 in Meng et al. 2022) and n are standard normal draws from
 * `seed`, as by PyTorch; 0 elsewhere. Average about 10 draws. Errors: MHA_ERR_ARG for a position outside 0 .. length-1,
 * MHA_ERR_UNSUPPORTED for a table that is not stored as f32. */
MHA_API mha_status mha_prompt_noise(const mha_model *model, int64_t length, const int64_t *positions, int64_t count,
                                    double times_std, uint64_t seed, float *noise, mha_error *err);

/* Returns the Kullback-Leibler divergence [nats] of two distributions given by their logits p and q [count]: sum over v
 * of P(v) (log P(v) - log Q(v)) with P = softmax(p) and Q = softmax(q), at least 0. Logits of -inf are probabilities of
 * 0; the result is inf if Q(v) is 0 where P(v) is not, and NaN if a logit is NaN or +inf, all logits of a row are -inf,
 * p or q is NULL, or count < 1. Computed in double. Divide by log 2 for bits. */
MHA_API double mha_kl_divergence(const float *p, const float *q, int64_t count);

/* Returns (value - corrupted) / (clean - corrupted): 1 is as in the clean run, 0 as in the corrupted run. Returns NaN
 * if the two runs differ by less than 1e-3 nats: show raw values then. For several pairs, take the means of the three
 * arguments first. */
MHA_API double mha_patch_normalized(double value, double clean, double corrupted);

/* ---- sites and parts ---- */

/* Activations of a layer. Shapes are per token; G is the number of key/value heads.
 *
 *                   decoder (pre-norm)                             BERT (post-norm)
 *     resid_pre     input of the layer, before its norm            input of the layer
 *     q, k, v       [H, D], [G, D] as the operator reads them; a rotation does not change what patching does
 *     pattern       [H, T] softmax weights of the query
 *     z             [H, D] output of the head, before the output projection
 *     attn_out      output projection, before norm and residual
 *     resid_mid     resid_pre + attn_out                           norm(resid_pre + attn_out)
 *     mlp_out       feed-forward output, before norm and residual
 *     resid_post    resid_mid + mlp_out                            norm(resid_mid + mlp_out)
 *
 * Blocks that compute attention and feed-forward in parallel (gpt_neox, phi, cohere) have no resid_mid. */
typedef enum mha_site {
    MHA_SITE_RESID_PRE = 0,
    MHA_SITE_RESID_MID,
    MHA_SITE_RESID_POST,
    MHA_SITE_ATTN_OUT,
    MHA_SITE_MLP_OUT,
    MHA_SITE_Q,
    MHA_SITE_K,
    MHA_SITE_V,
    MHA_SITE_Z,
    MHA_SITE_PATTERN,
    MHA_SITES
} mha_site;

/* Returns "resid_pre" and so on; "unknown" for other values. */
MHA_API const char *mha_site_name(mha_site site);

/* What one part is. Position is for the five sites without heads; the other two are for q, k, v, z and pattern, whose
 * heads are key/value heads for k and v. A row of pattern is that of the query. */
typedef enum mha_patch_by { MHA_BY_POSITION = 0, MHA_BY_HEAD, MHA_BY_HEAD_POSITION } mha_patch_by;

/* Which run is repeated with a part of the other: denoise repeats the corrupted run with a part of the clean run (is
 * the part sufficient?), noise the clean run with a part of the corrupted run (is it necessary?). */
typedef enum mha_patch_direction { MHA_DENOISE = 0, MHA_NOISE } mha_patch_direction;

/* Writes the shape of the results for one metric and returns the number of dimensions: [L, T], [L, heads] or
 * [L, heads, T]. Returns 0 for a granularity that the site does not have. */
MHA_API int mha_patch_shape(const mha_prompt_pair *pair, mha_site site, mha_patch_by by, int64_t shape[3]);

/* Patches one part after another: for each part, the base run is repeated with this part replaced by its value in the
 * other run, and everything after it is recomputed. out [MHA_CIRCUIT_METRICS, shape] gets the metrics of these runs. A
 * pruned layer's missing heads get the metrics of the base run. Cost: a pass of T tokens from the layer of each part to
 * the end, in batches; none for parts that are equal in both runs or cannot reach the position. Reports progress as
 * "patch". Results are bitwise identical for any number of threads; a part that is equal in both runs gives the metrics
 * of the base run to the bit. Errors: MHA_ERR_ARG for a granularity that the site does not have, MHA_ERR_UNSUPPORTED
 * for resid_mid of parallel blocks, MHA_ERR_MEMORY, MHA_ERR_CANCELED. */
MHA_API mha_status mha_patch(const mha_prompt_pair *pair, mha_site site, mha_patch_by by, mha_patch_direction direction,
                             double *out, mha_error *err);

/* Like mha_patch, and stores the metrics so far in the file `state`, so that an interrupted or killed run can resume
 * with a bitwise identical result; NULL = no file. The file is read if it exists, and replaced atomically about once a
 * second, at the end, and on cancellation. It contains 24 bytes per part. Additional cost: a read of the weights and a
 * pass over a few tokens, which identify the model. Errors: MHA_ERR_ARG if the file belongs to another model, other
 * prompts, answers or noise, another position, site, granularity or direction; MHA_ERR_FORMAT and MHA_ERR_IO, naming
 * the file. `out` is undefined after an error. */
MHA_API mha_status mha_patch_resume(const mha_prompt_pair *pair, mha_site site, mha_patch_by by,
                                    mha_patch_direction direction, const char *state, double *out, mha_error *err);

/* Returns the number of passes that mha_patch runs. */
MHA_API int64_t mha_patch_passes(const mha_prompt_pair *pair, mha_site site, mha_patch_by by,
                                 mha_patch_direction direction);

/* A part: of the head `head` (-1 = all heads, or a site without heads) at the token `position` (-1 = all tokens). */
typedef struct mha_patch_part {
    mha_site site;
    int64_t layer, head, position;
} mha_patch_part;

/* Patches `count` parts in the same pass; metrics [MHA_CIRCUIT_METRICS]. Patching resid_pre of layer 0 at all tokens
 * gives the metrics of the other run to the bit. */
MHA_API mha_status mha_patch_together(const mha_prompt_pair *pair, mha_patch_direction direction,
                                      const mha_patch_part *parts, int64_t count, double *metrics, mha_error *err);

/* ---- attribution patching ---- */

/* Estimates of the change that patching a part makes, from gradients of the metrics in the base run: <y1 - y0, dm/dy>,
 * where y0 and y1 are the part in the base run and in the other run. */
typedef enum mha_estimate {
    MHA_ESTIMATE_ATTR = 0, /* gradient of the base run */
    MHA_ESTIMATE_IG,       /* mean gradient of 8 runs from x0 + (j + 1/2)/8 (x1 - x0), x the input of layer 0 */
    MHA_ESTIMATE_QKFIX     /* AtP*: only q and k by head and position. The softmax of the changed scores is recomputed,
                            * and the change of the map is multiplied by the gradient of the map */
} mha_estimate;

/* Writes out [MHA_CIRCUIT_METRICS, shape]: estimated changes in nats (not metrics), shaped as in mha_patch. An
 * estimate: where the softmax is saturated, or an effect is not linear, it is wrong; check the largest parts with
 * mha_patch. Estimates of a head are the sums over its tokens. Cost: one forward and backward pass of 3 T tokens, eight
 * for MHA_ESTIMATE_IG. The gradient of MHA_KL is 0 in the clean run, so its estimates are 0 with MHA_NOISE. Errors: as
 * in mha_patch; MHA_ERR_ARG for MHA_ESTIMATE_QKFIX of another site; MHA_ERR_UNSUPPORTED for q and k of layers whose
 * scores have terms of relative positions from q and k (deberta-v2). */
MHA_API mha_status mha_attribution(const mha_prompt_pair *pair, mha_estimate estimate, mha_site site, mha_patch_by by,
                                   mha_patch_direction direction, double *out, mha_error *err);

/* ---- path patching ---- */

typedef enum mha_path_receiver {
    MHA_PATH_Q = 0,
    MHA_PATH_K,
    MHA_PATH_V,
    MHA_PATH_LOGITS,
    MHA_PATH_MLP /* input of feed-forward; only of mha_path_edges */
} mha_path_receiver;

/* Changes only the direct path from one head to another, through the residual stream: the receiver's q, k or v is
 * computed from norm(resid_pre + w), where w is the change of the sender's output, and everything between them keeps
 * its value in the base run. The norm is recomputed; a norm after the sender's output projection (gemma2) keeps its
 * scale. out [MHA_CIRCUIT_METRICS, L H, R]: row = sender, column = receiver, numbered layer * heads + head. R is L
 * times the heads in mha_patch_shape of q, k or v by head, so that the receivers for k and v are key/value heads, and 1
 * for the logits, whose receiver is the final residual. Receivers that are not in a later layer hold the metrics of the
 * base run. Cost: one pass from the receiver's layer per pair. Reports progress as "path", in senders.
 * MHA_ERR_UNSUPPORTED for post-norm blocks: they have no direct path around a norm. */
MHA_API mha_status mha_path_patch(const mha_prompt_pair *pair, mha_path_receiver to, mha_patch_direction direction,
                                  double *out, mha_error *err);

typedef enum mha_path_sender { MHA_PATH_FROM_EMBEDDING = 0, MHA_PATH_FROM_HEAD, MHA_PATH_FROM_MLP } mha_path_sender;

/* One edge: a direct path from a sender to a receiver. Layers and heads are -1 for nodes that have none; to_head is a
 * key/value head for k and v. */
typedef struct mha_path_edge {
    mha_path_sender from;
    mha_path_receiver to;
    int64_t from_layer, from_head, to_layer, to_head;
} mha_path_edge;

/* Returns the number of edges of the model: from the input of layer 0, each head and each feed-forward part to the q, k
 * and v of later heads, to later feed-forward parts (from a head also to that of its layer, unless the block is
 * parallel), and to the logits. O((L (H + 1))^2) edges; 0 for NULL. */
MHA_API int64_t mha_path_edge_count(const mha_prompt_pair *pair);
/* Patches one edge after another. For edges between heads, the results are bitwise identical to those of
 * mha_path_patch. edges [mha_path_edge_count] gets the edges, by sender; out [MHA_CIRCUIT_METRICS, edges] the metrics.
 * A norm after feed-forward keeps its scale. For edges from a sender that is equal in both runs, the metrics are
 * bitwise identical to those of the base run. Cost: one pass from the receiver's layer per other edge. Errors and
 * progress as in mha_path_patch, but in edges. */
MHA_API mha_status mha_path_edges(const mha_prompt_pair *pair, mha_patch_direction direction, mha_path_edge *edges,
                                  double *out, mha_error *err);

/* ---- attention knockout ---- */

typedef enum mha_knockout_mode {
    MHA_KNOCKOUT_RENORM = 0, /* the key is masked before the softmax: the other keys of the row get its weight */
    MHA_KNOCKOUT_ZERO        /* its weight becomes 0 after the softmax: the row sums to less than 1 */
} mha_knockout_mode;

/* One edge: query i attends to key j. -1 = all: all layers, heads, queries or keys. A row without keys gives z = 0. */
typedef struct mha_attention_edge {
    int64_t layer, head, query, key;
} mha_attention_edge;

/* Runs a prompt, normally the clean one, with `count` edges removed together; metrics [MHA_CIRCUIT_METRICS]. Edges that
 * the mask excludes anyway have no effect. */
MHA_API mha_status mha_knockout(const mha_prompt_pair *pair, mha_prompt_run run, mha_knockout_mode mode,
                                const mha_attention_edge *edges, int64_t count, double *metrics, mha_error *err);

/* Like mha_model_forward, with `count` edges removed in every sequence of the batch, before the softmax
 * (MHA_KNOCKOUT_RENORM); gates, fills and all outputs work as there. Without edges, results are bitwise identical to
 * those of mha_model_forward. cache, starts, shard, pixels and features of `input` must be NULL. Errors: those of
 * mha_model_forward; MHA_ERR_ARG for an edge outside the model or the sequence; MHA_ERR_UNSUPPORTED as above, but
 * models without logits are supported. Additional memory: H L^2 bytes, or with a mask that has zeros before ones,
 * B H L^2 bytes. */
MHA_API mha_status mha_knockout_forward(const mha_model *model, const mha_model_input *input,
                                        const mha_model_output *output, const mha_attention_edge *edges, int64_t count,
                                        mha_error *err);

/* Knockouts of the clean run, one after another. p is the position. */
typedef enum mha_knockout_sweep {
    MHA_KNOCKOUT_HEAD = 0, /* [L, H, T] the edge p -> j in one head */
    MHA_KNOCKOUT_LAYER,    /* [L, T] p -> j in all heads of a layer */
    MHA_KNOCKOUT_ALL,      /* [T] p -> j in all layers */
    MHA_KNOCKOUT_COLUMN,   /* [L, T] key j for all other queries i (decoders: i > j) in a layer */
    MHA_KNOCKOUT_ROW       /* [L, H] all keys of p in one head */
} mha_knockout_sweep;

/* Writes the shape for one metric and returns the number of dimensions; 0 for an unknown value. */
MHA_API int mha_knockout_shape(const mha_prompt_pair *pair, mha_knockout_sweep sweep, int64_t shape[3]);
/* out [MHA_CIRCUIT_METRICS, shape]. Cost and progress as in mha_patch, with "knockout". */
MHA_API mha_status mha_knockout_each(const mha_prompt_pair *pair, mha_knockout_mode mode, mha_knockout_sweep sweep,
                                     double *out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
