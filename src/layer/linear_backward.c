/* linear_backward.c - gradients of y = x W^T + b:  dx = dy W,  dW += dy^T x,  db += column sums of dy.
 *
 * Both products have their right operand packed for the call; dy^T is copied, since a left operand is read along its
 * rows. Every number is one chain, over the outputs or over the rows, so its bits follow from the shape alone. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "kernel/kernel.h"
#include "layer/linear.h"
#include <string.h>

#define BLOCK_NUMBERS 65536 /* of the packed operand: it stays in the level-2 cache while rows stream past it */
#define BLOCK_ROWS 128
#define COPY_ROWS 64
#define COPY_COLUMNS 8

typedef struct matmul_job {
    const mha__matmul *p;
    const mha__kernels *kernels;
    int64_t width; /* columns of a block, whole panels */
    int64_t column_blocks, row_blocks;
    char *panels;
    const char *a;
    int64_t a_row;
} matmul_job;

static void pack_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const matmul_job *job = arg;
    const mha__matmul *p = job->p;
    const int64_t column = i * job->width, columns = mha__min64(job->width, p->n - column);
    const size_t real = job->kernels->real_size;
    job->kernels->pack_cols(p->k, columns, (const char *)p->b + (size_t)(column * p->b_col) * real, p->b_row, p->b_col,
                            job->panels + (size_t)(column * p->k) * real);
}

/* Rows i * COPY_ROWS ... of A, made contiguous; a few columns at a time, so that both sides stay within few lines of
 * the cache. */
static void copy_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const matmul_job *job = arg;
    const mha__matmul *p = job->p;
    const int64_t end = mha__min64(p->m, (i + 1) * COPY_ROWS);
    for (int64_t first = 0; first < p->k; first += COPY_COLUMNS) {
        const int64_t last = mha__min64(p->k, first + COPY_COLUMNS);
        for (int64_t r = i * COPY_ROWS; r < end; r++)
            for (int64_t k = first; k < last; k++) {
                const int64_t from = r * p->a_row + k * p->a_col, to = r * p->k + k;
                if (p->dtype == MHA_F64)
                    ((double *)job->a)[to] = ((const double *)p->a)[from];
                else
                    ((float *)job->a)[to] = ((const float *)p->a)[from];
            }
    }
}

static void product_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const matmul_job *job = arg;
    const mha__matmul *p = job->p;
    const size_t real = job->kernels->real_size;
    const int64_t column = i / job->row_blocks * job->width, columns = mha__min64(job->width, p->n - column);
    const int64_t first = i % job->row_blocks * BLOCK_ROWS, rows = mha__min64(BLOCK_ROWS, p->m - first);
    job->kernels->product(rows, columns, p->k, job->a + (size_t)(first * job->a_row) * real, job->a_row,
                          job->panels + (size_t)(column * p->k) * real, p->k * job->kernels->nr,
                          (char *)p->c + (size_t)(first * p->c_row + column) * real, p->c_row, p->accumulate);
}

mha_status mha__matmul_run(mha_ctx *ctx, const mha__matmul *p, mha_error *err)
{
    const mha__kernels *kernels = mha__kernels_of(ctx, p->dtype);
    const bool copies = p->a_col != 1;
    size_t panels = 0, copy = 0, bytes = 0;
    if (!mha__bytes((int64_t[]){mha__round_up(p->n, kernels->nr), p->k}, 2, kernels->real_size, &panels) ||
        (copies && !mha__bytes((int64_t[]){p->m, p->k}, 2, kernels->real_size, &copy)) ||
        !mha__add(panels, copy, &bytes) || !mha__add(bytes, 64, &bytes))
        return mha__no_memory(err, SIZE_MAX, "the gradients of a linear layer");
    char *memory = mha__alloc(ctx, bytes);
    if (!memory) return mha__no_memory(err, bytes, "the gradients of a linear layer");
    matmul_job job = {.p = p,
                      .kernels = kernels,
                      .width = mha__max64(1, BLOCK_NUMBERS / mha__max64(1, p->k) / kernels->nr) * kernels->nr,
                      .row_blocks = mha__ceil_div(p->m, BLOCK_ROWS),
                      .panels = memory,
                      .a = copies ? memory + panels : p->a,
                      .a_row = copies ? p->k : p->a_row};
    job.column_blocks = mha__ceil_div(p->n, job.width);
    if (copies) mha__parallel(ctx, mha__ceil_div(p->m, COPY_ROWS), copy_task, &job);
    mha__parallel(ctx, job.column_blocks, pack_task, &job);
    mha__parallel(ctx, job.row_blocks * job.column_blocks, product_task, &job);
    mha__free(ctx, memory);
    return MHA_OK;
}

/* ---- the three gradients ---- */

static void add_bias_gradient(const mha__linear_grad *g)
{
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t c = 0; c < g->out; c++) {
            if (g->dtype == MHA_F64)
                ((double *)g->dbias)[c] += ((const double *)g->dy)[r * g->dy_stride + c];
            else
                ((float *)g->dbias)[c] += ((const float *)g->dy)[r * g->dy_stride + c];
        }
}

static mha_status add_weight_gradient(mha_ctx *ctx, const mha__linear_grad *g, int64_t weight_row, mha_error *err)
{
    mha__matmul p = {.dtype = g->dtype, .k = g->rows, .c = g->dweight, .c_row = weight_row, .accumulate = true};
    if (g->transposed) { /* dW [in, out] += x^T dy */
        p.m = g->in, p.n = g->out;
        p.a = g->x, p.a_row = 1, p.a_col = g->x_stride;
        p.b = g->dy, p.b_row = g->dy_stride, p.b_col = 1;
    } else { /* dW [out, in] += dy^T x */
        p.m = g->out, p.n = g->in;
        p.a = g->dy, p.a_row = 1, p.a_col = g->dy_stride;
        p.b = g->x, p.b_row = g->x_stride, p.b_col = 1;
    }
    return mha__matmul_run(ctx, &p, err);
}

static mha_status find_dx(mha_ctx *ctx, const mha__linear_grad *g, int64_t weight_row, mha_error *err)
{
    return mha__matmul_run(ctx,
                           &(mha__matmul){.dtype = g->dtype,
                                          .m = g->rows,
                                          .n = g->in,
                                          .k = g->out,
                                          .a = g->dy,
                                          .a_row = g->dy_stride,
                                          .a_col = 1,
                                          .b = g->weight,
                                          .b_row = g->transposed ? 1 : weight_row,
                                          .b_col = g->transposed ? weight_row : 1,
                                          .c = g->dx,
                                          .c_row = g->dx_stride,
                                          .accumulate = g->add_dx},
                           err);
}

mha_status mha__linear_back_create(mha_ctx *ctx, mha_dtype dtype, int64_t in, int64_t out, const float *weight,
                                   bool transposed, mha_linear **packed, mha_error *err)
{
    const mha__matrix back = {.weight = weight, .transposed = !transposed, .out = in};
    return mha__linear_create(ctx, dtype, out, &back, 1, MHA_ACT_NONE, packed, err);
}

static mha_status find_packed_dx(mha_ctx *ctx, const mha__linear_grad *g, mha_error *err)
{
    const size_t left_bytes = mha__linear_left(g->packed, g->rows);
    void *left = left_bytes ? mha__alloc(ctx, left_bytes) : NULL;
    if (left_bytes && !left) return mha__no_memory(err, left_bytes, "the rounded gradient of a linear layer");
    mha__linear_run(g->packed, &(mha__linear_call){.x = g->dy,
                                                   .x_stride = g->dy_stride,
                                                   .rows = g->rows,
                                                   .y = g->dx,
                                                   .y_stride = g->dx_stride,
                                                   .accumulate = g->add_dx,
                                                   .left = left});
    mha__free(ctx, left);
    return MHA_OK;
}

mha_status mha__linear_backward(mha_ctx *ctx, const mha__linear_grad *g, mha_error *err)
{
    const int64_t weight_row = g->weight_row ? g->weight_row : g->transposed ? g->out : g->in;
    if (g->dx) MHA__TRY(g->packed ? find_packed_dx(ctx, g, err) : find_dx(ctx, g, weight_row, err));
    if (g->dweight) MHA__TRY(add_weight_gradient(ctx, g, weight_row, err));
    if (g->dbias) add_bias_gradient(g);
    return MHA_OK;
}

mha_status mha_linear_backward(mha_ctx *ctx, const mha_linear_gradient *given, mha_error *err)
{
    mha_linear_gradient g;
    size_t bytes = 0;
    MHA__TRY(mha__options_read(&g, sizeof g, given, "mha_linear_gradient", err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    if (g.rows < 0 || g.in < 1 || g.in > INT32_MAX || g.matrix.out < 1 || g.matrix.out > INT32_MAX ||
        !mha__bytes((int64_t[]){g.rows, mha__max64(g.in, g.matrix.out)}, 2, 2 * sizeof *g.x, &bytes))
        return mha__fail(err, MHA_ERR_ARG, "mha_linear_gradient: rows is %lld, in is %lld, matrix.out is %lld",
                         (long long)g.rows, (long long)g.in, (long long)g.matrix.out);
    if ((g.rows && !g.dy) || (g.dx && !g.matrix.weight) || (g.rows && g.dweight && !g.x))
        return mha__fail(err, MHA_ERR_ARG, "mha_linear_gradient: %s is NULL",
                         g.rows && !g.dy            ? "dy"
                         : g.dx && !g.matrix.weight ? "matrix.weight, which dx needs,"
                                                    : "x, which dweight needs,");
    if (!g.rows) return MHA_OK;
    return mha__linear_backward(ctx,
                                &(mha__linear_grad){.dtype = MHA_F32,
                                                    .rows = g.rows,
                                                    .in = g.in,
                                                    .out = g.matrix.out,
                                                    .weight = g.matrix.weight,
                                                    .transposed = g.matrix.transposed != 0,
                                                    .x = g.x,
                                                    .x_stride = g.in,
                                                    .dy = g.dy,
                                                    .dy_stride = g.matrix.out,
                                                    .dx = g.dx,
                                                    .dx_stride = g.in,
                                                    .dweight = g.dweight,
                                                    .dbias = g.dbias},
                                err);
}
