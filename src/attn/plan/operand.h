/* operand.h - checks one view of a call at a time: sets its strides, checks its pointer, detects overlaps with another
 * view. */
#ifndef MHA_ATTN_PLAN_OPERAND_H
#define MHA_ATTN_PLAN_OPERAND_H

#include "mha/attn.h"
#include <stdbool.h>

typedef struct mha__operand {
    const char *name;
    mha_cview view;
    int64_t shape[4];
    bool broadcasts; /* a stride of 0 repeats elements, even if all strides are 0 */
} mha__operand;

/* Returns an output view as an operand. */
mha__operand mha__operand_of(const char *name, const mha_view *view, const int64_t shape[4]);
/* Checks that the data pointer is not NULL, and sets the strides of a contiguous view. */
mha_status mha__operand_bind(mha__operand *o, mha_error *err);
/* Checks that each element can be loaded: its address must be aligned, and its byte distance from the first element
 * must not overflow. */
mha_status mha__operand_check_addresses(const mha__operand *o, size_t size, mha_error *err);
bool mha__operand_is_empty(const mha__operand *o);
/* Computes the byte range [begin, end) of a non-empty operand. Returns false if the strides exceed the address
 * space. */
bool mha__operand_bytes(const mha__operand *o, size_t size, uintptr_t *begin, uintptr_t *end);
/* Returns true if two operands that passed mha__operand_check_addresses share a byte. Exact, except that views whose
 * strides have no common pattern may be reported as overlapping (overlap.c). Fast if the byte ranges are disjoint. */
bool mha__operand_overlaps(const mha__operand *x, size_t x_size, const mha__operand *y, size_t y_size);
/* Returns true if both operands have the same elements at the same indices. */
bool mha__operand_same(const mha__operand *x, const mha__operand *y);

/* An output of a call, and its shape. */
typedef struct mha__result {
    const char *name;
    mha_view *view;
    int64_t shape[4];
    int dims; /* number of axes in use: with 3, the fourth stride is ignored */
    size_t size;
} mha__result;

/* Call mha__operand_bind and mha__operand_check_addresses for a view of this shape. An output is also rejected if
 * elements overlap along its first `dims` axes. */
mha_status mha__bind_input(const char *name, mha_cview *view, const int64_t shape[4], size_t size, mha_error *err);
mha_status mha__bind_output(const char *name, mha_view *view, const int64_t shape[4], int dims, size_t size,
                            mha_error *err);

#endif
