/* linear_backward.c - gradients of y = x W^T + b: dx = dy W, dW += dy^T x, db += column sums of dy.
 *
 * Both products pack their right operand, and transpose a left operand whose rows are not contiguous. They process one
 * slice of k and of rows at a time, so that packed elements are still cached when they are read, and memory does not
 * grow with the matrix. Each slice adds to C, so every element is one sum over the outputs or the rows, and the order
 * of its terms depends only on the shape. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "kernel/kernel.h"
#include "layer/linear/linear.h"
#include <string.h>

enum {
    BLOCK_ELEMENTS = 65536, /* elements of the packed operand, which stay in the level-2 cache while rows stream past */
    BLOCK_TILES = 16,       /* rows per task, in register tiles */
    /* The same two with split products, which split their rows once per block; SPLIT_ROWS counts rows. */
    SPLIT_ELEMENTS = 262144,
    SPLIT_ROWS = 128,
    TURN_K = 64, /* depth of a panel that is transposed in the level-1 cache */
};

typedef struct matmul_job {
    const mha__matmul *p;
    const mha__kernels *kernels;
    int64_t max_k, max_rows; /* maximum length of a slice along k, and maximum rows of a slice */
    int64_t k, depth;        /* first index and length of this slice along k */
    int64_t row, rows;       /* first row and number of rows of this slice */
    int64_t width;           /* columns per block, whole panels */
    mha__product_fn *product;
    int64_t block_elements;  /* elements of a block of the packed operand */
    int64_t task_rows, tile; /* rows per task and per call of `product` */
    int64_t column_blocks, row_blocks;
    char *panels, *turned;
    const char *a; /* left operand, starting at element (row, k) */
    int64_t a_row;
} matmul_job;

static bool turns(const mha__matmul *p)
{
    return p->a_col != 1;
}

static const char *number(const matmul_job *job, const void *matrix, int64_t at)
{
    return (const char *)matrix + at * (int64_t)job->kernels->real_size;
}

static void pack_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const matmul_job *job = arg;
    const mha__matmul *p = job->p;
    const int64_t column = i * job->width, columns = mha__min64(job->width, p->n - column);
    const char *b = number(job, p->b, job->k * p->b_row + column * p->b_col);
    char *panels = job->panels + (size_t)(column * job->depth) * job->kernels->real_size;
    if (p->b_row == 1)
        job->kernels->pack_rows(columns, job->depth, b, p->b_col, 1, panels);
    else
        job->kernels->pack_cols(job->depth, columns, b, p->b_row, p->b_col, panels);
}

/* Copies nr rows of A to contiguous memory, by transposing a panel. */
static void turn_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const matmul_job *job = arg;
    const mha__matmul *p = job->p;
    const size_t real = job->kernels->real_size;
    const int64_t first = i * job->kernels->nr, rows = mha__min64(job->kernels->nr, job->rows - first);
    _Alignas(64) char panel[TURN_K * MHA__NR_MAX * sizeof(double)];
    for (int64_t k = 0; k < job->depth; k += TURN_K) {
        const int64_t steps = mha__min64(TURN_K, job->depth - k);
        const char *a = number(job, p->a, (job->row + first) * p->a_row + (job->k + k) * p->a_col);
        job->kernels->pack_cols(steps, rows, a, p->a_col, p->a_row, panel);
        job->kernels->unpack(rows, steps, panel, job->turned + (size_t)(first * job->depth + k) * real, job->depth, 1);
    }
}

/* Multiplies a tile of rows by all columns of the block before the next tile, so that C is read and written along its
 * rows; split products divide their rows themselves. */
static void product_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const matmul_job *job = arg;
    const mha__matmul *p = job->p;
    const size_t real = job->kernels->real_size;
    const int64_t column = i / job->row_blocks * job->width, columns = mha__min64(job->width, p->n - column);
    const int64_t first = i % job->row_blocks * job->task_rows, end = mha__min64(job->rows, first + job->task_rows);
    for (int64_t r = first; r < end; r += job->tile) {
        char *c = (char *)p->c + (size_t)((job->row + r) * p->c_row + column) * real;
        job->product(mha__min64(job->tile, end - r), columns, job->depth, number(job, job->a, r * job->a_row),
                     job->a_row, job->panels + (size_t)(column * job->depth) * real, job->depth * job->kernels->nr,
                     p->accumulate || job->k > 0 ? c : NULL, p->c_row, c, p->c_row);
    }
}

static void run_rows(mha_ctx *ctx, matmul_job *job)
{
    const mha__matmul *p = job->p;
    job->rows = mha__min64(job->max_rows, p->m - job->row);
    job->row_blocks = mha__ceil_div(job->rows, job->task_rows);
    job->a = turns(p) ? job->turned : number(job, p->a, job->row * p->a_row + job->k);
    job->a_row = turns(p) ? job->depth : p->a_row;
    if (turns(p)) mha__parallel(ctx, mha__ceil_div(job->rows, job->kernels->nr), turn_task, job);
    mha__parallel(ctx, job->row_blocks * job->column_blocks, product_task, job);
}

/* Processes k in slices. Runs at least one slice, because with k = 0 the product is 0 and must still be written. */
static void run_slices(mha_ctx *ctx, matmul_job *job)
{
    const mha__matmul *p = job->p;
    do {
        job->depth = mha__min64(job->max_k, p->k - job->k);
        job->width =
            mha__max64(1, job->block_elements / mha__max64(1, job->depth) / job->kernels->nr) * job->kernels->nr;
        job->column_blocks = mha__ceil_div(p->n, job->width);
        mha__parallel(ctx, job->column_blocks, pack_task, job);
        for (job->row = 0; job->row < p->m; job->row += job->rows)
            run_rows(ctx, job);
        job->k += job->depth;
    } while (job->k < p->k);
}

mha_status mha__matmul_run(mha_ctx *ctx, const mha__matmul *p, mha_error *err)
{
    const mha__kernels *kernels = mha__kernels_of(ctx, p->dtype);
    if (p->dtype == MHA_BF16 && kernels->dense[MHA__BF16]->left) return mha__matmul_pairs(ctx, p, err);
    const bool splits = mha__splits(kernels, p->k);
    matmul_job job = {.p = p,
                      .kernels = kernels,
                      .product = splits ? kernels->product_split : kernels->product,
                      .block_elements = splits ? SPLIT_ELEMENTS : BLOCK_ELEMENTS,
                      .task_rows = splits ? SPLIT_ROWS : BLOCK_TILES * kernels->mr,
                      .tile = splits ? SPLIT_ROWS : kernels->mr};
    size_t panels = 0, turned = 0, bytes = 0;
    job.max_k = mha__matmul_max_k(p);
    job.max_rows = turns(p) ? mha__matmul_max_rows(job.max_k, kernels->nr) : p->m;
    if (!mha__bytes((int64_t[]){mha__round_up(p->n, kernels->nr), job.max_k}, 2, kernels->real_size, &panels) ||
        (turns(p) &&
         !mha__bytes((int64_t[]){mha__min64(p->m, job.max_rows), job.max_k}, 2, kernels->real_size, &turned)) ||
        !mha__add(panels, turned, &bytes) || !mha__add(bytes, 64, &bytes))
        return mha__no_memory(err, SIZE_MAX, "the gradients of a linear layer");
    job.panels = mha__alloc(ctx, bytes);
    if (!job.panels) return mha__no_memory(err, bytes, "the gradients of a linear layer");
    job.turned = job.panels + panels;
    run_slices(ctx, &job);
    mha__free(ctx, job.panels);
    return MHA_OK;
}

/* ---- gradients of x, W and b ---- */

static void add_bias_gradient(const mha__linear_grad *g)
{
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t c = 0; c < g->out; c++) {
            if (g->slot.dtype == MHA_F64)
                ((double *)g->slot.dbias)[c] += ((const double *)g->dy)[r * g->dy_stride + c];
            else
                ((float *)g->slot.dbias)[c] += ((const float *)g->dy)[r * g->dy_stride + c];
        }
}

/* Returns the row stride of weight and dweight. */
static int64_t weight_row(const mha__linear_grad *g)
{
    return g->slot.transposed ? g->out : g->in;
}

static mha_status add_weight_gradient(mha_ctx *ctx, const mha__linear_grad *g, mha_error *err)
{
    mha__matmul p = {
        .dtype = g->slot.dtype, .k = g->rows, .c = g->slot.dweight, .c_row = weight_row(g), .accumulate = true};
    if (g->slot.transposed) { /* computes dW [in, out] += x^T dy */
        p.m = g->in, p.n = g->out;
        p.a = g->x, p.a_row = 1, p.a_col = g->x_stride;
        p.b = g->dy, p.b_row = g->dy_stride, p.b_col = 1;
    } else { /* computes dW [out, in] += dy^T x */
        p.m = g->out, p.n = g->in;
        p.a = g->dy, p.a_row = 1, p.a_col = g->dy_stride;
        p.b = g->x, p.b_row = g->x_stride, p.b_col = 1;
    }
    return mha__matmul_run(ctx, &p, err);
}

static mha_status find_dx(mha_ctx *ctx, const mha__linear_grad *g, mha_error *err)
{
    return mha__matmul_run(ctx,
                           &(mha__matmul){.dtype = g->slot.dtype,
                                          .m = g->rows,
                                          .n = g->in,
                                          .k = g->out,
                                          .a = g->dy,
                                          .a_row = g->dy_stride,
                                          .a_col = 1,
                                          .b = g->slot.weight,
                                          .b_row = g->slot.transposed ? 1 : weight_row(g),
                                          .b_col = g->slot.transposed ? weight_row(g) : 1,
                                          .c = g->dx,
                                          .c_row = g->dx_stride,
                                          .accumulate = g->add_dx},
                           err);
}

mha_status mha__linear_back_create(mha_ctx *ctx, mha_dtype dtype, int64_t in, int64_t out, const float *weight,
                                   bool transposed, mha_linear **packed, mha_error *err)
{
    const mha__matrix back = {.weight = weight, .transposed = !transposed, .many_rows = true, .out = in};
    return mha__linear_create(ctx, dtype, out, &back, 1, MHA_ACT_NONE, packed, err);
}

static mha_status find_packed_dx(mha_ctx *ctx, const mha__linear_grad *g, const mha_linear *packed, mha_error *err)
{
    const size_t left_bytes = mha__linear_left(packed, g->rows);
    void *left = left_bytes ? mha__alloc(ctx, left_bytes) : NULL;
    if (left_bytes && !left) return mha__no_memory(err, left_bytes, "the rounded gradient of a linear layer");
    mha__linear_run(packed, &(mha__linear_call){.x = g->dy,
                                                .x_stride = g->dy_stride,
                                                .rows = g->rows,
                                                .y = g->dx,
                                                .y_stride = g->dx_stride,
                                                .accumulate = g->add_dx,
                                                .left = left});
    mha__free(ctx, left);
    return MHA_OK;
}

/* Computes dx in bf16. Kernels that multiply bf16 pairs round the weights like any other operand; the other kernels
 * read packed weights. */
static mha_status find_rounded_dx(mha_ctx *ctx, const mha__linear_grad *g, mha_error *err)
{
    mha_linear *packed = NULL;
    if (mha__kernels_of(ctx, g->slot.dtype)->dense[MHA__BF16]->left) return find_dx(ctx, g, err);
    MHA__TRY(
        mha__linear_back_create(ctx, g->slot.dtype, g->in, g->out, g->slot.weight, g->slot.transposed, &packed, err));
    const mha_status status = find_packed_dx(ctx, g, packed, err);
    mha_linear_free(packed);
    return status;
}

mha_status mha__linear_backward(mha_ctx *ctx, const mha__linear_grad *given, mha_error *err)
{
    mha__linear_grad local = *given, *g = &local;
    const bool rounded = g->slot.dtype == MHA_BF16;
    if (!g->x_stride) g->x_stride = g->in;
    if (!g->dy_stride) g->dy_stride = g->out;
    if (!g->dx_stride) g->dx_stride = g->in;
    if (g->dx && g->slot.packed)
        MHA__TRY(find_packed_dx(ctx, g, g->slot.packed, err));
    else if (g->dx)
        MHA__TRY(rounded ? find_rounded_dx(ctx, g, err) : find_dx(ctx, g, err));
    if (g->dx) MHA__TRY(mha__between_tiles(ctx, 1, 1, err));
    if (g->slot.dweight) MHA__TRY(add_weight_gradient(ctx, g, err));
    if (g->slot.dweight) MHA__TRY(mha__between_tiles(ctx, 1, 1, err));
    if (g->slot.dbias) add_bias_gradient(g);
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
        return mha__fail(
            err, MHA_ERR_ARG,
            "mha_linear_gradient: rows must be at least 0, in and matrix.out from 1 to 2^31-1, and all must fit "
            "in memory (got %lld, %lld, %lld)",
            (long long)g.rows, (long long)g.in, (long long)g.matrix.out);
    if ((g.rows && !g.dy) || (g.dx && !g.matrix.weight) || (g.rows && g.dweight && !g.x))
        return mha__fail(err, MHA_ERR_ARG, "mha_linear_gradient: %s",
                         g.rows && !g.dy            ? "dy must not be NULL unless rows is 0"
                         : g.dx && !g.matrix.weight ? "matrix.weight must not be NULL with dx"
                                                    : "x must not be NULL with dweight");
    if (!g.rows) return MHA_OK;
    return mha__linear_backward(ctx,
                                &(mha__linear_grad){.slot = {.dtype = MHA_F32,
                                                             .weight = g.matrix.weight,
                                                             .transposed = g.matrix.transposed != 0,
                                                             .dweight = g.dweight,
                                                             .dbias = g.dbias},
                                                    .rows = g.rows,
                                                    .in = g.in,
                                                    .out = g.matrix.out,
                                                    .x = g.x,
                                                    .dy = g.dy,
                                                    .dx = g.dx},
                                err);
}
