/* canonical_order.h - puts the decomposed characters of a text into canonical order, for the Unicode normalization
 * forms. */
#ifndef MHA_TEXT_NORMALIZE_CANONICAL_ORDER_H
#define MHA_TEXT_NORMALIZE_CANONICAL_ORDER_H

#include "text/normalize/text_edit.h"
#include "text/unicode.h"

/* Appends a character to pass->run. */
mha_status mha__order_add(mha__pass *pass, mha__pending item);

/* Puts pass->run[begin..run_count), characters with a combining class, into canonical order. Takes linear time. */
mha_status mha__order_settle(mha__pass *pass, size_t begin);

/* A character of the output, and the number of input characters that it replaces, which is 0 if the character was
 * inserted. */
typedef struct mha__composed {
    uint32_t code, origins;
} mha__composed;

/* Appends the characters to pass->to. Each one gets the offset of the first character of pass->run that it replaces;
 * the characters of pass->run are replaced in order. An inserted character gets the offset of the last character
 * replaced before it. */
mha_status mha__order_put(mha__pass *pass, const mha__composed *list, size_t count);

#endif
