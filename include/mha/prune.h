/* prune.h - heads removed from a model for real: chosen by scores, cut out of the weights, made up for, and written.
 *
 *     uint8_t keep[LAYERS * HEADS];
 *     const mha_prune_rule rule = {.size = sizeof rule, .ratio = 0.3};
 *     mha_prune_choose(model, scores, &rule, keep, &err);
 *     mha_prune_save(model, keep, NULL, "smaller", &err);
 *
 * Removing head h of a layer deletes its rows of the projections of queries, keys and values, their biases, and its
 * columns of the output projection; the output's bias, norms and everything else stay. The result is that of gates of 0
 * (model.h), but the head is neither stored nor computed. Heads that share keys or values go together: the unit is one
 * key head with its H / Hkv query heads, or of "mha.kv_heads" (model.h) whole key heads and whole value heads.
 *
 * Heads are numbered as the model has them now, from 0 in each layer, as gates and scores are; mha_head_number says
 * what number a head had in the unpruned model. What is written keeps those numbers ("mha.heads" of config.json), so a
 * pruned model can be pruned again.
 *
 * After: Michel et al. 2019 (heads by importance); Hassibi & Stork 1993 (what is left is fitted to make up for what has
 * gone, here with a ridge).
 */
#ifndef MHA_PRUNE_H
#define MHA_PRUNE_H

#include "mha/head_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number in the unpruned model of a head that this one has: head `head` of those of the layer. -1 out of range.
 * Without the list "mha.heads", heads are numbered as they stand. */
MHA_API int64_t mha_head_number(const mha_model *model, int64_t layer, int64_t head);
/* The head of that number; -1 if the model does not have it (any more). */
MHA_API int64_t mha_head_place(const mha_model *model, int64_t layer, int64_t number);

/* ---- which ---- */

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

/* Fills keep [layers, H], H as in mha_model_info.heads: 1 = stays, 0 = goes, also behind the last head of a layer that
 * has fewer. `scores` [layers, H], high = important, are read where the model has a head; a group that shares
 * keys has the mean of its heads. Lowest scores go first; of equal ones the last head, and the last layer, goes
 * first. What the floor forbids stays: by ratio fewer go then; a count that cannot go is MHA_ERR_ARG, as is a score
 * that is no number. Heads of layers that choose heads for each text (model.h) stay as well, and are not counted. */
MHA_API mha_status mha_prune_choose(const mha_model *model, const double *scores, const mha_prune_rule *rule,
                                    uint8_t *keep, mha_error *err);

/* The same choice made on texts, without scores, and of all heads together: which set of heads, removed, changes least
 * what the model gives. Heads that back each other up look useless one at a time; here, the second one is judged as
 * if the first had gone.
 *
 * Of encoders what counts is the mean of 1 - cos(e, e of the pruned model), e being a text's embedding (the mean of its
 * last hidden states): each head's removal moves each e by some vector, and the groups go one by one, each time the
 * one with which the sum of these vectors is shortest. Of decoders with logits it is the loss of next tokens, and
 * its changes are added up. After each of `rounds` equal parts the changes are measured anew, on the model as it is
 * then. With `fill` a head is taken for its mean output on the texts, not for 0: for prunings with mean fill.
 *
 * Cost: in each round half a forward pass over the texts for each head that is left. Memory: for each group, 4 bytes
 * for each text and number of the hidden size. Errors: as mha_prune_choose; MHA_ERR_ARG for NULL, and
 * for a decoder if every text is a single token. */
typedef struct mha_prune_joint_options {
    size_t size;
    int64_t rounds; /* 0 = 4 */
    int fill;
    int32_t *order; /* [layers, H] written: how many heads were gone when this one was; 0 = it stays. May be NULL */
} mha_prune_joint_options;
MHA_API mha_status mha_prune_choose_joint(const mha_model *model, const mha_head_data *data, const mha_prune_rule *rule,
                                          const mha_prune_joint_options *options, uint8_t *keep, mha_error *err);

/* ---- what is left of the model ---- */

typedef struct mha_prune_options {
    size_t size;
    /* Mean fill: a removed head's mean output over all tokens of these texts joins the output bias, bo += Wo_h m_h.
     * Costs nothing later. A model without that bias gets attention_bias, with zeros for the other three, where its
     * family has the key (llama, qwen3, gemma2); for mistral and qwen2 it is MHA_ERR_UNSUPPORTED. NULL = none. */
    const mha_head_data *fill;
    /* Refit: each output projection, with its bias if it has one, in the order of layers, is fitted so that the pruned
     * model gives what the unpruned gives on these texts:
     *     W = W0 + (X^T X + ridge mu I)^-1 X^T (Y - X W0)
     * X: contexts of the heads that are left, behind the layers that are refitted already, and 1 for the bias; Y: what
     * the unpruned projection gave; W0: what the removal (and the fill) leaves; mu: mean of the diagonal of X^T X. In
     * double. Judge it on other texts: on these it looks better than it is. NULL = none. */
    const mha_head_data *refit;
    double ridge; /* of the refit; 0 = 3. 0.001 fits the texts by heart, and loses on others what was won */
    /* 1 = the shapes of the unpruned model, with zeros for what is removed, so that programs load it that know no
     * layers of fewer heads (transformers). Same results, nothing smaller or faster; "mha.heads" is left out.
     * MHA_ERR_UNSUPPORTED for a model with "mha.kv_heads", "mha.feed_forward" or "mha.attention", which no other
     * program knows. */
    int compatible;
    int overwrite;         /* of mha_prune_save: as in mha_model_save_options */
    const char *chosen_by; /* for the record: a sentence on how the heads were chosen; NULL */
} mha_prune_options;

/* A model with heads removed, in memory: the tensors that changed, in f32, and the config. */
typedef struct mha_pruning mha_pruning;

/* `options` may be NULL. `model` must outlive it; nothing of `keep` or the options is kept. Errors: MHA_ERR_ARG for a
 * layer without any head, a group of shared keys that is kept in part, an unknown option, MHA_ERR_UNSUPPORTED,
 * MHA_ERR_MEMORY, MHA_ERR_CANCELLED ("fill" and "refit" report progress, in layers and batches).
 * Memory: 4 bytes for each number of the attention layers that change; with refit 8 bytes for each token and each
 * number of the hidden size, and a second model. Cost of the refit: four passes over its texts, and per layer a solve
 * of as many unknowns as its kept heads have outputs. */
MHA_API mha_status mha_prune_make(const mha_model *model, const uint8_t *keep, const mha_prune_options *options,
                                  mha_pruning **out, mha_error *err);
MHA_API void mha_pruning_free(mha_pruning *pruning);

/* Opens the pruned model without writing it, to measure it. The pruning must outlive it; no tokenizer is opened. */
MHA_API mha_status mha_pruning_open(const mha_pruning *pruning, mha_model **out, mha_error *err);

/* The tensors that changed, named and shaped as the written file has them, f32; they live as long as the pruning. */
MHA_API const mha_named_tensor *mha_pruning_list(const mha_pruning *pruning, int64_t *count);

/* Adds what was measured of it to the record: a JSON object, terminated. MHA_ERR_FORMAT if it is none. */
MHA_API mha_status mha_pruning_note(mha_pruning *pruning, const char *quality_json, mha_error *err);

/* Writes it as mha_model_save does (model_save.h), whole or not at all, with the files of the tokenizer.
 *
 * config.json gains "mha.heads", the kept heads of each layer by their first numbers (with num_attention_heads and
 * "mha.original_heads" where all layers are alike, see model.h), and one more entry of the list
 * "mha.record": {"removed": numbers per layer, "heads": [before, after], "from": {file: sha256}, "chosen_by", "fill":
 * tokens, "refit": {"tokens", "ridge"}, "compatible": true, "quality": what mha_pruning_note gave}; keys that
 * do not apply are left out. The digest is of the files that the model was opened from, all bytes. */
MHA_API mha_status mha_pruning_save(const mha_pruning *pruning, const char *folder, int overwrite, mha_error *err);

/* mha_prune_make and mha_pruning_save in one step. */
MHA_API mha_status mha_prune_save(const mha_model *model, const uint8_t *keep, const mha_prune_options *options,
                                  const char *folder, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
