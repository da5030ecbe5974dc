/* regroup.h - converts multi-head attention to grouped-query (GQA) or multi-query attention (MQA), or GQA to fewer
 * groups.
 *
 *     const mha_regroup_options o = {.size = sizeof o, .key_heads = 4, .value_heads = 4, .fit = data};
 *     mha_model_edit *edit;
 *     mha_regroup(model, &o, &edit, &err);
 *     mha_model_edit_save(edit, "smaller", 0, &err);
 *     mha_model_edit_free(edit);
 *
 * In a layer with H heads, each H / N adjacent heads share one key head, and each H / M share one value head; N and M
 * may differ. This shrinks the projections of keys and values, and the cache (which stores the least common multiple of
 * N and M for both).
 *
 * MHA_REGROUP_MEAN (Ainslie et al. 2023): weights and biases are the mean over the group. This is a starting point for
 * further training: without training, the mean cosine of MiniLM's sentence vectors, before and after, falls to 0.57
 * with 4 key/value heads.
 *
 * MHA_REGROUP_CLOSED: in each group, the closed-form shared head with the least error, computed from activations on
 * texts. For keys S_h = (Q_h^T Q_h / T + 1e-6 I)^(1/2) over the T tokens of the texts, Z = [K_h S_h]_h, P the D first
 * eigenvectors of Z^T Z with blocks P_h; then the shared key is k' = sum_h P_h^T S_h k_h, and q'_h = P_h^T S_h^-1 q_h.
 * For values S_h = (Wo_h^T Wo_h + 1e-8 I)^(1/2), v' = sum_h P_h^T S_h v_h, Wo'_h = Wo_h S_h^-1 P_h. This is exact if
 * the heads of a group together span at most D directions. It is computed in double; activations are those of the
 * original model in all layers. Extensions of the published method, each enabled unless an option disables it:
 *   - keys are centered before the fit: a term that is equal for all keys of a row changes no probability;
 *   - similar heads share a group: heads are reordered to minimize the part that D shared directions do not explain,
 *     summed over all pairs within groups. All tensors of a layer follow this order, which "mha.heads" of config.json
 *     lists;
 *   - the output projections are fitted as after pruning (prune.h, refit), on the same texts.
 *
 * Mean cosine of the sentence vectors of MiniLM (12 heads) before and after, on 96 held-out sentences; fitted on 128
 * other sentences. All sentences are from the documentation of Python's standard library:
 *
 *     key, value heads        4, 4    6, 6    1, 1    4, 12   1, 12
 *     mean                    0.573
 *     closed, as published    0.889   0.927   0.823   0.987   0.966
 *     plus centered keys      0.890                   0.987
 *     plus reordered heads    0.896                   0.990
 *     plus the refit          0.920   0.944   0.843   0.993   0.977
 *
 * MHA_REGROUP_VALUES: keys as with MEAN, values as with CLOSED. Use it for models with rotary position embeddings.
 * These rotate keys and queries, so a linear map of the keys would have to commute with the rotation: it could only
 * rotate and scale each pair of dimensions. CLOSED is therefore unsupported for the keys of models with rotary position
 * embeddings, and of models that normalize queries or keys per head; mha_regroup_default selects a supported method.
 */
#ifndef MHA_REGROUP_H
#define MHA_REGROUP_H

#include "mha/head_data.h"
#include "mha/model_edit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, one line of explanation) */
#define MHA_REGROUP_METHOD_MAP(X)                                                         \
    X(MHA_REGROUP_CLOSED, "closed", "the shared heads with the least error on the texts") \
    X(MHA_REGROUP_MEAN, "mean", "the mean of the heads in a group")                       \
    X(MHA_REGROUP_VALUES, "values", "keys as mean, values as closed")

typedef enum mha_regroup_method {
#define MHA__X(name, key, text) name,
    MHA_REGROUP_METHOD_MAP(MHA__X)
#undef MHA__X
        MHA_REGROUP_METHODS
} mha_regroup_method;

/* Return the key, such as "closed", and its help text; NULL if out of range. */
MHA_API const char *mha_regroup_method_key(mha_regroup_method method);
MHA_API const char *mha_regroup_method_help(mha_regroup_method method);
/* Returns the default of `mha regroup` and of Python: CLOSED, or VALUES if `key_heads` (mha_regroup_options) is less
 * than the key heads of a layer and the model rotates or normalizes keys. NULL: CLOSED. */
MHA_API mha_regroup_method mha_regroup_default(const mha_model *model, int64_t key_heads);

typedef struct mha_regroup_options {
    size_t size;
    /* N and M, in every layer: each must divide the layer's head count and be at most its current count; 0 =
     * unchanged */
    int64_t key_heads, value_heads;
    mha_regroup_method method;
    const mha_head_data *fit; /* texts for CLOSED, VALUES and the refit; about 3,000 tokens suffice. NULL with MEAN */
    int contiguous; /* 1 = do not reorder heads, as published; MEAN, and VALUES for keys, never reorder heads */
    int uncentered; /* 1 = keys are not centered, as published */
    double ridge;   /* ridge of the refit; 0 = 0.3, or no refit with MEAN; < 0 = no refit, as published */
    /* 1 = shapes that transformers loads, with the same results: in BERT and GPT-2, rows are repeated for every head
     * that reads them, so nothing is smaller; in all other families, num_key_value_heads is the least common multiple
     * of N and M. MHA_ERR_UNSUPPORTED for layers of different head counts, and for "mha.feed_forward" or
     * "mha.attention". */
    int compatible;
    /* [layers, H] importance scores (importance.h), where H is mha_model_info.heads; higher = more important. The error
     * of a shared head, or the mean, weights each head by its score, but by at least a hundredth of the highest score
     * of its layer. NULL = equal weights */
    const double *scores;
    const char *weighted_by; /* source of the scores, for the record; NULL = none */
} mha_regroup_options;

/* Creates the edit. Its config.json contains num_key_value_heads if that key can describe the result (and
 * num_attention_heads if the model is pruned), otherwise "mha.kv_heads" (model.h). `model` must outlive *out; the
 * options are not retained.
 *
 * Errors: MHA_ERR_ARG if key_heads or value_heads does not divide a layer's head count or exceeds its current count, if
 * both are 0, if `fit` is missing, or if a score is not finite; MHA_ERR_UNSUPPORTED if keys are rotated or normalized
 * (the message names a method that works); MHA_ERR_MEMORY; MHA_ERR_CANCELED if the progress callback stops the phase
 * "regroup" or "refit".
 * Memory, for all layers: 8 (Hkv D)^2 bytes for keys, the same for values, and 8 H D^2 for queries; in addition,
 * 32 H D E for the current layer, and the memory of the refit. Cost: one pass over the texts; per layer, an
 * eigenproblem of H D / N dimensions for each group and, unless `contiguous` is set, one of 2 D dimensions for each
 * pair of heads; and the refit. */
MHA_API mha_status mha_regroup(const mha_model *model, const mha_regroup_options *options, mha_model_edit **out,
                               mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
