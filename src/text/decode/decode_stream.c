/* decode_stream.c - decodes ids one at a time, as a model generates them. The decoder's steps pass on output as soon as
 * it is final. */
#include "base/ctx.h"
#include "io/input_limits.h"
#include "text/tokenizer.h"

struct mha_text_stream {
    const mha_tokenizer *tokenizer;
    mha__decoding decoding;
    bool skip_special, ended;
};

mha_status mha_text_stream_create(const mha_tokenizer *t, int skip_special, mha_text_stream **out, mha_error *err)
{
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    if (!t) return mha__fail(err, MHA_ERR_ARG, "tokenizer must not be NULL");
    mha_text_stream *s = mha__calloc(t->ctx, 1, sizeof *s);
    if (!s) return mha__no_memory(err, sizeof *s, "a stream of text");
    s->tokenizer = t;
    s->skip_special = skip_special;
    s->decoding = (mha__decoding){.pass = {.ctx = t->ctx}, .list = &t->decoder, .eager = true};
    *out = s;
    return MHA_OK;
}

void mha_text_stream_free(mha_text_stream *s)
{
    if (!s) return;
    mha__decoding_free(&s->decoding);
    mha__free(s->tokenizer->ctx, s);
}

static mha_status hand_out(mha_text_stream *s, mha_status status, const char **text, size_t *bytes)
{
    const mha__decode_state *made = &s->decoding.state[MHA__DECODE_STEPS];
    s->decoding.pass.err = NULL;
    if (status != MHA_OK) return status;
    *text = made->n ? made->bytes : "";
    *bytes = made->n;
    return MHA_OK;
}

/* Returns the size [bytes] of the largest output that a step holds back. */
static size_t held(const mha__decoding *d)
{
    size_t max = 0;
    for (int i = 0; i < d->list->count; i++)
        if (d->state[i].n > max) max = d->state[i].n;
    return max;
}

/* Checks the arguments and discards the text of the previous call. */
static mha_status begin_call(mha_text_stream *s, const char **text, size_t *bytes, mha_error *err)
{
    if (!s || !text || !bytes) return mha__fail(err, MHA_ERR_ARG, "stream, text and bytes must not be NULL");
    *text = "";
    *bytes = 0;
    if (s->ended) return mha__fail(err, MHA_ERR_ARG, "stream must not have ended");
    s->decoding.state[MHA__DECODE_STEPS].n = 0;
    s->decoding.limit = MHA__NORMALIZED_BYTES(held(&s->decoding));
    s->decoding.pass.err = err;
    return MHA_OK;
}

mha_status mha_text_stream_put(mha_text_stream *s, int32_t id, const char **text, size_t *bytes, mha_error *err)
{
    MHA__TRY(begin_call(s, text, bytes, err));
    const mha_tokenizer *t = s->tokenizer;
    const char *token = mha_tokenizer_token(t, id);
    if (!token)
        return mha__fail(err, MHA_ERR_ARG, "id must be at least 0 and below %lld (got %d)", (long long)t->ids, (int)id);
    bool skip = s->skip_special && (t->special[id] & MHA__SKIPPED) != 0;
    return hand_out(s, skip ? MHA_OK : mha__decoding_feed(&s->decoding, token), text, bytes);
}

mha_status mha_text_stream_end(mha_text_stream *s, const char **text, size_t *bytes, mha_error *err)
{
    MHA__TRY(begin_call(s, text, bytes, err));
    s->ended = true;
    return hand_out(s, mha__decoding_finish(&s->decoding), text, bytes);
}
