/* grads.h - the backward pass of a problem: allocates the gradients, runs it, and computes the expected gradients from
 * the formula, row by row. */
#ifndef TEST_GRADS_H
#define TEST_GRADS_H

#include "mha/attn_grads.h"
#include "support/attn/problem.h"

/* Indices of the tensors in `result`: the gradients, and the other outputs. */
enum { DQ, DK, DV, DBIAS, DSLOPES, DSINKS, DGATES, GRADS, ROW_TAYLOR = GRADS, RESULTS };

typedef struct gradients {
    mha_attn_grads args;    /* filled from the tensors by gradients_bind; out and lse come from the problem */
    tensor dout, dlse;      /* if dlse has no memory, it is not passed */
    tensor result[RESULTS]; /* results without memory are not computed */
} gradients;

/* The layouts of all tensors; zero is contiguous. With `repeat` in dbias, dslopes, dsinks and dgates, the gradient is
 * summed over that axis. */
typedef struct gradients_layouts {
    tensor_layout dout, dlse, result[RESULTS];
    bool with_dlse;
} gradients_layouts;

/* Allocates the gradients of all inputs of the problem and fills dout (and dlse) from the seed. The problem must have
 * lse as an output. `layouts` may be NULL. Free with gradients_free. */
void gradients_make(gradients *g, const problem *p, const gradients_layouts *layouts, uint64_t seed);
/* Like gradients_make, with random layouts and sums, and sometimes without some results. */
void gradients_random(gradients *g, const problem *p, uint64_t seed, uint64_t number);
/* Updates args after a tensor of the gradients or the problem has changed. */
void gradients_bind(gradients *g, const problem *p);
void gradients_free(gradients *g);

/* Runs the forward and backward pass with one plan and a guarded workspace. On failure, returns false with a message
 * in why[capacity]. */
bool gradients_try(mha_ctx *ctx, problem *p, gradients *g, char *why, size_t capacity);
/* Like gradients_try, but fails the running test on failure. */
void gradients_run(mha_ctx *ctx, problem *p, gradients *g);

/* Expected gradients, computed by the formula from q, k, v, dout, dlse, and the out and lse stored in the problem.
 * `sum` is computed in the next wider type, or in the problem's type. `floor` is the rounding error of each element,
 * computed only in the wider type. */
typedef struct gradients_truth {
    double *sum[RESULTS], *floor[RESULTS];
} gradients_truth;
void gradients_ref(const problem *p, const gradients *g, bool wide, gradients_truth *truth);
void gradients_ref_free(gradients_truth *truth);
/* Returns the index of element (b, h, i, j) of a result in `sum`. */
size_t gradients_index(const tensor *t, int64_t b, int64_t h, int64_t i, int64_t j);

/* Returns false with a message if the error of a gradient, relative to `wide`, exceeds twice the largest error of
 * `plain` plus twice the floor. `worst`, if not NULL, receives the largest error as a fraction of its limit. */
bool gradients_near(const gradients *g, const gradients_truth *wide, const gradients_truth *plain, double *worst,
                    char *why, size_t capacity);
bool gradients_same_bits(const gradients *x, const gradients *y);

#endif
