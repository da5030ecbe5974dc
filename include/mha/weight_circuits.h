/* weight_circuits.h - what heads can compute, from the weights alone: singular values of the QK and OV circuits,
 * copying scores, and composition of heads of different layers (Elhage et al. 2021).
 *
 *     mha_weight_circuits *c;
 *     if (mha_weight_circuits_measure(model, NULL, &c, &err) != MHA_OK) return report(&err);
 *     double score = mha_weight_circuits_copying(c, 1, 3, 1);
 *     double ratio = mha_weight_circuits_composition(c, MHA_CIRCUIT_COMPOSE_K, 0, 5, 1, 3);
 *     double excess = ratio - mha_weight_circuits_baseline(c);
 *     mha_weight_circuits_free(c);
 *
 * A head has the rows Q, K, V [D, E] of its projections and O [D, E], the transpose of its columns of the output
 * projection. Query heads that share keys or values have the same K or V. Two matrices [E, E] of rank D at most
 * describe the head:
 *
 *     W_QK = Q^T K     score of the pair of tokens i, j = x_i^T W_QK x_j / sqrt(D)
 *     W_OV = O^T V     W_OV x_j is written to the residual stream if the head attends to token j
 *
 * Biases are not included, nor are scalar factors of a family (residual_multiplier of Granite, embeddings times sqrt(E)
 * of Gemma). The weights are those of the checkpoint, whatever type the model is packed in.
 *
 * Folding. By default, the norms around the head are part of the circuits, because a head reads and writes normalized
 * directions. With C = I - 1 1^T / E for LayerNorm, which subtracts the mean, and C = I for RMSNorm:
 *
 *     Q, K, V    multiplied by the weight of the norm before attention, then by C
 *     O          multiplied by the weight of the norm after attention, if there is one (Gemma-2), then by C. The
 *                scale of that norm depends on the text; W_OV is then defined up to a positive factor per token
 *     U          multiplied by the weight of the final norm, then by C
 *
 * Numbers: all sums are in double, except that the products of composition are in f32, with a relative error of the
 * scores of about 1e-7. Results are bitwise identical for any number of threads.
 */
#ifndef MHA_WEIGHT_CIRCUITS_H
#define MHA_WEIGHT_CIRCUITS_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, one line of explanation). U [vocab, E] is the output matrix, E the word embeddings. s is a sender, a
 * head of an earlier layer than the receiver t; norms are Frobenius norms.
 *
 *   qk             singular values of W_QK
 *   qk_previous    singular values of Q^T R K, where R is the rotation of the layer's rotary positions from a query to
 *                  the key before it. qk is the circuit of a token with itself; values of one offset say nothing about
 *                  others. Frequencies are those of short texts; gains of YaRN and LongRoPE are not included
 *   ov             singular values of W_OV
 *   copying        Re(sum l) / sum |l| over the eigenvalues l of U W_OV E^T, the effect of attending to each token on
 *                  each logit: 1 = the head increases the logits of the tokens that it attends to, -1 = it decreases
 *                  them
 *   compose_q      |W_QK_t^T W_OV_s| / (|W_QK_t| |W_OV_s|)    s writes what the queries of t read
 *   compose_k      |W_QK_t W_OV_s| / (|W_QK_t| |W_OV_s|)      s writes what the keys of t read
 *   compose_v      |W_OV_t W_OV_s| / (|W_OV_t| |W_OV_s|)      s writes what the values of t read */
#define MHA_CIRCUIT_MAP(X)                                                                                       \
    X(MHA_CIRCUIT_QK, "qk", "singular values of the QK circuit, which pairs of directions attend")               \
    X(MHA_CIRCUIT_QK_PREVIOUS, "qk_previous", "the same with the rotation from a query to the key before it")    \
    X(MHA_CIRCUIT_OV, "ov", "singular values of the OV circuit, what attending to a direction writes")           \
    X(MHA_CIRCUIT_COPYING, "copying", "eigenvalue score of the OV circuit between tokens, -1..1; 1 = copies")    \
    X(MHA_CIRCUIT_COMPOSE_Q, "compose_q", "how much a head's queries read of what an earlier head writes, 0..1") \
    X(MHA_CIRCUIT_COMPOSE_K, "compose_k", "how much a head's keys read of what an earlier head writes, 0..1")    \
    X(MHA_CIRCUIT_COMPOSE_V, "compose_v", "how much a head's values read of what an earlier head writes, 0..1")

typedef enum mha_circuit_kind {
#define MHA__X(name, key, text) name,
    MHA_CIRCUIT_MAP(MHA__X)
#undef MHA__X
        MHA_CIRCUITS
} mha_circuit_kind;

/* Return the key, such as "compose_k", and its help text; NULL if out of range. */
MHA_API const char *mha_circuit_key(mha_circuit_kind what);
MHA_API const char *mha_circuit_help(mha_circuit_kind what);

typedef struct mha_weight_circuits_options {
    size_t size;
    uint32_t what; /* measures to compute: OR of 1 << MHA_CIRCUIT_...; 0 = all that are defined for the model */
    int raw;       /* 1 = the weights as stored, without folding */
} mha_weight_circuits_options;

typedef struct mha_weight_circuits mha_weight_circuits;

/* Measures the circuits of all heads. `options` may be NULL. Reports progress as "circuits", in layers. The model must
 * outlive the call, but not the result; its context must outlive the result.
 *
 * Not every measure is defined for every family (mha_weight_circuits_reason). A measure in `what` that is not defined
 * is MHA_ERR_UNSUPPORTED; with `what` 0 it is left out. Also MHA_ERR_UNSUPPORTED, with the reason: encoder-decoders,
 * latent attention (DeepSeek-V3), models with adaptive_heads, models divided among processes; folding in post-norm
 * models (BERT), where two norms lie between layers, and no weight multiplies them. MHA_ERR_ARG for unknown bits, for a
 * model without weights, and for weights that are not finite, naming the head; MHA_ERR_MEMORY, MHA_ERR_CANCELED.
 *
 * Cost, in multiply-adds in double: 10 D^2 E and 100 D^3 per head; copying vocab E^2 (half if tied) and D E^2 per head.
 * Composition: D^2 E in f32 per pair of heads and kind. Memory: 8 E^2 bytes for copying, 4 E^2 per layer for
 * composition, 56 D E per thread. All measures of GPT-2 (144 heads) take 12 s on one core of a 2023 server. */
MHA_API mha_status mha_weight_circuits_measure(const mha_model *model, const mha_weight_circuits_options *options,
                                               mha_weight_circuits **out, mha_error *err);
MHA_API void mha_weight_circuits_free(mha_weight_circuits *circuits);

/* The projections of a head. */
typedef enum mha_head_projection { MHA_HEAD_Q = 0, MHA_HEAD_K, MHA_HEAD_V, MHA_HEAD_O } mha_head_projection;

/* Reads a projection of a query head as the checkpoint stores it, without folding, in f32: `weight` [D, E] receives the
 * rows Q, K, V or O defined above (K and V of the key or value head that the query head reads), and `bias`, which may
 * be NULL, the bias [D] of these rows or, for MHA_HEAD_O, the bias [E] of the whole layer; zeros without a bias. A head
 * without norms and rotation computes q = x Q^T + bias and k, v likewise, and adds softmax(q k^T / sqrt(D)) v O to the
 * output of the layer. Heads are numbered as they are stored.
 *
 * MHA_ERR_ARG for a layer or head that the model lacks, and for a model without weights; MHA_ERR_UNSUPPORTED for
 * encoder-decoders, latent attention and models divided among processes; MHA_ERR_MEMORY. Cost: one read of the
 * projection of the layer. */
MHA_API mha_status mha_head_weights(const mha_model *model, int64_t layer, int64_t head, mha_head_projection which,
                                    float *weight, float *bias, mha_error *err);

/* Returns why a measure is not defined for the model, such as "rotary positions are required"; NULL if it was computed,
 * was not requested, or `what` is out of range. */
MHA_API const char *mha_weight_circuits_reason(const mha_weight_circuits *circuits, mha_circuit_kind what);

/* Returns the singular values of MHA_CIRCUIT_QK, QK_PREVIOUS or OV of a head: *count = D values in descending order.
 * NULL with *count 0 if the head does not exist or the measure was not computed. `count` may be NULL. */
MHA_API const double *mha_weight_circuits_singular(const mha_weight_circuits *circuits, mha_circuit_kind what,
                                                   int64_t layer, int64_t head, int64_t *count);
/* Returns (sum of s^2)^2 / sum of s^4 over these singular values s: the number of directions that carry the circuit, 1
 * to D. NAN as above, and for a circuit that is zero. */
MHA_API double mha_weight_circuits_directions(const mha_weight_circuits *circuits, mha_circuit_kind what, int64_t layer,
                                              int64_t head);

/* Returns the copying score of a head. `centred` 1 = with U minus its mean over the vocabulary, which the softmax
 * cannot see; the two scores may differ by 0.3. NAN if the head does not exist, the measure was not computed, or W_OV
 * is zero. */
MHA_API double mha_weight_circuits_copying(const mha_weight_circuits *circuits, int64_t layer, int64_t head,
                                           int centred);
/* Returns the sum of the eigenvalues of U W_OV E^T, which is the numerator of the copying score with `centred` 0. */
MHA_API double mha_weight_circuits_trace(const mha_weight_circuits *circuits, int64_t layer, int64_t head);

/* Returns the composition of a sender with a receiver, for MHA_CIRCUIT_COMPOSE_Q, _K or _V: 0 unless the sender is in
 * an earlier layer. NAN if a head does not exist, the measure was not computed, or a circuit is zero. */
MHA_API double mha_weight_circuits_composition(const mha_weight_circuits *circuits, mha_circuit_kind what,
                                               int64_t sender_layer, int64_t sender_head, int64_t layer, int64_t head);
/* Returns the root mean square of the composition of two random heads, whatever their singular values, if one of them
 * has a random orientation: 1 / sqrt(E), or 1 / sqrt(E - 1) if LayerNorm is folded. Composition is large only in
 * comparison. */
MHA_API double mha_weight_circuits_baseline(const mha_weight_circuits *circuits);

#ifdef __cplusplus
}
#endif
#endif
