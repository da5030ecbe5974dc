/* order.h - characters on their way into a Unicode normalization form: decomposed, and in canonical order. */
#ifndef MHA_TEXT_ORDER_H
#define MHA_TEXT_ORDER_H

#include "text/edit.h"
#include "text/unicode.h"

/* Appends a character to pass->run. */
mha_status mha__order_add(mha__pass *pass, mha__pending item);

/* Puts pass->run[begin..run_count), characters with a combining class, into canonical order. Linear, however long. */
mha_status mha__order_settle(mha__pass *pass, size_t begin);

#endif
