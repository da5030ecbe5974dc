/* decode.c - from ids back to text; the WordPiece decoder. */
#include "text/tokenizer.h"

#include "base/ctx.h"
#include "base/size.h"
#include <string.h>

/* ---- WordPiece: "##" joins, anything else is set off by a space ---- */

/* Replaces every `old` in text[0..n) by the shorter `new`; returns the new length. */
static size_t replace(char *text, size_t n, const char *old, const char *new)
{
    size_t old_n = strlen(old);
    size_t new_n = strlen(new);
    size_t to = 0;
    for (size_t at = 0; at < n;) {
        if (n - at >= old_n && memcmp(text + at, old, old_n) == 0) {
            memcpy(text + to, new, new_n);
            at += old_n;
            to += new_n;
        } else {
            text[to++] = text[at++];
        }
    }
    return to;
}

/* In this order, each on what the one before left. */
static const char *const cleanups[][2] = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

static size_t wordpiece_decode(const mha_tokenizer *t, const char *token, int64_t index, char *to)
{
    const char *prefix = t->wordpiece_decoder.prefix;
    size_t prefix_n = strlen(prefix);
    size_t n = 0;
    if (index > 0 && strncmp(token, prefix, prefix_n) == 0)
        token += prefix_n;
    else if (index > 0)
        to[n++] = ' ';
    memcpy(to + n, token, strlen(token));
    n += strlen(token);
    if (t->wordpiece_decoder.cleanup)
        for (size_t i = 0; i < sizeof cleanups / sizeof cleanups[0]; i++)
            n = replace(to, n, cleanups[i][0], cleanups[i][1]);
    return n;
}

static mha_status wordpiece_load(mha_tokenizer *t, const mha__json_obj *json, mha_error *err)
{
    const char *prefix;
    MHA__TRY(mha__json_string(json, "prefix", MHA__REQUIRED, &prefix, NULL, err));
    MHA__TRY(mha__json_bool(json, "cleanup", MHA__REQUIRED, &t->wordpiece_decoder.cleanup, err));
    return mha__copy_text(t, prefix, &t->wordpiece_decoder.prefix, err);
}

static const mha__decoder_kind wordpiece = {{"WordPiece", wordpiece_load}, wordpiece_decode};

/* Without a decoder: tokens joined by spaces. */
static size_t plain_decode(const mha_tokenizer *t, const char *token, int64_t index, char *to)
{
    (void)t;
    size_t n = 0;
    if (index > 0) to[n++] = ' ';
    memcpy(to + n, token, strlen(token));
    return n + strlen(token);
}

static const mha__decoder_kind plain = {{"", NULL}, plain_decode};

mha_status mha__decoder_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    static const mha__kind *const kinds[] = {&wordpiece.kind, NULL};
    const mha__kind *kind = NULL;
    MHA__TRY(mha__stage_load(t, root, "decoder", kinds, &kind, err));
    t->decoder = kind ? (const mha__decoder_kind *)kind : &plain;
    return MHA_OK;
}

/* ---- decoding ---- */

static mha_status measure(const mha_tokenizer *t, const int32_t *ids, int64_t count, size_t *bytes, mha_error *err)
{
    *bytes = 1;
    for (int64_t i = 0; i < count; i++) {
        const char *token = mha_tokenizer_token(t, ids[i]);
        if (!token)
            return mha__fail(err, MHA_ERR_ARG, "ids[%lld]: want the id of a token, below %lld, got %d", (long long)i,
                             (long long)t->ids, (int)ids[i]);
        if (!mha__add(*bytes, 1 + strlen(token), bytes)) return mha__no_memory(err, SIZE_MAX, "a text");
    }
    return MHA_OK;
}

mha_status mha_tokenizer_decode(const mha_tokenizer *t, const int32_t *ids, int64_t count, int skip_special, char **out,
                                size_t *bytes, mha_error *err)
{
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out: want an address, got NULL");
    *out = NULL;
    if (!t || count < 0 || (count > 0 && !ids))
        return mha__fail(err, MHA_ERR_ARG, "want a tokenizer and %lld ids, got NULL or less", (long long)count);
    size_t room;
    MHA__TRY(measure(t, ids, count, &room, err));
    char *text = mha__alloc(t->ctx, room);
    if (!text) return mha__no_memory(err, room, "a text");
    size_t n = 0;
    int64_t index = 0;
    for (int64_t i = 0; i < count; i++)
        if (!skip_special || !t->special[ids[i]]) n += t->decoder->decode(t, t->token[ids[i]], index++, text + n);
    text[n] = '\0';
    *out = text;
    if (bytes) *bytes = n;
    return MHA_OK;
}

void mha_tokenizer_text_free(const mha_tokenizer *t, char *text)
{
    if (t) mha__free(t->ctx, text);
}
