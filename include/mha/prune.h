/* prune.h - removes heads from a model: chosen by scores, deleted from the weights, compensated for.
 *
 *     uint8_t keep[LAYERS * HEADS];
 *     const mha_prune_rule rule = {.size = sizeof rule, .ratio = 0.3};
 *     mha_model_edit *edit;
 *     mha_prune_choose(model, scores, &rule, keep, &err);
 *     mha_prune(model, keep, NULL, &edit, &err);
 *     mha_model_edit_save(edit, "smaller", 0, &err);
 *     mha_model_edit_free(edit);
 *
 * Removing head h of a layer deletes its rows of the projections of queries, keys and values, their biases, and its
 * columns of the output projection; the output's bias, norms and everything else stay. The result is that of gates of 0
 * (model.h), but the head is neither stored nor computed. Heads that share keys or values are removed together: the
 * unit is one key head with its H / Hkv query heads, or with "mha.kv_heads" (model.h) whole key heads and whole value
 * heads.
 *
 * Heads are numbered by their position in the model, from 0 in each layer, as gates and scores are; mha_head_number
 * returns the number that a head had in the unpruned model. A written model keeps those numbers ("mha.heads" of
 * config.json), so a pruned model can be pruned again.
 *
 * After: Michel et al. 2019 (heads by importance); Hassibi & Stork 1993 (the remaining weights are fitted to compensate
 * for what was removed, here with a ridge).
 */
#ifndef MHA_PRUNE_H
#define MHA_PRUNE_H

#include "mha/head_data.h"
#include "mha/model_edit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number that head `head` of the layer had in the unpruned model; its position in a model without the list
 * "mha.heads". -1 if out of range. */
MHA_API int64_t mha_head_number(const mha_model *model, int64_t layer, int64_t head);
/* The position of the head with that number; -1 if the model does not have it or no longer has it. */
MHA_API int64_t mha_head_place(const mha_model *model, int64_t layer, int64_t number);

/* ---- choosing heads ---- */

typedef struct mha_prune_rule {
    size_t size;
    /* 0..1, a fraction of the model's heads: the nearest number of heads (of whole groups where keys are shared),
     * halves up. With per_layer a fraction of the heads of each layer, rounded up: ceil(heads ratio). */
    double ratio;
    int64_t count; /* heads to remove, in each layer with per_layer, else of all, rounded up to whole groups; 0 = by
                    * ratio */
    int per_layer; /* 1 = the same rule in every layer; 0 = one for the model, wherever scores are lowest */
    int64_t floor; /* heads that stay in every layer, 0 = 1; whole groups where keys are shared */
} mha_prune_rule;

/* The most heads that the rule's floor lets a model lose: of all layers or, with per_layer, of every layer. -1 for NULL
 * or an invalid rule. */
MHA_API int64_t mha_prune_most(const mha_model *model, const mha_prune_rule *rule);

/* Fills keep [layers, H], H as in mha_model_info.heads: 1 = stays, 0 = is removed, also after the last head of a layer
 * that has fewer. `scores` [layers, H], high = important, are read where the model has a head; a group that shares keys
 * has the mean of its heads. Lowest scores are removed first; of equal scores the last head, and the last layer. The
 * floor has priority: a ratio then removes fewer heads; a count that cannot be reached is MHA_ERR_ARG, as is a score
 * that is not finite. Heads of layers that select heads for each text (model.h) stay, and are not counted. */
MHA_API mha_status mha_prune_choose(const mha_model *model, const double *scores, const mha_prune_rule *rule,
                                    uint8_t *keep, mha_error *err);

/* The same choice made on texts, without scores, for all heads together: the set of heads whose removal changes the
 * output least. Redundant heads look useless one at a time; here, the second is judged as if the first were removed.
 *
 * For encoders the change is the mean of 1 - cos(e, e of the pruned model), e being a text's embedding (the mean of its
 * last hidden states): each head's removal moves each e by some vector, and groups are removed one by one, each time
 * the one with which the sum of these vectors is shortest. For decoders with logits it is the loss of next tokens,
 * whose changes are added up. After each of `rounds` equal parts the changes are measured again on the model as it is
 * then. With `fill` a removed head counts as its mean output on the texts, not as 0: for pruning with mean fill.
 *
 * Cost: in each round half a forward pass over the texts for each remaining head. Memory: for each group, 4 bytes
 * for each text and element of the hidden size. Errors: as mha_prune_choose; MHA_ERR_ARG for NULL, and for a decoder if
 * every text is a single token. */
typedef struct mha_prune_joint_options {
    size_t size;
    int64_t rounds; /* 0 = 4 */
    int fill;
    int32_t *order; /* [layers, H] written: when the head was removed, counted from 1; 0 = it stays. May be NULL */
} mha_prune_joint_options;
MHA_API mha_status mha_prune_choose_joint(const mha_model *model, const mha_head_data *data, const mha_prune_rule *rule,
                                          const mha_prune_joint_options *options, uint8_t *keep, mha_error *err);

/* ---- removing them ---- */

typedef struct mha_prune_options {
    size_t size;
    /* Mean fill: a removed head's mean output over all tokens of these texts is added to the output bias,
     * bo += Wo_h m_h, at no cost later. A model without that bias gets attention_bias, with zeros for the other three,
     * where its family has the key (llama, qwen3, gemma2); for mistral and qwen2 it is MHA_ERR_UNSUPPORTED. NULL =
     * none. */
    const mha_head_data *fill;
    /* Refit: each output projection, with its bias if it has one, in the order of layers, is fitted so that the pruned
     * model reproduces the output of the unpruned model on these texts:
     *     W = W0 + (X^T X + ridge mu I)^-1 X^T (Y - X W0)
     * X: contexts of the remaining heads, computed with the layers that are already fitted, and 1 for the bias; Y: the
     * output of the unpruned projection; W0: the weight after removal (and fill); mu: mean of the diagonal of X^T X. In
     * double. Evaluate on other texts: on these the result looks better than it is. NULL = none. */
    const mha_head_data *refit;
    double ridge; /* of the refit; 0 = 3. 0.001 memorizes the texts, and loses on others what was gained */
    /* 1 = the shapes of the unpruned model, with zeros for what is removed, so that programs load it that require the
     * same number of heads in all layers (transformers). Same results, nothing smaller or faster; "mha.heads" is left
     * out. MHA_ERR_UNSUPPORTED for a model with "mha.kv_heads", "mha.feed_forward" or "mha.attention", which no other
     * program reads. */
    int compatible;
    const char *chosen_by; /* for the record: a sentence on how the heads were chosen; NULL */
} mha_prune_options;

/* Creates the edit that removes the heads whose keep [layers, H] is 0: its config.json gets "mha.heads", the remaining
 * heads of each layer by their original numbers, with num_attention_heads and "mha.original_heads" where all layers
 * have the same number (model.h). `options` may be NULL. `model` must outlive *out; neither `keep` nor the options are
 * retained.
 *
 * Errors: MHA_ERR_ARG for a layer without any head, a group of shared keys that is kept in part, an unknown option,
 * MHA_ERR_UNSUPPORTED, MHA_ERR_MEMORY, MHA_ERR_CANCELLED ("fill" and "refit" report progress, in layers and batches).
 * Memory: 4 bytes for each element of the attention layers that change; with refit 8 bytes for each token and each
 * element of the hidden size, and a second model. Cost of the refit: four passes over its texts, and per layer a solve
 * of as many unknowns as its kept heads have outputs. */
MHA_API mha_status mha_prune(const mha_model *model, const uint8_t *keep, const mha_prune_options *options,
                             mha_model_edit **out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
