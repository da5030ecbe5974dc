/* train_store.h - the folder of a training run: locks it, saves checkpoints that survive kill -9, and keeps a number of
 * older checkpoints.
 *
 *     mha_train_store_options options = {.size = sizeof options, .resume = 1};
 *     mha_train_store *store;
 *     mha_train_store_open(ctx, "run", &options, &store, &err);
 *     if (mha_train_store_has_checkpoint(store))
 *         mha_train_store_resume(store, &train_options, &trainer, &err);
 *     else
 *         mha_trainer_create(model, &train_options, &trainer, &err);
 *     mha_train_store_keep(store, 2, &err);
 *         ...                                                         runs the steps (train.h)
 *     mha_train_store_save(store, trainer, files, count, &err);   at intervals, and at the end
 *     mha_train_store_close(store, &err);
 *
 * `mha train` uses these functions. Only one process may use a folder, and only one thread may use a store at a
 * time. */
#ifndef MHA_TRAIN_STORE_H
#define MHA_TRAIN_STORE_H

#include "mha/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_train_store mha_train_store;

typedef struct mha_train_store_options {
    size_t size;
    int resume;    /* 1 = continue from the checkpoint in the folder, if there is one; 0 = start a new run */
    int overwrite; /* 1 = the first checkpoint replaces the content of the folder and the older checkpoints next to
                    * it */
} mha_train_store_options;

/* Locks `folder`, which need not exist, with the file .FOLDER.lock next to it; the lock is released when the process
 * ends. With `resume`, a checkpoint that a killed run left as .FOLDER.old.PID is renamed back to FOLDER, and this is
 * logged. `options` may be NULL. `ctx` must outlive the store. Errors: MHA_ERR_IO if another run holds the lock, or the
 * parent folder cannot be opened; MHA_ERR_ARG for a name of more than 223 bytes, and for a checkpoint left by a killed
 * run with neither `resume` nor `overwrite`; MHA_ERR_MEMORY. */
MHA_API mha_status mha_train_store_open(mha_ctx *ctx, const char *folder, const mha_train_store_options *options,
                                        mha_train_store **out, mha_error *err);

/* Releases the lock and frees the store; NULL is accepted. Errors: MHA_ERR_IO if the lock file cannot be removed; the
 * store is freed anyway. */
MHA_API mha_status mha_train_store_close(mha_train_store *store, mha_error *err);

/* Returns 1 if the store was opened with `resume` and the folder contains the state of a run, training.safetensors. */
MHA_API int mha_train_store_has_checkpoint(const mha_train_store *store);

/* Returns the number of steps of the checkpoint in the folder; -1 if there is none or it cannot be read, with the
 * reason in *err. */
MHA_API int64_t mha_train_store_step(const mha_train_store *store, mha_error *err);

/* Resumes the run in the folder with mha_trainer_resume. The next save continues this run. */
MHA_API mha_status mha_train_store_resume(mha_train_store *store, const mha_train_options *options, mha_trainer **out,
                                          mha_error *err);

/* Keeps the last `count` replaced checkpoints as FOLDER.step-STEP next to the folder; 0 = none, the default. Only
 * checkpoints are ever removed: a folder of such a name is kept, and logged once, if a run was continued in it or if it
 * contains other files. Call it before the first save, after mha_train_store_resume. Errors: MHA_ERR_ARG for a negative
 * count, and for a new run without `overwrite` if a folder with such a name exists; MHA_ERR_MEMORY. */
MHA_API mha_status mha_train_store_keep(mha_train_store *store, int64_t count, mha_error *err);

/* Replaces the checkpoint, completely or not at all: mha_trainer_save with these files. The first save of a new run
 * replaces a checkpoint of another run only with `overwrite`. Afterwards, older checkpoints in excess of the number to
 * keep are removed; after the first save of a new run, all older checkpoints are. Errors: those of mha_trainer_save,
 * after which the previous checkpoint is unchanged; MHA_ERR_IO if an older checkpoint cannot be removed. */
MHA_API mha_status mha_train_store_save(mha_train_store *store, const mha_trainer *trainer, const mha_train_file *files,
                                        int64_t file_count, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
