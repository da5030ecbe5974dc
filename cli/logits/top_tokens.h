/* top_tokens.h - the tokens with the largest logits. */
#ifndef CLI_LOGITS_TOP_TOKENS_H
#define CLI_LOGITS_TOP_TOKENS_H

#include <stdint.h>

typedef struct top_token {
    int64_t id;
    double logit, probability;
} top_token;

/* Finds the `max` tokens with the largest logits, in the order of ids if logits are equal, and their probabilities.
 * Ignores NaN. Returns the number of tokens found. */
int64_t top_tokens_find(const float *logits, int64_t vocab, int64_t max, top_token *top);

#endif
