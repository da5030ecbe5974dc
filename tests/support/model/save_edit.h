/* save_edit.h - writes pruned and regrouped models to a folder in one call. A failure fails the running test. */
#ifndef TESTS_SUPPORT_MODEL_SAVE_EDIT_H
#define TESTS_SUPPORT_MODEL_SAVE_EDIT_H

#include "mha/prune.h"
#include "mha/regroup.h"

/* Prune or regroup a model and save it to a folder, whose contents are replaced. */
void save_pruned(const mha_model *model, const uint8_t *keep, const mha_prune_options *options, const char *folder);
void save_regrouped(const mha_model *model, const mha_regroup_options *options, const char *folder);

#endif
