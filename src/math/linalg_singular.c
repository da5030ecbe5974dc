/* linalg_singular.c - computes singular values by one-sided Jacobi rotations (Hestenes 1958; Golub and Van Loan,
 * chapter 8.6).
 *
 * Rotations of two rows make them orthogonal; after the last sweep, the norms of the rows are the singular values.
 * Unlike the square roots of the eigenvalues of A A^T, small singular values keep their relative accuracy. */
#include "math/linalg.h"
#include <float.h>
#include <math.h>

enum { SWEEPS = 60 }; /* limit; a matrix of 128 rows needs about 10 */

/* Makes rows x and y orthogonal. Returns false if they already are, up to rounding. */
static bool rotate_rows(int64_t n, double *x, double *y)
{
    const double xx = mha__dot(n, x, x), yy = mha__dot(n, y, y), xy = mha__dot(n, x, y);
    if (fabs(xy) <= DBL_EPSILON * sqrt(xx) * sqrt(yy) || fabs(xy) < DBL_MIN) return false;
    const double slope = (yy - xx) / (2 * xy);
    const double t = copysign(1, slope) / (fabs(slope) + hypot(slope, 1));
    const double c = 1 / sqrt(1 + t * t), s = c * t;
    for (int64_t i = 0; i < n; i++) {
        const double a = x[i], b = y[i];
        x[i] = c * a - s * b;
        y[i] = s * a + c * b;
    }
    return true;
}

static bool sweep(int64_t rows, int64_t columns, double *a)
{
    bool rotated = false;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i + 1; j < rows; j++)
            if (rotate_rows(columns, a + i * columns, a + j * columns)) rotated = true;
    return rotated;
}

static void sort_descending(int64_t n, double *values)
{
    for (int64_t i = 1; i < n; i++) {
        const double value = values[i];
        int64_t j = i;
        for (; j > 0 && values[j - 1] < value; j--)
            values[j] = values[j - 1];
        values[j] = value;
    }
}

bool mha__singular_values(int64_t rows, int64_t columns, double *a, double *values)
{
    double max = 0;
    for (int64_t i = 0; i < rows * columns; i++) {
        if (!(fabs(a[i]) <= DBL_MAX)) return false;
        max = fmax(max, fabs(a[i]));
    }
    if (max > 0)
        for (int64_t i = 0; i < rows * columns; i++)
            a[i] /= max; /* so that squares neither overflow nor underflow */
    for (int n = 0; n < SWEEPS && sweep(rows, columns, a); n++) {
    }
    for (int64_t i = 0; i < rows; i++)
        values[i] = max * sqrt(mha__dot(columns, a + i * columns, a + i * columns));
    sort_descending(rows, values);
    return true;
}
