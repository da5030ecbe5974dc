/* some_texts.c - implements some_texts.h. */
#include "support/text/some_texts.h"

#include "support/check.h"
#include "support/model/model_case.h"

int32_t some_ids[SOME_TEXTS * SOME_LONGEST];
int64_t some_starts[SOME_TEXTS + 1];

mha_model *some_model(mha_ctx *ctx, const char *folder)
{
    return case_open(ctx, folder);
}

mha_head_data *some_data(const mha_model *model)
{
    const int32_t vocab = (int32_t)mha_model_describe(model)->vocab;
    mha_head_data *data = NULL;
    mha_error err = {0};
    for (int t = 0; t < SOME_TEXTS; t++)
        some_starts[t + 1] = some_starts[t] + 3 + (7 * t) % 10;
    for (int64_t n = 0; n < some_starts[SOME_TEXTS]; n++)
        some_ids[n] = (int32_t)(11 + 37 * n) % vocab;
    if (mha_head_data_of_ids(model, some_ids, some_starts, SOME_TEXTS, NULL, &data, &err) != MHA_OK)
        fail_msg("%s", err.message);
    return data;
}

mha_importance *some_importance(const mha_model *model, const mha_head_data *data, mha_importance_options options)
{
    mha_importance *i = NULL;
    mha_error err = {0};
    options.size = sizeof options;
    if (mha_importance_measure(model, data, &options, &i, &err) != MHA_OK) fail_msg("%s", err.message);
    return i;
}
