/* save_edit.c - implements save_edit.h. */
#include "support/model/save_edit.h"

#include "support/check.h"

static void save(mha_model_edit *edit, mha_status status, const char *folder, mha_error *err)
{
    if (status == MHA_OK) status = mha_model_edit_save(edit, folder, 1, err);
    mha_model_edit_free(edit);
    if (status != MHA_OK) fail_msg("%s", err->message);
}

void save_pruned(const mha_model *model, const uint8_t *keep, const mha_prune_options *options, const char *folder)
{
    mha_model_edit *edit;
    mha_error err = {0};
    const mha_status status = mha_prune(model, keep, options, &edit, &err);
    save(edit, status, folder, &err);
}

void save_regrouped(const mha_model *model, const mha_regroup_options *options, const char *folder)
{
    mha_model_edit *edit;
    mha_error err = {0};
    const mha_status status = mha_regroup(model, options, &edit, &err);
    save(edit, status, folder, &err);
}
