/* linear.h - internal functions of linear layers: f32 and f64 layers, calls that compute only some matrices of a stack
 * or read only some inputs, and the matrix product that computes gradients. */
#ifndef MHA_LAYER_LINEAR_LINEAR_H
#define MHA_LAYER_LINEAR_LINEAR_H

#include "base/size.h"
#include "kernel/kernel.h"
#include "mha/layer.h"
#include <stdbool.h>

/* A matrix and its bias, like mha_matrix, but with f32 or f64 elements. The first matrix of a stack sets many_rows. */
typedef struct mha__matrix {
    const void *weight, *bias;
    bool transposed, many_rows;
    int64_t out;
} mha__matrix;

/* Like mha_linear_create_stack, but for f32 and f64; activations require f32. With `dtype` f64, weights are f64;
 * otherwise f32 weights are packed as `dtype`. */
mha_status mha__linear_create(mha_ctx *ctx, mha_dtype dtype, int64_t in, const mha__matrix *parts, int64_t count,
                              mha_activation activation, mha_linear **linear, mha_error *err);
/* Creates a linear layer like mha_linear_create_stack. Error messages name it `name`, such as "attention layer: o". */
mha_status mha__linear_create_named(const char *name, mha_ctx *ctx, int64_t in, const mha_matrix *parts, int64_t count,
                                    mha_activation activation, mha_linear **linear, mha_error *err);
/* Packs new weights of the same shapes, for example after a training step. */
void mha__linear_pack(mha_linear *linear, const mha__matrix *parts);
/* Runs mha__linear_create without an activation or, if *linear exists, mha__linear_pack, which never fails. */
mha_status mha__linear_keep(mha_ctx *ctx, mha_dtype dtype, int64_t in, const mha__matrix *parts, int64_t count,
                            mha_linear **linear, mha_error *err);

/* One product y = x W^T + b. A field that is 0 takes its default. */
typedef struct mha__linear_call {
    const void *x;
    int64_t x_stride; /* row stride of x; 0 = depth */
    int64_t rows;
    void *y;
    int64_t y_stride;     /* row stride of y; 0 = columns of all parts */
    int64_t y_first;      /* column of the full output that `y` points to, for calls that store only some parts */
    const uint8_t *parts; /* [count] parts to compute; columns of other parts are not written; NULL = all */
    int64_t first, depth; /* x contains inputs [first, first + depth) of W; depth 0 = all */
    bool accumulate;      /* compute y += x W^T, without the bias */
    bool linear;          /* skip the activation */
    /* bf16 or f16: round y to this type, which requires an f32 layer without `accumulate`; 0 = y has the type of x */
    mha_dtype rounded;
    void *left; /* mha__linear_left bytes for rounded x, 64-byte aligned; if x is NULL, it already contains rounded x */
} mha__linear_call;
/* Computes one product. `first` and `depth` require weights of the type of x. */
void mha__linear_run(const mha_linear *linear, const mha__linear_call *call);
/* Checks the arguments of mha_linear_forward and mha_linear_forward_bf16. */
mha_status mha__linear_check(const mha_linear *linear, const void *x, int64_t rows, const void *y, mha_error *err);
/* Applies the activation of the layer to `count` elements, for example of the result of a call with `linear`. */
void mha__linear_activate(const mha_linear *linear, int64_t count, float *x);
/* Returns the size of `left` in bytes for a call with `rows` rows: 0 unless x is rounded (bf16 on some ISAs, q8_0), and
 * SIZE_MAX on overflow. */
size_t mha__linear_left(const mha_linear *linear, int64_t rows);
/* Returns the size of `left` for calls of `count` linear layers, some of which may be NULL, one after the other. */
size_t mha__linear_max_left(const mha_linear *const *linear, int count, int64_t rows);
/* Returns the biases [out] of an f32 layer; NULL if no part has a bias. */
const float *mha__linear_bias(const mha_linear *linear);
/* Returns true if callers may pass x rounded to bf16 in `left` (with x NULL): rows of `in` contiguous elements, without
 * padding. */
bool mha__linear_takes_bf16(const mha_linear *linear);

/* Computes C = A B or C += A B for A [m, k], B [k, n] and C [m, n]; each element is one sum over k in ascending order,
 * or in steps of 32 (mha__splits). A and B may have any strides. With bf16, A, B and C are f32, and A and B are rounded
 * to bf16 where the kernels multiply bf16 pairs (kernel.h). */
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
/* Returns the length along k of a slice, which is the part of an operand that is packed at a time so that it is still
 * cached when it is read. The length is a multiple of MIN unless k is shorter, since each slice reads C again. */
static inline int64_t mha__matmul_max_k(const mha__matmul *p)
{
    enum { ELEMENTS = 1 << 20, MIN = 768 };
    return mha__min64(p->k, mha__max64(1, ELEMENTS / mha__max64(1, p->n) / MIN) * MIN);
}
/* Returns the rows of A in a slice, a multiple of `whole`. */
static inline int64_t mha__matmul_max_rows(int64_t max_k, int64_t whole)
{
    enum { ELEMENTS = 1 << 20 };
    return mha__round_up(mha__max64(1, ELEMENTS / mha__max64(1, max_k)), whole);
}

/* Returns true if products with many rows and sums of k terms use mha__kernels.product_split: those of
 * mha__matmul_run, and linear layers with `many_rows`. The number of rows of a call has no influence, since no result
 * of a row depends on it. dW sums over rows, so its bits depend on the rows per call. */
static inline bool mha__splits(const mha__kernels *kernels, int64_t k)
{
    enum { MIN = 256 }; /* with fewer terms, splitting the operands takes much of the time */
    return kernels->product_split && k >= MIN;
}
/* Computes the product. Packs B, copies A unless its columns are contiguous, and allocates memory once. */
mha_status mha__matmul_run(mha_ctx *ctx, const mha__matmul *job, mha_error *err);
/* Computes the same product with bf16 pairs; requires kernels with `left`. */
mha_status mha__matmul_pairs(mha_ctx *ctx, const mha__matmul *job, mha_error *err);

/* One matrix or norm in the backward pass: its weights, and where its gradients are accumulated. */
typedef struct mha__grad_slot {
    mha_dtype dtype;    /* type in which the matrix is multiplied: f32, bf16 or f64 */
    const void *weight; /* matrix [out, in], or [in, out] if transposed; only read for dx */
    bool transposed;
    /* matrix from mha__linear_back_create, which is read instead of `weight`; NULL = not packed */
    const mha_linear *packed;
    void *dweight, *dbias; /* accumulated gradients; NULL = not computed */
} mha__grad_slot;

/* Gradients of y = x W^T + b for one matrix. With bf16, all arrays are f32 and the layer is packed in bf16: the product
 * for dx is rounded like the product for y, and dweight is rounded as in mha__matmul. Strides of 0 mean contiguous
 * rows. */
typedef struct mha__linear_grad {
    mha__grad_slot slot;
    int64_t rows, in, out;
    const void *x, *dy;
    int64_t x_stride, dy_stride;
    void *dx; /* NULL = not computed; if add_dx is set, the gradient is added to dx */
    int64_t dx_stride;
    bool add_dx;
} mha__linear_grad;
mha_status mha__linear_backward(mha_ctx *ctx, const mha__linear_grad *grad, mha_error *err);

/* Packs a matrix [out, in] (or [in, out] if transposed) for dx = dy W in repeated backward passes. In f32, dx is
 * bitwise identical to dx of the unpacked matrix; in bf16, it is rounded like y of a bf16 layer. */
mha_status mha__linear_back_create(mha_ctx *ctx, mha_dtype dtype, int64_t in, int64_t out, const float *weight,
                                   bool transposed, mha_linear **packed, mha_error *err);

#endif
