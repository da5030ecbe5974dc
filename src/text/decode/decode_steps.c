/* decode_steps.c - implements the steps of which decoders consist. */
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/decode/decode.h"
#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* ---- plain: without a decoder, tokens are joined by spaces ---- */

static mha_status feed_plain(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part)
{
    if (d->state[step].tokens++ > 0) MHA__TRY(mha__decode_emit(d, step, " ", 1, MHA__PART_WHOLE));
    return mha__decode_emit(d, step, bytes, n, part);
}

const mha__decode_step mha__decode_plain = {.feed = feed_plain, .whole = true};

/* ---- WordPiece: a token with "##" is joined to the previous token, any other token follows a space ---- */

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

/* The replacements of the `cleanup` option, applied in this order, each to the result of the previous replacement. */
static const char *const cleanups[][2] = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

static mha_status feed_wordpiece(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part)
{
    const mha__decode_step *self = &d->list->items[step];
    mha__decode_state *state = &d->state[step];
    state->n = 0;
    bool first = state->tokens++ == 0;
    bool inside = !first && n >= self->wordpiece.n && memcmp(bytes, self->wordpiece.prefix, self->wordpiece.n) == 0;
    size_t skip = inside ? self->wordpiece.n : 0;
    if (!first && !inside) MHA__TRY(mha__decode_keep(d, step, " ", 1));
    MHA__TRY(mha__decode_keep(d, step, bytes + skip, n - skip));
    if (self->wordpiece.cleanup && state->n > 0)
        for (size_t i = 0; i < sizeof cleanups / sizeof cleanups[0]; i++)
            state->n = replace(state->bytes, state->n, cleanups[i][0], cleanups[i][1]);
    return mha__decode_emit(d, step, state->bytes, state->n, part);
}

const mha__decode_step mha__decode_wordpiece = {.feed = feed_wordpiece, .whole = true};

/* ---- conversion of bytes to characters ---- */

/* Returns the length of the well-formed character at p. Returns 0 if the first *bad bytes cannot begin a character. As
 * in the reference, the longest valid prefix of a character counts as one error. Also returns 0, with *bad = 0, if all
 * n bytes are a valid prefix. */
static size_t character(const unsigned char *p, size_t n, size_t *bad)
{
    uint32_t code;
    int length = mha__utf8_read((const char *)p, n, &code);
    if (length > 0) return (size_t)length;
    size_t want = p[0] >= 0xC2 && p[0] < 0xE0   ? 2
                  : p[0] >= 0xE0 && p[0] < 0xF0 ? 3
                  : p[0] >= 0xF0 && p[0] < 0xF5 ? 4
                                                : 1;
    unsigned char low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80; /* minimum of the second byte */
    unsigned char high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    *bad = 1;
    for (; *bad < want && *bad < n; (*bad)++) {
        if (p[*bad] < low || p[*bad] > high) return 0;
        low = 0x80;
        high = 0xBF;
    }
    if (want > 1 && *bad == n) *bad = 0;
    return 0;
}

/* ---- ByteLevel: each character of a token represents one byte of the text ---- */

/* Passes complete characters to the next step and keeps the remaining bytes; if `end` is set, passes all bytes. */
static mha_status flush_bytes(mha__decoding *d, int step, bool end)
{
    mha__decode_state *state = &d->state[step];
    const unsigned char *p = (const unsigned char *)state->bytes;
    size_t at = 0;
    size_t good = 0; /* number of valid bytes from `at` on */
    if (state->n == 0) return MHA_OK;
    while (at + good < state->n) {
        size_t bad = 0;
        size_t length = character(p + at + good, state->n - at - good, &bad);
        good += length;
        if (length > 0) continue;
        if (bad == 0 && !end) break;
        MHA__TRY(mha__decode_emit(d, step, state->bytes + at, good, 0));
        MHA__TRY(mha__decode_emit(d, step, REPLACEMENT, 3, 0));
        at += good + (bad ? bad : state->n - at - good);
        good = 0;
    }
    MHA__TRY(mha__decode_emit(d, step, state->bytes + at, good, 0));
    at += good;
    if (at > 0) memmove(state->bytes, state->bytes + at, state->n - at);
    state->n -= at;
    return MHA_OK;
}

/* Appends the bytes that a token represents. If any of its characters does not represent a byte, appends the token's
 * text unchanged. */
static mha_status keep_bytes(mha__decoding *d, int step, const char *token, size_t n)
{
    mha__decode_state *state = &d->state[step];
    size_t before = state->n;
    uint32_t code;
    for (size_t at = 0; at < n;) {
        at += (size_t)mha__utf8_read(token + at, n - at, &code);
        int byte = mha__char_byte(code);
        if (byte < 0) {
            state->n = before;
            return mha__decode_keep(d, step, token, n);
        }
        MHA__TRY(mha__decode_keep(d, step, (const char[1]){(char)byte}, 1));
    }
    return MHA_OK;
}

/* Passes an empty first part of the fused token to the next step, so that later steps process its start before a
 * character is complete. */
static mha_status begin_fused(mha__decoding *d, int step)
{
    return d->state[step].tokens++ == 0 ? mha__decode_emit(d, step, "", 0, MHA__PART_BEGIN) : MHA_OK;
}

static mha_status feed_bytes(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part)
{
    (void)part;
    MHA__TRY(begin_fused(d, step));
    MHA__TRY(keep_bytes(d, step, bytes, n));
    return flush_bytes(d, step, false);
}

static mha_status finish_bytes(mha__decoding *d, int step)
{
    MHA__TRY(begin_fused(d, step));
    MHA__TRY(flush_bytes(d, step, true));
    return mha__decode_emit(d, step, "", 0, MHA__PART_END);
}

const mha__decode_step mha__decode_bytes = {.feed = feed_bytes, .finish = finish_bytes, .fuses = true, .whole = true};

/* ---- ByteFallback: "<0xE3>" represents a byte ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the byte that a token such as "<0xE3>" represents; -1 for any other token. */
static int byte_of(const char *token, size_t n)
{
    if (n != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
    int high = hex_digit(token[3]);
    int low = hex_digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Passes a run of bytes to the next step as text. If the run is not well-formed UTF-8, each of its bytes becomes
 * U+FFFD. In a stream, complete characters were already passed on, so only the remaining bytes become U+FFFD. */
static mha_status flush_fallback(mha__decoding *d, int step, bool end)
{
    mha__decode_state *state = &d->state[step];
    size_t good = mha__utf8_check(state->bytes, state->n);
    if (good < state->n && !d->eager) good = 0;
    if (good > 0) MHA__TRY(mha__decode_emit(d, step, state->bytes, good, MHA__PART_WHOLE));
    size_t bad = 0;
    size_t left = state->n - good;
    if (left > 0) (void)character((const unsigned char *)state->bytes + good, left, &bad);
    if (!end && bad == 0) {
        if (good > 0) memmove(state->bytes, state->bytes + good, left);
        state->n = left;
        return MHA_OK;
    }
    for (size_t i = 0; i < left; i++)
        MHA__TRY(mha__decode_emit(d, step, REPLACEMENT, 3, MHA__PART_WHOLE));
    state->n = 0;
    return MHA_OK;
}

static mha_status feed_fallback(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part)
{
    int byte = byte_of(bytes, n);
    if (byte >= 0) {
        MHA__TRY(mha__decode_keep(d, step, (const char[1]){(char)byte}, 1));
        return d->eager ? flush_fallback(d, step, false) : MHA_OK;
    }
    if (d->state[step].n > 0) MHA__TRY(flush_fallback(d, step, true));
    return mha__decode_emit(d, step, bytes, n, part);
}

static mha_status finish_fallback(mha__decoding *d, int step)
{
    return d->state[step].n > 0 ? flush_fallback(d, step, true) : MHA_OK;
}

const mha__decode_step mha__decode_fallback = {.feed = feed_fallback, .finish = finish_fallback, .whole = true};

/* ---- Fuse: joins all tokens into one ---- */

static mha_status feed_fuse(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part)
{
    (void)part;
    MHA__TRY(begin_fused(d, step));
    return mha__decode_emit(d, step, bytes, n, 0);
}

static mha_status finish_fuse(mha__decoding *d, int step)
{
    MHA__TRY(begin_fused(d, step));
    return mha__decode_emit(d, step, "", 0, MHA__PART_END);
}

const mha__decode_step mha__decode_fuse = {.feed = feed_fuse, .finish = finish_fuse, .fuses = true};

/* ---- Replace: replaces each match of a pattern ---- */

static mha_status feed_replace(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part)
{
    const mha__decode_step *self = &d->list->items[step];
    const mha__slice token = {.bytes = bytes, .n = n};
    mha__decode_state *state = &d->state[step];
    size_t begin;
    size_t end;
    state->n = 0;
    for (size_t at = 0; at < n; at = end) {
        MHA__TRY(mha__pattern_find(&self->replace.pattern, &d->pass, &token, at, &begin, &end));
        MHA__TRY(mha__decode_keep(d, step, bytes + at, begin - at));
        if (begin < n) MHA__TRY(mha__decode_keep(d, step, self->replace.with, self->replace.n));
    }
    return mha__decode_emit(d, step, state->bytes, state->n, part);
}

const mha__decode_step mha__decode_replace = {.feed = feed_replace, .whole = true};

/* ---- Metaspace: replaces the marker with a space; may drop it in the first token ---- */

static mha_status feed_metaspace(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part)
{
    const mha__decode_step *self = &d->list->items[step];
    mha__decode_state *state = &d->state[step];
    if (part & MHA__PART_BEGIN) state->tokens++;
    bool drop = state->tokens == 1 && self->metaspace.drop_first;
    size_t mark = self->metaspace.n;
    state->n = 0;
    for (size_t at = 0; at < n;) {
        bool found = n - at >= mark && memcmp(bytes + at, self->metaspace.mark, mark) == 0;
        if (!found) MHA__TRY(mha__decode_keep(d, step, bytes + at, 1));
        if (found && !drop) MHA__TRY(mha__decode_keep(d, step, " ", 1));
        at += found ? mark : 1;
    }
    return mha__decode_emit(d, step, state->bytes, state->n, part);
}

const mha__decode_step mha__decode_metaspace = {.feed = feed_metaspace};

/* ---- Strip: removes up to N occurrences of a character at the start and at the end of each token ---- */

/* Processes one occurrence of the character: removes it, holds it back, or passes it to the next step. */
static mha_status strip_one(mha__decoding *d, int step)
{
    const mha__decode_step *self = &d->list->items[step];
    mha__decode_state *state = &d->state[step];
    if (state->cut >= 0 && state->cut < self->strip.start) {
        state->cut++;
        return MHA_OK;
    }
    state->cut = -1;
    if (state->kept < self->strip.stop) {
        state->kept++;
        return MHA_OK;
    }
    return mha__decode_keep(d, step, self->strip.text, self->strip.n);
}

static mha_status feed_strip(mha__decoding *d, int step, const char *bytes, size_t n, unsigned part)
{
    const mha__decode_step *self = &d->list->items[step];
    mha__decode_state *state = &d->state[step];
    size_t width = self->strip.n;
    state->n = 0;
    if (part & MHA__PART_BEGIN) state->cut = state->kept = 0;
    for (size_t at = 0; at < n;) {
        if (n - at >= width && memcmp(bytes + at, self->strip.text, width) == 0) {
            MHA__TRY(strip_one(d, step));
            at += width;
            continue;
        }
        for (; state->kept > 0; state->kept--)
            MHA__TRY(mha__decode_keep(d, step, self->strip.text, width));
        state->cut = -1;
        MHA__TRY(mha__decode_keep(d, step, bytes + at++, 1));
    }
    return mha__decode_emit(d, step, state->bytes, state->n, part);
}

const mha__decode_step mha__decode_strip = {.feed = feed_strip};
