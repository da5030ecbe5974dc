/* fixed_sum.h - sums of doubles that do not depend on the order of their terms: each term is truncated to a multiple
 * of 2^-80, and the sum is exact. A term of magnitude 2^-28 or more keeps all its bits. */
#ifndef MHA_MATH_FIXED_SUM_H
#define MHA_MATH_FIXED_SUM_H

#include <math.h>
#include <stdint.h>

/* A sum: whole + fraction 2^-40 + rest 2^-80, with fraction and rest in [0, 2^40). Initialize the integers to zero. To
 * combine sums, add their integers field by field; at most MHA__FIXED_COMBINED sums may be combined before a call of
 * mha__fixed_carry. */
typedef struct mha__fixed {
    int64_t whole, fraction, rest;
    int64_t bad; /* number of terms that are not finite or too large; if positive, the sum is NAN */
} mha__fixed;

enum { MHA__FIXED_COMBINED = 1 << 22 };
enum { MHA__FIXED_BITS = 40, MHA__FIXED_WORDS = sizeof(mha__fixed) / sizeof(int64_t) };

static inline void mha__fixed_carry(mha__fixed *s)
{
    static const int64_t mask = (INT64_C(1) << MHA__FIXED_BITS) - 1;
    s->fraction += s->rest >> MHA__FIXED_BITS;
    s->rest &= mask;
    s->whole += s->fraction >> MHA__FIXED_BITS;
    s->fraction &= mask;
}

static inline void mha__fixed_add(mha__fixed *s, double x)
{
    static const double most = 0x1p53, unit = 0x1p40;
    if (!(x > -most && x < most)) {
        s->bad++;
        return;
    }
    const int64_t whole = (int64_t)x;
    const double below = (x - (double)whole) * unit; /* exact */
    const int64_t fraction = (int64_t)below;
    s->whole += whole;
    s->fraction += fraction;
    s->rest += (int64_t)((below - (double)fraction) * unit);
    mha__fixed_carry(s);
}

/* Returns the sum as a double. The exact sum is rounded twice, so the relative error is at most 2^-52. */
static inline double mha__fixed_value(mha__fixed s)
{
    if (s.bad) return (double)NAN;
    mha__fixed_carry(&s);
    return ((double)s.whole + (double)s.fraction * 0x1p-40) + (double)s.rest * 0x1p-80;
}

/* Add from [count] to `count` sums, or the lower triangle of from [n, n] to n (n + 1) / 2 sums, row by row. Both
 * functions then set `from` to zeros. */
void mha__fixed_add_array(mha__fixed *to, double *from, int64_t count);
void mha__fixed_add_triangle(mha__fixed *to, double *from, int64_t n);
/* Write the values of the sums to `to`; mha__fixed_read_triangle writes a symmetric matrix [n, n]. */
void mha__fixed_read_array(const mha__fixed *from, int64_t count, double *to);
void mha__fixed_read_triangle(const mha__fixed *from, int64_t n, double *to);
static inline int64_t mha__triangle(int64_t n)
{
    return n * (n + 1) / 2;
}

#endif
