/* report_page.c - puts the data into the page.
 *
 * The page holds one JSON block. Everything in it that came from outside is text inside a JSON string in which <, > and
 * & (and U+2028, U+2029) are written as \u escapes, so that no token can end the block. The maps are one gzip stream in
 * base64, [layer][head][query][key], opened by the browser itself.
 */
#include "report_page.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "colour.h"
#include "heads_json.h"
#include "tokens.h"

/* ---- maps ---- */

static int64_t head_total(const mha_heads *heads)
{
    int64_t total = 0;
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        total += mha_heads_count(heads, l);
    return total;
}

/* Both forms write n numbers at `out` and return the bytes written. */
static size_t put_exact(const float *map, size_t n, unsigned char *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &map[i], 4);
        for (int k = 0; k < 4; k++)
            out[4 * i + (size_t)k] = (unsigned char)(bits >> 8 * k); /* little-endian, as browsers read it */
    }
    return 4 * n;
}

static size_t put_root(const float *map, size_t n, unsigned char *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(255 * colour_position((double)map[i]) + 0.5);
    return n;
}

static unsigned char *all_maps(const mha_heads *heads, int exact, size_t *bytes)
{
    size_t n = (size_t)mha_heads_tokens(heads)->count, one = n * n * (exact ? 4 : 1);
    unsigned char *data = malloc((size_t)head_total(heads) * one + 1);
    size_t at = 0;
    for (int64_t l = 0; data && l < mha_heads_layers(heads); l++)
        for (int64_t h = 0; h < mha_heads_count(heads, l); h++)
            at += (exact ? put_exact : put_root)(mha_heads_map(heads, l, h), n * n, data + at);
    *bytes = at;
    return data;
}

/* A gzip stream of `data`; its header carries no time, so equal input gives equal bytes. NULL when memory is short. */
static unsigned char *gzip(unsigned char *data, size_t bytes, size_t *packed)
{
    z_stream z = {0};
    if (bytes > UINT32_MAX || deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK) return NULL;
    size_t room = deflateBound(&z, (uLong)bytes);
    unsigned char *out = malloc(room);
    if (out) {
        z.next_in = data;
        z.avail_in = (uInt)bytes;
        z.next_out = out;
        z.avail_out = (uInt)room;
        deflate(&z, Z_FINISH); /* deflateBound: one call is enough */
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

static json_t *maps_json(const mha_heads *heads)
{
    size_t n = (size_t)mha_heads_tokens(heads)->count, bytes = 0, packed = 0;
    int exact = (size_t)head_total(heads) * n * n * 4 <= REPORT_EXACT_BYTES;
    unsigned char *data = all_maps(heads, exact, &bytes);
    unsigned char *small = data ? gzip(data, bytes, &packed) : NULL;
    char *text = small ? base64(small, packed) : NULL;
    json_t *maps = text ? json_pack("{s:s, s:s}", "type", exact ? "f32" : "u8sqrt", "data", text) : NULL;
    free(text);
    free(small);
    free(data);
    return maps;
}

/* ---- the rest of the data ---- */

static json_t *tokens_json(const report *r)
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(r->model);
    const mha_encoding *tokens = mha_heads_tokens(r->heads);
    json_t *array = json_array();
    for (int64_t i = 0; i < tokens->count; i++)
        json_array_append_new(array, json_pack("{s:s, s:b}", "text", cli_token_text(tokenizer, tokens->ids[i]),
                                               "special", mha_tokenizer_is_special(tokenizer, tokens->ids[i])));
    return array;
}

static json_t *counts_json(const mha_heads *heads)
{
    json_t *array = json_array();
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        json_array_append_new(array, json_integer(mha_heads_count(heads, l)));
    return array;
}

static json_t *metric_help_json(void)
{
    json_t *help = json_object();
    for (mha_head_metric m = 0; m < MHA_HEAD_METRICS; m++)
        json_object_set_new(help, mha_head_metric_key(m), json_string(mha_head_metric_help(m)));
    return help;
}

static json_t *label_help_json(void)
{
    json_t *help = json_object();
    for (mha_head_label label = 0; label < MHA_HEAD_LABELS; label++)
        json_object_set_new(help, mha_head_label_key(label), json_string(mha_head_label_help(label)));
    return help;
}

static json_t *ramp_json(void)
{
    json_t *ramp = json_array();
    for (int i = 0; i < COLOUR_STOPS; i++)
        json_array_append_new(ramp, json_pack("[i,i,i]", colour_stops[i].r, colour_stops[i].g, colour_stops[i].b));
    return ramp;
}

static json_t *page_data(const report *r)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "mha", mha_version(), "model",
                     r->model_name, "text", r->text, "cut", (json_int_t)mha_heads_tokens(r->heads)->truncated, "tokens",
                     tokens_json(r), "heads", counts_json(r->heads), "metrics", heads_json_metrics(r->heads), "labels",
                     heads_json_labels(r->heads), "metric_help", metric_help_json(), "label_help", label_help_json(),
                     "ramp", ramp_json(), "maps", maps_json(r->heads));
}

/* JSON_ENSURE_ASCII leaves only <, > and & to be made harmless; outside of strings JSON has none of them. */
static void put_block(const char *json, FILE *out)
{
    for (; *json; json++) {
        if (strchr("<>&", *json))
            fprintf(out, "\\u%04x", (unsigned)*json);
        else
            putc(*json, out);
    }
}

int report_page_write(const report *r, FILE *out)
{
    json_t *data = page_data(r);
    char *json = data ? json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(data);
    if (!json) return 0;
    fputs((const char *)report_page_before, out);
    put_block(json, out);
    fputs((const char *)report_page_after, out);
    free(json);
    return !ferror(out);
}
