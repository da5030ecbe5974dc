/* unicode.h - what Unicode means to the tokenizers: classes, lower case, canonical decomposition of one character.
 *
 * The reference library mixes three Unicode versions (its marks are of version 8, its lower case of 16 and later).
 * Classes come from tables generated from it (unicode_tables.c); utf8proc gives decompositions, combining classes
 * and lower case, with the few differences in tables too. Surrogates never arrive here: text is checked UTF-8.
 */
#ifndef MHA_TEXT_UNICODE_H
#define MHA_TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mha__char_class {
    MHA__CHAR_REMOVED,     /* what clean_text drops */
    MHA__CHAR_SPACE,       /* White_Space */
    MHA__CHAR_CHINESE,     /* what handle_chinese_chars sets apart */
    MHA__CHAR_PUNCTUATION, /* what BertPreTokenizer sets apart */
    MHA__CHAR_WORD,        /* \w */
    MHA__CHAR_MARK,        /* what strip_accents drops */
    MHA__CHAR_ORDERED,     /* has a combining class without being a mark */
    MHA__CHAR_DECOMPOSED,  /* decomposes and is past U+FFFF */
    MHA__CHAR_LETTER,      /* \p{L}, but not yet in the tables of PCRE2 10.42 */
    MHA__CHAR_NUMBER,      /* \p{N}, likewise */
    MHA__CHAR_KEPT,        /* does not decompose by compatibility, whatever utf8proc says */
    MHA__CHAR_EXTENDING,   /* belongs to the grapheme cluster before it, whatever utf8proc says */
    MHA__CHAR_CLASSES
} mha__char_class;

bool mha__char_is(mha__char_class class, uint32_t code);

/* Lower case of one character, without context (no final sigma): 1 or 2 characters in `to`; returns how many. */
int mha__char_lower(uint32_t code, uint32_t to[2]);

enum { MHA__DECOMPOSED_MAX = 18 };
/* Full decomposition before reordering, canonical (NFD) or compatible (NFKD); returns how many characters, 1 if it has
 * none. */
int mha__char_decompose(uint32_t code, bool compatible, uint32_t to[MHA__DECOMPOSED_MAX]);

/* Canonical combining class, 0..254; 0 starts a new run. */
int mha__char_order(uint32_t code);

/* ---- unicode_tables.c ---- */

typedef struct mha__char_range {
    uint32_t first, last; /* inclusive */
} mha__char_range;

typedef struct mha__char_table {
    const mha__char_range *range; /* ascending, apart */
    int count;
    uint64_t ascii[2]; /* one bit for each of U+0000..U+007F */
} mha__char_table;

typedef struct mha__char_lower_pair {
    uint32_t code, to[2];
} mha__char_lower_pair;

extern const mha__char_table mha__char_tables[MHA__CHAR_CLASSES];
extern const mha__char_lower_pair mha__char_lower_pairs[]; /* ascending */
extern const int mha__char_lower_pair_count;

#endif
