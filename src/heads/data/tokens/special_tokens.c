/* special_tokens.c - finds the special tokens that a tokenizer puts around a text, and classifies tokens. */
#include "heads/data/tokens/special_tokens.h"

#include "base/error.h"
#include <string.h>

static mha_status add(int32_t *side, int64_t *count, int32_t id, mha_error *err)
{
    if (*count == MHA__FRAME_TOKENS)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "tokenizer: the number of special tokens on one side of a text must be at most %d",
                         MHA__FRAME_TOKENS);
    side[(*count)++] = id;
    return MHA_OK;
}

static mha_status split(const mha_encoding *e, mha__frame *frame, mha_error *err)
{
    bool inside = false;
    for (int64_t i = 0; i < e->count; i++) {
        if (e->sequence[i] >= 0)
            inside = true;
        else if (!inside)
            MHA__TRY(add(frame->before, &frame->before_count, e->ids[i], err));
        else
            MHA__TRY(add(frame->after, &frame->after_count, e->ids[i], err));
    }
    return MHA_OK;
}

mha_status mha__frame_find(const mha_tokenizer *tokenizer, mha__frame *frame, mha_error *err)
{
    mha_encoding *e;
    *frame = (mha__frame){.before_count = 0};
    MHA__TRY(mha_tokenizer_encode(tokenizer, "a", 1, NULL, 0, NULL, &e, err));
    mha_status status = split(e, frame, err);
    mha_encoding_free(e);
    return status;
}

static const char *const separators[] = {"[SEP]",           "</s>",       "<eos>",     "<|endoftext|>",
                                         "<|end_of_text|>", "<|eot_id|>", "<|im_end|>"};
static const char *const punctuation[] = {".", ",", ";", ":", "?", "!"};

static bool is_among(const char *token, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(token, names[i]) == 0) return true;
    return false;
}

static bool is_in(const int32_t *ids, int64_t count, int32_t id)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] == id) return true;
    return false;
}

uint8_t mha__frame_kind(const mha__frame *frame, const mha_tokenizer *tokenizer, int32_t id)
{
    bool framed = is_in(frame->before, frame->before_count, id) || is_in(frame->after, frame->after_count, id);
    const char *token = mha_tokenizer_token(tokenizer, id);
    uint8_t kind = framed ? MHA_TOKEN_SPECIAL : 0;
    if (!token) return kind;
    if (is_among(token, separators, sizeof separators / sizeof *separators)) kind |= MHA_TOKEN_SEP | MHA_TOKEN_SPECIAL;
    if (is_among(token, punctuation, sizeof punctuation / sizeof *punctuation)) kind |= MHA_TOKEN_PUNCT;
    return kind;
}

mha_status mha_head_token_kinds(const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count, uint8_t *kinds,
                                mha_error *err)
{
    mha__frame frame;
    if (!tokenizer) return mha__fail(err, MHA_ERR_ARG, "tokenizer must not be NULL");
    if (count < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_token_kinds: count must be at least 0 (got %lld)",
                         (long long)count);
    if (count > 0 && (!ids || !kinds))
        return mha__fail(err, MHA_ERR_ARG, "mha_head_token_kinds: %s must not be NULL", ids ? "kinds" : "ids");
    MHA__TRY(mha__frame_find(tokenizer, &frame, err));
    for (int64_t i = 0; i < count; i++)
        kinds[i] = mha__frame_kind(&frame, tokenizer, ids[i]);
    return MHA_OK;
}
