/* adamw.h - one AdamW step over a tensor, and the sum of squares for gradient clipping. Blocks have a fixed size, so
 * results are bitwise identical for any thread count. */
#ifndef MHA_LAYER_ADAMW_H
#define MHA_LAYER_ADAMW_H

#include "mha/ctx.h"

/* Compute the sum of x[n]^2 in double, in two steps: mha__squares_partial writes the sum of each block to `partial`
 * [mha__squares_blocks(count)], and mha__squares_sum adds these sums. The result is finite if and only if every x is
 * finite, since squares of f32 do not overflow a double. */
enum { MHA__SQUARES_BLOCK = 16384 };
int64_t mha__squares_blocks(int64_t count);
void mha__squares_partial(mha_ctx *ctx, int64_t count, const float *x, double *partial);
double mha__squares_sum(const double *partial, int64_t blocks);

/* Copies `gradients` to `to`, and then sets `gradients` to 0. */
void mha__gradients_move(mha_ctx *ctx, int64_t count, float *gradients, float *to);

/* One AdamW step in f32 (Loshchilov & Hutter 2019, algorithm 2), with PyTorch's order of operations. With g = scale
 * gradient:
 *
 *     weight -= rate decay weight
 *     mean   += (1 - beta1) (g - mean)
 *     square  = beta2 square + (1 - beta2) g^2
 *     weight -= rate / (1 - beta1^step) mean / (sqrt(square) / sqrt(1 - beta2^step) + eps)
 */
typedef struct mha__adamw {
    int64_t count;
    float *weight, *gradient; /* the step sets `gradient` to 0 */
    void *mean, *square;      /* of type `moments`: f32, or bf16 with stochastic rounding (kernel.h) */
    mha_dtype moments;
    /* bf16: the random bits of a block depend only on the seed, which differs for each step, and on the index of its
     * first element among all parameters, which is `first` for the first block. */
    uint64_t seed;
    int64_t first;
    double scale;
    double rate, beta1, beta2, eps, decay;
    int64_t step; /* number of the step, starting at 1 */
} mha__adamw;
void mha__adamw_run(mha_ctx *ctx, const mha__adamw *job);

#endif
