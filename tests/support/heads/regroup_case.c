/* regroup_case.c - implements regroup_case.h. */
#include "support/heads/regroup_case.h"

#include "support/check.h"
#include <stdlib.h>

enum { TEXTS = 40, LONGEST = 12 };

mha_head_data *regroup_data(const mha_model *model)
{
    int32_t ids[TEXTS * LONGEST];
    int64_t starts[TEXTS + 1] = {0};
    uint32_t state = 12345;
    mha_head_data *data = NULL;
    mha_error err = {0};
    for (int t = 0; t < TEXTS; t++) {
        starts[t + 1] = starts[t] + 4 + t % (LONGEST - 3);
        for (int64_t i = starts[t]; i < starts[t + 1]; i++) {
            state = state * 1664525 + 1013904223;
            ids[i] = (int32_t)((state >> 8) % (uint32_t)mha_model_describe(model)->vocab);
        }
    }
    if (mha_head_data_of_ids(model, ids, starts, TEXTS, NULL, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    return data;
}

float *regroup_states(const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    int32_t ids[REGROUP_TOKENS];
    mha_error err = {0};
    float *x = malloc((size_t)(REGROUP_TOKENS * info->hidden) * sizeof *x);
    for (int i = 0; i < REGROUP_TOKENS; i++)
        ids[i] = (37 * i + 5) % (int32_t)info->vocab;
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = REGROUP_TOKENS, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .last_hidden = x};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    return x;
}

mha_model_edit *regroup_edit(const mha_model *model, const mha_regroup_options *o)
{
    mha_model_edit *edit = NULL;
    mha_error err = {0};
    if (mha_regroup(model, o, &edit, &err) != MHA_OK) fail_msg("%s", err.message);
    return edit;
}

mha_model *regroup_open(const mha_model_edit *edit)
{
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_edit_open(edit, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    return model;
}
