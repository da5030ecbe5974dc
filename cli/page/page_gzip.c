/* page_gzip.c - see page_gzip.h. */
#include "page/page_gzip.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Z_FILTERED suits maps, because encoding short matches costs more bits than it saves (512 tokens of MiniLM: 8.7 MB
 * instead of 9.0). */
static unsigned char *compress_data(const unsigned char *data, size_t bytes, int maps, size_t *packed)
{
    z_stream z = {0};
    const int level = maps ? 6 : 9, strategy = maps ? Z_FILTERED : Z_DEFAULT_STRATEGY;
    if (bytes > UINT32_MAX || deflateInit2(&z, level, Z_DEFLATED, 15 + 16, 9, strategy) != Z_OK) return NULL;
    size_t room = deflateBound(&z, (uLong)bytes);
    unsigned char *out = malloc(room);
    if (out) {
        z.next_in = (unsigned char *)(uintptr_t)data;
        z.avail_in = (uInt)bytes;
        z.next_out = out;
        z.avail_out = (uInt)room;
        deflate(&z, Z_FINISH); /* one call is sufficient, because the buffer has deflateBound bytes */
        *packed = z.total_out;
    }
    deflateEnd(&z);
    return out;
}

static char *base64(const unsigned char *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((bytes + 2) / 3 * 4 + 1), *p = text;
    for (size_t i = 0; text && i < bytes; i += 3, p += 4) {
        size_t left = bytes - i;
        uint32_t v =
            (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) | (left > 2 ? data[i + 2] : 0);
        for (int k = 0; k < 4; k++)
            p[k] = digits[v >> (18 - 6 * k) & 63];
        memset(p + 4 - (left < 3 ? 3 - left : 0), '=', left < 3 ? 3 - left : 0);
    }
    if (text) *p = '\0';
    return text;
}

json_t *page_base64(const unsigned char *data, size_t bytes)
{
    char *text = base64(data, bytes);
    json_t *item = text ? json_string(text) : NULL;
    free(text);
    return item;
}

json_t *page_gzip(const unsigned char *data, size_t bytes, int maps)
{
    size_t packed = 0;
    unsigned char *small = compress_data(data, bytes, maps, &packed);
    json_t *item = small ? page_base64(small, packed) : NULL;
    free(small);
    return item;
}
