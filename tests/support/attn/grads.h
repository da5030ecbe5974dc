/* grads.h - the backward pass of a problem: allocates the gradients, runs the backward pass, and computes the expected
 * gradients from the formula, row by row. */
#ifndef TEST_GRADS_H
#define TEST_GRADS_H

#include "mha/attn_grads.h"
#include "support/attn/problem.h"

/* Indices of the tensors in `result`: the gradients, and the other outputs. */
enum { DQ, DK, DV, DBIAS, DSLOPES, DSINKS, DGATES, GRADS, ROW_TAYLOR = GRADS, RESULTS };

typedef struct gradients {
    mha_attn_grads args;    /* set by gradients_bind from the tensors below, and out and lse of the problem */
    tensor dout, dlse;      /* dlse is passed only if it has memory */
    tensor result[RESULTS]; /* a result is computed only if it has memory */
} gradients;

/* The layouts of all tensors; an all-zero layout is contiguous. If dbias, dslopes, dsinks or dgates has `repeat` for an
 * axis, the gradient is summed over this axis. */
typedef struct gradients_layouts {
    tensor_layout dout, dlse, result[RESULTS];
    bool with_dlse;
} gradients_layouts;

/* Allocates the gradients of all inputs of the problem, and fills dout (and dlse) with random values from the seed. The
 * outputs of the problem must include lse. `layouts` may be NULL. Free with gradients_free. */
void gradients_make(gradients *g, const problem *p, const gradients_layouts *layouts, uint64_t seed);
/* Calls gradients_make with random layouts; some gradients are summed over an axis, and some results are omitted, at
 * random. */
void gradients_random(gradients *g, const problem *p, uint64_t seed, uint64_t number);
/* Updates args after a tensor of the gradients or the problem has changed. */
void gradients_bind(gradients *g, const problem *p);
void gradients_free(gradients *g);

/* Runs the forward and backward pass with one plan and a guarded workspace. On failure, returns false with a message
 * in why[capacity]. */
bool gradients_try(mha_ctx *ctx, problem *p, gradients *g, char *why, size_t capacity);
/* Calls gradients_try, and fails the running test if it returns false. */
void gradients_run(mha_ctx *ctx, problem *p, gradients *g);

/* Expected gradients, computed with the formula from q, k, v, dout, dlse, and the out and lse of the problem. `sum` is
 * the gradient, computed in the next wider type or in the type of the problem. `floor` is a bound on the rounding error
 * of each element, set only in the wider type. */
typedef struct gradients_truth {
    double *sum[RESULTS], *floor[RESULTS];
} gradients_truth;
void gradients_ref(const problem *p, const gradients *g, bool wide, gradients_truth *truth);
void gradients_ref_free(gradients_truth *truth);
/* Returns the index in `sum` of element (b, h, i, j) of a result. */
size_t gradients_index(const tensor *t, int64_t b, int64_t h, int64_t i, int64_t j);

/* Returns false with a message if the difference of a gradient from `wide` exceeds twice the largest difference of
 * `plain` from `wide`, plus twice the floor. *worst, if not NULL, is set to the largest ratio error / limit. */
bool gradients_near(const gradients *g, const gradients_truth *wide, const gradients_truth *plain, double *worst,
                    char *why, size_t capacity);
bool gradients_same_bits(const gradients *x, const gradients *y);

#endif
