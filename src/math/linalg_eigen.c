/* linalg_eigen.c - computes the eigenvectors of a symmetric matrix: Householder reduction (linalg_tridiagonal.c), then
 * the QL method with implicit shifts (Bowdler, Martin, Reinsch and Wilkinson 1968; Golub and Van Loan, chapter 8).
 *
 * QL operates on the tridiagonal matrix only. Its rotations are recorded for several sweeps and then applied to the
 * vectors in one pass. The columns of Q^T are independent, so each task processes a block of columns that fits in an L2
 * cache. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "math/linalg.h"
#include "math/linalg_tridiagonal.h"
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { SWEEPS = 32, COLUMNS = 64, TRIES = 60 }; /* TRIES: maximum sweeps per eigenvalue; the average is 2 */

typedef struct sweep {
    int64_t last, count; /* rotations of rows (last, last + 1), (last - 1, last), ... */
} sweep;

typedef struct ql {
    int64_t n;
    double *d, *e, *vectors;
    double floor;          /* off-diagonal elements up to this magnitude (the matrix's rounding error) count as 0 */
    double (*rotation)[2]; /* [SWEEPS * n] cosine and sine per rotation */
    sweep sweeps[SWEEPS];
    int64_t sweep_count, rotation_count;
} ql;

static void rotate(int64_t count, double c, double s, double *low, double *high)
{
    for (int64_t i = 0; i < count; i++) {
        const double a = low[i], b = high[i];
        high[i] = s * a + c * b;
        low[i] = c * a - s * b;
    }
}

static void rotate_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const ql *q = arg;
    const int64_t first = task * COLUMNS, width = mha__min64(COLUMNS, q->n - first);
    const double(*r)[2] = (const double(*)[2])q->rotation;
    for (int64_t s = 0; s < q->sweep_count; s++) {
        double *row = q->vectors + q->sweeps[s].last * q->n + first;
        for (int64_t i = 0; i < q->sweeps[s].count; i++, r++, row -= q->n)
            rotate(width, (*r)[0], (*r)[1], row, row + q->n);
    }
}

static void apply(mha_ctx *ctx, ql *q)
{
    mha__parallel(ctx, mha__ceil_div(q->n, COLUMNS), rotate_task, q);
    q->sweep_count = q->rotation_count = 0;
}

/* Performs one implicit QL sweep over rows l to m, which are not coupled to other rows: moves the bulge that the shift
 * creates from row m up to row l. */
static void sweep_block(ql *q, int64_t l, int64_t m)
{
    double *d = q->d, *e = q->e;
    const double slope = (d[l + 1] - d[l]) / (2 * e[l]);
    const double shift = d[l] - e[l] / (slope + copysign(hypot(slope, 1), slope));
    double c = 1, s = 1, moved = 0, g = d[m] - shift;
    sweep *written = &q->sweeps[q->sweep_count++];
    *written = (sweep){m - 1, 0};
    for (int64_t i = m - 1; i >= l; i--) {
        const double f = s * e[i], b = c * e[i], r = hypot(f, g);
        e[i + 1] = r;
        if (r == 0) { /* the block splits here */
            d[i + 1] -= moved;
            e[m] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - moved;
        const double t = (d[i] - g) * s + 2 * c * b;
        moved = s * t;
        d[i + 1] = g + moved;
        g = c * t - b;
        double *rotation = q->rotation[q->rotation_count++];
        rotation[0] = c;
        rotation[1] = s;
        written->count++;
    }
    d[l] -= moved;
    e[l] = g;
    e[m] = 0;
}

/* Returns the last row of the block that begins with row l. */
static int64_t block_end(const ql *q, int64_t l)
{
    int64_t m = l;
    while (m + 1 < q->n && fabs(q->e[m]) > DBL_EPSILON / 2 * (fabs(q->d[m]) + fabs(q->d[m + 1])) + q->floor)
        m++;
    return m;
}

/* Returns an absolute threshold for off-diagonal elements. A threshold relative to the neighboring diagonal elements
 * may never be reached: in a rank-deficient matrix, these are rounding errors too. */
static double floor_of(const ql *q)
{
    double most = 0;
    for (int64_t i = 0; i < q->n; i++)
        most = fmax(most, fabs(q->d[i]) + (i + 1 < q->n ? fabs(q->e[i]) : 0));
    return fmax(DBL_EPSILON / 2 * most, DBL_MIN);
}

static bool find_values(mha_ctx *ctx, ql *q)
{
    q->floor = floor_of(q);
    for (int64_t l = 0; l < q->n; l++) {
        int64_t m;
        for (int tries = 0; (m = block_end(q, l)) > l; tries++) {
            if (tries == TRIES) return false;
            if (q->sweep_count == SWEEPS) apply(ctx, q);
            sweep_block(q, l, m);
        }
        if (!isfinite(q->d[l])) return false;
    }
    apply(ctx, q);
    return true;
}

/* Sorts eigenvalues and vectors by ascending eigenvalue, with at most one swap per position. */
static void sort(ql *q)
{
    for (int64_t i = 0; i + 1 < q->n; i++) {
        int64_t least = i;
        for (int64_t j = i + 1; j < q->n; j++)
            if (q->d[j] < q->d[least]) least = j;
        if (least == i) continue;
        const double value = q->d[i];
        q->d[i] = q->d[least];
        q->d[least] = value;
        double *a = q->vectors + i * q->n, *b = q->vectors + least * q->n;
        for (int64_t k = 0; k < q->n; k++) {
            const double x = a[k];
            a[k] = b[k];
            b[k] = x;
        }
    }
}

/* Copies the lower triangle to the upper triangle. Returns false if an element is not finite. */
static bool read_lower(int64_t n, double *a)
{
    bool finite = true;
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c <= r; c++) {
            finite = finite && isfinite(a[r * n + c]);
            a[c * n + r] = a[r * n + c];
        }
    return finite;
}

mha_status mha__symmetric_eigen(mha_ctx *ctx, int64_t n, double *a, double *values, double *vectors, mha_error *err)
{
    if (n < 1) return MHA_OK;
    const size_t numbers = (size_t)(4 + 2 * SWEEPS) * (size_t)n, bytes = numbers * sizeof(double);
    double *memory = mha__alloc(ctx, bytes);
    if (!memory) return mha__no_memory(err, bytes, "eigenvectors");
    ql q = {.n = n, .d = values, .e = memory, .vectors = vectors, .rotation = (double(*)[2])(memory + 4 * n)};
    bool done = read_lower(n, a);
    if (done) {
        mha__tridiagonal(ctx, n, a, q.d, q.e, vectors, memory + n);
        done = find_values(ctx, &q);
    }
    mha__free(ctx, memory);
    if (!done)
        return mha__fail(err, MHA_ERR_NOT_FINITE,
                         "matrix of %lld x %lld must have finite elements that are not too large", (long long)n,
                         (long long)n);
    sort(&q);
    return MHA_OK;
}
