/* row_dropout.c - dropout of activations between two steps of a block. Masks are sampled as in the operator's dropout
 * of probabilities, with columns and rows in place of queries and keys. A task is a range of rows. The mask of a row
 * does not depend on other rows, so results are bitwise identical for any division into tasks. */
#include "layer/row_dropout.h"

#include "base/ctx.h"
#include "base/size.h"
#include "kernel/kernel.h"
#include <math.h>

enum { TASK_ROWS = 16 };

typedef struct drop_job {
    const mha__kernels *kernels;
    const mha__drop *drop;
    const mha_layer_input *in;
    int64_t rows, width;
    float *x;
} drop_job;

/* Drops elements of `count` <= TASK_ROWS rows of one sequence, starting at token `token`. */
static void drop_tokens(const drop_job *job, int64_t sequence, int64_t token, int64_t count, float *x)
{
    const double share = job->drop->share;
    const float factor = (float)(1 / (1 - share));
    const int64_t nr = job->kernels->nr;
    float mask[TASK_ROWS * MHA__NR_MAX];
    for (int64_t column = 0; column < job->width; column += nr) {
        const int64_t lanes = mha__min64(nr, job->width - column);
        const mha__draw draw = {.seed = job->drop->key,
                                .b = (uint32_t)sequence,
                                .i = (uint32_t)column,
                                .j = (uint32_t)token,
                                .dropped = (uint64_t)ceil(share * 0x1p32)};
        job->kernels->draw(count, lanes, &draw, mask);
        for (int64_t r = 0; r < count; r++)
            for (int64_t c = 0; c < lanes; c++) {
                float *at = x + r * job->width + column + c;
                *at = mask[r * nr + c] != 0 ? 0 : *at * factor;
            }
    }
}

int64_t mha__row_sequence(const mha_layer_input *in, int64_t row)
{
    int64_t low = 0, high = in->sequences;
    if (!in->starts) return row / in->length;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (in->starts[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void drop_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const drop_job *job = arg;
    const mha_layer_input *in = job->in;
    const int64_t end = mha__min64(job->rows, (i + 1) * TASK_ROWS);
    for (int64_t row = i * TASK_ROWS, next; row < end; row = next) {
        const int64_t b = mha__row_sequence(in, row), first = in->starts ? in->starts[b] : b * in->length;
        next = mha__min64(end, in->starts ? in->starts[b + 1] : first + in->length);
        drop_tokens(job, b, row - first, next - row, job->x + row * job->width);
    }
}

void mha__drop_rows(mha_ctx *ctx, const mha__drop *drop, const mha_layer_input *in, int64_t width, float *x)
{
    drop_job job = {.kernels = mha__kernels_of(ctx, MHA_F32),
                    .drop = drop,
                    .in = in,
                    .rows = in->batch * in->length,
                    .width = width,
                    .x = x};
    if (drop->share > 0) mha__parallel(ctx, mha__ceil_div(job.rows, TASK_ROWS), drop_task, &job);
}
