/* save_edit.h - writes pruned and regrouped models. If an error occurs, the running test fails. */
#ifndef TESTS_SUPPORT_MODEL_SAVE_EDIT_H
#define TESTS_SUPPORT_MODEL_SAVE_EDIT_H

#include "mha/prune.h"
#include "mha/regroup.h"

/* Prunes or regroups a model and saves it to a folder. An existing folder is replaced. */
void save_pruned(const mha_model *model, const uint8_t *keep, const mha_prune_options *options, const char *folder);
void save_regrouped(const mha_model *model, const mha_regroup_options *options, const char *folder);

#endif
