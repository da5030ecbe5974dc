/* utf8.c - well-formed UTF-8 according to RFC 3629: shortest form only, no surrogates, no code points above
 * U+10FFFF. */
#include "base/utf8.h"

int mha__utf8_read(const char *p, size_t n, uint32_t *code)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000}; /* the smallest code point per length; lower code
                                                                      * points would be overlong */
    const unsigned char *byte = (const unsigned char *)p;
    if (n == 0) return 0;
    if (byte[0] < 0x80) {
        *code = byte[0];
        return 1;
    }
    size_t length = byte[0] >= 0xF0 ? 4 : byte[0] >= 0xE0 ? 3 : 2;
    if (byte[0] < 0xC0 || byte[0] > 0xF4 || n < length) return 0;
    uint32_t value = byte[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((byte[i] & 0xC0) != 0x80) return 0;
        value = value << 6 | (byte[i] & 0x3F);
    }
    if (value < smallest[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return 0;
    *code = value;
    return (int)length;
}

int mha__utf8_write(uint32_t code, char *p)
{
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    if (code < 0x80) {
        p[0] = (char)code;
        return 1;
    }
    int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        p[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    p[0] = (char)(lead[length] | code);
    return length;
}

size_t mha__utf8_check(const char *p, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint32_t code;
        if ((unsigned char)p[at] < 0x80) { /* ASCII is the most frequent case */
            at++;
            continue;
        }
        int length = mha__utf8_read(p + at, n - at, &code);
        if (length == 0) break;
        at += (size_t)length;
    }
    return at;
}
