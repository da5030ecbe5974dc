/* table.h - helpers of the kernel tests: every kernel table of this CPU, and arrays of the table's type `real` between
 * guards.
 *
 * Inputs are surrounded by NaN, so that an out-of-bounds read changes the result. Outputs are surrounded by a finite
 * canary, so that an out-of-bounds write is detected even if it writes NaN. */
#ifndef TEST_KERNEL_TABLE_H
#define TEST_KERNEL_TABLE_H

#include "kernel/kernel.h"
#include "support/check.h"
#include "support/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INPUT ((double)NAN)
#define OUTPUT (-12345.0)
enum { TABLES = MHA__ISAS + 1, GUARD = 96 };

/* Writes the kernel tables of this CPU to `list`, f64 first, and returns their number. */
static inline int tables(const mha__kernels *list[TABLES])
{
    int n = 0;
    list[n++] = mha__kernels_f64();
    for (int isa = 0; isa < MHA__ISAS; isa++)
        if (mha__cpu_has((mha__isa)isa) && (n == 1 || mha__kernels_f32((mha__isa)isa) != list[n - 1]))
            list[n++] = mha__kernels_f32((mha__isa)isa);
    return n;
}

static inline const char *type_of(const mha__kernels *k)
{
    return k->real_size == sizeof(double) ? "f64" : "f32";
}

/* Returns the unit roundoff of the table's type: 2^-53 for f64, 2^-24 for f32. */
static inline double rounding(const mha__kernels *k)
{
    return k->real_size == sizeof(double) ? 0x1p-53 : 0x1p-24;
}

typedef struct array {
    const mha__kernels *k;
    char *memory, *data;
    int64_t n;
    double guard;
} array;

static inline void put_at(const mha__kernels *k, void *base, int64_t i, double x)
{
    if (k->real_size == sizeof(double))
        ((double *)base)[i] = x;
    else
        ((float *)base)[i] = (float)x;
}

static inline double get_at(const mha__kernels *k, const void *base, int64_t i)
{
    return k->real_size == sizeof(double) ? ((const double *)base)[i] : (double)((const float *)base)[i];
}

/* Returns an array of n elements set to `guard`, with GUARD guard elements on both sides. Element 0 is `shift` elements
 * after the start of a cache line. */
static inline array array_make(const mha__kernels *k, int64_t n, int shift, double guard)
{
    array a = {k, NULL, NULL, n, guard};
    const int64_t all = (n + 2 * GUARD + 64) / 64 * 64 + 64;
    a.memory = aligned_alloc(64, (size_t)all * k->real_size);
    assert_non_null(a.memory);
    for (int64_t i = 0; i < all; i++)
        put_at(k, a.memory, i, guard);
    a.data = a.memory + (size_t)(GUARD + shift) * k->real_size;
    return a;
}

static inline void array_free(array *a)
{
    free(a->memory);
    a->memory = NULL;
}

static inline double get(const array *a, int64_t i)
{
    return get_at(a->k, a->data, i);
}

static inline void put(array *a, int64_t i, double x)
{
    put_at(a->k, a->data, i, x);
}

/* Fills the array with random values around 0, rounded to the table's type. */
static inline void fill(array *a, rng *r)
{
    for (int64_t i = 0; i < a->n; i++)
        put(a, i, rng_normal(r));
}

/* Fills the rows of a matrix, whose rows are `stride` elements apart; the gaps between rows stay guards. */
static inline void fill_rows(array *a, int64_t rows, int64_t columns, int64_t stride, rng *r)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            put(a, i * stride + j, rng_normal(r));
}

/* Returns true if no element outside [0, n) was written. The guard must be finite. */
static inline bool guards_intact(const array *a)
{
    for (int64_t i = 1; i <= 64; i++)
        if (get(a, -i) != a->guard || get(a, a->n + i - 1) != a->guard) return false;
    return true;
}

static inline void *at_number(const array *a, int64_t i)
{
    return a->data + i * (int64_t)a->k->real_size;
}

static inline bool same_bits(const array *a, const array *b)
{
    return a->n == b->n && memcmp(a->data, b->data, (size_t)a->n * a->k->real_size) == 0;
}

#endif
