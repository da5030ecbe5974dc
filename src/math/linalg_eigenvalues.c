/* linalg_eigenvalues.c - computes the eigenvalues of a general real matrix: Householder reduction to Hessenberg form,
 * then QR with implicit double shifts (Francis 1961; Golub and Van Loan, chapter 7). */
#include "base/size.h"
#include "math/linalg.h"
#include <float.h>
#include <math.h>

enum { TRIES = 60, UNUSUAL = 10 }; /* maximum steps per eigenvalue; steps between two exceptional shifts */

/* The reflection I - scale v v^T, whose vector has up to three elements. */
typedef struct reflection {
    double v[3], scale;
} reflection;

/* Returns the reflection that maps x to a multiple of the first unit vector; scale 0 for x = 0. */
static reflection reflection_of(int count, const double x[3])
{
    const double norm = hypot(hypot(x[0], x[1]), count == 3 ? x[2] : 0);
    reflection r = {{x[0] + copysign(norm, x[0]), x[1], count == 3 ? x[2] : 0}, 0};
    if (norm == 0) return r;
    for (int i = 2; i >= 0; i--)
        r.v[i] /= r.v[0]; /* r.v[0] last */
    r.scale = 2 / (1 + r.v[1] * r.v[1] + r.v[2] * r.v[2]);
    return r;
}

/* Applies the reflection to `count` elements of a at the distance `stride`. */
static void reflect(const reflection *r, int count, double *a, int64_t stride)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += r->v[i] * a[i * stride];
    for (int i = 0; i < count; i++)
        a[i * stride] -= r->scale * sum * r->v[i];
}

/* ---- Hessenberg form ---- */

/* Sets v [n - k - 1] to the vector of the reflection that clears column k below row k + 1, and returns its scale. */
static double column_reflection(int64_t n, int64_t k, const double *a, double *v)
{
    double norm = 0;
    for (int64_t i = k + 1; i < n; i++) {
        v[i - k - 1] = a[i * n + k];
        norm = hypot(norm, v[i - k - 1]);
    }
    if (norm == 0) return 0;
    v[0] += copysign(norm, v[0]);
    const double squared = mha__dot(n - k - 1, v, v);
    return squared > 0 ? 2 / squared : 0;
}

static void hessenberg(int64_t n, double *a, double *v)
{
    for (int64_t k = 0; k + 2 < n; k++) {
        const double scale = column_reflection(n, k, a, v);
        for (int64_t c = k; c < n; c++) {
            double sum = 0;
            for (int64_t i = k + 1; i < n; i++)
                sum += v[i - k - 1] * a[i * n + c];
            for (int64_t i = k + 1; i < n; i++)
                a[i * n + c] -= scale * sum * v[i - k - 1];
        }
        for (int64_t r = 0; r < n; r++) {
            const double sum = scale * mha__dot(n - k - 1, v, a + r * n + k + 1);
            for (int64_t i = k + 1; i < n; i++)
                a[r * n + i] -= sum * v[i - k - 1];
        }
        for (int64_t i = k + 2; i < n; i++)
            a[i * n + k] = 0;
    }
}

/* ---- QR steps on the block of rows and columns l to m ---- */

typedef struct qr {
    int64_t n;
    double *a;
    double floor; /* subdiagonal elements up to this magnitude (the matrix's rounding error) count as 0 */
} qr;

static double at(const qr *q, int64_t r, int64_t c)
{
    return q->a[r * q->n + c];
}

/* Sets x to the first column of (A - s1 I) (A - s2 I) for the eigenvalues s1, s2 of the last two rows of the block. */
static void first_column(const qr *q, int64_t l, int64_t m, int tries, double x[3])
{
    double sum = at(q, m - 1, m - 1) + at(q, m, m);
    double product = at(q, m - 1, m - 1) * at(q, m, m) - at(q, m - 1, m) * at(q, m, m - 1);
    if (tries % UNUSUAL == UNUSUAL - 1) { /* breaks cycles of the usual shifts */
        const double size = fabs(at(q, m, m - 1)) + fabs(at(q, m - 1, m - 2));
        sum = 1.5 * size;
        product = size * size;
    }
    x[0] = at(q, l, l) * (at(q, l, l) - sum) + at(q, l, l + 1) * at(q, l + 1, l) + product;
    x[1] = at(q, l + 1, l) * (at(q, l, l) + at(q, l + 1, l + 1) - sum);
    x[2] = at(q, l + 1, l) * at(q, l + 2, l + 1);
}

/* Performs one step on a block of at least three rows: moves the bulge that the shifts create down the diagonal. */
static void step(const qr *q, int64_t l, int64_t m, int tries)
{
    double x[3];
    first_column(q, l, m, tries, x);
    for (int64_t k = l; k < m; k++) {
        const int count = k + 2 <= m ? 3 : 2;
        const reflection r = reflection_of(count, x);
        for (int64_t c = mha__max64(l, k - 1); c <= m; c++)
            reflect(&r, count, q->a + k * q->n + c, q->n);
        for (int64_t i = l; i <= mha__min64(k + 3, m); i++)
            reflect(&r, count, q->a + i * q->n + k, 1);
        for (int i = 0; i < 3; i++)
            x[i] = k + 1 + i <= m ? at(q, k + 1 + i, k) : 0;
    }
}

/* Returns the first row of the block that ends with row m. */
static int64_t block_start(const qr *q, int64_t m)
{
    int64_t l = m;
    while (l > 0 && fabs(at(q, l, l - 1)) > DBL_EPSILON * (fabs(at(q, l, l)) + fabs(at(q, l - 1, l - 1))) + q->floor)
        l--;
    return l;
}

static void solve_pair(const qr *q, int64_t m, double *real, double *imaginary)
{
    const double half = (at(q, m - 1, m - 1) - at(q, m, m)) / 2, mean = at(q, m, m) + half;
    const double square = half * half + at(q, m - 1, m) * at(q, m, m - 1), root = sqrt(fabs(square));
    real[m - 1] = mean + (square > 0 ? root : 0);
    real[m] = mean - (square > 0 ? root : 0);
    imaginary[m - 1] = square > 0 ? 0 : root;
    imaginary[m] = -imaginary[m - 1];
}

static bool find_values(const qr *q, double *real, double *imaginary)
{
    for (int64_t m = q->n - 1, l; m >= 0; m = l - 1) {
        for (int tries = 0; (l = block_start(q, m)) < m - 1; tries++) {
            if (tries == TRIES) return false;
            step(q, l, m, tries);
        }
        if (l == m) {
            real[m] = at(q, m, m);
            imaginary[m] = 0;
        } else {
            solve_pair(q, m, real, imaginary);
        }
    }
    return true;
}

bool mha__eigenvalues(int64_t n, double *a, double *real, double *imaginary)
{
    double max = 0;
    for (int64_t i = 0; i < n * n; i++) {
        if (!(fabs(a[i]) <= DBL_MAX)) return false;
        max = fmax(max, fabs(a[i]));
    }
    if (max == 0) max = 1;
    for (int64_t i = 0; i < n * n; i++)
        a[i] /= max; /* so that products neither overflow nor underflow */
    hessenberg(n, a, real);
    const qr q = {n, a, DBL_EPSILON / 2};
    const bool found = find_values(&q, real, imaginary);
    for (int64_t i = 0; i < n; i++) {
        real[i] *= max;
        imaginary[i] *= max;
    }
    return found;
}
