/* error.c - error messages that are safe to print to any terminal. */
#include "base/error.h"

#include "base/utf8.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char ellipsis[] = "...";

mha_status mha__fail(mha_error *err, mha_status status, const char *format, ...)
{
    if (!err) return status;
    char text[sizeof err->message]; /* not err->message itself, because the arguments may include the previous
                                     * message */
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0) {
        snprintf(text, sizeof text, "%s", mha_status_text(status));
    } else if ((size_t)length >= sizeof text) {
        size_t cut = sizeof text - sizeof ellipsis;
        while (cut > 0 && ((unsigned char)text[cut] & 0xC0) == 0x80) /* do not split a UTF-8 character */
            cut--;
        memcpy(text + cut, ellipsis, sizeof ellipsis);
    }
    err->status = status;
    memcpy(err->message, text, sizeof text);
    return status;
}

mha_status mha__fail_int(mha_error *err, const char *field, int64_t value, const char *rule)
{
    return mha__fail(err, MHA_ERR_ARG, "%s must be %s (got %" PRId64 ")", field, rule, value);
}

/* Returns true for characters that move the cursor, reorder text or break lines: control characters, the bidi controls
 * of Unicode's UAX #9, and the line and paragraph separators. */
static bool is_harmful(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } range[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x61C, 0x61C},  {0x200E, 0x200F},
                 {0x2028, 0x202E}, {0x2066, 0x2069}, {0xFEFF, 0xFEFF}};
    for (size_t i = 0; i < sizeof range / sizeof range[0]; i++)
        if (code >= range[i].first && code <= range[i].last) return true;
    return false;
}

/* Writes the next character of `bytes` to `piece` in printable form. Returns the number of bytes read. */
static size_t next_piece(const char *bytes, size_t n, char piece[8])
{
    uint32_t code = 0;
    int length = mha__utf8_read(bytes, n, &code);
    if (length == 0 || (length == 1 && is_harmful(code)))
        snprintf(piece, 8, "\\x%02X", (unsigned)(unsigned char)bytes[0]);
    else if (is_harmful(code))
        snprintf(piece, 8, "\\u%04X", (unsigned)(code & 0xFFFF)); /* every harmful character is below U+10000 */
    else
        snprintf(piece, 8, "%.*s", length, bytes);
    return length == 0 ? 1 : (size_t)length;
}

const char *mha__quote(mha__quoted *q, const char *bytes, size_t n)
{
    size_t used = 0;
    size_t cut = 0; /* end of the last character after which "..." still fits */
    for (size_t at = 0; bytes && at < n;) {
        char piece[8];
        at += next_piece(bytes + at, n - at, piece);
        size_t length = strlen(piece);
        if (used + length >= sizeof q->text) {
            memcpy(q->text + cut, ellipsis, sizeof ellipsis);
            return q->text;
        }
        memcpy(q->text + used, piece, length);
        used += length;
        if (used + sizeof ellipsis <= sizeof q->text) cut = used;
    }
    q->text[used] = '\0';
    return q->text;
}

const char *mha__quote_dtype(mha__quoted *q, mha_dtype dtype)
{
    const char *name = mha__dtype_name(dtype);
    snprintf(q->text, sizeof q->text, "%d", (int)dtype);
    return name ? name : q->text;
}
