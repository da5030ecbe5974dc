/* tensor.h - memory for one argument of the operator, in any stride pattern, with guards in every element that is not
 * part of it: before, behind and in the gaps. Guards of inputs are NaN, so that a number read from them shows in the
 * result; guards of outputs are a finite canary, so that a stray write shows even when NaN is written. */
#ifndef TEST_TENSOR_H
#define TEST_TENSOR_H

#include "mha/attn.h"
#include "support/rng.h"
#include <stdbool.h>

/* How the four axes lie in memory. Zero is contiguous, passed as explicit strides. */
typedef struct tensor_layout {
    int order[4];     /* axes from the outermost to the innermost; all zero means 0 1 2 3 */
    int pad[4];       /* unused elements added to the extent of an axis */
    bool flip[4];     /* negative stride */
    bool repeat[4];   /* stride 0: one entry stands for all (inputs only) */
    int shift;        /* elements by which the data is moved off its 64-byte alignment */
    bool unspecified; /* contiguous, passed as all-zero strides */
    bool tight;       /* no guards before and behind, so that a sanitizer sees what is read there */
} tensor_layout;

typedef struct tensor {
    mha_dtype
        dtype; /* MHA_F32, MHA_BF16, MHA_F16, MHA_F64, MHA_I64, MHA_U8, or MHA_Q8_0: an element is a block then, all
                      * of which follows from one number (half.h) */
    int64_t dim[4], stride[4];
    bool unspecified;
    size_t count, start; /* elements of `memory`, and of them before `data` */
    void *memory, *data;
    bool *inside; /* [count] true for elements of the tensor */
} tensor;

/* All elements, guards included, hold `guard`. */
void tensor_make(tensor *t, mha_dtype dtype, const int64_t dim[4], const tensor_layout *layout, double guard);
void tensor_free(tensor *t);

double tensor_get(const tensor *t, int64_t b, int64_t h, int64_t l, int64_t d);
void tensor_set(tensor *t, int64_t b, int64_t h, int64_t l, int64_t d, double value);

mha_cview tensor_cview(const tensor *t);
mha_view tensor_view(const tensor *t);

/* Every element of the tensor from `next(arg)`, in the order of the indices (so the values do not depend on the
 * layout). */
void tensor_fill(tensor *t, double (*next)(void *arg), void *arg);
/* Same values in both; shapes must agree. */
void tensor_copy(tensor *to, const tensor *from);
/* True if all values have the same bits (as doubles, so -0 differs from 0 and NaN equals itself). */
bool tensor_same_bits(const tensor *a, const tensor *b);
/* True if every guard still holds `guard`. */
bool tensor_guards_intact(const tensor *t, double guard);

/* Any layout at all; `repeat` allows stride 0. */
tensor_layout tensor_layout_random(rng *r, bool repeat);

#endif
