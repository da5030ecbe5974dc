/* trim_offsets.h - places without the white space at the ends of tokens ("trim_offsets" of ByteLevel and
 * RobertaProcessing). */
#ifndef MHA_TEXT_TRIM_OFFSETS_H
#define MHA_TEXT_TRIM_OFFSETS_H

#include "text/tokenizer.h"

/* Counts the white space at both ends of the `n` bytes that a token stands for. */
void mha__trim_count(mha__token *token, const char *bytes, size_t n);

/* Takes it from the token's place in `text`; `first` says whether it is the text's first token. */
void mha__trim(const mha_tokenizer *t, const char *text, mha__token *token, bool first);

#endif
