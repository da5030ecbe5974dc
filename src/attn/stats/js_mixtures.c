/* js_mixtures.c - computes the entropy sums of the mixtures of pairs of heads. A task computes a square of pairs of
 * heads. It divides the rows of the heads into pieces, so that the pieces of both sides of the square fit in the L1
 * cache. */
#include "attn/stats/js_mixtures.h"

#include "base/ctx.h"
#include "base/size.h"
#include "kernel/kernel.h"

enum { SQUARE = 8, PIECE = 512 }; /* heads per side, elements per piece; 2 times 8 pieces take 32 KiB */

typedef struct job {
    const mha__kernels *kernels;
    int64_t heads, n;
    const float *probs;
    int64_t stride;
    double *sums;
} job;

static void add_square(const job *j, int64_t first, int64_t second)
{
    const int64_t a_end = mha__min64(first + SQUARE, j->heads), b_end = mha__min64(second + SQUARE, j->heads);
    for (int64_t i = 0; i < j->n; i += PIECE) {
        const int64_t n = mha__min64(PIECE, j->n - i);
        for (int64_t a = first; a < a_end; a++)
            for (int64_t b = second; b < b_end && b <= a; b++)
                j->sums[a * j->heads + b] +=
                    j->kernels->mixture(n, j->probs + a * j->stride + i, j->probs + b * j->stride + i);
    }
}

/* Computes a square of the lower triangle. Squares are numbered row by row. */
static void square_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    int64_t row = 0;
    for (; task > row; row++)
        task -= row + 1;
    add_square(arg, row * SQUARE, task * SQUARE);
}

void mha__mixtures(mha_ctx *ctx, int64_t heads, int64_t n, const float *probs, int64_t stride, double *sums)
{
    job j = {.kernels = mha__kernels_f32(mha__ctx_isa(ctx)),
             .heads = heads,
             .n = n,
             .probs = probs,
             .stride = stride,
             .sums = sums};
    const int64_t rows = mha__ceil_div(heads, SQUARE);
    mha__parallel(ctx, rows * (rows + 1) / 2, square_task, &j);
}
