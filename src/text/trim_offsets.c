/* trim_offsets.c - excludes white space at the ends of tokens from their offsets. */
#include "text/trim_offsets.h"

#include "text/byte_level.h"
#include "text/unicode.h"

static bool is_space(uint32_t code)
{
    return code == mha__byte_char(' ') || mha__char_is(MHA__CHAR_SPACE, code);
}

void mha__trim_count(mha__token *token, const char *bytes, size_t n)
{
    const mha__slice in = {.bytes = bytes, .n = n};
    size_t length;
    token->lead = token->trail = 0;
    token->counted = true;
    for (size_t at = 0; at < n && is_space(mha__slice_next(&in, at, &length)); at += length)
        token->lead++;
    for (size_t end = n; end > 0 && is_space(mha__slice_last(&in, end, &length)); end -= length)
        token->trail++;
}

/* Moves the offsets of a token by characters, as the reference does. If `trail` exceeds the characters of the text
 * before the token's end, the end is unchanged. */
void mha__trim(const mha_tokenizer *t, const char *text, mha__token *token, bool first)
{
    const mha__slice in = {.bytes = text, .n = token->end};
    size_t length;
    uint32_t lead = token->lead;
    uint32_t trail = token->trail;
    uint32_t end = token->end;
    if (lead == 1 && t->trim.prefix_space && (first || token->begin == 0)) lead = 0;
    for (; lead > 0 && token->begin < token->end; lead--) {
        (void)mha__slice_next(&in, token->begin, &length);
        token->begin += (uint32_t)length;
    }
    for (; trail > 0 && end > 0; trail--) {
        (void)mha__slice_last(&in, end, &length);
        end -= (uint32_t)length;
    }
    if (trail == 0) token->end = end > token->begin ? end : token->begin;
}
