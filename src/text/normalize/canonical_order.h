/* canonical_order.h - characters on their way into a Unicode normalization form: decomposed, and in canonical order. */
#ifndef MHA_TEXT_NORMALIZE_CANONICAL_ORDER_H
#define MHA_TEXT_NORMALIZE_CANONICAL_ORDER_H

#include "text/normalize/text_edit.h"
#include "text/unicode.h"

/* Appends a character to pass->run. */
mha_status mha__order_add(mha__pass *pass, mha__pending item);

/* Puts pass->run[begin..run_count), characters with a combining class, into canonical order. Linear, however long. */
mha_status mha__order_settle(mha__pass *pass, size_t begin);

/* A character of a rewritten text, and how many characters of the text it took up: 0 for one that was inserted. */
typedef struct mha__composed {
    uint32_t code, origins;
} mha__composed;

/* Appends them to pass->to. Each stands where the first character stood that it took up of those in pass->run, which
 * are lined up in their order; an inserted one where the last one stood that was taken up before. */
mha_status mha__order_put(mha__pass *pass, const mha__composed *list, size_t count);

#endif
