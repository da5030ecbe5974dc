/* linalg_cholesky.c - computes the factorization a = L L^T by blocks of columns, and solves the two triangular systems.
 *
 * Each step completes one block of columns: first the square on the diagonal, then the rows below it, which are
 * independent. The register tile (linalg_tile.h) then subtracts the product of the block with its transpose from the
 * columns to its right. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "math/linalg.h"
#include "math/linalg_tile.h"
#include <float.h>
#include <math.h>

enum { BLOCK = 48, SOLVE_COLUMNS = 64 };

typedef struct factor {
    int64_t n;
    double *a;
    int64_t first, width; /* the current block of columns */
    double *minus, *plus; /* panels of the rows below the block: -L and L */
} factor;

/* Factors the square on the diagonal. Returns the index of a row whose pivot is too small or not finite, or -1. */
static int64_t factor_square(const factor *f, const double *diagonal)
{
    const double tiny = (double)f->n * DBL_EPSILON;
    for (int64_t i = f->first; i < f->first + f->width; i++) {
        double *row = f->a + i * f->n;
        for (int64_t j = f->first; j <= i; j++) {
            const double *other = f->a + j * f->n;
            double x = row[j];
            for (int64_t k = f->first; k < j; k++)
                x -= row[k] * other[k];
            if (j < i)
                row[j] = x / other[j];
            else if (!(x > tiny * diagonal[i] && x <= DBL_MAX))
                return i;
            else
                row[i] = sqrt(x);
        }
    }
    return -1;
}

/* Computes L in a panel of rows below the square on the diagonal. */
static void finish_task(void *arg, int64_t panel, int worker)
{
    (void)worker;
    const factor *f = arg;
    const int64_t below = f->first + f->width, start = below + panel * MHA__TILE;
    for (int r = 0; r < MHA__TILE; r++) {
        double *minus = f->minus + panel * f->width * MHA__TILE + r, *plus = f->plus + (minus - f->minus);
        double *row = start + r < f->n ? f->a + (start + r) * f->n : NULL;
        for (int64_t j = 0; j < f->width; j++) {
            double x = 0;
            if (row) {
                const double *other = f->a + (f->first + j) * f->n + f->first, *mine = row + f->first;
                x = mine[j];
                for (int64_t k = 0; k < j; k++)
                    x -= mine[k] * other[k];
                row[f->first + j] = x /= other[j];
            }
            minus[j * MHA__TILE] = -x;
            plus[j * MHA__TILE] = x;
        }
    }
}

/* Subtracts the product of the current block of columns with its transpose from BLOCK rows below it, up to and
 * including the tiles on the diagonal. */
static void update_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const factor *f = arg;
    const int64_t below = f->first + f->width, left = f->n - below, k = f->width;
    const int64_t start = task * BLOCK, end = mha__min64(start + BLOCK, left);
    for (int64_t i = start; i < end; i += MHA__TILE)
        for (int64_t j = 0; j <= i; j += MHA__TILE)
            mha__tile_add(k, f->minus + i * k, f->plus + j * k, mha__min64(MHA__TILE, left - i),
                          mha__min64(MHA__TILE, left - j), f->a + (below + i) * f->n + below + j, f->n);
}

static mha_status factor_blocks(mha_ctx *ctx, factor *f, const double *diagonal, mha_error *err)
{
    for (f->first = 0; f->first < f->n; f->first += f->width) {
        f->width = mha__min64(BLOCK, f->n - f->first);
        const int64_t bad = factor_square(f, diagonal), left = f->n - f->first - f->width;
        if (bad >= 0)
            return mha__fail(err, isfinite(diagonal[bad]) ? MHA_ERR_ARG : MHA_ERR_NOT_FINITE,
                             "matrix of %lld rows must be positive definite (got pivot %lld = %g)", (long long)f->n,
                             (long long)bad, diagonal[bad]);
        mha__parallel(ctx, mha__ceil_div(left, MHA__TILE), finish_task, f);
        mha__parallel(ctx, mha__ceil_div(left, BLOCK), update_task, f);
    }
    return MHA_OK;
}

mha_status mha__cholesky(mha_ctx *ctx, int64_t n, double *a, mha_error *err)
{
    if (n < 1) return MHA_OK;
    const size_t panel = (size_t)mha__round_up(n, MHA__TILE) * BLOCK, bytes = (2 * panel + (size_t)n) * sizeof(double);
    double *memory = mha__alloc(ctx, bytes);
    if (!memory) return mha__no_memory(err, bytes, "a Cholesky factor");
    double *diagonal = memory + 2 * panel;
    for (int64_t i = 0; i < n; i++)
        diagonal[i] = a[i * n + i];
    factor f = {.n = n, .a = a, .minus = memory, .plus = memory + panel};
    const mha_status status = factor_blocks(ctx, &f, diagonal, err);
    mha__free(ctx, memory);
    return status;
}

/* ---- solving L L^T x = b ---- */

typedef struct solve {
    int64_t n, columns;
    const double *l;
    double *b;
} solve;

/* Subtracts from `row` the sum of factors[k stride] b[k] for k in [from, to), four rows of b at a time. */
static void subtract(const solve *s, int64_t from, int64_t to, const double *factors, int64_t stride, int64_t column,
                     int64_t width, double *row)
{
    int64_t k = from;
    for (; k + 4 <= to; k += 4) {
        const double *b = s->b + k * s->columns + column, *f = factors + k * stride;
        const double f0 = f[0], f1 = f[stride], f2 = f[2 * stride], f3 = f[3 * stride];
        for (int64_t c = 0; c < width; c++)
            row[c] =
                row[c] - f0 * b[c] - f1 * b[s->columns + c] - f2 * b[2 * s->columns + c] - f3 * b[3 * s->columns + c];
    }
    for (; k < to; k++)
        for (int64_t c = 0; c < width; c++)
            row[c] -= factors[k * stride] * s->b[k * s->columns + column + c];
}

/* Solves for one block of columns of b: forward substitution with L, then back substitution with L^T. */
static void solve_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const solve *s = arg;
    const int64_t column = task * SOLVE_COLUMNS, width = mha__min64(SOLVE_COLUMNS, s->columns - column), n = s->n;
    for (int64_t i = 0; i < n; i++) {
        double *row = s->b + i * s->columns + column;
        subtract(s, 0, i, s->l + i * n, 1, column, width, row);
        for (int64_t c = 0; c < width; c++)
            row[c] /= s->l[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        double *row = s->b + i * s->columns + column;
        subtract(s, i + 1, n, s->l + i, n, column, width, row);
        for (int64_t c = 0; c < width; c++)
            row[c] /= s->l[i * n + i];
    }
}

void mha__cholesky_solve(mha_ctx *ctx, int64_t n, const double *l, int64_t columns, double *b)
{
    solve s = {.n = n, .columns = columns, .l = l, .b = b};
    mha__parallel(ctx, mha__ceil_div(columns, SOLVE_COLUMNS), solve_task, &s);
}
