/* diversity.h - how much alike attention heads are: by their maps, by what they give, by their weights; with a map of
 * the heads in two dimensions, clusters, and the flow of attention through the layers.
 *
 *     mha_diversity *d;
 *     mha_diversity_measure(model, data, NULL, &d, &err);
 *     mha_diversity_value(d, MHA_DIVERSITY_JS, 0, 2, 3, 1);     head 2 of layer 0 beside head 1 of layer 3
 *
 * Two heads that look at the same tokens may do different things with what they find there, and two that look
 * elsewhere may say the same: so measures of maps and of outputs stand side by side. The cosine of maps in particular
 * is high for nearly all heads of an encoder, as rows of probabilities are positive and share the column of [CLS].
 */
#ifndef MHA_DIVERSITY_H
#define MHA_DIVERSITY_H

#include "mha/head_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, one line of explanation). The rows of a map are those of all texts (or max_rows of them), its columns
 * the keys that a row sees, n of them: the n tokens of the text, or i + 1 in row i of a causal model.
 *
 *   cosine           u_a . u_b / (|u_a| |u_b|); u is all rows of a head's maps one behind another, nothing taken off
 *   cosine_centred   the same of u - 1/n: 0 is "as alike as two maps that know nothing of each other"
 *   js               mean over rows of H((p + q) / 2) - (H(p) + H(q)) / 2, in bits. Its root is a distance. Lin 1991
 *   js_clark_sum     sum over rows of the same in natural logarithms, of maps smoothed to 0.999 p + 0.001/n: the
 *                    number of Clark et al. 2019
 *   output_cka       |X_a' X_b|^2 / (|X_a' X_a| |X_b' X_b|), Frobenius norms; X is what the head adds to the layer's
 *                    output, a row per token, columns centred. Linear CKA of Kornblith et al. 2019
 *   output_subspace  |U_a' U_b|^2 / d, U an orthonormal basis of the columns of the output projection that belong to
 *                    the head; d of them, or the rank of the larger if one is less. Weights alone
 *   unique           of one head: 1 - R^2 of X predicted from the X of the other heads of its layer. Tokens are halved:
 *                    stretches of 64, of text t the first goes to half t mod 2, and on in turn. Each half, centred, is
 *                    predicted by the ridge regression fitted on the other; its penalty is the mean over tokens
 *                    of |X|^2, summed over the layer's heads. 1 - R^2 is all that is left over / all that was there,
 *                    at most 1. With few tokens it is too high: MiniLM's layers (384 numbers a token) have 0.81 to
 *                    0.97 on 24 sentences, 0.64 to 0.82 on 128, and 0.49 to 0.60 on 1,000 */
#define MHA_DIVERSITY_MAP(X)                                                                                      \
    X(MHA_DIVERSITY_COSINE, "cosine", "maps: cosine, 0..1; high whatever heads do, since rows are positive")      \
    X(MHA_DIVERSITY_COSINE_CENTRED, "cosine_centred", "maps: cosine of what differs from even weights, -1..1")    \
    X(MHA_DIVERSITY_JS, "js", "maps: Jensen-Shannon divergence of rows in bits, 0..1; 0 = the same map")          \
    X(MHA_DIVERSITY_JS_CLARK, "js_clark_sum", "maps: js, smoothed, in nats, summed over rows (Clark 2019)")       \
    X(MHA_DIVERSITY_CKA, "output_cka", "outputs: linear CKA of what heads add, 0..1; 1 = the same but for scale") \
    X(MHA_DIVERSITY_SUBSPACE, "output_subspace", "weights: share of the dimensions that heads write to, 0..1")    \
    X(MHA_DIVERSITY_UNIQUE, "unique", "outputs: share that the other heads of the layer do not predict, 0..1")

typedef enum mha_diversity_kind {
#define MHA__X(name, key, text) name,
    MHA_DIVERSITY_MAP(MHA__X)
#undef MHA__X
        MHA_DIVERSITIES
} mha_diversity_kind;

/* "cosine" ...; NULL out of range. */
MHA_API const char *mha_diversity_key(mha_diversity_kind what);
MHA_API const char *mha_diversity_help(mha_diversity_kind what);

typedef struct mha_diversity_options {
    size_t size;
    uint32_t what;    /* which: bits 1 << MHA_DIVERSITY_...; 0 = all */
    int64_t max_rows; /* of the maps, spread evenly over all rows of all texts; 0 = all */
    /* A file that keeps what has been summed, so that a run that was stopped goes on where it was: read if it is there,
     * written now and then and at the end, as in mha_heads_options. NULL = none. */
    const char *state;
} mha_diversity_options;

typedef struct mha_diversity mha_diversity;

/* Compares all heads of all layers: js and js_clark_sum all pairs, the others those of one layer. `options` may be
 * NULL. Reports progress as "diversity", in tokens. The bits of the result depend neither on the number of threads nor
 * on batch_tokens. The context of the model must outlive the result; the model and the data need not.
 *
 * Cost: a forward pass; for js and js_clark_sum N^2 / 2 logarithms for each number of a map (1,000 sentences on the 72
 * heads of MiniLM: 1.4e9, under a second each); for output_cka and unique E^2 / 2 multiply-adds in double for
 * each token and layer. Memory, beside the model's own: 4 N (rows) (keys) bytes for the maps of the texts that run at
 * once. They are at most 96 MiB, or one row of each head where that is more: a longer text runs in several passes, a
 * part of its rows each. So for long texts of many heads choose max_rows. Further, for outputs, 16 (H D)^2 bytes a
 * layer and 80 (H D)^2 for the layer that is being compared; and 8 N^2 for each measure.
 *
 * Errors: MHA_ERR_ARG for unknown bits, for data with ids that the model does not have, and for maps or outputs that
 * are not finite, naming the head; MHA_ERR_MEMORY, MHA_ERR_CANCELLED. */
MHA_API mha_status mha_diversity_measure(const mha_model *model, const mha_head_data *data,
                                         const mha_diversity_options *options, mha_diversity **out, mha_error *err);
MHA_API void mha_diversity_free(mha_diversity *diversity);

/* Heads of all layers, N: the order of the map and of the clusters is layer by layer. Rows of maps that were compared.
 */
MHA_API int64_t mha_diversity_heads(const mha_diversity *diversity);
MHA_API int64_t mha_diversity_rows(const mha_diversity *diversity);

/* Symmetric. Of `unique` a head's number stands beside itself. NAN across layers where a measure is of one layer,
 * where a head gives nothing (all zero), where `unique` has tokens in one half alone, out of range, and where it
 * was not asked for. */
MHA_API double mha_diversity_value(const mha_diversity *diversity, mha_diversity_kind what, int64_t layer_a,
                                   int64_t head_a, int64_t layer_b, int64_t head_b);
/* How diverse a layer is: 1 - the mean over its pairs of heads, of a likeness; the mean itself of the two divergences;
 * the mean over heads of `unique`. NAN for one head, and where a value is NAN. */
MHA_API double mha_diversity_layer(const mha_diversity *diversity, mha_diversity_kind what, int64_t layer);

/* ---- of the distances sqrt(js); NULL where js was not asked for ---- */

/* [N, 2] The heads as points whose distances come closest to sqrt(js) in the sense of classical scaling (Torgerson
 * 1952): deterministic. In each axis the coordinate of largest size is positive. eigenvalues [2] say how much an axis
 * shows; one below 0 has coordinates 0. */
MHA_API const double *mha_diversity_map(const mha_diversity *diversity);
MHA_API const double *mha_diversity_eigenvalues(const mha_diversity *diversity);

/* Average linkage (UPGMA). Step i joins a and b, a < b, into cluster N + i of `size` heads; 0 .. N - 1 are the heads.
 * `height` is the mean distance between both, ascending. As the rows of scipy.cluster.hierarchy.linkage. */
typedef struct mha_head_merge {
    int64_t a, b;
    double height;
    int64_t size;
} mha_head_merge;
MHA_API const mha_head_merge *mha_diversity_merges(const mha_diversity *diversity); /* [N - 1] */

/* ---- rollout ---- */

/* out [n, n] for text number `text` of the data, n tokens: row i says which share of each input token reaches position
 * i through all layers, if each passes on half of what it has and takes half by its mean map: R = (A / 2 + 1 / 2) R,
 * layer by layer from R = 1 (Abnar and Zuidema 2020). Rows sum to 1. Row 0 of an encoder is what [CLS] saw.
 * MHA_ERR_ARG for a text that is not there. Cost: a forward pass and n^3 multiply-adds a layer; memory 8 n^2 bytes
 * beside the maps of a layer. */
MHA_API mha_status mha_head_rollout(const mha_model *model, const mha_head_data *data, int64_t text, float *out,
                                    mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
