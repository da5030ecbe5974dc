/* model_edit.h - an edited model in memory: heads removed (prune.h), or keys and values shared (regroup.h).
 *
 *     mha_model_edit *edit;
 *     mha_prune(model, keep, NULL, &edit, &err);              or mha_regroup(model, &options, &edit, &err)
 *     mha_model_edit_evaluate(edit, held_out, &e, &err);      sizes, quality and speed, before and after
 *     mha_model_edit_note(edit, "{\"loss\": 2.31}", &err);
 *     mha_model_edit_save(edit, "smaller", 0, &err);
 *     mha_model_edit_free(edit);
 *
 * An edit contains the changed tensors, the new config.json and a record of the edit. All other tensors are read from
 * the source model, which must outlive the edit. The source model is never changed.
 */
#ifndef MHA_MODEL_EDIT_H
#define MHA_MODEL_EDIT_H

#include "mha/compare_models.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_model_edit mha_model_edit;

/* Frees the edit and its tensors; NULL is allowed. */
MHA_API void mha_model_edit_free(mha_model_edit *edit);

/* Opens the edited model without writing it: the whole checkpoint, if the source was a part of it. The edit must
 * outlive the model; no tokenizer is opened. */
MHA_API mha_status mha_model_edit_open(const mha_model_edit *edit, mha_model **out, mha_error *err);

/* Returns the changed tensors, f32, with the names and shapes of the written file. Valid until the edit is freed. */
MHA_API const mha_named_tensor *mha_model_edit_tensors(const mha_model_edit *edit, int64_t *count);

/* Properties of the source model (index 0) and of the edited model (index 1). */
typedef struct mha_edit_evaluation {
    /* Head counts of all layers together, with those of the encoder and of the cross-attention of a decoder, and of the
     * image tower of a CLIP model; key and value head counts of the first layer. */
    int64_t heads[2], key_heads[2], value_heads[2];
    int64_t parameters[2], bytes[2], kv_bytes_per_token[2]; /* as in mha_model_info */
    mha_comparison comparison;                              /* on the held-out texts; `texts` is 0 without them */
    double tokens_per_second[2]; /* best of at least five passes, in which the models alternate */
    /* The rule of transformers that the edited model violates, such as "all layers must have the same number of heads";
     * NULL if transformers can load the model. */
    const char *broken_rule;
} mha_edit_evaluation;

/* Opens the edited model and compares it with the source model. `held_out`: texts that were not used to select heads or
 * to fit weights; NULL = only sizes are evaluated. Reports progress as "compare" and "speed". Errors: MHA_ERR_ARG for
 * NULL; those of mha_models_compare. */
MHA_API mha_status mha_model_edit_evaluate(const mha_model_edit *edit, const mha_head_data *held_out,
                                           mha_edit_evaluation *out, mha_error *err);

/* Adds measurements of the edited model to the record. MHA_ERR_FORMAT unless `quality_json` is a NUL-terminated JSON
 * object. */
MHA_API mha_status mha_model_edit_note(mha_model_edit *edit, const char *quality_json, mha_error *err);

/* Writes the edited model like mha_model_save (model_save.h), completely or not at all, with the tokenizer files.
 *
 * The list "mha.record" of config.json gains one entry. Keys that do not apply are omitted:
 *   by mha_prune    {"part": "image" or "text", the tower of a CLIP model, "removed": original head numbers per layer,
 *                   "heads": [before, after], "chosen_by", "fill": tokens,
 *   by mha_regroup  {"regrouped": {"keys": N, "values": M}, "method", "order": the original position of each head, per
 *                   layer, "fit": tokens, "weighted_by",
 *   by both         "refit": {"tokens", "ridge"}, "compatible": true, "from": {file: sha256}, "quality"}
 * In an encoder-decoder, "removed" is an object of lists like "mha.heads" (model.h): an edit of the decoder lists the
 * heads of all parts, and so does an edit of the encoder.
 * "from" contains the digests of the files that the source model was opened from; "quality" is the object passed to
 * mha_model_edit_note. Errors: those of mha_model_save. */
MHA_API mha_status mha_model_edit_save(const mha_model_edit *edit, const char *folder, int overwrite, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
