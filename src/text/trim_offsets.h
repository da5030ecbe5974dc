/* trim_offsets.h - excludes white space at the ends of tokens from their offsets ("trim_offsets" of ByteLevel and
 * RobertaProcessing). */
#ifndef MHA_TEXT_TRIM_OFFSETS_H
#define MHA_TEXT_TRIM_OFFSETS_H

#include "text/tokenizer.h"

/* Counts the white space at both ends of the `n` bytes of a token. */
void mha__trim_count(mha__token *token, const char *bytes, size_t n);

/* Excludes the counted white space from the token's offsets in `text`; `first` is true for the first token of the
 * text. */
void mha__trim(const mha_tokenizer *t, const char *text, mha__token *token, bool first);

#endif
