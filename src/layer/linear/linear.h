/* linear.h - the inside of a linear layer: either type of real, part by part, over some of the inputs; and the plain
 * product that gradients are made of. */
#ifndef MHA_LAYER_LINEAR_LINEAR_H
#define MHA_LAYER_LINEAR_LINEAR_H

#include "base/size.h"
#include "mha/layer.h"
#include <stdbool.h>

/* A matrix and its bias, as in mha_matrix, of f32 or f64. */
typedef struct mha__matrix {
    const void *weight, *bias;
    bool transposed;
    int64_t out;
} mha__matrix;

/* mha_linear_create_stack for either type of real; an activation is for f32 alone. `dtype` f64 is that type; any other
 * says what f32 weights are packed as. */
mha_status mha__linear_create(mha_ctx *ctx, mha_dtype dtype, int64_t in, const mha__matrix *parts, int64_t count,
                              mha_activation activation, mha_linear **linear, mha_error *err);
/* Packs other numbers of the same shapes: weights that training has changed. */
void mha__linear_pack(mha_linear *linear, const mha__matrix *parts);

/* y = x W^T + b with choices. Zero fields are the plain case. */
typedef struct mha__linear_call {
    const void *x;
    int64_t x_stride; /* 0 = depth */
    int64_t rows;
    void *y;
    int64_t y_stride;     /* 0 = out of all parts */
    int64_t y_first;      /* the column of y that lies at y: with `parts`, when only one of them is wanted */
    const uint8_t *parts; /* [count]: columns of y of the others are not touched; NULL = all */
    int64_t first, depth; /* column `first` of W meets column 0 of x, for `depth` columns; depth 0 = all of W's */
    bool accumulate;      /* y += x W^T, without the bias */
    bool linear;          /* the activation is left out */
    mha_dtype rounded;    /* y is bf16 or f16, rounded last: of an f32 layer, without `accumulate`; 0 = as x */
    void *left;           /* mha__linear_left bytes for x in another type, 64-byte aligned; x NULL: it is there */
} mha__linear_call;
/* `first` and `depth` are for weights of the type of x. */
void mha__linear_run(const mha_linear *linear, const mha__linear_call *call);
/* Bytes that a call of so many rows needs beside x and y; 0 for most. SIZE_MAX if they are more than a size_t holds. */
size_t mha__linear_left(const mha_linear *linear, int64_t rows);
/* True if x in that type is rows of `in` adjacent bf16. */
bool mha__linear_takes_bf16(const mha_linear *linear);

/* C [m, n] = or += A [m, k] B [k, n]; every number is one chain over k. Strides of A and B are free.
 * bf16: all three are f32, and A and B are rounded to bf16 where the kernels multiply pairs of these (kernel.h). */
typedef struct mha__matmul {
    mha_dtype dtype;
    int64_t m, n, k;
    const void *a;
    int64_t a_row, a_col;
    const void *b;
    int64_t b_row, b_col;
    void *c;
    int64_t c_row;
    bool accumulate;
} mha__matmul;
/* A stretch: what of an operand is packed at a time, so that it is read again from the cache that it was written to.
 * Steps of k: whatever the width, so many at least, as C is read for each stretch. */
static inline int64_t mha__matmul_most_k(const mha__matmul *p)
{
    enum { NUMBERS = 1 << 20, LEAST = 768 };
    return mha__min64(p->k, mha__max64(1, NUMBERS / mha__max64(1, p->n) / LEAST) * LEAST);
}
/* Rows of A, a multiple of `whole`. */
static inline int64_t mha__matmul_most_rows(int64_t most_k, int64_t whole)
{
    enum { NUMBERS = 1 << 20 };
    return mha__round_up(mha__max64(1, NUMBERS / mha__max64(1, most_k)), whole);
}

/* Packs B, and copies A where its columns are not adjacent: one allocation. */
mha_status mha__matmul_run(mha_ctx *ctx, const mha__matmul *job, mha_error *err);
/* The same in pairs of bf16, by kernels that have `left`. */
mha_status mha__matmul_pairs(mha_ctx *ctx, const mha__matmul *job, mha_error *err);

/* One matrix, or a norm, in the backward pass: what is read of it, and where its gradients are accumulated. */
typedef struct mha__grad_slot {
    mha_dtype dtype;    /* of a matrix, what it is multiplied in: f32, bf16 or f64 */
    const void *weight; /* of a matrix [out, in], or [in, out] when transposed; read for dx alone */
    bool transposed;
    const mha_linear *packed; /* replaces `weight`: mha__linear_back_create of the whole matrix; or NULL */
    void *dweight, *dbias;    /* += ; NULL = not wanted */
} mha__grad_slot;

/* Gradients of y = x W^T + b for one matrix. With bf16 all arrays are f32, and the layer was packed in bf16: dx is as
 * rounded as y, and dweight as mha__matmul. Strides of 0 mean contiguous rows. */
typedef struct mha__linear_grad {
    mha__grad_slot slot;
    int64_t rows, in, out;
    const void *x, *dy;
    int64_t x_stride, dy_stride;
    void *dx; /* NULL = not wanted; += with add_dx */
    int64_t dx_stride;
    bool add_dx;
    int64_t weight_row; /* of weight and dweight */
} mha__linear_grad;
mha_status mha__linear_backward(mha_ctx *ctx, const mha__linear_grad *grad, mha_error *err);

/* A matrix [out, in] (or [in, out] when transposed), packed for dx = dy W: where the way is gone back more than once.
 * In f32 dx has the bits that it has without; in bf16 it is as rounded as y of such a layer. */
mha_status mha__linear_back_create(mha_ctx *ctx, mha_dtype dtype, int64_t in, int64_t out, const float *weight,
                                   bool transposed, mha_linear **packed, mha_error *err);

#endif
