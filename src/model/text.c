/* text.c - one of a caller's texts becomes tokens; what is refused or cut off is said with the number of the text. */
#include "model/text.h"

#include "base/ctx.h"
#include "base/error.h"
#include <string.h>

static void warn_cut(const mha_model *model, const mha__text *text, const mha_encoding *e, int64_t most)
{
    mha__log(mha_model_ctx(model), 0, "text %lld of %lld: %lld tokens, %lld were cut off; the model takes %lld",
             (long long)text->index + 1, (long long)text->count, (long long)(e->count + e->truncated),
             (long long)e->truncated, (long long)most);
}

mha_status mha__text_encode(const mha_model *model, const mha__text *text, int64_t max_tokens, mha_encoding **out,
                            mha_error *err)
{
    const int64_t most = mha_model_describe(model)->max_positions;
    const bool asked = max_tokens > 0 && max_tokens < most;
    const mha_encode_options how = {.size = sizeof how, .max_tokens = asked ? max_tokens : most};
    const long long number = (long long)text->index + 1, count = (long long)text->count;
    *out = NULL;
    if (!text->text) return mha__fail(err, MHA_ERR_ARG, "text %lld of %lld is NULL", number, count);
    mha_error why = {0};
    const mha_status status =
        mha_tokenizer_encode(mha_model_tokenizer(model), text->text, strlen(text->text), NULL, 0, &how, out, &why);
    if (status != MHA_OK) return mha__fail(err, status, "text %lld of %lld: %s", number, count, why.message);
    if ((*out)->truncated > 0 && !asked) warn_cut(model, text, *out, most);
    return MHA_OK;
}
