/* grads.h - the backward pass of a problem: gradients made, run, and the same from the formula, row by row. */
#ifndef TEST_GRADS_H
#define TEST_GRADS_H

#include "mha/attn_grads.h"
#include "support/attn/problem.h"

/* Which gradient each tensor of `result` is, and what else is written. */
enum { DQ, DK, DV, DBIAS, DSLOPES, DSINKS, DGATES, GRADS, ROW_TAYLOR = GRADS, RESULTS };

typedef struct gradients {
    mha_attn_grads args;    /* filled by gradients_bind from the tensors; out and lse are those of the problem */
    tensor dout, dlse;      /* dlse without memory: none */
    tensor result[RESULTS]; /* those without memory are not wanted */
} gradients;

/* Layouts of all; zero is contiguous. `repeat` in dbias, dslopes, dsinks and dgates sums over that axis. */
typedef struct gradients_layouts {
    tensor_layout dout, dlse, result[RESULTS];
    bool with_dlse;
} gradients_layouts;

/* Memory for the gradients of everything that the problem has, dout (and dlse) filled from the seed. The problem wants
 * lse. `layouts` may be NULL. Free with gradients_free. */
void gradients_make(gradients *g, const problem *p, const gradients_layouts *layouts, uint64_t seed);
/* The same in random layouts, with random sums, and sometimes without some results. */
void gradients_random(gradients *g, const problem *p, uint64_t seed, uint64_t number);
/* Points args at the tensors again, after one of them or of the problem's was changed. */
void gradients_bind(gradients *g, const problem *p);
void gradients_free(gradients *g);

/* Forward and backward with one plan and a guarded workspace. False with a sentence in why[capacity]. */
bool gradients_try(mha_ctx *ctx, problem *p, gradients *g, char *why, size_t capacity);
/* Fails the running test instead. */
void gradients_run(mha_ctx *ctx, problem *p, gradients *g);

/* The formula, from q, k, v, dout, dlse and from out and lse as they stand in the problem: `sum` in one type wider than
 * the problem's, or in the problem's own; `floor`, the rounding of each number, for the wider one only. */
typedef struct gradients_truth {
    double *sum[RESULTS], *floor[RESULTS];
} gradients_truth;
void gradients_ref(const problem *p, const gradients *g, bool wide, gradients_truth *truth);
void gradients_ref_free(gradients_truth *truth);
/* Where element (b, h, i, j) of a result lies in `sum`. */
size_t gradients_index(const tensor *t, int64_t b, int64_t h, int64_t i, int64_t j);

/* False with a sentence if a gradient is further from `wide` than twice the worst error of `plain` and twice the floor
 * allow. `worst`, if not NULL, receives the largest error in units of its limit. */
bool gradients_near(const gradients *g, const gradients_truth *wide, const gradients_truth *plain, double *worst,
                    char *why, size_t capacity);
bool gradients_same_bits(const gradients *x, const gradients *y);

#endif
