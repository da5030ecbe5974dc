/* linear_bf16.c - linear layers whose x and y are bf16 arrays of the caller. Kernels that multiply bf16 read x in place
 * if its rows are whole tiles at cache lines; other rows are copied, or converted to f32 for other kernels. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/linear/packed_linear.h"
#include <string.h>

enum { COPIED_ROWS = 512, TASK_ROWS = 64 }; /* rows that are copied before their product, and rows per task */

typedef struct copy_job {
    const mha_linear *linear;
    const uint16_t *x;
    int64_t rows;
    uint16_t *left; /* copies, or NULL */
    float *reals;   /* converted rows, or NULL */
} copy_job;

static void copy_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const copy_job *job = arg;
    const int64_t in = job->linear->in, first = i * TASK_ROWS, rows = mha__min64(TASK_ROWS, job->rows - first);
    const uint16_t *x = job->x + first * in;
    if (job->left)
        memcpy(job->left + first * in, x, (size_t)(rows * in) * sizeof *x);
    else
        job->linear->kernels->widen[MHA__BF16](rows, in, x, in, 1, job->reals + first * in, in);
}

/* Computes up to COPIED_ROWS rows in `memory`: converted rows, then the left operand. */
static void run_copied(const mha_linear *l, const uint16_t *x, int64_t rows, uint16_t *y, char *memory, size_t reals)
{
    void *left = memory + reals;
    copy_job job = {l, x, rows, reals ? NULL : left, reals ? (float *)(void *)memory : NULL};
    mha__parallel(l->ctx, mha__ceil_div(rows, TASK_ROWS), copy_task, &job);
    mha__linear_run(l, &(mha__linear_call){.x = job.reals, .rows = rows, .y = y, .rounded = MHA_BF16, .left = left});
}

/* Returns the number of rows that the product can read in place. It reads whole tiles, and loads a row of a tile half
 * as fast if the row crosses a cache line. */
static int64_t rows_in_place(const mha_linear *l, const uint16_t *x, int64_t rows)
{
    return (uintptr_t)x % MHA__LINE ? 0 : rows / l->dense->rows * l->dense->rows;
}

mha_status mha_linear_forward_bf16(const mha_linear *linear, const uint16_t *x, int64_t rows, uint16_t *y,
                                   mha_error *err)
{
    const mha_linear *l = linear;
    const mha_status status = mha__linear_check(l, x, rows, y, err);
    if (status != MHA_OK || rows == 0) return status;
    const bool takes = mha__linear_takes_bf16(l);
    const int64_t in_place = takes ? rows_in_place(l, x, rows) : 0, max = mha__min64(COPIED_ROWS, rows - in_place);
    const size_t reals = takes ? 0 : (size_t)mha__round_up(max * l->in * (int64_t)sizeof(float), MHA__LINE);
    const size_t bytes = max > 0 ? reals + mha__linear_left(l, max) : 0;
    char *memory = bytes ? mha__alloc(l->ctx, bytes) : NULL;
    if (bytes && !memory) return mha__no_memory(err, bytes, "the copied input of a linear layer");
    mha__linear_run(l, &(mha__linear_call){.rows = in_place,
                                           .y = y,
                                           .rounded = MHA_BF16,
                                           .left = (void *)(uintptr_t)x}); /* only read, because x is NULL */
    for (int64_t row = in_place; row < rows; row += max)
        run_copied(l, x + row * l->in, mha__min64(max, rows - row), y + row * l->out, memory, reals);
    mha__free(l->ctx, memory);
    return MHA_OK;
}
