/* linear.c - y = act(x W^T + b) on packed weights.
 *
 * The output columns are cut into blocks at creation: whole panels of one matrix, about BLOCK_WEIGHTS numbers, so that
 * a block stays in the level-2 cache while rows stream past it. A task is one block of rows by one block of columns and
 * owns that part of y: it starts from the bias, adds the product, and applies the activation. All cuts follow from the
 * shape, none from the thread count; and since a product continues the chain that y holds (kernel.h), a number's bits
 * follow from its own row, its column of W and k = 0 .. in-1 alone.
 *
 * For a few rows the work is reading the packed weights once, in order. This is the only caller of kernels->product
 * outside of the attention operator.
 */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/activation.h"
#include "layer/arena.h"
#include <string.h>

#define BLOCK_WEIGHTS 65536 /* 256 KiB: a quarter of the smallest level-2 cache we tune for */
#define BLOCK_ROWS 128      /* rows of a task: some hundred KiB of x beside it */
#define MAX_SIZE INT32_MAX  /* of in, out and count of parts: keeps every product of two in int64_t */

/* One product's right-hand side: `columns` columns of y from `column` on, all from one part. */
typedef struct column_block {
    int64_t column, columns;
    const mha_matrix *part; /* where from; valid during creation only */
    int64_t part_row;       /* first row of that part */
    float *panels;
} column_block;

struct mha_linear {
    mha_ctx *ctx;
    const mha__kernels *kernels;
    mha__row_fn activation; /* or NULL */
    int64_t in, out, blocks;
    float *bias; /* [out], or NULL if no part has one */
    column_block *block;
};

/* ---- creation ---- */

/* Columns of a block: whole panels, at least one. */
static int64_t block_width(const mha__kernels *kernels, int64_t in)
{
    return mha__max64(1, BLOCK_WEIGHTS / in / kernels->nr) * kernels->nr;
}

static mha_status check_parts(int64_t in, const mha_matrix *parts, int64_t count, int64_t *out, mha_error *err)
{
    if (in < 1 || in > MAX_SIZE) return mha__fail(err, MHA_ERR_ARG, "linear: in is %lld, not 1..2^31-1", (long long)in);
    if (!parts || count < 1 || count > 64)
        return mha__fail(err, MHA_ERR_ARG, "linear: %lld matrices, not 1..64", parts ? (long long)count : 0);
    *out = 0;
    for (int64_t p = 0; p < count; p++) {
        if (parts[p].out < 1 || parts[p].out > MAX_SIZE)
            return mha__fail(err, MHA_ERR_ARG, "linear: out is %lld, not 1..2^31-1", (long long)parts[p].out);
        if (!parts[p].weight) return mha__fail(err, MHA_ERR_ARG, "linear: weight is NULL");
        *out += parts[p].out;
    }
    return MHA_OK;
}

/* Places the object, its bias, its blocks and their panels in the arena; fills them in when there is memory. */
static mha_linear *lay_out(mha__arena *arena, const mha__kernels *kernels, int64_t in, const mha_matrix *parts,
                           int64_t count)
{
    const int64_t width = block_width(kernels, in);
    int64_t blocks = 0, out = 0;
    bool biased = false;
    for (int64_t p = 0; p < count; p++) {
        blocks += mha__ceil_div(parts[p].out, width);
        out += parts[p].out;
        biased |= parts[p].bias != NULL;
    }
    mha_linear *linear = mha__take(arena, 1, sizeof *linear);
    float *bias = biased ? mha__take(arena, (size_t)out, sizeof *bias) : NULL;
    column_block *block = mha__take(arena, (size_t)blocks, sizeof *block);
    if (linear) *linear = (mha_linear){.in = in, .out = out, .blocks = blocks, .bias = bias, .block = block};
    for (int64_t p = 0, column = 0; p < count; column += parts[p++].out)
        for (int64_t row = 0; row < parts[p].out; row += width) {
            const int64_t columns = mha__min64(width, parts[p].out - row);
            float *panels = mha__take(arena, (size_t)(mha__round_up(columns, kernels->nr) * in), sizeof *panels);
            if (block)
                *block++ = (column_block){
                    .column = column + row, .columns = columns, .part = &parts[p], .part_row = row, .panels = panels};
        }
    return linear;
}

static void pack_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const mha_linear *linear = arg;
    column_block *b = &linear->block[i];
    const mha_matrix *part = b->part;
    const int64_t row_stride = part->transposed ? 1 : linear->in, col_stride = part->transposed ? part->out : 1;
    linear->kernels->pack_rows(b->columns, linear->in, part->weight + b->part_row * row_stride, row_stride, col_stride,
                               b->panels);
    for (int64_t c = 0; linear->bias && c < b->columns; c++)
        linear->bias[b->column + c] = part->bias ? part->bias[b->part_row + c] : 0.0f;
    b->part = NULL;
}

mha_status mha_linear_create_stack(mha_ctx *ctx, int64_t in, const mha_matrix *parts, int64_t count,
                                   mha_activation activation, mha_linear **linear, mha_error *err)
{
    if (!linear) return mha__fail(err, MHA_ERR_ARG, "linear: where to store it is NULL");
    *linear = NULL;
    int64_t out = 0;
    mha__row_fn act = NULL;
    MHA__TRY(check_parts(in, parts, count, &out, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__activation_find(ctx, activation, &act, err));
    const mha__kernels *kernels = mha__kernels_f32(mha__ctx_isa(ctx));
    mha__arena arena = {0};
    lay_out(&arena, kernels, in, parts, count);
    arena.base = arena.overflow ? NULL : mha__alloc(ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.used, "the packed weights of a linear layer");
    arena.used = 0;
    mha_linear *l = lay_out(&arena, kernels, in, parts, count);
    l->ctx = ctx;
    l->kernels = kernels;
    l->activation = act;
    mha__parallel(ctx, l->blocks, pack_task, l);
    *linear = l;
    return MHA_OK;
}

mha_status mha_linear_create(mha_ctx *ctx, int64_t in, int64_t out, const float *weight, const float *bias,
                             mha_linear **linear, mha_error *err)
{
    const mha_matrix part = {.weight = weight, .bias = bias, .out = out};
    return mha_linear_create_stack(ctx, in, &part, 1, MHA_ACT_NONE, linear, err);
}

void mha_linear_free(mha_linear *linear)
{
    if (linear) mha__free(linear->ctx, linear);
}

/* ---- forward ---- */

typedef struct forward_job {
    const mha_linear *linear;
    const float *x;
    float *y;
    int64_t rows, row_blocks;
} forward_job;

/* Tasks go down the rows first, so that a thread keeps its block of weights. */
static void forward_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const forward_job *job = arg;
    const mha_linear *l = job->linear;
    const column_block *b = &l->block[i / job->row_blocks];
    const int64_t first = i % job->row_blocks * BLOCK_ROWS, rows = mha__min64(BLOCK_ROWS, job->rows - first);
    const float *x = job->x + first * l->in;
    float *y = job->y + first * l->out + b->column;
    for (int64_t r = 0; l->bias && r < rows; r++)
        memcpy(y + r * l->out, l->bias + b->column, (size_t)b->columns * sizeof *y);
    l->kernels->product(rows, b->columns, l->in, x, l->in, b->panels, l->in * l->kernels->nr, y, l->out,
                        l->bias != NULL);
    for (int64_t r = 0; l->activation && r < rows; r++)
        l->activation(y + r * l->out, b->columns);
}

mha_status mha_linear_forward(const mha_linear *linear, const float *x, int64_t rows, float *y, mha_error *err)
{
    if (!linear || rows < 0) return mha__fail(err, MHA_ERR_ARG, "linear: rows is %lld", linear ? (long long)rows : -1);
    size_t bytes = 0;
    if (!mha__bytes((int64_t[]){rows, mha__max64(linear->in, linear->out)}, 2, 2 * sizeof *x, &bytes))
        return mha__fail(err, MHA_ERR_ARG, "linear: rows is %lld, too many for memory", (long long)rows);
    if (rows && (!x || !y)) return mha__fail(err, MHA_ERR_ARG, "linear: %s is NULL", x ? "y" : "x");
    forward_job job = {.linear = linear, .x = x, .y = y, .rows = rows, .row_blocks = mha__ceil_div(rows, BLOCK_ROWS)};
    mha__parallel(linear->ctx, job.row_blocks * linear->blocks, forward_task, &job);
    return MHA_OK;
}
