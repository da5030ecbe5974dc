/* linear.c - y = act(x W^T + b) on packed weights.
 *
 * The output columns are cut into blocks at creation: whole panels of one matrix, about BLOCK_WEIGHTS numbers, so that
 * a block stays in the level-2 cache while rows stream past it. A task is one block of rows by one block of columns and
 * owns that part of y: it starts from the bias, adds the product, and applies the activation. All cuts follow from the
 * shape, none from the thread count; and since a product continues the chain that y holds (kernel.h), a number's bits
 * follow from its own row, its column of W and k = 0 .. in-1 alone.
 *
 * A call may leave out whole matrices of a stack, or take some of the inputs alone: how heads that are not kept cost
 * nothing. For a few rows the work is reading the packed weights once, in order.
 */
#include "layer/linear.h"
#include "base/ctx.h"
#include "base/error.h"
#include "layer/activation.h"
#include "layer/arena.h"
#include <string.h>

#define BLOCK_WEIGHTS 65536 /* 256 KiB of f32: a quarter of the smallest level-2 cache we tune for */
#define BLOCK_ROWS 128      /* rows of a task: some hundred KiB of x beside it */
#define MAX_SIZE INT32_MAX  /* of in, out and count of parts: keeps every product of two in int64_t */
#define MAX_PARTS 64        /* of the public stack */

/* One product's right-hand side: `columns` columns of y from `column` on, all from one part. */
typedef struct column_block {
    int64_t column, columns;
    int64_t part, part_row; /* where from: a part and its first row */
    char *panels;
} column_block;

struct mha_linear {
    mha_ctx *ctx;
    const mha__kernels *kernels;
    mha__row_fn activation; /* or NULL */
    int64_t in, out, blocks;
    char *bias; /* [out], or NULL if no part has one */
    column_block *block;
};

const mha__kernels *mha__kernels_of(mha_ctx *ctx, mha_dtype dtype)
{
    return dtype == MHA_F64 ? mha__kernels_f64(mha__ctx_isa(ctx)) : mha__kernels_f32(mha__ctx_isa(ctx));
}

/* ---- creation ---- */

/* Columns of a block: whole panels, at least one. */
static int64_t block_width(const mha__kernels *kernels, int64_t in)
{
    return mha__max64(1, BLOCK_WEIGHTS / in / kernels->nr) * kernels->nr;
}

static mha_status check_parts(int64_t in, const mha__matrix *parts, int64_t count, mha_error *err)
{
    if (in < 1 || in > MAX_SIZE) return mha__fail(err, MHA_ERR_ARG, "linear: in is %lld, not 1..2^31-1", (long long)in);
    for (int64_t p = 0; p < count; p++) {
        if (parts[p].out < 1 || parts[p].out > MAX_SIZE)
            return mha__fail(err, MHA_ERR_ARG, "linear: out is %lld, not 1..2^31-1", (long long)parts[p].out);
        if (!parts[p].weight) return mha__fail(err, MHA_ERR_ARG, "linear: weight is NULL");
    }
    return MHA_OK;
}

/* Places the object, its bias, its blocks and their panels in the arena; fills them in when there is memory. */
static mha_linear *lay_out(mha__arena *arena, const mha__kernels *kernels, int64_t in, const mha__matrix *parts,
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
    char *bias = biased ? mha__take(arena, (size_t)out, kernels->real_size) : NULL;
    column_block *block = mha__take(arena, (size_t)blocks, sizeof *block);
    if (linear) *linear = (mha_linear){.in = in, .out = out, .blocks = blocks, .bias = bias, .block = block};
    for (int64_t p = 0, column = 0; p < count; column += parts[p++].out)
        for (int64_t row = 0; row < parts[p].out; row += width) {
            const int64_t columns = mha__min64(width, parts[p].out - row);
            char *panels = mha__take(arena, (size_t)(mha__round_up(columns, kernels->nr) * in), kernels->real_size);
            if (block)
                *block++ = (column_block){
                    .column = column + row, .columns = columns, .part = p, .part_row = row, .panels = panels};
        }
    return linear;
}

typedef struct pack_job {
    const mha_linear *linear;
    const mha__matrix *parts;
} pack_job;

static void pack_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const pack_job *job = arg;
    const mha_linear *linear = job->linear;
    const column_block *b = &linear->block[i];
    const mha__matrix *part = &job->parts[b->part];
    const size_t real = linear->kernels->real_size, bytes = (size_t)b->columns * real;
    const int64_t row_stride = part->transposed ? 1 : linear->in, col_stride = part->transposed ? part->out : 1;
    linear->kernels->pack_rows(b->columns, linear->in,
                               (const char *)part->weight + (size_t)(b->part_row * row_stride) * real, row_stride,
                               col_stride, b->panels);
    if (!linear->bias) return;
    char *bias = linear->bias + (size_t)b->column * real;
    if (part->bias)
        memcpy(bias, (const char *)part->bias + (size_t)b->part_row * real, bytes);
    else
        memset(bias, 0, bytes);
}

void mha__linear_pack(mha_linear *linear, const mha__matrix *parts)
{
    pack_job job = {linear, parts};
    mha__parallel(linear->ctx, linear->blocks, pack_task, &job);
}

mha_status mha__linear_create(mha_ctx *ctx, mha_dtype dtype, int64_t in, const mha__matrix *parts, int64_t count,
                              mha_activation activation, mha_linear **linear, mha_error *err)
{
    mha__row_fn act = NULL;
    MHA__TRY(check_parts(in, parts, count, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__activation_find(ctx, activation, &act, err));
    const mha__kernels *kernels = mha__kernels_of(ctx, dtype);
    mha__arena arena = {0};
    lay_out(&arena, kernels, in, parts, count);
    arena.base = arena.overflow ? NULL : mha__alloc(ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.used, "the packed weights of a linear layer");
    arena.used = 0;
    mha_linear *l = lay_out(&arena, kernels, in, parts, count);
    l->ctx = ctx;
    l->kernels = kernels;
    l->activation = act;
    mha__linear_pack(l, parts);
    *linear = l;
    return MHA_OK;
}

mha_status mha_linear_create_stack(mha_ctx *ctx, int64_t in, const mha_matrix *parts, int64_t count,
                                   mha_activation activation, mha_linear **linear, mha_error *err)
{
    if (!linear) return mha__fail(err, MHA_ERR_ARG, "linear: where to store it is NULL");
    *linear = NULL;
    if (!parts || count < 1 || count > MAX_PARTS)
        return mha__fail(err, MHA_ERR_ARG, "linear: %lld matrices, not 1..%d", parts ? (long long)count : 0, MAX_PARTS);
    mha__matrix inner[MAX_PARTS];
    for (int64_t p = 0; p < count; p++)
        inner[p] = (mha__matrix){parts[p].weight, parts[p].bias, parts[p].transposed != 0, parts[p].out};
    return mha__linear_create(ctx, MHA_F32, in, inner, count, activation, linear, err);
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
    const mha__linear_call *call;
    int64_t x_stride, y_stride, depth, row_blocks;
} forward_job;

/* Tasks go down the rows first, so that a thread keeps its block of weights. */
static void forward_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const forward_job *job = arg;
    const mha__linear_call *call = job->call;
    const mha_linear *l = job->linear;
    const column_block *b = &l->block[i / job->row_blocks];
    if (call->parts && !call->parts[b->part]) return;
    const size_t real = l->kernels->real_size;
    const int64_t first = i % job->row_blocks * BLOCK_ROWS, rows = mha__min64(BLOCK_ROWS, call->rows - first);
    const char *x = (const char *)call->x + (size_t)(first * job->x_stride) * real;
    char *y = (char *)call->y + (size_t)(first * job->y_stride + b->column - call->y_first) * real;
    const bool from_bias = l->bias && !call->accumulate;
    for (int64_t r = 0; from_bias && r < rows; r++)
        memcpy(y + (size_t)(r * job->y_stride) * real, l->bias + (size_t)b->column * real, (size_t)b->columns * real);
    l->kernels->product(rows, b->columns, job->depth, x, job->x_stride,
                        b->panels + (size_t)(call->first * l->kernels->nr) * real, l->in * l->kernels->nr, y,
                        job->y_stride, from_bias || call->accumulate);
    for (int64_t r = 0; l->activation && !call->linear && r < rows; r++)
        l->activation((float *)y + r * job->y_stride, b->columns);
}

void mha__linear_run(const mha_linear *linear, const mha__linear_call *call)
{
    const int64_t depth = call->depth ? call->depth : linear->in;
    forward_job job = {.linear = linear,
                       .call = call,
                       .x_stride = call->x_stride ? call->x_stride : depth,
                       .y_stride = call->y_stride ? call->y_stride : linear->out,
                       .depth = depth,
                       .row_blocks = mha__ceil_div(call->rows, BLOCK_ROWS)};
    mha__parallel(linear->ctx, job.row_blocks * linear->blocks, forward_task, &job);
}

mha_status mha_linear_forward(const mha_linear *linear, const float *x, int64_t rows, float *y, mha_error *err)
{
    if (!linear || rows < 0) return mha__fail(err, MHA_ERR_ARG, "linear: rows is %lld", linear ? (long long)rows : -1);
    size_t bytes = 0;
    if (!mha__bytes((int64_t[]){rows, mha__max64(linear->in, linear->out)}, 2, 2 * sizeof *x, &bytes))
        return mha__fail(err, MHA_ERR_ARG, "linear: rows is %lld, too many for memory", (long long)rows);
    if (rows && (!x || !y)) return mha__fail(err, MHA_ERR_ARG, "linear: %s is NULL", x ? "y" : "x");
    mha__linear_run(linear, &(mha__linear_call){.x = x, .rows = rows, .y = y});
    return MHA_OK;
}
