/* json_write.c - writes JSON values and trees to a buffer. */
#include "io/json/json_write.h"

#include "base/ctx.h"
#include "base/size.h"
#include "base/utf8.h"
#include "io/json/json_number.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- output buffer ---- */

static bool grow(mha__json_writer *w, size_t more)
{
    size_t need;
    if (w->failed) return false;
    w->failed = !mha__add(w->n, more, &need) || !mha__add(need, 1, &need) || need > SIZE_MAX / 2;
    if (w->failed || need <= w->room) return !w->failed;
    const size_t room = 2 * need > 256 ? 2 * need : 256;
    char *text = mha__alloc(w->ctx, room);
    w->failed = !text;
    if (!text) return false;
    if (w->n) memcpy(text, w->text, w->n);
    mha__free(w->ctx, w->text);
    w->text = text;
    w->room = room;
    return true;
}

static void put(mha__json_writer *w, const char *bytes, size_t n)
{
    if (n == 0 || !grow(w, n)) return;
    memcpy(w->text + w->n, bytes, n);
    w->n += n;
}

static void put_line(mha__json_writer *w)
{
    const size_t blanks = (size_t)w->indent * (size_t)w->depth;
    if (w->indent == MHA__JSON_COMPACT || !grow(w, 1 + blanks)) return;
    w->text[w->n] = '\n';
    memset(w->text + w->n + 1, ' ', blanks);
    w->n += 1 + blanks;
}

/* Writes the comma and the indentation before a value or key. */
static void begin(mha__json_writer *w)
{
    if (!w->keyed && w->filled) put(w, ",", 1);
    if (!w->keyed && w->depth) put_line(w);
    w->keyed = false;
    w->filled = true;
}

/* ---- strings ---- */

/* Writes a byte as an escape, or U+FFFD for a byte that is not UTF-8. */
static void put_special(mha__json_writer *w, unsigned char byte)
{
    static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    char text[8];
    const char *found = byte ? strchr(plain, byte) : NULL;
    if (byte >= 0x80)
        snprintf(text, sizeof text, "\xEF\xBF\xBD");
    else if (found)
        snprintf(text, sizeof text, "\\%c", names[found - plain]);
    else
        snprintf(text, sizeof text, "\\u%04X", byte);
    put(w, text, strlen(text));
}

static void put_string(mha__json_writer *w, const char *p, size_t n)
{
    size_t begin = 0, at = 0;
    put(w, "\"", 1);
    while (at < n) {
        uint32_t code;
        const int length = mha__utf8_read(p + at, n - at, &code);
        if (length > 1 || (length == 1 && code >= 0x20 && code != '"' && code != '\\')) {
            at += (size_t)length;
            continue;
        }
        put(w, p + begin, at - begin);
        put_special(w, (unsigned char)p[at]);
        begin = ++at;
    }
    put(w, p + begin, n - begin);
    put(w, "\"", 1);
}

/* ---- values ---- */

void mha__json_open(mha__json_writer *w, char bracket)
{
    begin(w);
    put(w, &bracket, 1);
    w->depth++;
    w->filled = false;
}

void mha__json_close(mha__json_writer *w, char bracket)
{
    w->depth--;
    if (w->filled) put_line(w);
    put(w, &bracket, 1);
    w->filled = true;
}

static void put_key(mha__json_writer *w, const char *key, size_t n)
{
    begin(w);
    put_string(w, key, n);
    put(w, ": ", w->indent == MHA__JSON_COMPACT ? 1 : 2);
    w->keyed = true;
}

void mha__json_key(mha__json_writer *w, const char *key)
{
    put_key(w, key, strlen(key));
}

void mha__json_key_bytes(mha__json_writer *w, const char *key, size_t n)
{
    put_key(w, key, n);
}

static void put_word(mha__json_writer *w, const char *word)
{
    begin(w);
    put(w, word, strlen(word));
}

void mha__json_put_bool(mha__json_writer *w, bool value)
{
    put_word(w, value ? "true" : "false");
}

void mha__json_put_int(mha__json_writer *w, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    put_word(w, text);
}

void mha__json_put_real(mha__json_writer *w, double value)
{
    char text[MHA__JSON_REAL_BYTES];
    mha__json_real_text(value, w->digits ? w->digits : MHA__JSON_EXACT, text);
    put_word(w, text);
}

void mha__json_put_bytes(mha__json_writer *w, const char *value, size_t n)
{
    begin(w);
    put_string(w, value, n);
}

void mha__json_put_text(mha__json_writer *w, const char *value)
{
    mha__json_put_bytes(w, value, strlen(value));
}

mha_status mha__json_written(mha__json_writer *w, const char *what, char **text, size_t *n, mha_error *err)
{
    const bool whole = grow(w, 0);
    if (whole) w->text[w->n] = '\0';
    if (n) *n = whole ? w->n : 0;
    if (text) *text = whole ? w->text : NULL;
    if (!whole || !text) mha__free(w->ctx, w->text);
    const size_t bytes = w->n;
    *w = (mha__json_writer){.ctx = w->ctx, .indent = w->indent, .digits = w->digits};
    return whole ? MHA_OK : mha__no_memory(err, bytes, what);
}

/* ---- writing a tree ---- */

static void put_members(mha__json_writer *w, const mha__json *container)
{
    const bool object = mha__json_is(container, MHA__JSON_OBJECT);
    mha__json_open(w, object ? '{' : '[');
    for (mha__json_step i = {0}; !w->failed && mha__json_each(container, &i);) {
        if (object) put_key(w, mha__json_as_text(i.key), mha__json_bytes(i.key));
        mha__json_put(w, i.value);
    }
    mha__json_close(w, object ? '}' : ']');
}

/* Writes a value of a tree. The parser's nesting limit bounds the recursion. */
void mha__json_put(mha__json_writer *w, const mha__json *value)
{
    const mha__json_kind kind = mha__json_kind_of(value);
    if (kind == MHA__JSON_ARRAY || kind == MHA__JSON_OBJECT)
        put_members(w, value);
    else if (kind == MHA__JSON_STRING)
        mha__json_put_bytes(w, mha__json_as_text(value), mha__json_bytes(value));
    else if (kind == MHA__JSON_INTEGER)
        mha__json_put_int(w, mha__json_as_int(value));
    else if (kind == MHA__JSON_REAL)
        mha__json_put_real(w, mha__json_as_number(value));
    else if (kind == MHA__JSON_ABSENT)
        w->failed = true;
    else
        put_word(w, mha__json_kind_name(kind)); /* null, false, true */
}

mha_status mha__json_put_json(mha__json_writer *w, const char *file, const char *json, mha_error *err)
{
    const mha__json *root;
    MHA__TRY(mha__json_parse(w->ctx, file, json, strlen(json), MHA__JSON_BOM, &root, err));
    mha__json_put(w, root);
    mha__json_free(root);
    return MHA_OK;
}

static bool is_listed(const char *const *keys, const char *key)
{
    for (; keys && *keys; keys++)
        if (strcmp(*keys, key) == 0) return true;
    return false;
}

static void put_changed(mha__json_writer *w, const mha__json *from, const mha__json *changes,
                        const char *const *removed)
{
    mha__json_open(w, '{');
    for (mha__json_step i = {0}; mha__json_each(from, &i);) {
        const char *key = mha__json_as_text(i.key);
        const mha__json *other = mha__json_get(changes, key);
        if (is_listed(removed, key)) continue;
        mha__json_key(w, key);
        mha__json_put(w, other ? other : i.value);
    }
    for (mha__json_step i = {0}; mha__json_each(changes, &i);) {
        const char *key = mha__json_as_text(i.key);
        if (mha__json_get(from, key) && !is_listed(removed, key)) continue;
        mha__json_key(w, key);
        mha__json_put(w, i.value);
    }
    mha__json_close(w, '}');
}

mha_status mha__json_changed(const char *file, const char *json, const char *const *removed, mha__json_writer *changes,
                             int indent, char **changed, mha_error *err)
{
    mha__json_writer w = {.ctx = changes->ctx, .indent = indent};
    const mha__json *from = NULL, *to = NULL;
    char *text = NULL;
    size_t n = 0;
    *changed = NULL;
    mha_status status = mha__json_written(changes, file, &text, &n, err);
    if (status == MHA_OK) status = mha__json_parse(w.ctx, file, text, n, 0, &to, err);
    if (status == MHA_OK) status = mha__json_parse(w.ctx, file, json, strlen(json), MHA__JSON_BOM, &from, err);
    if (status == MHA_OK) {
        put_changed(&w, from, to, removed);
        status = mha__json_written(&w, file, changed, NULL, err);
    }
    mha__json_free(from);
    mha__json_free(to);
    mha__free(w.ctx, text);
    return status;
}
