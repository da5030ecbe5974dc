/* model_save.h - a model as a checkpoint folder, which transformers and other tools load: all but one with layers that
 * this project alone knows ("mha.heads" of layers that differ, "mha.kv_heads", "mha.feed_forward", "mha.attention":
 * model.h).
 *
 *     mha_model_save(model, "out", NULL, &err);
 *
 * config.json with every key that it had, known or not ("mha.heads" of pruned models too); all tensors of the
 * checkpoint, also those that the model does not use, in one model.safetensors with the metadata that there were; and
 * the files of the tokenizer.
 *
 * The folder appears whole or not at all. It is written beside its place, as .NAME.tmp.PID; every file is synced, the
 * whole is opened and checked, and then it gets its name in one step. Under kill -9, with a full disk or without
 * permission there is the old folder, or none, as before; only a killed process leaves the temporary folder behind,
 * which the next save of that name removes where the file system has locks.
 */
#ifndef MHA_MODEL_SAVE_H
#define MHA_MODEL_SAVE_H

#include "mha/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_model_save_options {
    size_t size;
    mha_dtype dtype; /* f32, bf16 or f16: of all tensors of real numbers, rounded to nearest even; config.json says so
                      * too. Default: as they are stored */
    int overwrite;   /* 1 = a checkpoint of that name is replaced; see below */
    /* Tensors that take the place of those of the same name, or join them: [count] of f32, with shapes of their own.
     * Stored as the tensor that they replace, unless dtype says otherwise; new ones as f32. */
    const mha_named_tensor *tensors;
    int64_t count;
    const char *config_json; /* instead of the model's: UTF-8 JSON, terminated; NULL = that */
} mha_model_save_options;

/* `options` may be NULL. The files of the tokenizer are copied from the folder that the model was opened from. The
 * folder may be that one.
 *
 * What is there already: an empty folder is taken; anything else only with `overwrite`, and only a folder that holds
 * nothing but the files of a checkpoint, which those of a training (train.h: its state, its log) count among, and go
 * with it. It is exchanged in one step where the system can (Linux), else in two: the old
 * one gets the name .NAME.old.PID, and the new one its name; what a kill then leaves aside goes with the next save, if
 * the name is there. Symbolic links are never followed.
 *
 * Errors: MHA_ERR_IO with name and reason, also where the model has a tokenizer whose file is gone;
 * MHA_ERR_FORMAT when what would be written is no model (replaced tensors or config that do not fit), MHA_ERR_ARG,
 * MHA_ERR_MEMORY, MHA_ERR_CANCELLED by the progress callback ("save", in bytes); in every case nothing has changed.
 * Memory: some MiB. */
MHA_API mha_status mha_model_save(const mha_model *model, const char *folder, const mha_model_save_options *options,
                                  mha_error *err);

/* Would a save be refused for what is there, or for the lack of a folder to write in? To be asked before long work; it
 * changes nothing. Errors: MHA_ERR_IO with name and reason, MHA_ERR_ARG. */
MHA_API mha_status mha_model_save_check(const char *folder, int overwrite, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
