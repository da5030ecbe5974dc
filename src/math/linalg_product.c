/* linalg_product.c - computes X^T Y and X^T X of f32 rows in double, and sums of X^T X over runs of rows.
 *
 * BLOCK_ROWS rows at a time are converted into panels (linalg_tile.h) that all tasks share. Each task computes one
 * square of out. Sums over runs need no product of a single run in memory: a task computes one tile for all runs of the
 * block, and adds the tiles to one pile (fixed_sum.h). Only runs longer than a block store their tiles between
 * blocks. */
#include "base/ctx.h"
#include "base/size.h"
#include "math/linalg.h"
#include "math/linalg_tile.h"
#include <stdbool.h>
#include <string.h>

enum {
    BLOCK_ROWS = 128,
    SQUARE = 48
}; /* 2 panels of 48 columns take 96 KiB, so they fit in an L2 cache together with
                                         * a square of out */

typedef struct product product;
struct product {
    const mha__columns *x, *y; /* for X^T X, x and y are the same matrix, and only the squares of the lower triangle are
                                * computed */
    double *x_panels, *y_panels;
    int64_t first, rows; /* first row and row count of the current block */
    double *out;         /* for sums over runs, the unfinished tiles of a run: [n / TILE, n / TILE, TILE, TILE] */

    /* For sums over runs: */
    const int64_t *starts; /* [count + 1] */
    int64_t count, run;    /* run: the first run in the current block */
    mha__fixed *sums;      /* lower triangle */

    /* Computes the square at rows i and columns j of out or of the sums. */
    void (*square)(const product *p, int64_t i, int64_t j);
};

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
MHA__TILE_INLINE void add_square(const product *p, int64_t i, int64_t j)
{
    const int64_t n = p->y->count, i_end = mha__min64(i + SQUARE, p->x->count), j_end = mha__min64(j + SQUARE, n);
    for (int64_t r = i; r < i_end; r += MHA__TILE)
        for (int64_t c = j; c < j_end; c += MHA__TILE)
            mha__tile_add(p->rows, p->x_panels + r * p->rows, p->y_panels + c * p->rows,
                          mha__min64(MHA__TILE, i_end - r), mha__min64(MHA__TILE, j_end - c), p->out + r * n + c, n);
}

static void add_square_any(const product *p, int64_t i, int64_t j)
{
    add_square(p, i, j);
}

MHA__TILE_AVX2 static void add_square_avx2(const product *p, int64_t i, int64_t j)
{
    add_square(p, i, j);
}

static void square_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const product *p = arg;
    const int64_t across = mha__ceil_div(p->y->count, SQUARE);
    p->square(p, task / across * SQUARE, task % across * SQUARE);
}

/* Adds the products of one square of the lower triangle. Squares are numbered row by row: square (r, c) has index r (r
 * + 1) / 2 + c. */
static void lower_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const product *p = arg;
    int64_t r = 0;
    for (; task > r; r++)
        task -= r + 1;
    p->square(p, r * SQUARE, task * SQUARE);
}

static void mirror(int64_t n, double *out)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < r; c++)
            out[c * n + r] = out[r * n + c];
}

static int64_t panel_elements(const mha__columns *x)
{
    return mha__round_up(x->count, MHA__TILE) * BLOCK_ROWS;
}

static mha_status run(mha_ctx *ctx, int64_t rows, product *p, bool lower, mha_error *err)
{
    const int64_t x_elements = panel_elements(p->x), y_elements = lower ? 0 : panel_elements(p->y);
    if (rows < 1 || p->x->count < 1 || p->y->count < 1) return MHA_OK;
    const size_t bytes = (size_t)(x_elements + y_elements) * sizeof(double);
    p->x_panels = mha__alloc(ctx, bytes);
    if (!p->x_panels) return mha__no_memory(err, bytes, "a product of columns");
    p->square = mha__ctx_isa(ctx) >= MHA__AVX2 ? add_square_avx2 : add_square_any;
    p->y_panels = lower ? p->x_panels : p->x_panels + x_elements;
    const int64_t down = mha__ceil_div(p->x->count, SQUARE), across = mha__ceil_div(p->y->count, SQUARE);
    for (p->first = 0; p->first < rows; p->first += BLOCK_ROWS) {
        p->rows = mha__min64(BLOCK_ROWS, rows - p->first);
        mha__parallel(ctx, (x_elements + y_elements) / BLOCK_ROWS / MHA__TILE, widen_task, p);
        mha__parallel(ctx, lower ? mha__triangle(down) : down * across, lower ? lower_task : square_task, p);
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

/* ---- sums over runs ---- */

/* The tiles at rows r and columns c of the products. */
typedef struct tile {
    int64_t r, c;
    double *unfinished; /* the tile of a run that continues in the next block */
    mha__pile pile;
} tile;

static void add_to_sums(const product *p, const tile *t, const double *values)
{
    const int64_t n = p->x->count;
    for (int i = 0; i < MHA__PILE; i++) {
        const int64_t r = t->r + i / MHA__TILE, c = t->c + i % MHA__TILE;
        mha__fixed *to = p->sums + mha__triangle(r) + c;
        if (r >= n || c > r) continue; /* padding, or above the diagonal */
        if (values)
            mha__fixed_add(to, values[i]);
        else
            mha__pile_read(&t->pile, i, to);
    }
}

/* Adds the product of the rows of one run that are in the current block. */
MHA__TILE_INLINE void add_run(const product *p, tile *t, int64_t run)
{
    const int64_t first = mha__max64(p->starts[run], p->first) - p->first;
    const int64_t end = mha__min64(p->starts[run + 1] - p->first, p->rows);
    double values[MHA__PILE] = {0};
    if (p->starts[run] < p->first) memcpy(values, t->unfinished, sizeof values);
    mha__tile_add(end - first, p->x_panels + t->r * p->rows + first * MHA__TILE,
                  p->x_panels + t->c * p->rows + first * MHA__TILE, MHA__TILE, MHA__TILE, values, MHA__TILE);
    if (p->starts[run + 1] > p->first + p->rows)
        memcpy(t->unfinished, values, sizeof values);
    else if (!mha__pile_add(&t->pile, values))
        add_to_sums(p, t, values);
}

MHA__TILE_INLINE void add_runs(const product *p, int64_t r, int64_t c)
{
    const int64_t across = mha__ceil_div(p->x->count, MHA__TILE);
    tile t = {.r = r, .c = c};
    if (p->out) t.unfinished = p->out + (r / MHA__TILE * across + c / MHA__TILE) * MHA__PILE;
    for (int64_t run = p->run; run < p->count && p->starts[run] < p->first + p->rows; run++)
        if (p->starts[run] < p->starts[run + 1]) add_run(p, &t, run);
    add_to_sums(p, &t, NULL);
}

MHA__TILE_INLINE void add_runs_square(const product *p, int64_t i, int64_t j)
{
    const int64_t i_end = mha__min64(i + SQUARE, p->x->count), j_end = mha__min64(j + SQUARE, p->x->count);
    for (int64_t r = i; r < i_end; r += MHA__TILE)
        for (int64_t c = j; c < j_end && c <= r; c += MHA__TILE)
            add_runs(p, r, c);
}

static void add_runs_any(const product *p, int64_t i, int64_t j)
{
    add_runs_square(p, i, j);
}

MHA__TILE_AVX2 static void add_runs_avx2(const product *p, int64_t i, int64_t j)
{
    add_runs_square(p, i, j);
}

/* Sets the next block: as many whole runs as fit, or BLOCK_ROWS rows of a longer run. */
static void next_block(product *p)
{
    const int64_t max = p->first + BLOCK_ROWS;
    int64_t end = p->first;
    while (p->starts[p->run + 1] <= p->first)
        p->run++;
    for (int64_t run = p->run; run < p->count && p->starts[run + 1] <= max; run++)
        end = p->starts[run + 1];
    p->rows = (end > p->first ? end : max) - p->first;
}

/* Returns the number of elements of the unfinished tiles: 0 if every run fits in one block. */
static int64_t unfinished_elements(const product *p)
{
    const int64_t across = mha__ceil_div(p->x->count, MHA__TILE);
    for (int64_t run = 0; run < p->count; run++)
        if (p->starts[run + 1] - p->starts[run] > BLOCK_ROWS) return across * across * MHA__PILE;
    return 0;
}

mha_status mha__gram_runs(mha_ctx *ctx, const int64_t *starts, int64_t count, const mha__columns *x, mha__fixed *to,
                          mha_error *err)
{
    product p = {.x = x, .y = x, .starts = starts, .count = count, .sums = to};
    p.square = mha__ctx_isa(ctx) >= MHA__AVX2 ? add_runs_avx2 : add_runs_any;
    const int64_t elements = panel_elements(x), down = mha__ceil_div(x->count, SQUARE), rest = unfinished_elements(&p);
    if (x->count < 1 || starts[0] == starts[count]) return MHA_OK;
    const size_t bytes = (size_t)(elements + rest) * sizeof(double);
    p.x_panels = mha__alloc(ctx, bytes);
    if (!p.x_panels) return mha__no_memory(err, bytes, "a product of columns");
    if (rest) p.out = p.x_panels + elements;
    for (p.first = starts[0]; p.first < starts[count]; p.first += p.rows) {
        next_block(&p);
        mha__parallel(ctx, elements / BLOCK_ROWS / MHA__TILE, widen_task, &p);
        mha__parallel(ctx, mha__triangle(down), lower_task, &p);
    }
    mha__free(ctx, p.x_panels);
    return MHA_OK;
}
