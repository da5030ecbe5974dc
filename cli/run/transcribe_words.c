/* transcribe_words.c - groups the tokens of a transcript to words: a word begins with a token that begins with a
 * space. */
#include "output.h"
#include "run/transcribe.h"
#include <stdlib.h>
#include <string.h>

/* Appends bytes to a word. Returns false if memory ran out. */
static bool extend(transcribe_word *w, const char *text, size_t bytes)
{
    const size_t length = w->text ? strlen(w->text) : 0;
    char *longer = realloc(w->text, length + bytes + 1);
    if (!longer) return false;
    memcpy(longer + length, text, bytes);
    longer[length + bytes] = '\0';
    w->text = longer;
    return true;
}

/* Begins a word, unless the last one is still empty. */
static bool begin(transcribe_words *words, double seconds)
{
    if (words->count && !words->list[words->count - 1].text) {
        words->list[words->count - 1].begin = seconds;
        return true;
    }
    transcribe_word *list = realloc(words->list, (size_t)(words->count + 1) * sizeof *list);
    if (!list) return false;
    words->list = list;
    list[words->count++] = (transcribe_word){.begin = seconds};
    return true;
}

/* Adds new text of a token; spaces separate words. */
static bool add_text(transcribe_words *words, const char *text, size_t bytes, double seconds, bool first)
{
    for (size_t at = 0; at < bytes;) {
        const size_t spaces = strspn(text + at, " "), rest = bytes - at;
        const size_t skipped = spaces < rest ? spaces : rest;
        if ((skipped || (first && at == 0)) && !begin(words, seconds)) return false;
        at += skipped;
        const char *space = memchr(text + at, ' ', bytes - at);
        const size_t length = space ? (size_t)(space - text) - at : bytes - at;
        if (length && !extend(&words->list[words->count - 1], text + at, length)) return false;
        at += length;
    }
    return true;
}

/* Removes a last word without text, and sets the ends of the words from `first` on. */
static void finish(transcribe_words *words, int64_t first, double end)
{
    if (words->count > first && !words->list[words->count - 1].text) words->count--;
    for (int64_t n = first; n < words->count; n++)
        words->list[n].end = n + 1 < words->count ? words->list[n + 1].begin : end;
}

int transcribe_words_add(const cli_session *s, const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                         const double *seconds, double origin, double end, transcribe_words *words)
{
    const int64_t first = words->count;
    mha_text_stream *stream = NULL;
    mha_error error = {0};
    bool ok = true;
    mha_status status = mha_text_stream_create(tokenizer, 1, &stream, &error);
    for (int64_t n = 0; n <= count && status == MHA_OK && ok; n++) {
        const char *text = NULL;
        size_t bytes = 0;
        const double at = origin + seconds[n < count ? n : count - 1];
        status = n < count ? mha_text_stream_put(stream, ids[n], &text, &bytes, &error)
                           : mha_text_stream_end(stream, &text, &bytes, &error);
        if (status == MHA_OK && bytes) ok = add_text(words, text, bytes, at, words->count == first);
    }
    mha_text_stream_free(stream);
    finish(words, first, end);
    if (status != MHA_OK) return cli_refuse(s, &error);
    return ok ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for the words");
}

void transcribe_words_free(transcribe_words *words)
{
    for (int64_t n = 0; n < words->count; n++)
        free(words->list[n].text);
    free(words->list);
    *words = (transcribe_words){0};
}
