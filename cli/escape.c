/* escape.c - escapes untrusted text for a terminal. Tokens, tensor names and file names are untrusted: their control
 * characters could clear the screen, change the window title, or reverse the direction of the text that follows. */
#include "output.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Returns true for C0 and C1 controls, DEL, line separators, and characters that change direction or are invisible. */
static bool is_unsafe(utf8proc_int32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

/* Copies the next character of `text` to `piece`, escaped if it is unsafe, and terminates it with a NUL; stores its
 * width in terminal columns; returns the number of bytes read from `text`. */
static size_t next_piece(const char *text, size_t bytes, char piece[16], int *columns)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &c);
    if (n <= 0) {
        *columns = snprintf(piece, 16, "\\x%02x", (unsigned char)*text);
        return 1;
    }
    if (is_unsafe(c)) {
        *columns = snprintf(piece, 16, c < 0x80 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
        return (size_t)n;
    }
    memcpy(piece, text, (size_t)n);
    piece[n] = 0;
    *columns = utf8proc_charwidth(c);
    return (size_t)n;
}

/* Maximum bytes of text in a static buffer, without "..." and the final NUL, and the number of buffers. */
enum { SHOWN_BYTES = 516, SHOWN_BUFFERS = 4 };

static const char *shown(const char *text, int columns)
{
    static char buffers[SHOWN_BUFFERS][SHOWN_BYTES + 4];
    static unsigned turn;
    /* cut: the end of the text if it is truncated and "..." is appended */
    char *out = buffers[turn++ % SHOWN_BUFFERS], *p = out, *cut = out;
    size_t left = strlen(text);
    for (int used = 0; left > 0;) {
        char piece[16];
        int width;
        size_t bytes = next_piece(text, left, piece, &width), n = strlen(piece);
        if (used + width > columns || p + n > out + SHOWN_BYTES) {
            strcpy(cut, "...");
            return out;
        }
        memcpy(p, piece, n);
        p += n;
        used += width;
        if (used + 3 <= columns) cut = p;
        text += bytes;
        left -= bytes;
    }
    *p = 0;
    return out;
}

size_t cli_utf8_bytes(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t n = (unsigned char)text[i] < 0x80 ? 1
                                                                 : utf8proc_iterate((const utf8proc_uint8_t *)text + i,
                                                                                    (utf8proc_ssize_t)(bytes - i), &c);
        if (n <= 0) return i;
        i += (size_t)n;
    }
    return bytes;
}

const char *cli_shown(const char *text)
{
    return shown(text, SHOWN_BYTES);
}

const char *cli_shown_start(const char *text, int columns)
{
    return shown(text, columns);
}

void cli_put_shown(FILE *out, const char *text, size_t bytes)
{
    while (bytes > 0) {
        char piece[16];
        int columns;
        size_t used = next_piece(text, bytes, piece, &columns);
        fputs(piece, out);
        text += used;
        bytes -= used;
    }
}

/* Returns the bytes of the first character of running text if it is kept although cli_put_shown would escape it;
 * otherwise 0. */
static size_t stays(const char *text, size_t bytes)
{
    static const char *const kept[] = {"\n", "\t", "\u200c",
                                       "\u200d"}; /* newline, tab, and the joiners in Persian, Hindi and emoji */
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const size_t n = strlen(kept[i]);
        if (n <= bytes && memcmp(text, kept[i], n) == 0) return n;
    }
    return 0;
}

void cli_put_running(FILE *out, const char *text, size_t bytes)
{
    while (bytes > 0) {
        char piece[16];
        int columns;
        size_t used = stays(text, bytes);
        if (used > 0) {
            fwrite(text, 1, used, out);
        } else {
            used = next_piece(text, bytes, piece, &columns);
            fputs(piece, out);
        }
        text += used;
        bytes -= used;
    }
}

int cli_shown_columns(const char *text, size_t bytes)
{
    int total = 0;
    while (bytes > 0) {
        char piece[16];
        int columns;
        size_t used = next_piece(text, bytes, piece, &columns);
        total += columns;
        text += used;
        bytes -= used;
    }
    return total;
}
