/* regroup_case.h - regroups heads of models; a failed call fails the running test. */
#ifndef TEST_REGROUP_CASE_H
#define TEST_REGROUP_CASE_H

#include "mha/regroup.h"

#define REGROUP(...) (&(mha_regroup_options){.size = sizeof(mha_regroup_options), __VA_ARGS__})
#define PUBLISHED .contiguous = 1, .uncentered = 1, .ridge = -1

/* Returns texts of pseudorandom tokens, the same in every run. */
mha_head_data *regroup_data(const mha_model *model);

/* Returns the last hidden states [REGROUP_TOKENS, hidden] of a few tokens. The caller must free them. */
enum { REGROUP_TOKENS = 11 };
float *regroup_states(const mha_model *model);

mha_model_edit *regroup_edit(const mha_model *model, const mha_regroup_options *o);
/* Opens the model that an edit makes. */
mha_model *regroup_open(const mha_model_edit *edit);

#endif
