/* checkpoint_folder.h - a checkpoint folder with more in it than a model: it appears whole all the same. */
#ifndef MHA_MODEL_WEIGHTS_CHECKPOINT_FOLDER_H
#define MHA_MODEL_WEIGHTS_CHECKPOINT_FOLDER_H

#include "io/files/output_folder.h"
#include "mha/model_save.h"

/* Names of all files that a checkpoint may hold, as mha__folder_begin wants them. */
extern const char *const mha__model_files[];

/* Writes further files into the folder: names that begin with "training.", so that the folder may be replaced. */
typedef mha_status (*mha__save_more)(const void *user, mha__folder *folder, mha_error *err);

/* mha_model_save, and then `more` (NULL = nothing), before the folder gets its name. */
mha_status mha__model_save_with(const mha_model *model, const char *folder, const mha_model_save_options *options,
                                mha__save_more more, const void *user, mha_error *err);

#endif
