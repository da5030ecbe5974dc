/* json_scan.c - reads the tokens of a JSON text (json_scan.h) in one pass, without recursion. The open containers are
 * bits of a 64-bit word, so MHA__JSON_DEPTH is at most 64. */
#include "io/json/json_scan.h"

#include "base/utf8.h"
#include "io/files/input_file.h"
#include "io/input_limits.h"
#include "io/json/json_number.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(MHA__JSON_DEPTH <= 64, "the kinds of open containers are bits of one word");

/* Values of `state`: the tokens that are valid next. */
enum { VALUE, FIRST_ITEM, FIRST_KEY, KEY, AFTER };

/* ---- messages ---- */

mha_status mha__json_scan_fail(const mha__json_scan *s, size_t at, const char *reason, ...)
{
    char text[400];
    mha__quoted file;
    va_list args;
    va_start(args, reason);
    vsnprintf(text, sizeof text, reason, args);
    va_end(args);
    return mha__fail(s->err, MHA_ERR_FORMAT, "%s: %sline %zu, column %zu: %s",
                     mha__quote(&file, s->file, strlen(s->file)), s->flags & MHA__JSON_HEADER ? "header: " : "",
                     s->line + 1, at - s->line_begin + 1, text);
}

const char *mha__json_kind_name(mha__json_kind kind)
{
    static const char *const names[] = {[MHA__JSON_ABSENT] = "nothing",
                                        [MHA__JSON_NULL] = "null",
                                        [MHA__JSON_FALSE] = "false",
                                        [MHA__JSON_TRUE] = "true",
                                        [MHA__JSON_INTEGER] = "a number",
                                        [MHA__JSON_REAL] = "a number",
                                        [MHA__JSON_STRING] = "a string",
                                        [MHA__JSON_ARRAY] = "an array",
                                        [MHA__JSON_OBJECT] = "an object",
                                        [MHA__JSON_KEY] = "a key",
                                        [MHA__JSON_END] = "the end of an array or object",
                                        [MHA__JSON_DONE] = "the end of the text"};
    return names[kind];
}

/* Fails at an invalid byte with "next token must be WANT (got WORD)", where WORD starts at that byte. */
static mha_status unexpected(const mha__json_scan *s, const char *want)
{
    size_t n = 0;
    if (s->at == s->n) return mha__json_scan_fail(s, s->at, "next token must be %s (got the end of the text)", want);
    while (n < 20 && s->at + n < s->n && !strchr(" \t\r\n,:[]{}\"", s->text[s->at + n]))
        n++;
    return mha__json_scan_fail(s, s->at, "next token must be %s (got %s)", want,
                               mha__quote(&(mha__quoted){0}, s->text + s->at, n ? n : 1));
}

/* ---- start of the text ---- */

static mha_status check_bytes(mha__json_scan *s)
{
    mha__quoted q;
    mha__quote(&q, s->file, strlen(s->file));
    if (s->n == 0) return mha__fail(s->err, MHA_ERR_FORMAT, "%s: text must not be empty", q.text);
    const char *foreign = mha__foreign(s->text, s->n);
    if (foreign) return mha__fail(s->err, MHA_ERR_FORMAT, "%s: %s", q.text, foreign);
    if ((s->flags & MHA__JSON_HEADER) && s->text[0] != '{')
        return mha__fail(s->err, MHA_ERR_FORMAT, "%s: header must begin with { (got byte 0x%02X)", q.text,
                         (unsigned char)s->text[0]);
    const size_t good = mha__utf8_check(s->text, s->n);
    if (good < s->n)
        return mha__fail(s->err, MHA_ERR_FORMAT, "%s: text must be UTF-8 (got 0x%02X at byte %zu)", q.text,
                         (unsigned char)s->text[good], good);
    const char *nul = memchr(s->text, '\0', s->n);
    if (nul)
        return mha__fail(s->err, MHA_ERR_FORMAT, "%s: text must not contain a NUL character (got one at byte %zu)",
                         q.text, (size_t)(nul - s->text));
    return MHA_OK;
}

mha_status mha__json_scan_begin(mha__json_scan *s, const char *file, const char *text, size_t n, unsigned flags,
                                mha_error *err)
{
    const size_t mark = (flags & MHA__JSON_BOM) && n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    *s = (mha__json_scan){.file = file, .text = text + mark, .n = n - mark, .flags = flags, .state = VALUE, .err = err};
    return check_bytes(s);
}

/* ---- strings ---- */

static size_t utf8_bytes(uint32_t code)
{
    return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

/* Reads the escape sequence at a backslash. */
static mha_status scan_escape(mha__json_scan *s, mha__json_token *t)
{
    uint32_t code = 0;
    const size_t n = mha__json_read_escape(s->text + s->at, &code);
    if (n == 0) return mha__json_scan_fail(s, s->at, "string must not contain an invalid escape");
    if ((code & 0xFFFFF800) == 0xD800)
        return mha__json_scan_fail(s, s->at, "string must not contain a lone surrogate (got \\u%04X)", (unsigned)code);
    if (code == 0 && t->kind == MHA__JSON_KEY)
        return mha__json_scan_fail(s, s->at, "key must not contain a NUL character");
    t->escaped = true;
    t->bytes += utf8_bytes(code);
    s->at += n;
    return MHA_OK;
}

/* Reads a string from its opening quote. A run of plain characters is skipped in one step. */
static mha_status scan_string(mha__json_scan *s, mha__json_token *t)
{
    const size_t begin = s->at + 1;
    for (s->at = begin;;) {
        const size_t plain = s->at;
        while (s->text[s->at] != '"' && s->text[s->at] != '\\' && (unsigned char)s->text[s->at] >= 0x20)
            s->at++;
        t->bytes += s->at - plain;
        if (s->text[s->at] != '\\') break;
        MHA__TRY(scan_escape(s, t));
    }
    t->text = s->text + begin;
    t->n = s->at - begin;
    if (s->at >= s->n) return mha__json_scan_fail(s, t->at, "unterminated string");
    if (s->text[s->at] != '"')
        return mha__json_scan_fail(s, s->at, "string must not contain control characters (got 0x%02X)",
                                   (unsigned char)s->text[s->at]);
    s->at++;
    if (t->n > MHA__STRING_BYTES)
        return mha__json_scan_fail(s, t->at, "string must be at most %zu bytes (got %zu)", MHA__STRING_BYTES, t->n);
    return MHA_OK;
}

/* ---- other values ---- */

static mha_status scan_number(mha__json_scan *s, mha__json_token *t)
{
    const mha__json_decimal d = mha__json_decimal_of(s->text + s->at);
    if (d.n == 0) return unexpected(s, "a number");
    t->kind = d.real ? MHA__JSON_REAL : MHA__JSON_INTEGER;
    s->at += d.n;
    if (d.real) {
        t->real = mha__json_real_of(s->text + t->at, &d);
        return isfinite(t->real) ? MHA_OK : mha__json_scan_fail(s, t->at, "real number must fit in a double");
    }
    const uint64_t max = (uint64_t)INT64_MAX + d.negative;
    if (d.cut || d.digits > max)
        return mha__json_scan_fail(s, t->at,
                                   d.negative ? "integer must be at least -2^63" : "integer must be at most 2^63 - 1");
    if (d.negative && d.digits == 0 && (s->flags & MHA__JSON_HEADER))
        return mha__json_scan_fail(s, t->at, "size must not be -0");
    t->integer = (int64_t)(d.negative ? 0 - d.digits : d.digits);
    return MHA_OK;
}

static mha_status scan_word(mha__json_scan *s, mha__json_token *t)
{
    static const struct {
        const char *word;
        mha__json_kind kind;
    } words[] = {{"null", MHA__JSON_NULL}, {"false", MHA__JSON_FALSE}, {"true", MHA__JSON_TRUE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i].word);
        if (s->n - s->at < n || memcmp(s->text + s->at, words[i].word, n) != 0) continue;
        t->kind = words[i].kind;
        s->at += n;
        return MHA_OK;
    }
    return unexpected(s, "a value");
}

/* ---- containers ---- */

static bool in_object(const mha__json_scan *s)
{
    return s->objects >> (s->depth - 1) & 1;
}

static mha_status open_container(mha__json_scan *s, mha__json_token *t)
{
    const bool object = s->text[s->at] == '{';
    if (s->depth == MHA__JSON_DEPTH)
        return mha__json_scan_fail(s, s->at, "nesting must be at most %d levels deep", MHA__JSON_DEPTH);
    const uint64_t bit = (uint64_t)1 << s->depth++;
    s->objects = object ? s->objects | bit : s->objects & ~bit;
    s->state = object ? FIRST_KEY : FIRST_ITEM;
    s->at++;
    t->kind = object ? MHA__JSON_OBJECT : MHA__JSON_ARRAY;
    return MHA_OK;
}

static mha_status close_container(mha__json_scan *s, mha__json_token *t)
{
    s->depth--;
    s->at++;
    s->state = AFTER;
    t->kind = MHA__JSON_END;
    return MHA_OK;
}

/* ---- tokens ---- */

static void skip_blanks(mha__json_scan *s)
{
    for (;; s->at++) {
        const char c = s->text[s->at];
        if (c == '\n') {
            s->line++;
            s->line_begin = s->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

static mha_status scan_value(mha__json_scan *s, mha__json_token *t)
{
    const char c = s->text[s->at];
    if (c == '{' || c == '[') return open_container(s, t);
    s->state = AFTER;
    if (c == '"') {
        t->kind = MHA__JSON_STRING;
        return scan_string(s, t);
    }
    return c == '-' || (c >= '0' && c <= '9') ? scan_number(s, t) : scan_word(s, t);
}

static mha_status scan_key(mha__json_scan *s, mha__json_token *t)
{
    if (s->text[s->at] != '"') return unexpected(s, s->state == FIRST_KEY ? "a key in quotes or }" : "a key in quotes");
    t->kind = MHA__JSON_KEY;
    MHA__TRY(scan_string(s, t));
    skip_blanks(s);
    if (s->text[s->at] != ':') return unexpected(s, ":");
    s->at++;
    s->state = VALUE;
    return MHA_OK;
}

/* Reads the token after a value: the end of its container, or a comma and the next value. */
static mha_status scan_after(mha__json_scan *s, mha__json_token *t)
{
    if (s->depth == 0) {
        t->kind = MHA__JSON_DONE;
        return s->at == s->n ? MHA_OK : unexpected(s, "the end of the text");
    }
    const bool object = in_object(s);
    const char c = s->text[s->at];
    if (c == (object ? '}' : ']')) return close_container(s, t);
    if (c != ',') return unexpected(s, object ? ", or }" : ", or ]");
    s->at++;
    skip_blanks(s);
    t->at = s->at;
    s->state = object ? KEY : VALUE;
    return object ? scan_key(s, t) : scan_value(s, t);
}

static mha_status check_root(const mha__json_scan *s, const mha__json_token *t)
{
    if (t->kind == MHA__JSON_OBJECT || (s->flags & MHA__JSON_ANY)) return MHA_OK;
    return mha__json_scan_fail(s, t->at, "root must be an object (got %s)", mha__json_kind_name(t->kind));
}

mha_status mha__json_next(mha__json_scan *s, mha__json_token *t)
{
    skip_blanks(s);
    *t = (mha__json_token){.at = s->at};
    const bool root = s->depth == 0 && s->state == VALUE;
    const char c = s->text[s->at];
    if (s->state == AFTER) return scan_after(s, t);
    if ((s->state == FIRST_KEY && c == '}') || (s->state == FIRST_ITEM && c == ']')) return close_container(s, t);
    MHA__TRY(s->state == FIRST_KEY ? scan_key(s, t) : scan_value(s, t));
    return root ? check_root(s, t) : MHA_OK;
}

mha_status mha__json_skip(mha__json_scan *s, const mha__json_token *t)
{
    mha__json_token next = *t;
    if (next.kind == MHA__JSON_KEY) MHA__TRY(mha__json_next(s, &next));
    if (next.kind != MHA__JSON_ARRAY && next.kind != MHA__JSON_OBJECT) return MHA_OK;
    for (const int outside = s->depth - 1; s->depth > outside;)
        MHA__TRY(mha__json_next(s, &next));
    return MHA_OK;
}
