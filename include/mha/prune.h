/* prune.h - removes heads from a model: chooses them, deletes their weights, and compensates for the removal.
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
 * columns of the output projection; the output bias, norms and all other weights are unchanged. The result is the same
 * as with a gate of 0 (model.h), but the head is neither stored nor computed. Heads that share keys or values are
 * removed together: the unit is one key head with its H / Hkv query heads, or, with "mha.kv_heads" (model.h), whole key
 * heads and whole value heads.
 *
 * The model may be one part of a checkpoint: the encoder of an encoder-decoder (mha_model_encoder), or the image tower
 * of a CLIP model (mha_model_vision). The edit then changes the whole checkpoint, in which all other parts stay the
 * same. If the model is the decoder of an encoder-decoder, the edit may also remove heads of its cross-attention and of
 * the encoder.
 *
 * Heads are numbered by their position in the model, from 0 in each layer, like gates and scores; mha_head_number
 * returns the number that a head had in the unpruned model. A saved model keeps the original numbers ("mha.heads" of
 * config.json), so a pruned model can be pruned again.
 *
 * After: Michel et al. 2019 (heads by importance); Hassibi & Stork 1993 (fitting the remaining weights to compensate
 * for the removed ones, here with ridge regression).
 */
#ifndef MHA_PRUNE_H
#define MHA_PRUNE_H

#include "mha/head_data.h"
#include "mha/model_edit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the number that head `head` of the layer had in the unpruned model; in a model without "mha.heads", this is
 * its position. Returns -1 if out of range. */
MHA_API int64_t mha_head_number(const mha_model *model, int64_t layer, int64_t head);
/* Returns the position of the head with original number `number`; -1 if the model does not have this head. */
MHA_API int64_t mha_head_place(const mha_model *model, int64_t layer, int64_t number);
/* The same for the heads of the cross-attention in the decoder of an encoder-decoder; -1 for other models. */
MHA_API int64_t mha_cross_head_number(const mha_model *model, int64_t layer, int64_t head);
MHA_API int64_t mha_cross_head_place(const mha_model *model, int64_t layer, int64_t number);

/* ---- choosing heads ---- */

typedef struct mha_prune_rule {
    size_t size;
    /* Fraction of heads to remove, 0..1. The resulting number of heads (of whole groups if keys are shared) is rounded
     * to nearest, halves up. With per_layer, it is a fraction of each layer's heads, rounded up: ceil(heads ratio). */
    double ratio;
    int64_t count; /* heads to remove, per layer with per_layer, else in total, rounded up to whole groups; 0 = use
                    * ratio */
    int per_layer; /* 1 = apply the rule in every layer; 0 = apply it once to all heads of the model */
    int64_t floor; /* minimum number of heads kept in every layer, 0 = 1; whole groups if keys are shared */
    /* Decoder of an encoder-decoder: if set, the rule also covers the heads of the cross-attention and of the encoder,
     * whose layers count as further layers: cross_keep [layers, H] and encoder_keep [encoder layers, encoder H] are
     * written like `keep`, and mha_prune_choose reads their scores. Both NULL = only the heads of the decoder. */
    uint8_t *cross_keep, *encoder_keep;
    const double *cross_scores, *encoder_scores;
} mha_prune_rule;

/* Returns the maximum number of heads that the rule's floor permits to remove: in total or, with per_layer, per layer.
 * Returns -1 for NULL or an invalid rule. */
MHA_API int64_t mha_prune_most(const mha_model *model, const mha_prune_rule *rule);

/* Writes keep [layers, H], where H is mha_model_info.heads: 1 = kept, 0 = removed, or not in the layer. `scores`
 * [layers, H], higher = more important, are read only for heads that the model has; the score of a group that shares
 * keys is the mean of its heads. Heads with the lowest scores are removed first; among equal scores, heads of later
 * layers first, then later heads. The floor has priority: a ratio then removes fewer heads, and a count that cannot be
 * reached is MHA_ERR_ARG, as is a score that is not finite. Heads of layers that select heads for each text (model.h)
 * are kept and not counted. */
MHA_API mha_status mha_prune_choose(const mha_model *model, const double *scores, const mha_prune_rule *rule,
                                    uint8_t *keep, mha_error *err);

/* Chooses heads jointly from texts, without scores: the set of heads whose joint removal changes the output least. Of
 * two redundant heads, each looks useless alone; here, the second is evaluated with the first removed.
 *
 * For encoders the change is the mean of 1 - cos(e, e of the pruned model), where e is a text's embedding (the mean of
 * its last hidden states). Removing a head shifts each e by a vector, and each step removes the group for which the sum
 * of these vectors is shortest. For decoders with logits, it is the change in the next-token loss, summed over the
 * removed heads. The heads are removed in `rounds` equal parts; after each part, the changes are measured again on the
 * model pruned so far. With `fill`, a removed head is replaced by its mean output on the texts instead of 0: use it
 * before pruning with mean fill.
 *
 * Cost: in each round, half a forward pass over the texts per remaining head. Memory: per group, 4 bytes for each text
 * and element of the hidden size. Errors: those of mha_prune_choose; MHA_ERR_ARG for NULL, and for a decoder if every
 * text is a single token; MHA_ERR_NOT_FINITE if an embedding or a loss is not; MHA_ERR_UNSUPPORTED for images. */
typedef struct mha_prune_joint_options {
    size_t size;
    int64_t rounds; /* number of rounds; 0 = 4 */
    int fill;
    /* [layers, H] written: order of removal, from 1; 0 = kept. If the rule covers all kinds of heads, those of the
     * cross-attention and of the encoder follow. May be NULL */
    int32_t *order;
} mha_prune_joint_options;
MHA_API mha_status mha_prune_choose_joint(const mha_model *model, const mha_head_data *data, const mha_prune_rule *rule,
                                          const mha_prune_joint_options *options, uint8_t *keep, mha_error *err);

/* ---- removing heads ---- */

typedef struct mha_prune_options {
    size_t size;
    /* Mean fill: a removed head's mean output over all tokens of these texts, or of these images for a model that
     * reads images, is added to the output bias, bo += Wo_h m_h, at no run-time cost. A model without that bias gets
     * attention_bias, with zeros for the other three biases, if its family has the key (llama, qwen3, gemma2); mistral
     * and qwen2 are MHA_ERR_UNSUPPORTED. NULL = none. */
    const mha_head_data *fill;
    /* Refit: each output projection, with its bias if it has one, layer by layer, is fitted so that the pruned model
     * reproduces the output of the unpruned model on these texts:
     *     W = W0 + (X^T X + ridge mu I)^-1 X^T (Y - X W0)
     * X: contexts of the remaining heads, computed with the layers already fitted, and 1 for the bias; Y: the output of
     * the unpruned projection; W0: the weight after removal (and fill); mu: mean of the diagonal of X^T X. Computed in
     * double. Evaluate the pruned model on other texts, because its result on these texts is too optimistic. In an
     * encoder-decoder, the projections are fitted in the order in which they run: those of the encoder, then in each
     * layer of the decoder self-attention and cross-attention. NULL = none. */
    const mha_head_data *refit;
    double ridge; /* ridge of the refit; 0 = 3. Small values such as 0.001 overfit the texts */
    /* 1 = keep the shapes of the unpruned model and set removed weights to 0, for programs that require the same number
     * of heads in all layers (transformers). The results are the same, but nothing is smaller or faster; "mha.heads" is
     * omitted (in a CLIP model, only for the pruned tower). MHA_ERR_UNSUPPORTED for a model with "mha.kv_heads",
     * "mha.feed_forward" or "mha.attention", which no other program reads. */
    int compatible;
    const char *chosen_by; /* a sentence for the record that states how the heads were chosen; NULL = none */
    /* Encoder-decoders, if `model` is the decoder: the heads of its cross-attention [layers, H] and those of the
     * encoder [encoder layers, encoder H] that are kept, as `keep`; NULL = all. */
    const uint8_t *cross_keep, *encoder_keep;
} mha_prune_options;

/* Creates the edit that removes the heads whose keep [layers, H] is 0: its config.json gets "mha.heads", the original
 * numbers of the remaining heads of each layer. If all layers have the same head count, it also gets
 * num_attention_heads and "mha.original_heads" (model.h). A T5 gets num_heads instead, if all layers of the encoder,
 * the decoder and the cross-attention keep the same number of heads, and all layers of a side the same heads;
 * transformers then loads it. `options` may be NULL. `model` must outlive *out; neither `keep` nor the options are
 * retained.
 *
 * Errors: MHA_ERR_ARG for a layer without any head, a group of shared keys that is only partly kept, or an unknown
 * option, and for fill or refit of another kind than the model reads: the decoder of an encoder-decoder requires
 * source/target pairs (mha_head_data_of_pairs); MHA_ERR_UNSUPPORTED; MHA_ERR_MEMORY, MHA_ERR_CANCELED ("fill" and
 * "refit" report progress, in layers and batches). Memory: 4 bytes for each element of the attention layers that
 * change; with refit 8 bytes for each token and each element of the hidden size, and a second model. Cost of the refit:
 * four passes over its texts, and per layer one linear solve with as many unknowns as the outputs of its kept heads. */
MHA_API mha_status mha_prune(const mha_model *model, const uint8_t *keep, const mha_prune_options *options,
                             mha_model_edit **out, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
