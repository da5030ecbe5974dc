/* split_pattern.h - the patterns of Split, Replace and similar types: a string, a class of characters, a number of
 * characters, or one of the regular expressions in published tokenizers.
 *
 * A regular expression from a file is never compiled. It is recognized by its text, and PCRE2 runs an equivalent
 * built-in expression; any other expression is an error that names it. The known expressions match in linear time. */
#ifndef MHA_TEXT_PRETOKENIZE_SPLIT_PATTERN_H
#define MHA_TEXT_PRETOKENIZE_SPLIT_PATTERN_H

#include "io/json/json.h"
#include "text/encode_buffers.h"
#include "text/pretokenize/known_expressions.h"
#include "text/unicode.h"

typedef struct mha__regex mha__regex;

typedef struct mha__pattern {
    const char *string; /* a string of n >= 1 bytes; NULL for other patterns */
    size_t n;
    const mha__regex *regex;   /* a known expression, if not NULL */
    int64_t length;            /* if > 0: matches this number of characters, or the rest of a shorter text */
    mha__char_class character; /* if string and regex are NULL and length is 0: matches one character of this class */
} mha__pattern;

/* The compiled expressions of a tokenizer. */
typedef struct mha__regex_list {
    mha__regex *first;
} mha__regex_list;

void mha__regex_list_free(mha_ctx *ctx, mha__regex_list *list);

/* Reads "pattern": {"String": " "} or {"Regex": "..."}. The string is owned by the tree, so the caller must copy it. */
mha_status mha__pattern_load(mha_ctx *ctx, mha__regex_list *list, const mha__json_obj *json, mha__pattern *pattern,
                             mha_error *err);
/* Compiles the built-in expression that is equivalent to `text`. `text` must be one of the known expressions. */
mha_status mha__regex_make(mha_ctx *ctx, mha__regex_list *list, const char *text, const mha__regex **regex,
                           mha_error *err);

/* Finds the next match at or after `at`: bytes [*begin, *end), never empty. Sets *begin to in->n if there is no
 * match. */
mha_status mha__pattern_find(const mha__pattern *pattern, mha__pass *pass, const mha__slice *in, size_t at,
                             size_t *begin, size_t *end);

#endif
