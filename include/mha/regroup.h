/* regroup.h - turns multi-head attention into grouped-query (GQA) or multi-query attention (MQA), or GQA into fewer
 * groups.
 *
 *     const mha_regroup_options o = {.size = sizeof o, .key_heads = 4, .value_heads = 4, .fit = data};
 *     mha_model_edit *edit;
 *     mha_regroup(model, &o, &edit, &err);
 *     mha_model_edit_save(edit, "smaller", 0, &err);
 *     mha_model_edit_free(edit);
 *
 * Of the H heads of a layer, each H / N neighbors get one key head, and each H / M one value head; N and M may differ.
 * What becomes smaller: the projections of keys and values, and the cache (which holds the least common multiple of N
 * and M of both).
 *
 * MHA_REGROUP_MEAN (Ainslie et al. 2023): weights and biases are the mean over the group. A start for further training:
 * without it, the sentence vectors of MiniLM fall to a cosine of 0.57 at 4 heads.
 *
 * MHA_REGROUP_CLOSED: in each group the head of least error, computed from the activations on texts. For keys
 * S_h = (Q_h^T Q_h / T + 1e-6 I)^(1/2) over their T tokens, Z = [K_h S_h]_h, P the D first eigenvectors of Z^T Z with
 * blocks P_h; then the shared key is k' = sum_h P_h^T S_h k_h, and q'_h = P_h^T S_h^-1 q_h. For values
 * S_h = (Wo_h^T Wo_h + 1e-8 I)^(1/2), v' = sum_h P_h^T S_h v_h, Wo'_h = Wo_h S_h^-1 P_h. Exact where the heads of a
 * group have no more than D directions together. In double; activations are those of the original model in all
 * layers. Beyond the published form, each on unless an option turns it off:
 *   - keys are centered before the fit: a term that is equal for all keys of a row changes no probability;
 *   - similar heads share a group: the order of heads is searched for the least sum, over pairs of one group, of what D
 *     directions leave of both; all of a layer's tensors follow that order, "mha.heads" of config.json lists it;
 *   - the output projections are fitted as after pruning (prune.h, refit), on the same texts.
 *
 * Mean cosine of the sentence vectors of MiniLM (12 heads) before and after, on 96 sentences that nothing was fitted
 * on; fitted on 128 others, from the documentation of Python's library:
 *
 *     heads of keys, values   4, 4    6, 6    1, 1    4, 12   1, 12
 *     mean                    0.573
 *     closed, as published    0.889   0.927   0.823   0.987   0.966
 *     and keys centered       0.890                   0.987
 *     and similar together    0.896                   0.990
 *     and refitted            0.920   0.944   0.843   0.993   0.977
 *
 * MHA_REGROUP_VALUES: keys as MEAN, values as CLOSED: for rotary positions, which rotate keys and queries, so that a
 * key's map would have to commute with the rotation (a rotation and a scale of each pair of dimensions, no more).
 * CLOSED is refused for the keys of such models, and of those that normalize queries or keys per head.
 */
#ifndef MHA_REGROUP_H
#define MHA_REGROUP_H

#include "mha/head_data.h"
#include "mha/model_edit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, key, one line of explanation) */
#define MHA_REGROUP_METHOD_MAP(X)                                            \
    X(MHA_REGROUP_CLOSED, "closed", "the heads of least error on the texts") \
    X(MHA_REGROUP_MEAN, "mean", "the mean of the heads of a group")          \
    X(MHA_REGROUP_VALUES, "values", "keys as mean, values as closed")

typedef enum mha_regroup_method {
#define MHA__X(name, key, text) name,
    MHA_REGROUP_METHOD_MAP(MHA__X)
#undef MHA__X
        MHA_REGROUP_METHODS
} mha_regroup_method;

/* "closed" ...; NULL out of range. */
MHA_API const char *mha_regroup_method_key(mha_regroup_method method);
MHA_API const char *mha_regroup_method_help(mha_regroup_method method);

typedef struct mha_regroup_options {
    size_t size;
    /* N and M, in every layer: each must divide its heads and be at most the number that it has; 0 = unchanged */
    int64_t key_heads, value_heads;
    mha_regroup_method method;
    const mha_head_data *fit; /* texts of CLOSED, VALUES and the refit; some 3,000 tokens suffice. NULL with MEAN */
    int contiguous; /* 1 = the order of heads stays, as published; MEAN and the keys of VALUES never change it */
    int uncentered; /* 1 = keys are not centered, as published */
    double ridge;   /* of the refit; 0 = 0.3, and none with MEAN; < 0 = no refit, as published */
    /* 1 = shapes that transformers loads, with the same results: in BERT and GPT-2 rows are repeated, once for every
     * head that reads them, and nothing is smaller; in the others num_key_value_heads is the least common multiple of N
     * and M. MHA_ERR_UNSUPPORTED for layers of different head counts, and for "mha.feed_forward" or "mha.attention". */
    int compatible;
    /* [layers, H] importance scores (importance.h), high = important, H as in mha_model_info.heads. The error of a
     * shared head counts each head by its score, and the mean is weighted by it; a head counts at least a hundredth of
     * the most important one of its layer. NULL = all heads count the same */
    const double *scores;
    const char *weighted_by; /* for the record: where the scores come from; NULL */
} mha_regroup_options;

/* Creates the edit: its config.json gets num_key_value_heads where that expresses the result (and num_attention_heads,
 * of a pruned model), else "mha.kv_heads" (model.h). `model` must outlive *out; the options are not retained.
 *
 * Errors: MHA_ERR_ARG for counts that do not divide the heads of a layer or are more than it has, for both counts 0,
 * for missing texts and for a score that is not finite; MHA_ERR_UNSUPPORTED for keys that are rotated or normalized,
 * naming what works; MHA_ERR_MEMORY; MHA_ERR_CANCELLED ("regroup" and "refit").
 * Memory: 8 (Hkv D)^2 bytes for each of keys and values, 8 H D^2 for queries, of all layers; of one layer 32 H D E;
 * with refit what that needs. Cost: one pass over the texts; per layer an eigenproblem of H D / N dimensions for each
 * group, and unless contiguous one of 2 D dimensions for each pair of heads; and the refit. */
MHA_API mha_status mha_regroup(const mha_model *model, const mha_regroup_options *options, mha_model_edit **out,
                               mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
