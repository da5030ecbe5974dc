/* special_tokens.h - the special tokens that the tokenizer puts around a text: [CLS] before it and [SEP] after it in
 * BERT.
 *
 * Only these (and the well-known separators) count as special: [UNK] and [MASK] stand for content. */
#ifndef MHA_HEADS_DATA_SPECIAL_TOKENS_H
#define MHA_HEADS_DATA_SPECIAL_TOKENS_H

#include <stdbool.h>

#include "mha/heads.h"

enum { MHA__FRAME_TOKENS = 8 }; /* maximum per side; real templates have one or two */

typedef struct mha__frame {
    int32_t before[MHA__FRAME_TOKENS], after[MHA__FRAME_TOKENS];
    int64_t before_count, after_count;
} mha__frame;

mha_status mha__frame_find(const mha_tokenizer *tokenizer, mha__frame *frame, mha_error *err);

/* Returns the kind of a token: MHA_TOKEN_SPECIAL ... */
uint8_t mha__frame_kind(const mha__frame *frame, const mha_tokenizer *tokenizer, int32_t id);

#endif
