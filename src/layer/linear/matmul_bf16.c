/* matmul_bf16.c - C = A B or C += A B with f32 elements rounded to bf16, on kernels that multiply bf16 pairs; computes
 * gradients of bf16 linear layers. Both operands are rounded and packed one slice of k and of rows at a time, and read
 * while they are still cached. Sums are f32 and continue C, so each element is one sum over k in steps (kernel.h), in
 * an order that depends only on the shape. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "kernel/kernel.h"
#include "layer/linear/linear.h"

enum {
    BLOCK_ELEMENTS = 131072, /* elements of a block of the right operand: 256 KiB, which stay in the level-2 cache */
    BLOCK_ROWS = 64,         /* rows of the left operand per task */
    COPY_ROWS = 16,          /* rows of A copied at a time: one cache line of a transposed A */
    COPY_STEP = 64,          /* columns of A copied at a time: whole steps of k */
};

typedef struct pairs_job {
    const mha__matmul *p;
    const mha__kernels *kernels;
    const mha__dense *dense;
    int64_t max_k, max_rows;    /* maximum length of a slice along k, and maximum rows of a slice */
    int64_t k, depth;           /* first index and length of this slice along k */
    int64_t row, rows;          /* first row and number of rows of this slice */
    int64_t a_row, panel_bytes; /* strides of the packed operands */
    int64_t width;              /* columns per block, whole panels */
    int64_t column_blocks, row_blocks;
    uint16_t *a;
    char *panels;
} pairs_job;

/* Rounds rows [i COPY_ROWS, (i + 1) COPY_ROWS) of A, through a small buffer if its columns are not contiguous. */
static void left_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const pairs_job *job = arg;
    const mha__matmul *p = job->p;
    const int64_t first = i * COPY_ROWS, rows = mha__min64(COPY_ROWS, job->rows - first);
    const float *a = (const float *)p->a + (job->row + first) * p->a_row + job->k * p->a_col;
    uint16_t *to = job->a + first * job->a_row;
    float some[COPY_ROWS * COPY_STEP];
    if (p->a_col == 1) {
        job->dense->left(rows, job->depth, a, p->a_row, to);
        return;
    }
    for (int64_t k = 0; k < job->depth; k += COPY_STEP) {
        const int64_t count = mha__min64(COPY_STEP, job->depth - k);
        for (int64_t kk = 0; kk < count; kk++)
            for (int64_t r = 0; r < rows; r++)
                some[r * COPY_STEP + kk] = a[r * p->a_row + (k + kk) * p->a_col];
        for (int64_t r = 0; r < rows; r++)
            job->dense->left(1, count, some + r * COPY_STEP, COPY_STEP, to + r * job->a_row + k);
    }
}

static void pack_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const pairs_job *job = arg;
    const mha__matmul *p = job->p;
    const int64_t column = i * job->width, columns = mha__min64(job->width, p->n - column);
    job->dense->pack(columns, job->depth, (const float *)p->b + job->k * p->b_row + column * p->b_col, p->b_col,
                     p->b_row, job->panels + column / job->kernels->nr * job->panel_bytes);
}

static void product_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const pairs_job *job = arg;
    const mha__matmul *p = job->p;
    const int64_t column = i / job->row_blocks * job->width, columns = mha__min64(job->width, p->n - column);
    const int64_t first = i % job->row_blocks * BLOCK_ROWS, rows = mha__min64(BLOCK_ROWS, job->rows - first);
    float *c = (float *)p->c + (job->row + first) * p->c_row + column;
    if (job->dense->open) job->dense->open();
    job->dense->product(rows, columns, job->depth, job->a + first * job->a_row, job->a_row,
                        job->panels + column / job->kernels->nr * job->panel_bytes,
                        p->accumulate || job->k > 0 ? c : NULL, p->c_row, c, p->c_row);
    if (job->dense->close) job->dense->close();
}

/* Processes k in slices. Runs at least one slice, because with k = 0 the product is 0 and must still be written. */
static void run_slices(mha_ctx *ctx, pairs_job *job)
{
    const mha__matmul *p = job->p;
    do {
        job->depth = mha__min64(job->max_k, p->k - job->k);
        job->a_row = mha__round_up(job->depth, job->dense->block);
        job->panel_bytes = job->a_row / job->dense->block * job->dense->block_bytes;
        job->width = mha__max64(1, BLOCK_ELEMENTS / mha__max64(1, job->a_row) / job->kernels->nr) * job->kernels->nr;
        job->column_blocks = mha__ceil_div(p->n, job->width);
        mha__parallel(ctx, job->column_blocks, pack_task, job);
        for (job->row = 0; job->row < p->m; job->row += job->rows) {
            job->rows = mha__min64(job->max_rows, p->m - job->row);
            job->row_blocks = mha__ceil_div(job->rows, BLOCK_ROWS);
            mha__parallel(ctx, mha__ceil_div(job->rows, COPY_ROWS), left_task, job);
            mha__parallel(ctx, job->row_blocks * job->column_blocks, product_task, job);
        }
        job->k += job->depth;
    } while (job->k < p->k);
}

static void lay_out(mha__arena *arena, pairs_job *job)
{
    const mha__matmul *p = job->p;
    const int64_t blocks = mha__ceil_div(job->max_k, job->dense->block);
    const size_t rows = (size_t)mha__round_up(mha__min64(p->m, job->max_rows), job->dense->rows);
    job->a = mha__take(arena, rows, (size_t)(blocks * job->dense->block) * sizeof *job->a);
    job->panels =
        mha__take(arena, (size_t)mha__ceil_div(p->n, job->kernels->nr), (size_t)(blocks * job->dense->block_bytes));
}

mha_status mha__matmul_pairs(mha_ctx *ctx, const mha__matmul *p, mha_error *err)
{
    const mha__kernels *kernels = mha__kernels_of(ctx, MHA_F32);
    pairs_job job = {.p = p, .kernels = kernels, .dense = kernels->dense[MHA__BF16]};
    mha__arena arena = {0};
    job.max_k = mha__matmul_max_k(p);
    job.max_rows = mha__matmul_max_rows(job.max_k, BLOCK_ROWS);
    lay_out(&arena, &job);
    arena.base = arena.overflow ? NULL : mha__alloc(ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a product in bf16");
    arena.used = 0;
    lay_out(&arena, &job);
    run_slices(ctx, &job);
    mha__free(ctx, arena.base);
    return MHA_OK;
}
