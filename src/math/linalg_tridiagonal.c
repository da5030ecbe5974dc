/* linalg_tridiagonal.c - reduces a symmetric matrix to tridiagonal form by Householder reflections, and computes the
 * product of the reflections.
 *
 * Reflection k is I - v v^T with |v|^2 = 2. It zeroes the elements of row k after the superdiagonal, and v is stored in
 * their place. The trailing matrix S, rows and columns from k + 1 on, becomes S - v w^T - w v^T with w = p - (p . v /
 * 2) v and p = S v. This update is deferred until the next reflection is known: a single pass over S then applies the
 * update and computes the next p. S does not fit in the caches, so it should be read only once per reflection. */
#include "math/linalg_tridiagonal.h"

#include "base/ctx.h"
#include "base/size.h"
#include "math/linalg.h"
#include <math.h>
#include <string.h>

enum { ROWS = 16 }; /* rows per task */

typedef struct reduction {
    int64_t n, k;
    double *a, *q;
    const double *v, *w; /* [n] vectors of reflection k - 1, whose update is pending; NULL before the first
                          * reflection */
    double *p;           /* [n] p = S v of reflection k */
} reduction;

/* Applies the pending update to row i of S, from column `first` on. */
static void change_row(const reduction *r, int64_t i, int64_t first)
{
    double *row = r->a + i * r->n;
    if (!r->v) return;
    for (int64_t j = first; j < r->n; j++)
        row[j] -= r->v[i] * r->w[j] + r->w[i] * r->v[j];
}

/* Updates ROWS rows of S and multiplies them by the new v, which is stored in row k. */
static void pass_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const reduction *r = arg;
    const int64_t first = r->k + 1, start = first + task * ROWS, end = mha__min64(start + ROWS, r->n);
    const double *v = r->a + r->k * r->n + first;
    for (int64_t i = start; i < end; i++) {
        change_row(r, i, first);
        r->p[i] = mha__dot(r->n - first, r->a + i * r->n + first, v);
    }
}

/* Replaces x [count] with the reflection vector v and returns the reflected x[0]. If v is zero, the reflection is the
 * identity. */
static double reflect(int64_t count, double *x)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(x[i]));
    if (largest == 0) return 0;
    for (int64_t i = 0; i < count; i++)
        x[i] /= largest; /* prevents overflow and underflow of the squares */
    const double length = sqrt(mha__dot(count, x, x)), to = copysign(length, -x[0]);
    /* |x - to e|^2 = 2 length (length + |x0|), where e is the first unit vector */
    const double scale = 1 / sqrt(length * (length + fabs(x[0])));
    x[0] -= to;
    for (int64_t i = 0; i < count; i++)
        x[i] *= scale;
    return to * largest;
}

static void reduce(mha_ctx *ctx, reduction *r, double *d, double *e, double *v, double *w)
{
    const int64_t n = r->n;
    for (r->k = 0; r->k < n; r->k++) {
        const int64_t k = r->k, left = n - k - 1;
        double *row = r->a + k * n;
        change_row(r, k, k);
        d[k] = row[k];
        e[k] = left > 0 ? row[k + 1] : 0;
        if (left < 2) continue; /* the last two rows are already tridiagonal */
        e[k] = reflect(left, row + k + 1);
        mha__parallel(ctx, mha__ceil_div(left, ROWS), pass_task, r);
        memcpy(v + k + 1, row + k + 1, (size_t)left * sizeof *v);
        const double half = mha__dot(left, r->p + k + 1, v + k + 1) / 2;
        for (int64_t i = k + 1; i < n; i++)
            w[i] = r->p[i] - half * v[i];
        r->v = v, r->w = w;
    }
}

/* Computes rows of Q^T = ... H_1 H_0. Reflections i and later leave row i of the identity unchanged, so only earlier
 * reflections are applied to it. */
static void product_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const reduction *r = arg;
    const int64_t n = r->n, start = task * ROWS, end = mha__min64(start + ROWS, n);
    memset(r->q + start * n, 0, (size_t)((end - start) * n) * sizeof *r->q);
    for (int64_t i = start; i < end; i++)
        r->q[i * n + i] = 1;
    for (int64_t k = mha__min64(end, n - 1) - 2; k >= 0; k--) {
        const double *v = r->a + k * n + k + 1;
        for (int64_t i = mha__max64(start, k + 1); i < end; i++) {
            double *row = r->q + i * n + k + 1;
            const double part = mha__dot(n - k - 1, row, v);
            for (int64_t j = 0; j < n - k - 1; j++)
                row[j] -= part * v[j];
        }
    }
}

void mha__tridiagonal(mha_ctx *ctx, int64_t n, double *a, double *d, double *e, double *q, double *scratch)
{
    reduction r = {.n = n, .a = a, .q = q, .p = scratch};
    reduce(ctx, &r, d, e, scratch + n, scratch + 2 * n);
    mha__parallel(ctx, mha__ceil_div(n, ROWS), product_task, &r);
}
