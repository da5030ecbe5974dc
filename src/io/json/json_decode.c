/* json_decode.c - decodes the escape sequences of strings and keys in JSON. */
#include "base/utf8.h"
#include "io/json/json_scan.h"
#include <string.h>

/* Returns the value of the four digits of \uXXXX; negative if they are invalid. */
static int32_t hex4(const char *p)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const char c = p[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return -1;
        value = 16 * value + digit;
    }
    return value;
}

size_t mha__json_read_escape(const char *p, uint32_t *code)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *name = p[1] ? strchr(names, p[1]) : NULL;
    if (name) {
        *code = (uint32_t)(unsigned char)meant[name - names];
        return 2;
    }
    const int32_t high = p[1] == 'u' ? hex4(p + 2) : -1;
    if (high < 0) return 0;
    *code = (uint32_t)high;
    if ((high & 0xFC00) != 0xD800 || p[6] != '\\' || p[7] != 'u') return 6;
    const int32_t low = hex4(p + 8);
    if (low < 0 || (low & 0xFC00) != 0xDC00) return 6;
    *code = 0x10000 + ((uint32_t)(high & 0x3FF) << 10) + (uint32_t)(low & 0x3FF);
    return 12;
}

void mha__json_decode(const mha__json_token *t, char *to, size_t room)
{
    size_t out = 0;
    if (!t->escaped) {
        memmove(to, t->text, t->n < room ? t->n : room);
        return;
    }
    for (size_t at = 0; at < t->n && out < room;) {
        uint32_t code;
        char character[4];
        size_t n = 1;
        if (t->text[at] != '\\') {
            to[out++] = t->text[at++];
            continue;
        }
        at += mha__json_read_escape(t->text + at, &code);
        n = (size_t)mha__utf8_write(code, character);
        if (n > room - out) n = room - out;
        memcpy(to + out, character, n);
        out += n;
    }
}

bool mha__json_token_is(const mha__json_token *t, const char *name)
{
    char decoded[64];
    const size_t n = strlen(name);
    if (t->bytes != n) return false;
    if (!t->escaped) return memcmp(t->text, name, n) == 0;
    if (n > sizeof decoded) return false;
    mha__json_decode(t, decoded, n);
    return memcmp(decoded, name, n) == 0;
}
