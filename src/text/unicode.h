/* unicode.h - the Unicode data of the tokenizers: classes, lower case and decomposition of one character.
 *
 * The reference library mixes three Unicode versions (version 8 for marks, 16 and later for lower case). Classes are
 * looked up in tables generated from that library (unicode_tables.c). utf8proc provides decompositions, combining
 * classes and lower case, and further tables list the differences from the reference. Surrogates never occur here: the
 * text is validated UTF-8. */
#ifndef MHA_TEXT_UNICODE_H
#define MHA_TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mha__char_class {
    MHA__CHAR_REMOVED,     /* dropped by clean_text */
    MHA__CHAR_SPACE,       /* White_Space */
    MHA__CHAR_CHINESE,     /* separated by handle_chinese_chars */
    MHA__CHAR_PUNCTUATION, /* separated by BertPreTokenizer and Punctuation */
    MHA__CHAR_WORD,        /* \w */
    MHA__CHAR_MARK,        /* dropped by strip_accents */
    MHA__CHAR_ORDERED,     /* has a combining class but is not a mark */
    MHA__CHAR_DECOMPOSED,  /* decomposes and is above U+FFFF */
    MHA__CHAR_LETTER,      /* \p{L}, but missing in the tables of PCRE2 10.42 */
    MHA__CHAR_NUMBER,      /* \p{N}, but missing in the tables of PCRE2 10.42 */
    MHA__CHAR_KEPT,        /* has no compatibility decomposition in the reference, unlike in utf8proc */
    MHA__CHAR_EXTENDING,   /* extends the grapheme cluster before it in the reference, unlike in utf8proc */
    MHA__CHAR_COMBINING,   /* dropped by StripAccents */
    MHA__CHAR_DIGIT,       /* separated by Digits: \p{N} of a newer version of Unicode than in regular expressions */
    MHA__CHAR_REGEX_MARK,  /* \p{M}, but missing in the tables of PCRE2 10.42; and so are the next four classes: */
    MHA__CHAR_SYMBOL,      /* [\p{P}\p{S}] */
    MHA__CHAR_UPPER,       /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
    MHA__CHAR_SMALL,       /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
    MHA__CHAR_REGEX_PUNCTUATION, /* \p{P} */
    MHA__CHAR_CLASSES
} mha__char_class;

bool mha__char_is(mha__char_class class, uint32_t code);

/* Writes the lower case of a character to `to`, independent of adjacent characters (no final sigma). Returns the number
 * of characters, 1 or 2. */
int mha__char_lower(uint32_t code, uint32_t to[2]);

enum { MHA__DECOMPOSED_MAX = 18 };
/* Writes the full decomposition of a character before reordering: canonical (NFD) or, if `compatible`, compatibility
 * (NFKD). Returns the number of characters; 1 if the character does not decompose. */
int mha__char_decompose(uint32_t code, bool compatible, uint32_t to[MHA__DECOMPOSED_MAX]);

/* Returns the canonical combining class of a character, 0..254. A character of class 0 starts a new run. */
int mha__char_order(uint32_t code);

/* ---- unicode_tables.c ---- */

typedef struct mha__char_range {
    uint32_t first, last; /* inclusive */
} mha__char_range;

typedef struct mha__char_table {
    const mha__char_range *range; /* ascending, disjoint */
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
