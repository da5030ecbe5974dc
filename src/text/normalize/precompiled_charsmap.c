/* precompiled_charsmap.c - loads the replacements of a SentencePiece model, searches them, and applies them as a
 * normalizer.
 *
 * The trie has the layout of Darts-clone (S. Yata, https://github.com/s-yata/darts-clone): a 32-bit unit contains its
 * label, the offset to its children, and whether one of the children is a value. */
#include "text/normalize/precompiled_charsmap.h"

#include "base/utf8.h"
#include "text/normalize/canonical_order.h"
#include <string.h>
#include <utf8proc.h>

/* ---- loading the replacements ---- */

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool mha__base64_read(const char *text, size_t n, unsigned char *blob, size_t *bytes)
{
    size_t padding = n >= 4 && text[n - 1] == '=' ? 1 + (text[n - 2] == '=') : 0;
    uint32_t bits = 0;
    *bytes = 0;
    if (n % 4 != 0) return false;
    for (size_t i = 0; i < n; i++) {
        int digit = i < n - padding ? base64_digit(text[i]) : 0;
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 != 3) continue;
        for (int shift = 16; shift >= 0; shift -= 8)
            blob[(*bytes)++] = (unsigned char)(bits >> shift);
        bits = 0;
    }
    *bytes -= padding;
    return true;
}

size_t mha__base64_bytes(size_t n)
{
    return (n / 3 + (n % 3 != 0)) * 4;
}

void mha__base64_write(const char *blob, size_t n, char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < n ? (unsigned char)blob[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *text++ = i + k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
}

static uint32_t unit_at(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

mha_status mha__charsmap_load(const mha__json_obj *json, const char *text, size_t n, unsigned char *blob,
                              mha__charsmap *map, mha_error *err)
{
    size_t bytes;
    if (!mha__base64_read(text, n, blob, &bytes)) return mha__json_refuse(json, "precompiled_charsmap", "base64", err);
    if (bytes < 4)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: %s.precompiled_charsmap must be at least 4 bytes (got %zu)",
                         json->file, json->where, bytes);
    size_t trie = unit_at(blob);
    if (trie % 4 != 0 || trie > bytes - 4)
        return mha__fail(err, MHA_ERR_FORMAT,
                         "%s: %s.precompiled_charsmap must contain a trie of whole 4-byte units within its %zu bytes "
                         "(got %zu)",
                         json->file, json->where, bytes - 4, trie);
    *map = (mha__charsmap){blob + 4, trie / 4, (const char *)blob + 4 + trie, bytes - 4 - trie};
    size_t good = mha__utf8_check(map->text, map->n);
    if (good == map->n) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s.precompiled_charsmap must be UTF-8 (got an invalid byte at %zu)",
                     json->file, json->where, 4 + trie + good);
}

/* ---- searching the trie ---- */

/* Returns the base index of a unit's children. */
static size_t children(uint32_t unit, size_t at)
{
    return at ^ (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* Returns the replacement at offset `begin` of the table; NULL if the offset, which is read from the file, is
 * invalid. */
static const char *replacement(const mha__charsmap *map, uint32_t begin, size_t *length)
{
    if (begin >= map->n || ((unsigned char)map->text[begin] & 0xC0) == 0x80) return NULL;
    const char *end = memchr(map->text + begin, '\0', map->n - begin);
    *length = (end ? (size_t)(end - map->text) : map->n) - begin;
    return map->text + begin;
}

const char *mha__charsmap_find(const mha__charsmap *map, const char *p, size_t n, size_t *length)
{
    size_t at = map->count > 0 ? children(unit_at(map->units), 0) : 0;
    for (size_t i = 0; i < n && p[i] != '\0'; i++) {
        unsigned char label = (unsigned char)p[i];
        at ^= label;
        if (at >= map->count) return NULL;
        uint32_t unit = unit_at(map->units + 4 * at);
        if ((unit & 0x800000FFu) != label) return NULL;
        at = children(unit, at);
        if (!(unit >> 8 & 1)) continue;
        if (at >= map->count) return NULL;
        return replacement(map, unit_at(map->units + 4 * at) & 0x7FFFFFFFu, length);
    }
    return NULL;
}

/* ---- the normalizer ---- */

/* The text rewritten so far. pass->run contains the characters that this text replaces. */
typedef struct rewriting {
    mha__pass *pass;
    size_t count;
} rewriting;

static mha__composed *last_of(const rewriting *r)
{
    return (mha__composed *)r->pass->work.items + r->count - 1;
}

static mha_status put(rewriting *r, uint32_t code, uint32_t origins)
{
    MHA__TRY(mha__work_grow(r->pass, &r->pass->work, r->count + 1, sizeof(mha__composed)));
    r->count++;
    *last_of(r) = (mha__composed){code, origins};
    return MHA_OK;
}

/* Replaces `old` characters with the characters of text[0..n). If the counts differ, the last character absorbs the
 * difference, even if it belongs to the previous replacement, as in the reference. */
static mha_status put_replacement(rewriting *r, const char *text, size_t n, uint32_t old)
{
    uint32_t count = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code;
        at += (size_t)mha__utf8_read(text + at, n - at, &code);
        MHA__TRY(put(r, code, count++ < old));
    }
    if (count < old && r->count > 0) last_of(r)->origins += old - count;
    return MHA_OK;
}

/* Returns true for the characters that always end a cluster: controls and line breaks. */
static bool ends_cluster(uint32_t code)
{
    const int class = (int)utf8proc_get_property((utf8proc_int32_t)code)->boundclass;
    return class == UTF8PROC_BOUNDCLASS_CR || class == UTF8PROC_BOUNDCLASS_LF || class == UTF8PROC_BOUNDCLASS_CONTROL;
}

/* Returns the end of the grapheme cluster that begins at `at`. */
static size_t cluster_end(const mha__slice *in, size_t at, uint32_t *characters)
{
    size_t length;
    utf8proc_int32_t state = 0;
    uint32_t code = mha__slice_next(in, at, &length);
    *characters = 1;
    for (at += length; at < in->n; at += length, ++*characters) {
        uint32_t next = mha__slice_next(in, at, &length);
        bool apart = utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next, &state);
        if (apart && (ends_cluster(code) || !mha__char_is(MHA__CHAR_EXTENDING, next))) break;
        code = next;
    }
    return at;
}

static mha_status rewrite_character(const mha__charsmap *map, rewriting *r, const mha__slice *in, size_t at,
                                    size_t *length)
{
    size_t n;
    uint32_t code = mha__slice_next(in, at, length);
    const char *text = mha__charsmap_find(map, in->bytes + at, *length, &n);
    return text ? put_replacement(r, text, n, 1) : put(r, code, 1);
}

/* Rewrites a grapheme cluster. A short cluster is replaced as a whole by the replacement of one of its prefixes; a
 * longer cluster is replaced character by character. */
static mha_status rewrite_cluster(const mha__charsmap *map, rewriting *r, const mha__slice *in, size_t at, size_t end,
                                  uint32_t characters)
{
    enum { SHORT = 6 };
    size_t n;
    const char *text = end - at < SHORT ? mha__charsmap_find(map, in->bytes + at, end - at, &n) : NULL;
    if (text) return put_replacement(r, text, n, characters);
    for (size_t length; at < end; at += length)
        MHA__TRY(rewrite_character(map, r, in, at, &length));
    return MHA_OK;
}

mha_status mha__edit_charsmap(const mha__edit *edit, mha__pass *pass, const mha__slice *in, size_t base)
{
    (void)base;
    rewriting r = {.pass = pass};
    pass->run_count = 0;
    for (size_t at = 0, length; at < in->n; at += length) {
        uint32_t code = mha__slice_next(in, at, &length);
        MHA__TRY(mha__order_add(pass, (mha__pending){.code = code, .from = mha__pass_origin(pass, in, at)}));
    }
    for (size_t at = 0, end; at < in->n; at = end) {
        uint32_t characters;
        end = cluster_end(in, at, &characters);
        MHA__TRY(rewrite_cluster(&edit->charsmap, &r, in, at, end, characters));
    }
    return r.count ? mha__order_put(pass, pass->work.items, r.count) : MHA_OK;
}
