/* tensor.h - memory for one argument of an attention call, with any strides, and with guard elements before and after
 * the tensor and in its gaps.
 * The guards of inputs are NaN, so that an out-of-bounds read changes the result. The guards of outputs have a finite
 * value, so that an out-of-bounds write is detected even if it writes NaN. */
#ifndef TEST_TENSOR_H
#define TEST_TENSOR_H

#include "mha/attn.h"
#include "support/rng.h"
#include <stdbool.h>

/* The memory layout of the four axes. If all fields are zero, the tensor is contiguous and has explicit strides. */
typedef struct tensor_layout {
    int order[4];     /* axes from the outermost to the innermost; all zero means 0 1 2 3 */
    int pad[4];       /* number of unused elements added to the length of an axis */
    bool flip[4];     /* negative stride */
    bool repeat[4];   /* stride 0: all indices of an axis refer to one element (inputs only) */
    int shift;        /* number of elements by which the data is shifted from 64-byte alignment */
    bool unspecified; /* contiguous; strides are passed as zeros */
    bool tight;       /* no guards around the data, so that a sanitizer detects out-of-bounds reads */
} tensor_layout;

typedef struct tensor {
    mha_dtype dtype; /* MHA_F32, MHA_BF16, MHA_F16, MHA_F64, MHA_I64, MHA_U8, MHA_F8_E4M3, MHA_Q8_0 or MHA_Q4_0. An
                      * element of type MHA_Q8_0 or MHA_Q4_0 is a block, generated from one value (half.h) */
    int64_t dim[4], stride[4];
    bool unspecified;
    size_t count, start; /* number of elements of `memory`, and of those before `data` */
    void *memory, *data;
    bool *inside; /* [count] true if the element belongs to the tensor, false for guards */
} tensor;

/* Allocates a tensor and sets all elements, including the guards, to `guard`. */
void tensor_make(tensor *t, mha_dtype dtype, const int64_t dim[4], const tensor_layout *layout, double guard);
void tensor_free(tensor *t);

/* Returns the address of an element, or of a block. */
void *tensor_at(const tensor *t, int64_t b, int64_t h, int64_t l, int64_t d);
double tensor_get(const tensor *t, int64_t b, int64_t h, int64_t l, int64_t d);
void tensor_set(tensor *t, int64_t b, int64_t h, int64_t l, int64_t d, double value);

mha_cview tensor_cview(const tensor *t);
mha_view tensor_view(const tensor *t);

/* Sets every element to the result of `next(arg)`, in index order, so that the values do not depend on the layout. */
void tensor_fill(tensor *t, double (*next)(void *arg), void *arg);
/* Copies the values of `from`; the shapes must be equal. */
void tensor_copy(tensor *to, const tensor *from);
/* Copies the elements of `from` from batch entry b and row l on to `to`. If `from` has fewer heads, each of its heads
 * is repeated. */
void tensor_copy_part(tensor *to, const tensor *from, int64_t b, int64_t l);
/* Returns true if all elements of a and b are identical as doubles: -0 differs from 0, and NaN equals NaN. */
bool tensor_same_bits(const tensor *a, const tensor *b);
/* Returns true if all guards still have the value `guard`. */
bool tensor_guards_intact(const tensor *t, double guard);

/* Returns a random layout; `repeat` allows stride 0. */
tensor_layout tensor_layout_random(rng *r, bool repeat);

#endif
