/* fixed_sum.h - sums of doubles that do not depend on the order of their terms: each term is rounded to the nearest
 * multiple of 2^-80, and the sum is exact. A term of magnitude 2^-28 or more keeps all its bits. */
#ifndef MHA_MATH_FIXED_SUM_H
#define MHA_MATH_FIXED_SUM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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
    static const double max = 0x1p53, unit = 0x1p40, rounder = 0x1.8p52; /* |y| < 2^51: y + rounder is an integer */
    if (!(x > -max && x < max)) {
        s->bad++;
        return;
    }
    const int64_t whole = (int64_t)x;
    const double below = (x - (double)whole) * unit; /* exact */
    const int64_t fraction = (int64_t)below;
    s->whole += whole;
    s->fraction += fraction;
    s->rest += (int64_t)(((below - (double)fraction) * unit + rounder) - rounder);
    mha__fixed_carry(s);
}

/* ---- several sums at a time ---- */

enum { MHA__PILE = 16 };

/* MHA__PILE sums to which terms are added in loops that compilers vectorize. Nothing is carried, and parts are sums of
 * the bits of doubles: all doubles of a part have the same exponent, so their bits count units. Initialize to zeros. At
 * most 2^20 terms may be added to each sum. */
typedef struct mha__pile {
    uint64_t whole[MHA__PILE], fraction[MHA__PILE], rest[MHA__PILE];
    uint64_t terms; /* number of terms in each sum */
} mha__pile;

/* y + MHA__PILE_WHOLE is y rounded to a multiple of 1, plus a constant; the other two constants round to
 * multiples of 2^-40 and 2^-80. */
#define MHA__PILE_WHOLE 0x1.8p52
#define MHA__PILE_FRACTION 0x1.8p12
#define MHA__PILE_REST 0x1.8p-28

static inline uint64_t mha__double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Adds x[n] to sum n. Returns false, and adds nothing, unless every x[n] is from -2^51 to 2^51 - 1. */
static inline __attribute__((always_inline)) bool mha__pile_add(mha__pile *pile, const double x[MHA__PILE])
{
    uint64_t other = 0; /* difference from the exponent of all numbers from 2^52 to 2^53 */
    for (int n = 0; n < MHA__PILE; n++)
        other |= mha__double_bits(x[n] + MHA__PILE_WHOLE) ^ mha__double_bits(0x1p52);
    if (other >> 52) return false;
    for (int n = 0; n < MHA__PILE; n++) {
        const double whole = x[n] + MHA__PILE_WHOLE, below = x[n] - (whole - MHA__PILE_WHOLE);
        const double fraction = below + MHA__PILE_FRACTION, rest = below - (fraction - MHA__PILE_FRACTION);
        pile->whole[n] += mha__double_bits(whole);
        pile->fraction[n] += mha__double_bits(fraction);
        pile->rest[n] += mha__double_bits(rest + MHA__PILE_REST);
    }
    pile->terms++;
    return true;
}

/* Adds sum n of the pile to *to. */
static inline void mha__pile_read(const mha__pile *pile, int n, mha__fixed *to)
{
    to->whole += (int64_t)(pile->whole[n] - pile->terms * mha__double_bits(MHA__PILE_WHOLE));
    to->fraction += (int64_t)(pile->fraction[n] - pile->terms * mha__double_bits(MHA__PILE_FRACTION));
    to->rest += (int64_t)(pile->rest[n] - pile->terms * mha__double_bits(MHA__PILE_REST));
    mha__fixed_carry(to);
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
