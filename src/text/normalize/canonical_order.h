/* canonical_order.h - characters that are being converted to a Unicode normalization form: decomposed, and in
 * canonical order. */
#ifndef MHA_TEXT_NORMALIZE_CANONICAL_ORDER_H
#define MHA_TEXT_NORMALIZE_CANONICAL_ORDER_H

#include "text/normalize/text_edit.h"
#include "text/unicode.h"

/* Appends a character to pass->run. */
mha_status mha__order_add(mha__pass *pass, mha__pending item);

/* Puts pass->run[begin..run_count), characters with a combining class, into canonical order. Linear time for any
 * length. */
mha_status mha__order_settle(mha__pass *pass, size_t begin);

/* A character of the output, and how many input characters it consumed: 0 if it was inserted. */
typedef struct mha__composed {
    uint32_t code, origins;
} mha__composed;

/* Appends the characters to pass->to. Each gets the offset of the first character of pass->run that it consumed; runs
 * are consumed in order. An inserted character gets the offset of the last character consumed before it. */
mha_status mha__order_put(mha__pass *pass, const mha__composed *list, size_t count);

#endif
