/* diversity.h - measures how similar attention heads are, by their maps, outputs and weights. Also computes a
 * two-dimensional map of the heads, clusters, and attention rollout through the layers.
 *
 *     mha_diversity *d;
 *     mha_diversity_measure(model, data, NULL, &d, &err);
 *     mha_diversity_value(d, MHA_DIVERSITY_JS, 0, 2, 3, 1);     heads 0.2 and 3.1
 *
 * Two heads that attend to the same tokens may write different outputs, and vice versa, so there are measures for both
 * maps and outputs. The cosine of maps is high for nearly all heads of an encoder, because rows of probabilities are
 * positive and share the column of [CLS].
 */
#ifndef MHA_DIVERSITY_H
#define MHA_DIVERSITY_H

#include "mha/head_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, one line of explanation). The rows of a map are the query rows of all texts (or max_rows of these rows).
 * Its columns are the n keys that a row may attend to: the n tokens of the text, or tokens 0 to i in row i of a causal
 * model.
 *
 *   cosine           u_a . u_b / (|u_a| |u_b|); u is all rows of a head's maps, concatenated
 *   cosine_centred   cosine of u_a - 1/n and u_b - 1/n: 0 for two independent maps
 *   js               mean over rows of H((p + q) / 2) - (H(p) + H(q)) / 2, in bits. Its square root is a distance. Lin
 *                    1991
 *   js_clark_sum     sum of the same divergence over rows, in nats, of maps smoothed to 0.999 p + 0.001/n, as
 *                    Clark et al. 2019 compute it
 *   output_cka       |X_a' X_b|^2 / (|X_a' X_a| |X_b' X_b|), Frobenius norms; X is what the head adds to the layer's
 *                    output, a row per token, columns centered. Linear CKA (Kornblith et al. 2019)
 *   output_subspace  |U_a' U_b|^2 / d, where U is an orthonormal basis of the head's d columns of the output
 *                    projection. If columns are dependent, d is the larger of the two ranks. Computed from the
 *                    weights alone
 *   unique           for a single head: 1 - R^2 of X predicted from the X of the other heads of its layer. The tokens
 *                    are divided into two halves, in alternating runs of 64 tokens; the first run of text t belongs to
 *                    half t mod 2. Each half, centered, is predicted by a ridge regression fitted on the other half.
 *                    The ridge penalty is the mean over tokens of |X|^2, summed over the layer's heads. 1 - R^2 is the
 *                    residual sum of squares / the total, at most 1. Overestimated with few tokens: MiniLM's layers
 *                    (384 elements per token) have 0.81 to 0.97 on 24 sentences, 0.64 to 0.82 on 128, and 0.49 to 0.60
 *                    on 1,000 */
#define MHA_DIVERSITY_MAP(X)                                                                                    \
    X(MHA_DIVERSITY_COSINE, "cosine", "maps: cosine, 0..1; high for most pairs, since rows are positive")       \
    X(MHA_DIVERSITY_COSINE_CENTRED, "cosine_centred", "maps: cosine after subtracting uniform weights, -1..1")  \
    X(MHA_DIVERSITY_JS, "js", "maps: Jensen-Shannon divergence of rows in bits, 0..1; 0 = the same map")        \
    X(MHA_DIVERSITY_JS_CLARK, "js_clark_sum", "maps: js, smoothed, in nats, summed over rows (Clark 2019)")     \
    X(MHA_DIVERSITY_CKA, "output_cka", "outputs: linear CKA of what heads add, 0..1; 1 = equal up to scale")    \
    X(MHA_DIVERSITY_SUBSPACE, "output_subspace", "weights: overlap of the output subspaces of two heads, 0..1") \
    X(MHA_DIVERSITY_UNIQUE, "unique", "outputs: fraction of variance not predicted by the layer's other heads")

typedef enum mha_diversity_kind {
#define MHA__X(name, key, text) name,
    MHA_DIVERSITY_MAP(MHA__X)
#undef MHA__X
        MHA_DIVERSITIES
} mha_diversity_kind;

/* Return the key, such as "cosine", and its help text; NULL if out of range. */
MHA_API const char *mha_diversity_key(mha_diversity_kind what);
MHA_API const char *mha_diversity_help(mha_diversity_kind what);

typedef struct mha_diversity_options {
    size_t size;
    uint32_t what;    /* measures to compute: OR of 1 << MHA_DIVERSITY_...; 0 = all */
    int64_t max_rows; /* maximum number of map rows, spread evenly over the rows of all texts; 0 = all */
    /* A file that stores the sums, so that an interrupted run can resume. It is read if it exists, and written about
     * once a second and at the end, as in mha_heads_options. NULL = none. */
    const char *state;
} mha_diversity_options;

typedef struct mha_diversity mha_diversity;

/* Compares heads: js and js_clark_sum compare all pairs of heads of the model, the other measures only pairs within a
 * layer. `options` may be NULL. Reports progress as "diversity", in tokens. The result is bitwise identical for any
 * number of threads and processes (mha_head_data_options.work) and any batch_tokens: sums over a text are in double,
 * and sums over texts are integers in units of 2^-80, so they are exact up to 1e-24 for each text. The context of the
 * model must outlive the result; the model and the data need not.
 *
 * Cost: a forward pass; for js and js_clark_sum N^2 / 2 logarithms for each element of a map (1,000 sentences on the 72
 * heads of MiniLM: 1.4e9, under a second each); for output_cka and unique E^2 / 2 multiply-adds in double for each
 * token and layer. Memory, in addition to that of the model: 4 N (rows) (keys) bytes for the maps of the texts that run
 * together. These maps take at most 96 MiB, or one row of each head if that is more; a longer text runs in several
 * passes over its rows. Set max_rows for long texts and many heads. Measures of outputs also take 48 (H D)^2 bytes per
 * layer and 80 (H D)^2 for the current layer. Each measure takes 32 N^2 bytes.
 *
 * Errors: MHA_ERR_ARG for unknown bits, for ids outside the vocabulary, and for maps or outputs that are not finite,
 * naming the head; MHA_ERR_MEMORY, MHA_ERR_CANCELED. */
MHA_API mha_status mha_diversity_measure(const mha_model *model, const mha_head_data *data,
                                         const mha_diversity_options *options, mha_diversity **out, mha_error *err);
MHA_API void mha_diversity_free(mha_diversity *diversity);

/* Return N, the number of heads in all layers (the map and the clusters list them layer by layer), and the number of
 * map rows that were compared. */
MHA_API int64_t mha_diversity_heads(const mha_diversity *diversity);
MHA_API int64_t mha_diversity_rows(const mha_diversity *diversity);

/* Returns a measure of two heads; symmetric. For `unique`, pass the same head twice. Returns NAN for heads of
 * different layers unless the measure is js or js_clark_sum, if a head's output is all zero, and for `unique` if one
 * half has no tokens. Also returns NAN if an argument is out of range or the measure was not requested. */
MHA_API double mha_diversity_value(const mha_diversity *diversity, mha_diversity_kind what, int64_t layer_a,
                                   int64_t head_a, int64_t layer_b, int64_t head_b);
/* Returns the diversity of a layer: for similarities, 1 - the mean over pairs of heads; for the two divergences, the
 * mean over pairs; for `unique`, the mean over heads. NAN for a single head, or if a value is NAN. */
MHA_API double mha_diversity_layer(const mha_diversity *diversity, mha_diversity_kind what, int64_t layer);

/* ---- map and clusters of the heads, computed from the distances sqrt(js); NULL if js was not requested ---- */

/* Return the heads as points [N, 2] and the eigenvalues [2] of the axes: classical multidimensional scaling of sqrt(js)
 * (Torgerson 1952), deterministic. In each axis, the coordinate of largest magnitude is positive. An axis with a
 * negative eigenvalue has coordinates 0. */
MHA_API const double *mha_diversity_map(const mha_diversity *diversity);
MHA_API const double *mha_diversity_eigenvalues(const mha_diversity *diversity);

/* One step of average linkage (UPGMA). Step i merges clusters a < b into cluster N + i of `size` heads; the first N
 * clusters are the heads. `height` is the mean distance between a and b, ascending over steps. The rows of
 * scipy.cluster.hierarchy.linkage have the same form. */
typedef struct mha_head_merge {
    int64_t a, b;
    double height;
    int64_t size;
} mha_head_merge;
MHA_API const mha_head_merge *mha_diversity_merges(const mha_diversity *diversity); /* [N - 1] */

/* ---- rollout ---- */

/* Computes the attention rollout (Abnar and Zuidema 2020) of text `text` of the data, which has n tokens. Row i of out
 * [n, n] is the fraction of each input token that reaches position i through all layers. From R = I, each layer applies
 * R = (A / 2 + I / 2) R, where A is the mean map of the layer's heads. Rows sum to 1; row 0 of an encoder is the row of
 * [CLS]. MHA_ERR_ARG for a text out of range. Cost: a forward pass and n^3 multiply-adds per layer; memory: 8 n^2 bytes
 * and the maps of one layer. */
MHA_API mha_status mha_head_rollout(const mha_model *model, const mha_head_data *data, int64_t text, float *out,
                                    mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
