/* operand.h - the views of a call, one by one: strides filled in, pointers checked, overlaps found. */
#ifndef MHA_ATTN_PLAN_OPERAND_H
#define MHA_ATTN_PLAN_OPERAND_H

#include "mha/attn.h"
#include <stdbool.h>

typedef struct mha__operand {
    const char *name;
    mha_cview view;
    int64_t extent[4];
    bool broadcasts; /* a stride of 0 repeats, also when all are 0 */
} mha__operand;

/* A view that is written, as an operand. */
mha__operand mha__operand_of(const char *name, const mha_view *view, const int64_t extent[4]);
/* Refuses NULL, and fills in the strides of a contiguous one. */
mha_status mha__operand_bind(mha__operand *o, mha_error *err);
/* Every element must be where a load may be made: at an aligned address, at a distance that can be counted in bytes. */
mha_status mha__operand_place(const mha__operand *o, size_t size, mha_error *err);
bool mha__operand_is_empty(const mha__operand *o);
/* The bytes from the first to behind the last element of one that is not empty; false where the strides reach too far
 * to say. */
bool mha__operand_bytes(const mha__operand *o, size_t size, uintptr_t *begin, uintptr_t *end);
/* True if two that mha__operand_place has passed have a byte in common: exactly, for any strides that have enough in
 * common (overlap.c). Cheap where their ranges of bytes do not meet. */
bool mha__operand_meet(const mha__operand *x, size_t x_size, const mha__operand *y, size_t y_size);
/* True if both are the same elements under the same indices. */
bool mha__operand_same(const mha__operand *x, const mha__operand *y);

/* What a call writes. */
typedef struct mha__result {
    const char *name;
    mha_view *view;
    int64_t extent[4];
    int dims; /* axes that count: the stride of the fourth is not used with three */
    size_t size;
} mha__result;

/* mha__operand_bind and mha__operand_place for a view of this shape. An output is also refused where the first `dims`
 * of its axes make numbers overlap. */
mha_status mha__bind_input(const char *name, mha_cview *view, const int64_t extent[4], size_t size, mha_error *err);
mha_status mha__bind_output(const char *name, mha_view *view, const int64_t extent[4], int dims, size_t size,
                            mha_error *err);

#endif
