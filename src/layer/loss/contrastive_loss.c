/* contrastive_loss.c - the contrastive loss of text pairs and its gradient. A task is one row of S or of its transpose,
 * and only this task writes the sums of that row, so results are bitwise identical for any thread count:
 *
 *     lse_i  = log sum_j exp(S_ij)
 *     lse'_j = log sum_i exp(S_ij)
 *     loss   = sum (lse_i + lse'_i - 2 S_ii) / (2 N)
 *     dS_ij  = (exp(S_ij - lse_i) + exp(S_ij - lse'_j) - 2 [i = j]) / (2 N)
 *     de_i   = scale sum_j dS_ij e_j */
#include "layer/loss/contrastive_loss.h"

#include "base/ctx.h"
#include "base/error.h"
#include "math/linalg.h"
#include <math.h>
#include <string.h>

/* Arrays with one row per text: rows 0 .. N-1 are the rows of S, rows N .. 2N-1 the rows of its transpose. */
typedef struct job {
    const double *e;
    int64_t pairs, width;
    double scale;
    double *lse;   /* [2 N] log-sum-exp of each row */
    double *right; /* [2 N] score S_ii of each row's own pair */
    double *de;
} job;

/* Returns the vectors of the columns of row r: a row is one text, and its columns are all texts of the other side. */
static const double *others(const job *j, int64_t row)
{
    return j->e + (row < j->pairs ? j->pairs * j->width : 0);
}

static double score(const job *j, int64_t row, int64_t column)
{
    return j->scale * mha__dot(j->width, j->e + row * j->width, others(j, row) + column * j->width);
}

/* Computes the log-sum-exp of one row. The running sum is relative to the greatest score so far, so exponentials cannot
 * overflow. */
static void sum_task(void *arg, int64_t row, int worker)
{
    (void)worker;
    const job *j = arg;
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < j->pairs; c++) {
        const double s = score(j, row, c);
        if (s > max) {
            sum *= exp(max - s);
            max = s;
        }
        sum += exp(s - max);
        if (c == row % j->pairs) j->right[row] = s;
    }
    j->lse[row] = max + log(sum);
}

static void gradient_task(void *arg, int64_t row, int worker)
{
    (void)worker;
    const job *j = arg;
    const int64_t other_side = row < j->pairs ? j->pairs : 0;
    double *de = j->de + row * j->width;
    memset(de, 0, (size_t)j->width * sizeof *de);
    for (int64_t c = 0; c < j->pairs; c++) {
        const double s = score(j, row, c), *other = others(j, row) + c * j->width;
        const double both = exp(s - j->lse[row]) + exp(s - j->lse[other_side + c]) - (c == row % j->pairs ? 2 : 0);
        const double ds = j->scale * both / (2 * (double)j->pairs);
        for (int64_t i = 0; i < j->width; i++)
            de[i] += ds * other[i];
    }
}

mha_status mha__pairs_loss(mha_ctx *ctx, const double *e, int64_t pairs, int64_t width, double scale, double *loss,
                           double *de, mha_error *err)
{
    const size_t rows = 2 * (size_t)pairs;
    double *memory = mha__calloc(ctx, rows, 2 * sizeof *memory), sum = 0;
    job j = {.e = e, .pairs = pairs, .width = width, .scale = scale, .lse = memory, .right = memory + rows, .de = de};
    if (!memory) return mha__no_memory(err, rows * 2 * sizeof *memory, "the loss of text pairs");
    mha__parallel(ctx, 2 * pairs, sum_task, &j);
    for (int64_t r = 0; r < 2 * pairs; r++)
        sum += j.lse[r] - j.right[r];
    *loss = sum / (2 * (double)pairs);
    if (de) mha__parallel(ctx, 2 * pairs, gradient_task, &j);
    mha__free(ctx, memory);
    return MHA_OK;
}

mha_status mha__pairs_terms(mha_ctx *ctx, const double *e, int64_t pairs, int64_t width, double scale, double *terms,
                            mha_error *err)
{
    const size_t bytes = 2 * (size_t)pairs * sizeof(double);
    double *right = mha__alloc(ctx, bytes);
    job j = {.e = e, .pairs = pairs, .width = width, .scale = scale, .lse = terms, .right = right};
    if (!right) return mha__no_memory(err, bytes, "the loss of text pairs");
    mha__parallel(ctx, 2 * pairs, sum_task, &j);
    for (int64_t r = 0; r < 2 * pairs; r++)
        terms[r] -= right[r];
    mha__free(ctx, right);
    return MHA_OK;
}
