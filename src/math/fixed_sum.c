/* fixed_sum.c - adds terms to arrays of order-independent sums (fixed_sum.h), and reads these arrays. */
#include "math/fixed_sum.h"

#include <string.h>

void mha__fixed_add_array(mha__fixed *to, double *from, int64_t count)
{
    for (int64_t n = 0; n < count; n++)
        mha__fixed_add(&to[n], from[n]);
    memset(from, 0, (size_t)count * sizeof *from);
}

void mha__fixed_add_triangle(mha__fixed *to, double *from, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c <= r; c++)
            mha__fixed_add(to++, from[r * n + c]);
    memset(from, 0, (size_t)(n * n) * sizeof *from);
}

void mha__fixed_read_array(const mha__fixed *from, int64_t count, double *to)
{
    for (int64_t n = 0; n < count; n++)
        to[n] = mha__fixed_value(from[n]);
}

void mha__fixed_read_triangle(const mha__fixed *from, int64_t n, double *to)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c <= r; c++)
            to[r * n + c] = to[c * n + r] = mha__fixed_value(*from++);
}
