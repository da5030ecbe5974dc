/* report_maps.c - encodes the maps of all heads: per head one gzip stream in base64, decompressed in the browser.
 *
 * A stream stores the map column by column: the weights that one key receives are more similar than the weights of one
 * query, so they compress better (512 tokens of MiniLM: 8.9 MB instead of 9.3). Since each head has its own stream, the
 * page can decompress a map on demand.
 */
#include "report/report_maps.h"

#include "heads/heads_json.h"
#include "page/color_scale.h"
#include "page/page_gzip.h"
#include <stdlib.h>
#include <string.h>

/* The encoders write one weight to `out` and return the number of bytes. */
static size_t put_exact(float weight, unsigned char *out)
{
    uint32_t bits;
    memcpy(&bits, &weight, 4);
    for (int k = 0; k < 4; k++)
        out[k] = (unsigned char)(bits >> 8 * k); /* in little-endian order, as the page requires */
    return 4;
}

static size_t put_root(float weight, unsigned char *out)
{
    *out = (unsigned char)(255 * color_position(COLOR_ROOT, (double)weight) + 0.5);
    return 1;
}

/* Returns a map [rows, columns] as a base64 string; NULL if memory is exhausted. `room` is a scratch buffer for the
 * encoded weights. */
static json_t *map_text(const float *map, size_t rows, size_t columns, int exact, unsigned char *room)
{
    size_t bytes = 0;
    for (size_t j = 0; j < columns; j++)
        for (size_t i = 0; i < rows; i++)
            bytes += (exact ? put_exact : put_root)(map[i * columns + j], room + bytes);
    return page_gzip(room, bytes, 1);
}

static size_t head_total(const mha_heads *heads)
{
    size_t total = 0;
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        total += (size_t)mha_heads_count(heads, l);
    return total;
}

size_t report_maps_weights(const mha_heads *heads)
{
    const size_t n = (size_t)mha_heads_tokens(heads)->count;
    return head_total(heads) * n * n;
}

/* Returns {type, data} and takes ownership of `list`; NULL if it is NULL. */
static json_t *typed(json_t *list, int exact)
{
    return list ? json_pack("{s:s, s:o}", "type", exact ? "f32" : "u8sqrt", "data", list) : NULL;
}

json_t *report_maps_json(const mha_heads *heads, size_t exact_bytes)
{
    const size_t n = (size_t)mha_heads_tokens(heads)->count;
    const int exact = report_maps_weights(heads) * 4 <= exact_bytes;
    unsigned char *room = malloc(n * n * 4 + 1);
    json_t *list = room ? json_array() : NULL;
    for (int64_t l = 0; list && l < mha_heads_layers(heads); l++)
        for (int64_t h = 0; list && h < mha_heads_count(heads, l); h++)
            list = heads_json_append(list, map_text(mha_heads_map(heads, l, h), n, n, exact, room));
    free(room);
    return typed(list, exact);
}

json_t *report_maps_of(const float *maps, int64_t count, int64_t rows, int64_t columns, size_t exact_bytes)
{
    const size_t each = (size_t)(rows * columns);
    const int exact = (size_t)count * each * 4 <= exact_bytes;
    unsigned char *room = malloc(each * 4 + 1);
    json_t *list = room ? json_array() : NULL;
    for (int64_t n = 0; list && n < count; n++)
        list = heads_json_append(list, map_text(maps + (size_t)n * each, (size_t)rows, (size_t)columns, exact, room));
    free(room);
    return typed(list, exact);
}
