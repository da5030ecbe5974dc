/* truncate_pad.h - computes how many tokens are kept, and how many padding tokens are added. */
#ifndef MHA_TEXT_TRUNCATE_PAD_H
#define MHA_TEXT_TRUNCATE_PAD_H

#include "text/tokenizer.h"

/* The kept tokens of a text: [begin, begin + count). */
typedef struct mha__token_range {
    size_t begin, count;
} mha__token_range;

/* The limits of one call, from its options or from tokenizer.json. */
typedef struct mha__fit {
    bool limited;
    int64_t max_tokens; /* limit including special tokens; valid if `limited` */
    mha__cut cut;
    bool cut_left;
} mha__fit;

/* Determines the limits of one call from the tokenizer and `options`; the smaller of two limits applies. Returns
 * MHA_ERR_ARG for options out of range. */
mha_status mha__fit_resolve(const mha_tokenizer *t, const mha_encode_options *options, mha__fit *fit, mha_error *err);

/* Truncates the kept tokens of `texts` (1 or 2) texts so that they fit with `specials` special tokens. */
mha_status mha__fit_cut(const mha__fit *fit, int64_t specials, mha__token_range *kept, int texts, mha_error *err);

/* Returns the length to which the stored padding extends `count` tokens: at least `count`. As in the reference, only
 * the stored length is rounded up to a multiple, so a text longer than a fixed length is not padded. */
int64_t mha__fit_padded(const mha__stored_limits *limits, int64_t count);

#endif
