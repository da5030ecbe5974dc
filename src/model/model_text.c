/* model_text.c - tokenizes one of a caller's texts; errors and truncation warnings name the index of the text. */
#include "model/model_text.h"

#include "base/ctx.h"
#include "base/error.h"
#include <stdbool.h>
#include <string.h>

static void warn_truncated(const mha_model *model, const mha__text *text, int64_t all, int64_t kept)
{
    mha__log(mha_model_ctx(model), 0, "text %lld of %lld: %lld tokens, %lld were truncated; the model accepts %lld",
             (long long)text->index + 1, (long long)text->count, (long long)all, (long long)(all - kept),
             (long long)mha_model_describe(model)->max_positions);
}

/* Returns the maximum number of tokens in a text; sets *asked to true if the caller requested this limit. */
static int64_t token_limit(const mha_model *model, int64_t max_tokens, bool *asked)
{
    const int64_t max = mha_model_describe(model)->max_positions;
    *asked = max_tokens > 0 && max_tokens < max;
    return *asked ? max_tokens : max;
}

int64_t mha__text_truncate(const mha_model *model, const mha__text *text, int64_t length, int64_t max_tokens)
{
    bool asked;
    const int64_t max = token_limit(model, max_tokens, &asked);
    if (length <= max) return length;
    if (!asked) warn_truncated(model, text, length, max);
    return max;
}

mha_status mha__text_encode(const mha_model *model, const mha__text *text, int64_t max_tokens, mha_encoding **out,
                            mha_error *err)
{
    bool asked;
    const mha_encode_options how = {.size = sizeof how, .max_tokens = token_limit(model, max_tokens, &asked)};
    const long long number = (long long)text->index + 1, count = (long long)text->count;
    *out = NULL;
    if (!text->text) return mha__fail(err, MHA_ERR_ARG, "text %lld of %lld must not be NULL", number, count);
    mha_error why = {0};
    const mha_status status =
        mha_tokenizer_encode(mha_model_tokenizer(model), text->text, strlen(text->text), NULL, 0, &how, out, &why);
    if (status != MHA_OK) return mha__fail(err, status, "text %lld of %lld: %s", number, count, why.message);
    if ((*out)->truncated > 0 && !asked) warn_truncated(model, text, (*out)->count + (*out)->truncated, (*out)->count);
    return MHA_OK;
}
