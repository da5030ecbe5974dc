/* precompiled_charsmap.h - the replacements in a SentencePiece model ("Precompiled"): a double-array trie of strings
 * and their replacements.
 *
 * The blob is untrusted: its lengths are checked when it is loaded, and every step in the trie is checked during a
 * search. */
#ifndef MHA_TEXT_NORMALIZE_PRECOMPILED_CHARSMAP_H
#define MHA_TEXT_NORMALIZE_PRECOMPILED_CHARSMAP_H

#include "io/json/json.h"

typedef struct mha__charsmap {
    const unsigned char *units; /* units of the trie, 4 bytes each, little-endian */
    size_t count;
    const char *text; /* the replacements, each NUL-terminated; well-formed UTF-8 */
    size_t n;
} mha__charsmap;

/* Base64 as in RFC 4648, with padding. Read decodes n characters into `blob`, 3 bytes per 4 characters, and returns
 * false for invalid input. Write encodes n bytes as mha__base64_bytes(n) characters. */
bool mha__base64_read(const char *text, size_t n, unsigned char *blob, size_t *bytes);
size_t mha__base64_bytes(size_t n);
void mha__base64_write(const char *blob, size_t n, char *text);

/* Decodes base64 text into `blob`, and locates the trie and the replacements in it. `blob` must have space for 3 bytes
 * per 4 bytes of `text`. */
mha_status mha__charsmap_load(const mha__json_obj *json, const char *text, size_t n, unsigned char *blob,
                              mha__charsmap *map, mha_error *err);

/* Returns the replacement of the shortest prefix of p[0..n) that has a replacement; NULL if none has. */
const char *mha__charsmap_find(const mha__charsmap *map, const char *p, size_t n, size_t *length);

#endif
