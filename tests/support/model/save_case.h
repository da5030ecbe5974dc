/* save_case.h - saves models to folders, and compares models and folders, for tests of saving. */
#ifndef TEST_SAVE_CASE_H
#define TEST_SAVE_CASE_H

#include "mha/model_save.h"

#define SAVE(...) (&(mha_model_save_options){.size = sizeof(mha_model_save_options), __VA_ARGS__})

/* A buffer for the path of a file in a folder. Unlike that of files_path, the path remains valid after further
 * calls. */
typedef struct save_path {
    char text[400];
} save_path;
const char *save_path_of(save_path *r, const char *folder, const char *name);

/* Saves a model; fails the running test on error. */
void save_model(const mha_model *model, const char *folder, const mha_model_save_options *options);
/* Fails the running test unless saving returns `status` and a message that contains `part`. */
void save_refused(const mha_model *model, const char *folder, const mha_model_save_options *options, mha_status status,
                  const char *part);

/* Returns a hash of the last hidden states of fixed tokens, by which models are compared. */
uint64_t save_hash(const mha_model *model);
/* Returns save_hash of the model in a folder. */
uint64_t save_hash_in(const char *folder);

/* Returns the names of all entries of a folder except `but`, or NULL if there are none. */
char *save_others_in(const char *folder, const char *but);

#endif
