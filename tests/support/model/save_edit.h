/* save_edit.h - pruned and regrouped models, written to a folder in one step. A failure ends the test. */
#ifndef TESTS_SUPPORT_MODEL_SAVE_EDIT_H
#define TESTS_SUPPORT_MODEL_SAVE_EDIT_H

#include "mha/prune.h"
#include "mha/regroup.h"

/* They replace what the folder holds. */
void save_pruned(const mha_model *model, const uint8_t *keep, const mha_prune_options *options, const char *folder);
void save_regrouped(const mha_model *model, const mha_regroup_options *options, const char *folder);

#endif
