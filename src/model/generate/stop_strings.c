/* stop_strings.c - stop strings in streamed text: text that may be the beginning of a stop string is withheld until the
 * following text confirms or excludes the stop string.
 *
 * Text is matched byte by byte, so the result does not depend on token boundaries. The text ends before the stop string
 * that is completed first; if several stop strings are completed at the same byte, the text ends before the longest.
 * Stop strings consist of whole characters, so no character is split. */
#include "model/generate/stop_strings.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include <string.h>

/* Returns the length of the longest stop string at the end of text[0 .. end); 0 = none. */
static size_t stop_at(const mha__writer *w, size_t end)
{
    size_t longest = 0;
    for (int64_t i = 0; i < w->stop_count; i++) {
        const size_t n = strlen(w->stop[i]);
        if (n > longest && n <= end && memcmp(w->text + end - n, w->stop[i], n) == 0) longest = n;
    }
    return longest;
}

/* Returns the length of the longest suffix of the text that is a prefix of a stop string. */
static size_t doubtful(const mha__writer *w)
{
    size_t longest = 0;
    for (int64_t i = 0; i < w->stop_count; i++) {
        const size_t max = strlen(w->stop[i]) - 1;
        for (size_t n = max < w->bytes ? max : w->bytes; n > longest; n--)
            if (memcmp(w->text + w->bytes - n, w->stop[i], n) == 0) longest = n;
    }
    return longest;
}

static void forget_handed_out(mha__writer *w)
{
    w->bytes -= w->sure;
    if (w->bytes > 0) memmove(w->text, w->text + w->sure, w->bytes); /* memory may not be allocated yet */
    w->sure = 0;
}

static mha_status reserve(mha__writer *w, size_t more, mha_error *err)
{
    enum { FIRST = 256 };
    size_t need = 0;
    if (mha__add(w->bytes, more, &need) && need <= w->room) return MHA_OK;
    size_t room = w->room ? w->room : FIRST;
    while (room < need && mha__mul(room, 2, &room)) {
    }
    char *text = room >= need && need > 0 ? mha__alloc(w->ctx, room) : NULL;
    if (!text) return mha__no_memory(err, need, "the text of a prompt");
    if (w->bytes) memcpy(text, w->text, w->bytes);
    mha__free(w->ctx, w->text);
    w->text = text;
    w->room = room;
    return MHA_OK;
}

static mha_status take(mha__writer *w, const char *text, size_t bytes, mha_error *err)
{
    if (bytes == 0) return MHA_OK;
    const size_t had = w->bytes;
    MHA__TRY(reserve(w, bytes, err));
    memcpy(w->text + had, text, bytes);
    w->bytes += bytes;
    for (size_t end = had + 1; end <= w->bytes; end++) {
        const size_t n = stop_at(w, end);
        if (n == 0) continue;
        w->stopped = true;
        w->sure = w->bytes = end - n;
        return MHA_OK;
    }
    w->sure = w->bytes - doubtful(w);
    return MHA_OK;
}

mha_status mha__writer_begin(mha__writer *w, const mha_prompt *prompt, mha_error *err)
{
    const char *text;
    size_t bytes;
    mha_text_stream_free(w->stream);
    w->bytes = w->sure = 0;
    w->stopped = false;
    MHA__TRY(mha_text_stream_create(w->tokenizer, 1, &w->stream, err));
    for (int64_t i = 0; i < prompt->count; i++)
        if (mha_tokenizer_token(w->tokenizer, prompt->ids[i]))
            MHA__TRY(mha_text_stream_put(w->stream, prompt->ids[i], &text, &bytes, err));
    return MHA_OK;
}

mha_status mha__writer_put(mha__writer *w, int32_t id, mha_error *err)
{
    const char *text = "";
    size_t bytes = 0;
    forget_handed_out(w);
    if (mha_tokenizer_token(w->tokenizer, id)) MHA__TRY(mha_text_stream_put(w->stream, id, &text, &bytes, err));
    return take(w, text, bytes, err);
}

mha_status mha__writer_end(mha__writer *w, mha_error *err)
{
    const char *text;
    size_t bytes;
    forget_handed_out(w);
    if (w->stopped) return MHA_OK;
    MHA__TRY(mha_text_stream_end(w->stream, &text, &bytes, err));
    MHA__TRY(take(w, text, bytes, err));
    if (!w->stopped) w->sure = w->bytes;
    return MHA_OK;
}

void mha__writer_free(mha__writer *w)
{
    mha_text_stream_free(w->stream);
    mha__free(w->ctx, w->text);
}
