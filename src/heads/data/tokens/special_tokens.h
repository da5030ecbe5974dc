/* special_tokens.h - the special tokens that the tokenizer puts around a text. For BERT, these are [CLS] before the
 * text and [SEP] after it.
 *
 * Only these tokens and the common separator tokens are classified as special. [UNK] and [MASK] are not, because they
 * replace content. */
#ifndef MHA_HEADS_DATA_TOKENS_SPECIAL_TOKENS_H
#define MHA_HEADS_DATA_TOKENS_SPECIAL_TOKENS_H

#include "mha/heads.h"
#include <stdbool.h>

enum { MHA__FRAME_TOKENS = 8 }; /* maximum number of tokens on each side; common templates have one or two */

typedef struct mha__frame {
    int32_t before[MHA__FRAME_TOKENS], after[MHA__FRAME_TOKENS];
    int64_t before_count, after_count;
} mha__frame;

mha_status mha__frame_find(const mha_tokenizer *tokenizer, mha__frame *frame, mha_error *err);

/* Returns the kind of a token: MHA_TOKEN_SPECIAL ... */
uint8_t mha__frame_kind(const mha__frame *frame, const mha_tokenizer *tokenizer, int32_t id);

#endif
