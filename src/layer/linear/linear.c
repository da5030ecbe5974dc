/* linear.c - y = act(x W^T + b) on packed weights, whose blocks of columns packed_linear.h describes.
 *
 * A task computes one rectangle of y, a block of rows by a block of columns: the product, whose sums begin with the
 * bias (kernel.h) and run in the order k = 0 .. in-1, or in steps of 32 (split products), and the activation. The bits
 * of each element depend only on its row of x and its row of W, so work may be divided into tasks in any way.
 *
 * A call may skip whole matrices of a stack or read only some inputs, so pruned heads cost no time. With few rows, a
 * call takes about as long as one sequential read of the packed weights, which is shorter for 8-bit and 16-bit weights.
 * Tiles multiply bf16 by bf16, and 8-bit weights are multiplied by 8-bit elements, so x is rounded first. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/linear/packed_linear.h"

enum { BLOCK_ROWS = 128 }; /* rows per task: x takes a few hundred KiB of the cache in addition to the weights */
/* The same with rounded x: the fewest rows, and the column blocks per task, whose weights fill a quarter of the level-2
 * cache, for more than half of these rows. */
enum { LEFT_BLOCK_ROWS = 64, LEFT_BLOCK_COLUMNS = 4 };
/* Columns per task with split products of more than SPLIT_ROWS rows: many, because each task splits its rows.
 * SPLIT_COLUMNS is halved while there are fewer than SPLIT_TASKS tasks. */
enum { SPLIT_COLUMNS = 1024, SPLIT_ROWS = 32, SPLIT_TASKS = 8 };
enum { TASKS_MIN = 32 }; /* tasks have more rows only if at least so many remain */
/* With at most FEW_ROWS rows, a task computes 1 / (SHARES * threads) of the remaining column blocks. Weights in long
 * ranges are read faster; the last ranges are single blocks, so that threads finish together (guided self-scheduling;
 * Polychronopoulos and Kuck 1987). Calls that skip parts use single blocks: a range could contain all other parts. */
enum { FEW_ROWS = 16, SHARES = 2 };
/* Rows that are multiplied by all columns before the next rows start. They take at most TOGETHER_BYTES of x (but at
 * least the rows of one task), so that x stays in the level-2 cache while all weights stream past. The limit does not
 * apply if x is rounded first, or if the weights exceed LARGE_WEIGHTS and come from memory: reading the weights then
 * costs more than reading x again. */
enum { ROWS_TOGETHER = 512, TOGETHER_BYTES = 1 << 20, LARGE_WEIGHTS = 32 << 20 };
/* Elements of y that are computed before they are rounded: whole panels of a task's rows. */
enum { ROUNDED_ELEMENTS = 8192 };
enum { LEFT_ROWS = 64 }; /* rows per task that rounds x */

typedef struct forward_job {
    const mha_linear *linear;
    const mha__linear_call *call;
    int64_t x_stride, y_stride, depth;
    int64_t left_stride;                        /* row stride of rounded x, in units of mha__dense.left_size */
    int64_t task_rows, row_blocks, task_blocks; /* rows per task, row blocks, column blocks per task */
    int64_t together;                           /* row blocks that are multiplied by all columns before others */
    int64_t height;                             /* rows that are multiplied by all blocks of a task at a time */
    int64_t shares;                             /* SHARES * threads with few rows, otherwise 0 */
    int64_t ranges;                             /* ranges of column blocks, one per task */
} forward_job;

/* Returns row `first` of rounded x. */
static void *left_row(const forward_job *job, int64_t first)
{
    return (char *)job->call->left + first * job->left_stride * job->linear->dense->left_size;
}

static void left_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const forward_job *job = arg;
    const int64_t first = i * LEFT_ROWS, rows = mha__min64(LEFT_ROWS, job->call->rows - first);
    job->linear->dense->left(rows, job->linear->in, (const float *)job->call->x + first * job->x_stride, job->x_stride,
                             left_row(job, first));
}

/* Returns the end of the range of column blocks that begins at `block`. */
static int64_t end_of_range(const forward_job *job, int64_t block)
{
    return block + mha__max64(1, (job->linear->blocks - block) / job->shares);
}

static int64_t count_ranges(const forward_job *job)
{
    int64_t count = 0;
    if (!job->shares) return mha__ceil_div(job->linear->blocks, job->task_blocks);
    for (int64_t block = 0; block < job->linear->blocks; block = end_of_range(job, block))
        count++;
    return count;
}

/* Computes the column blocks [first, end) of range i. */
static void find_range(const forward_job *job, int64_t i, int64_t *first, int64_t *end)
{
    *first = i * job->task_blocks;
    *end = mha__min64(job->linear->blocks, *first + job->task_blocks);
    if (!job->shares) return;
    for (*end = 0; i >= 0; i--)
        *first = *end, *end = end_of_range(job, *first);
}

/* Computes the first row and the column blocks [first, end) of task i. Among the tasks of `together` row blocks, row
 * blocks vary fastest, so that a thread reuses its weights. */
static void find_task(const forward_job *job, int64_t i, int64_t *row, int64_t *first, int64_t *end)
{
    const int64_t row_block = i / (job->together * job->ranges) * job->together;
    const int64_t rows = mha__min64(job->together, job->row_blocks - row_block);
    i -= row_block * job->ranges;
    *row = (row_block + i % rows) * job->task_rows;
    find_range(job, i / rows, first, end);
}

/* Returns the number of row blocks that are multiplied by all columns before others. */
static int64_t rows_together(const forward_job *job)
{
    const mha_linear *l = job->linear;
    const int64_t row_bytes = job->depth * (int64_t)l->kernels->real_size;
    const int64_t weights = l->out * mha__panel_bytes(l->kernels, l->dense, l->in) / l->kernels->nr;
    int64_t rows = ROWS_TOGETHER;
    if (!job->left_stride && weights <= LARGE_WEIGHTS) rows = mha__min64(rows, TOGETHER_BYTES / row_bytes);
    return mha__max64(1, rows / job->task_rows);
}

/* A rectangle of y, in place or in scratch memory: `rows` rows from `first`, `columns` columns from `column` of block
 * b. */
typedef struct piece {
    const mha__column_block *b;
    int64_t first, rows, column, columns;
    char *y;
    int64_t stride;
} piece;

/* Computes a product with f32 or f64 weights, added to the bias or to y. */
static void multiply(const forward_job *job, const piece *p)
{
    const mha_linear *l = job->linear;
    const size_t real = l->kernels->real_size;
    const char *x = (const char *)job->call->x + (size_t)(p->first * job->x_stride) * real;
    const char *bias = l->bias ? l->bias + (size_t)(p->b->column + p->column) * real : NULL;
    const bool accumulate = job->call->accumulate;
    const char *panels = p->b->panels + (size_t)(p->column * l->in + job->call->first * l->kernels->nr) * real;
    l->product(p->rows, p->columns, job->depth, x, job->x_stride, panels, l->in * l->kernels->nr,
               accumulate ? p->y : bias, accumulate ? p->stride : 0, p->y, p->stride);
}

/* Computes a product with bf16, f16 or q8_0 weights, added to the bias or to y. */
static void multiply_packed(const forward_job *job, const piece *p)
{
    const mha_linear *l = job->linear;
    const mha__dense *dense = l->dense;
    float *y = (float *)(void *)p->y;
    const float *bias = l->bias ? (const float *)(const void *)l->bias + p->b->column + p->column : NULL;
    const void *a =
        dense->left ? left_row(job, p->first) : (const void *)((const float *)job->call->x + p->first * job->x_stride);
    dense->product(p->rows, p->columns, l->in, a, dense->left ? job->left_stride : job->x_stride,
                   p->b->panels + p->column / l->kernels->nr * mha__panel_bytes(l->kernels, dense, l->in),
                   job->call->accumulate ? y : bias, job->call->accumulate ? p->stride : 0, y, p->stride);
}

static void compute(const forward_job *job, const piece *p)
{
    const mha_linear *l = job->linear;
    if (l->dense)
        multiply_packed(job, p);
    else
        multiply(job, p);
    for (int64_t r = 0; l->activation && !job->call->linear && r < p->rows; r++)
        l->activation((float *)(void *)p->y + r * p->stride, p->columns);
}

/* Computes `whole` in scratch memory, ROUNDED_ELEMENTS at a time, so that results are rounded while still in the
 * level-1 cache. */
static void round_strips(const forward_job *job, const piece *whole)
{
    const mha__kernels *kernels = job->linear->kernels;
    const mha__half type = job->call->rounded == MHA_BF16 ? MHA__BF16 : MHA__F16;
    _Alignas(64) float strip[ROUNDED_ELEMENTS];
    const int64_t width = ROUNDED_ELEMENTS / job->height;
    uint16_t *y = (uint16_t *)(void *)whole->y;
    piece p = *whole;
    p.y = (char *)strip;
    p.stride = width;
    for (; p.column < whole->columns; p.column += width) {
        p.columns = mha__min64(width, whole->columns - p.column);
        compute(job, &p);
        kernels->narrow[type](p.rows, p.columns, strip, width, y + p.column, whole->stride, 1);
    }
}

static void round_tiles(const forward_job *job, const piece *p)
{
    const mha_linear *l = job->linear;
    const float *bias = l->bias ? (const float *)(const void *)l->bias + p->b->column : NULL;
    l->dense->product_bf16(p->rows, p->columns, l->in, left_row(job, p->first), job->left_stride, p->b->panels, bias,
                           job->call->linear ? NULL : l->activation, (uint16_t *)(void *)p->y, p->stride);
}

/* Returns true if results need not be rounded in a separate pass. */
static bool stores_directly(const forward_job *job)
{
    const mha_dtype rounded = job->call->rounded;
    return !rounded || (rounded == MHA_BF16 && job->linear->dense && job->linear->dense->product_bf16);
}

/* Computes `rows` rows of a block. */
static void compute_rows(const forward_job *job, const mha__column_block *b, int64_t first, int64_t rows)
{
    const mha_linear *l = job->linear;
    const mha_dtype rounded = job->call->rounded;
    const int64_t at = first * job->y_stride + b->column - job->call->y_first;
    const size_t size = rounded ? sizeof(uint16_t) : l->kernels->real_size;
    const piece p = {.b = b,
                     .first = first,
                     .rows = rows,
                     .columns = b->columns,
                     .y = (char *)job->call->y + (size_t)at * size,
                     .stride = job->y_stride};
    if (!rounded)
        compute(job, &p);
    else if (stores_directly(job))
        round_tiles(job, &p);
    else
        round_strips(job, &p);
}

/* Returns block *n extended by the following blocks before `last` whose panels are adjacent in memory, and advances *n
 * past them. With `parts`, all of them are in one part. */
static mha__column_block adjacent(const mha_linear *l, const uint8_t *parts, int64_t last, int64_t *n)
{
    mha__column_block b = l->block[(*n)++];
    for (; *n < last && (!parts || l->block[*n].part == b.part); b.columns += l->block[(*n)++].columns)
        if (l->block[*n].panels !=
            b.panels + b.columns / l->kernels->nr * mha__panel_bytes(l->kernels, l->dense, l->in))
            break;
    return b;
}

static void forward_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const forward_job *job = arg;
    const mha__linear_call *call = job->call;
    const mha_linear *l = job->linear;
    int64_t row, block, last;
    find_task(job, i, &row, &block, &last);
    const int64_t end = mha__min64(call->rows, row + job->task_rows);
    if (l->dense && l->dense->open) l->dense->open();
    for (; row < end; row += job->height)
        for (int64_t n = block; n < last;) {
            const mha__column_block b = adjacent(l, call->parts, last, &n);
            if (!call->parts || call->parts[b.part]) compute_rows(job, &b, row, mha__min64(job->height, end - row));
        }
    if (l->dense && l->dense->close) l->dense->close();
}

static int64_t left_stride(const mha_linear *linear)
{
    return linear->dense && linear->dense->left ? mha__dense_left(linear->dense, linear->in) : 0;
}

void mha__linear_activate(const mha_linear *linear, int64_t count, float *x)
{
    mha__activate(linear->ctx, linear->activation, count, x);
}

size_t mha__linear_left(const mha_linear *linear, int64_t rows)
{
    size_t bytes = 0;
    const int64_t stride = left_stride(linear);
    if (!stride) return 0;
    const int64_t read = mha__round_up(rows, linear->dense->rows);
    const size_t size = (size_t)linear->dense->left_size;
    return mha__bytes((int64_t[]){read, stride}, 2, size, &bytes) ? bytes : SIZE_MAX;
}

size_t mha__linear_max_left(const mha_linear *const *linear, int count, int64_t rows)
{
    size_t max = 0;
    for (int n = 0; n < count; n++) {
        const size_t one = linear[n] ? mha__linear_left(linear[n], rows) : 0;
        if (one > max) max = one;
    }
    return max;
}

bool mha__linear_takes_bf16(const mha_linear *linear)
{
    return left_stride(linear) == linear->in && !linear->dense->group;
}

/* Divides a call with rounded x into tasks. */
static void divide_left(forward_job *job)
{
    const mha_linear *l = job->linear;
    const int64_t rows = job->call->rows;
    if (rows > LEFT_BLOCK_ROWS / 2) job->task_blocks = LEFT_BLOCK_COLUMNS;
    const int64_t columns = mha__ceil_div(l->blocks, job->task_blocks);
    int64_t height = l->dense->height;
    while (height > LEFT_BLOCK_ROWS && mha__ceil_div(rows, height) * columns < TASKS_MIN)
        height /= 2;
    job->height = stores_directly(job) ? height : mha__min64(height, LEFT_BLOCK_ROWS / 2);
    job->task_rows = mha__max64(height, LEFT_BLOCK_ROWS);
}

/* Divides a call with split products into tasks. */
static void divide_split(forward_job *job)
{
    const mha_linear *l = job->linear;
    const int64_t rows = job->call->rows;
    if (rows <= SPLIT_ROWS) return;
    job->task_blocks = mha__ceil_div(SPLIT_COLUMNS * l->blocks, l->out);
    while (job->task_blocks > 1 &&
           mha__ceil_div(rows, job->task_rows) * mha__ceil_div(l->blocks, job->task_blocks) < SPLIT_TASKS)
        job->task_blocks = job->task_blocks / 2;
}

void mha__linear_run(const mha_linear *linear, const mha__linear_call *call)
{
    const int64_t depth = call->depth ? call->depth : linear->in;
    forward_job job = {.linear = linear,
                       .call = call,
                       .x_stride = call->x_stride ? call->x_stride : depth,
                       .y_stride = call->y_stride ? call->y_stride : linear->out,
                       .depth = depth,
                       .left_stride = left_stride(linear),
                       .task_rows = BLOCK_ROWS,
                       .task_blocks = 1,
                       .height = BLOCK_ROWS};
    if (job.left_stride) divide_left(&job);
    if (linear->product == linear->kernels->product_split) divide_split(&job);
    if (call->rows <= FEW_ROWS && !call->parts) job.shares = SHARES * (int64_t)mha__threads(linear->ctx);
    job.ranges = count_ranges(&job);
    job.row_blocks = mha__ceil_div(call->rows, job.task_rows);
    job.together = rows_together(&job);
    if (job.left_stride && call->x) mha__parallel(linear->ctx, mha__ceil_div(call->rows, LEFT_ROWS), left_task, &job);
    mha__parallel(linear->ctx, job.row_blocks * job.ranges, forward_task, &job);
}

mha_status mha__linear_check(const mha_linear *linear, const void *x, int64_t rows, const void *y, mha_error *err)
{
    if (!linear) return mha__fail(err, MHA_ERR_ARG, "linear: the layer must not be NULL");
    if (rows < 0) return mha__fail(err, MHA_ERR_ARG, "linear: rows must be at least 0 (got %lld)", (long long)rows);
    size_t bytes = 0;
    if (!mha__bytes((int64_t[]){rows, mha__max64(linear->in, linear->out)}, 2, 2 * sizeof(float), &bytes))
        return mha__fail(err, MHA_ERR_ARG, "linear: rows must fit in memory (got %lld)", (long long)rows);
    if (rows && (!x || !y)) return mha__fail(err, MHA_ERR_ARG, "linear: %s must not be NULL", x ? "y" : "x");
    return MHA_OK;
}

mha_status mha_linear_forward(const mha_linear *linear, const float *x, int64_t rows, float *y, mha_error *err)
{
    const mha_status status = mha__linear_check(linear, x, rows, y, err);
    if (status != MHA_OK) return status;
    const size_t left_bytes = mha__linear_left(linear, rows);
    void *left = left_bytes ? mha__alloc(linear->ctx, left_bytes) : NULL;
    if (left_bytes && !left) return mha__no_memory(err, left_bytes, "the rounded input of a linear layer");
    mha__linear_run(linear, &(mha__linear_call){.x = x, .rows = rows, .y = y, .left = left});
    mha__free(linear->ctx, left);
    return MHA_OK;
}
