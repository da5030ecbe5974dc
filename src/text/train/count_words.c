/* count_words.c - splits the bytes of a text into words, and counts the distinct words.
 *
 * A few MiB of text are collected and divided into pieces. Threads count the words of the pieces in separate tables, so
 * the sums do not depend on which thread counts a piece. Pieces end after a newline, or before a space that follows a
 * visible ASCII character. Neither the normalizer nor the pre-tokenizer depends on text across such a boundary, so
 * dividing a line does not change its words. */
#include "base/ctx.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/train/tokenizer_train.h"
#include <string.h>

enum { CHUNK = 1 << 17, BATCH = 1 << 22, UNCUT_MAX = 1 << 24 };

/* ---- division into pieces ---- */

static bool may_cut(const char *text, size_t at)
{
    const char before = text[at - 1];
    return before == '\n' || (text[at] == ' ' && before > ' ' && before < 0x7F);
}

/* Returns the end of a piece that begins at `begin`: the last boundary up to `want`, or else the first boundary
 * after `want`; 0 if there is no boundary before `end`. */
static size_t find_cut(const char *text, size_t begin, size_t want, size_t end)
{
    for (size_t at = want < end ? want : end; at > begin; at--)
        if (at < end ? may_cut(text, at) : text[at - 1] == '\n') return at;
    for (size_t at = want + 1; at < end; at++)
        if (may_cut(text, at)) return at;
    return want < end && text[end - 1] == '\n' ? end : 0;
}

/* ---- counting words ---- */

/* The pieces of text that are counted together. */
typedef struct batch {
    mha_tokenizer_trainer *t;
    size_t *end; /* end of each piece, as an offset in the text */
    size_t count, room;
} batch;

/* Counts the words of a piece of text. */
static mha_status count_piece(const mha_tokenizer *t, mha__counter *c, const char *text, size_t bytes)
{
    mha__slice whole = {.bytes = text, .n = bytes};
    mha__slice slice;
    c->pass.text = text;
    c->pass.text_bytes = bytes;
    MHA__TRY(mha__normalize(t, &c->pass, &whole, &slice));
    MHA__TRY(mha__edits_run(&t->splitter, &c->pass, c->pass.rewritten, &slice));
    for (size_t i = 0; i < c->pass.word_count; i++) {
        const mha__word *word = &c->pass.words[i];
        MHA__TRY(mha__strings_add(&c->words, slice.bytes + word->begin, word->end - word->begin, 1, NULL, &c->error));
    }
    return MHA_OK;
}

static void count_chunk(void *arg, int64_t i, int worker)
{
    const batch *b = arg;
    mha__counter *c = &b->t->counters[worker];
    const char *text = b->t->text;
    const size_t end = b->end[i];
    for (size_t at = i ? b->end[i - 1] : 0, next; at < end && c->status == MHA_OK; at = next) {
        const char *newline = memchr(text + at, '\n', end - at);
        next = newline ? (size_t)(newline - text) + 1 : end;
        c->status = count_piece(b->t->start, c, text + at, next - at);
    }
}

/* Divides the first `bytes` bytes of the text into pieces. If `last` is set, the end of the text is a boundary. */
static mha_status cut(batch *b, size_t bytes, bool last, mha_error *err)
{
    for (size_t at = 0; at < bytes;) {
        size_t end = find_cut(b->t->text, at, at + CHUNK, bytes);
        if (end == 0 || end == at) {
            if (!last) break;
            end = bytes;
        }
        MHA__TRY(mha__items_grow(b->t->ctx, &b->end, &b->room, b->count + 1, sizeof *b->end, err));
        b->end[b->count++] = at = end;
    }
    return MHA_OK;
}

static mha_status count_batch(batch *b, mha_error *err)
{
    mha__parallel(b->t->ctx, (int64_t)b->count, count_chunk, b);
    for (int i = 0; i < b->t->threads; i++)
        if (b->t->counters[i].status != MHA_OK)
            return mha__fail(err, b->t->counters[i].status, "%s", b->t->counters[i].error.message);
    return MHA_OK;
}

/* ---- line numbers ---- */

/* Advances the line number and the position in the line over the first `n` bytes of the text. */
static void pass_lines(const mha_tokenizer_trainer *t, size_t n, int64_t *line, int64_t *line_bytes)
{
    const char *at = t->text;
    const char *end = at + n;
    for (const char *newline; at < end && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL; at = newline + 1) {
        *line += 1;
        *line_bytes = 0;
    }
    *line_bytes += end - at;
}

static mha_status refuse_byte(const mha_tokenizer_trainer *t, size_t at, mha_error *err)
{
    int64_t line = t->line;
    int64_t byte = t->line_bytes;
    pass_lines(t, at, &line, &byte);
    return mha__fail(err, MHA_ERR_ARG, "line %lld: text must be UTF-8 (got 0x%02X at byte %lld)", (long long)line + 1,
                     (unsigned)(unsigned char)t->text[at], (long long)byte);
}

/* ---- input buffer ---- */

/* Counts the words of all complete pieces in the buffer or, if `last` is set, of the whole buffer. */
static mha_status flush(mha_tokenizer_trainer *t, bool last, mha_error *err)
{
    const size_t good = mha__utf8_check(t->text, t->text_bytes);
    if (good < t->text_bytes && (last || t->text_bytes - good > 3)) return refuse_byte(t, good, err);
    batch b = {.t = t};
    mha_status status = cut(&b, good, last, err);
    if (status == MHA_OK) status = count_batch(&b, err);
    const size_t done = b.count ? b.end[b.count - 1] : 0;
    mha__free(t->ctx, b.end);
    if (status != MHA_OK) return status;
    const int64_t before = t->line;
    pass_lines(t, done, &t->line, &t->line_bytes);
    t->trained.lines += t->line - before;
    if (done) memmove(t->text, t->text + done, t->text_bytes - done);
    t->text_bytes -= done;
    return MHA_OK;
}

/* Makes space in a full buffer: counts the words in it, or grows it if the text has no boundary. */
static mha_status make_room(mha_tokenizer_trainer *t, mha_error *err)
{
    if (t->text_bytes < t->text_room) return MHA_OK;
    if (t->text_room) MHA__TRY(flush(t, false, err));
    if (t->text_room && t->text_bytes < t->text_room) return MHA_OK;
    if (t->text_room >= UNCUT_MAX)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "line %lld: text must have a space between words at least every 16 MiB",
                         (long long)t->line + 1);
    return mha__items_grow(t->ctx, &t->text, &t->text_room, t->text_room ? 2 * t->text_room : BATCH, 1, err);
}

static mha_status gather(mha_tokenizer_trainer *t, const char *bytes, size_t n, mha_error *err)
{
    while (n > 0) {
        MHA__TRY(make_room(t, err));
        const size_t room = t->text_room - t->text_bytes;
        const size_t step = n < room ? n : room;
        memcpy(t->text + t->text_bytes, bytes, step);
        t->text_bytes += step;
        t->trained.bytes += (int64_t)step;
        bytes += step;
        n -= step;
    }
    return MHA_OK;
}

static mha_status end_file(mha_tokenizer_trainer *t, mha_error *err)
{
    if (t->text_bytes) MHA__TRY(flush(t, true, err));
    if (t->line_bytes) t->trained.lines++;
    t->line = t->line_bytes = 0;
    return MHA_OK;
}

static mha_status check_state(const mha_tokenizer_trainer *t, mha_error *err)
{
    if (!t) return mha__fail(err, MHA_ERR_ARG, "trainer must not be NULL");
    if (t->state == MHA__TRAIN_READING) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     t->state == MHA__TRAIN_DONE ? "trainer must not have finished; it accepts no more text"
                                                 : "trainer must not have failed; it can only be freed");
}

mha_status mha_tokenizer_trainer_put(mha_tokenizer_trainer *t, const char *bytes, size_t n, mha_error *err)
{
    MHA__TRY(check_state(t, err));
    if (!bytes && n > 0) return mha__fail(err, MHA_ERR_ARG, "mha_tokenizer_trainer_put: bytes must not be NULL");
    const mha_status status = gather(t, bytes, n, err);
    if (status != MHA_OK) t->state = MHA__TRAIN_FAILED;
    return status;
}

mha_status mha_tokenizer_trainer_end(mha_tokenizer_trainer *t, mha_error *err)
{
    MHA__TRY(check_state(t, err));
    const mha_status status = end_file(t, err);
    if (status != MHA_OK) t->state = MHA__TRAIN_FAILED;
    return status;
}

mha_status mha__train_join(mha_tokenizer_trainer *t, mha_error *err)
{
    mha__strings *all = &t->counters[0].words;
    for (int k = 1; k < t->threads; k++) {
        mha__strings *words = &t->counters[k].words;
        for (size_t i = 0; i < words->count; i++)
            MHA__TRY(mha__strings_add(all, mha__strings_at(words, i), words->items[i].length, words->items[i].sum, NULL,
                                      err));
        mha__strings_free(words);
    }
    for (size_t i = 0; i < all->count; i++)
        t->trained.words += all->items[i].sum;
    return MHA_OK;
}
