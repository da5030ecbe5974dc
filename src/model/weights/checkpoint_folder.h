/* checkpoint_folder.h - saves a checkpoint folder with additional files in one atomic step. */
#ifndef MHA_MODEL_WEIGHTS_CHECKPOINT_FOLDER_H
#define MHA_MODEL_WEIGHTS_CHECKPOINT_FOLDER_H

#include "io/files/output_folder.h"
#include "mha/model_save.h"

/* The names of all files that a checkpoint may contain, in the form that mha__folder_begin requires. */
extern const char *const mha__model_files[];

/* Writes additional files into the folder. Their names must begin with "training.", so that the folder may be replaced
 * later. */
typedef mha_status (*mha__save_more)(const void *user, mha__folder *folder, mha_error *err);

/* Runs mha_model_save, and then `more` (NULL = nothing) before the folder gets its final name. */
mha_status mha__model_save_with(const mha_model *model, const char *folder, const mha_model_save_options *options,
                                mha__save_more more, const void *user, mha_error *err);

#endif
