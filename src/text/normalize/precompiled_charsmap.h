/* precompiled_charsmap.h - the replacements that a SentencePiece model brings along ("Precompiled"): a double-array
 * trie of strings and what each becomes.
 *
 * The blob is a stranger's: its lengths are checked against it when it is loaded, every step in it when it is taken.
 */
#ifndef MHA_TEXT_NORMALIZE_PRECOMPILED_CHARSMAP_H
#define MHA_TEXT_NORMALIZE_PRECOMPILED_CHARSMAP_H

#include "io/json/json.h"

typedef struct mha__charsmap {
    const unsigned char *units; /* 4 bytes each, little-endian */
    size_t count;
    const char *text; /* what strings become, each ended by NUL; well-formed UTF-8 */
    size_t n;
} mha__charsmap;

/* Reads base64 text into `blob`, which has room for 3 bytes of every 4 of `text`, and says where the parts are. */
mha_status mha__charsmap_load(const mha__json_obj *json, const char *text, size_t n, unsigned char *blob,
                              mha__charsmap *map, mha_error *err);

/* What the shortest start of p[0..n) that has a replacement becomes; NULL if none has. */
const char *mha__charsmap_find(const mha__charsmap *map, const char *p, size_t n, size_t *length);

#endif
