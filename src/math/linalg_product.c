/* linalg_product.c - computes X^T Y and X^T X of f32 rows in double.
 *
 * BLOCK_ROWS rows at a time are converted into panels (linalg_tile.h) that all tasks share. Each task computes one
 * square of out. */
#include "math/linalg.h"

#include <stdbool.h>

#include "base/ctx.h"
#include "base/size.h"
#include "math/linalg_tile.h"

enum {
    BLOCK_ROWS = 128,
    SQUARE = 48
}; /* 2 panels of 48 columns take 96 KiB, so they fit in an L2 cache together with
                                         * a square of out */

typedef struct product {
    const mha__columns *x, *y; /* for X^T X, x and y are the same matrix, and only the squares of the lower triangle are
                                * computed */
    double *x_panels, *y_panels;
    int64_t first, rows; /* first row and row count of the current block */
    double *out;
} product;

static void widen_panel(const mha__columns *x, int64_t first, int64_t rows, int64_t panel, double *to)
{
    to += panel * rows * MHA__TILE;
    for (int j = 0; j < MHA__TILE; j++) {
        const int64_t column = panel * MHA__TILE + j;
        const float *from = x->data + first * x->row + column * x->column;
        for (int64_t r = 0; r < rows; r++)
            to[r * MHA__TILE + j] = column < x->count ? (double)from[r * x->row] : 0;
    }
}

static void widen_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const product *p = arg;
    const int64_t panels = mha__ceil_div(p->x->count, MHA__TILE);
    if (i < panels)
        widen_panel(p->x, p->first, p->rows, i, p->x_panels);
    else
        widen_panel(p->y, p->first, p->rows, i - panels, p->y_panels);
}

/* Adds the products of the current rows to the square of out at (i, j). Rows of out correspond to columns of x, columns
 * of out to columns of y. */
static void add_square(const product *p, int64_t i, int64_t j)
{
    const int64_t n = p->y->count, i_end = mha__min64(i + SQUARE, p->x->count), j_end = mha__min64(j + SQUARE, n);
    for (int64_t r = i; r < i_end; r += MHA__TILE)
        for (int64_t c = j; c < j_end; c += MHA__TILE)
            mha__tile_add(p->rows, p->x_panels + r * p->rows, p->y_panels + c * p->rows,
                          mha__min64(MHA__TILE, i_end - r), mha__min64(MHA__TILE, j_end - c), p->out + r * n + c, n);
}

static void square_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const product *p = arg;
    const int64_t across = mha__ceil_div(p->y->count, SQUARE);
    add_square(p, task / across * SQUARE, task % across * SQUARE);
}

/* Adds the products of one square of the lower triangle. Squares are numbered row by row: square (r, c) has index r (r
 * + 1) / 2 + c. */
static void lower_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    int64_t r = 0;
    for (; task > r; r++)
        task -= r + 1;
    add_square(arg, r * SQUARE, task * SQUARE);
}

static void mirror(int64_t n, double *out)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < r; c++)
            out[c * n + r] = out[r * n + c];
}

static int64_t panel_numbers(const mha__columns *x)
{
    return mha__round_up(x->count, MHA__TILE) * BLOCK_ROWS;
}

static mha_status run(mha_ctx *ctx, int64_t rows, product *p, bool lower, mha_error *err)
{
    const int64_t x_numbers = panel_numbers(p->x), y_numbers = lower ? 0 : panel_numbers(p->y);
    if (rows < 1 || p->x->count < 1 || p->y->count < 1) return MHA_OK;
    const size_t bytes = (size_t)(x_numbers + y_numbers) * sizeof(double);
    p->x_panels = mha__alloc(ctx, bytes);
    if (!p->x_panels) return mha__no_memory(err, bytes, "a product of columns");
    p->y_panels = lower ? p->x_panels : p->x_panels + x_numbers;
    const int64_t down = mha__ceil_div(p->x->count, SQUARE), across = mha__ceil_div(p->y->count, SQUARE);
    for (p->first = 0; p->first < rows; p->first += BLOCK_ROWS) {
        p->rows = mha__min64(BLOCK_ROWS, rows - p->first);
        mha__parallel(ctx, (x_numbers + y_numbers) / BLOCK_ROWS / MHA__TILE, widen_task, p);
        mha__parallel(ctx, lower ? down * (down + 1) / 2 : down * across, lower ? lower_task : square_task, p);
    }
    mha__free(ctx, p->x_panels);
    return MHA_OK;
}

mha_status mha__gram_cross(mha_ctx *ctx, int64_t rows, const mha__columns *x, const mha__columns *y, double *out,
                           mha_error *err)
{
    product p = {.x = x, .y = y, .out = out};
    return run(ctx, rows, &p, false, err);
}

mha_status mha__gram(mha_ctx *ctx, int64_t rows, const mha__columns *x, double *out, mha_error *err)
{
    product p = {.x = x, .y = x, .out = out};
    const mha_status status = run(ctx, rows, &p, true, err);
    if (status == MHA_OK) mirror(x->count, out);
    return status;
}
