/* fixed_sum.h - sums of doubles that do not depend on the order of their terms. Each term is rounded to a multiple of
 * 2^-40, and the rounded terms are summed exactly. */
#ifndef MHA_MATH_FIXED_SUM_H
#define MHA_MATH_FIXED_SUM_H

#include <math.h>
#include <stdint.h>

/* The sum is whole + fraction 2^-40, with fraction in [0, 2^40). Initialize the three integers to zero. To combine
 * sums, add each integer; at most 2^22 sums may be combined before mha__fixed_carry. */
typedef struct mha__fixed {
    int64_t whole, fraction;
    int64_t bad; /* number of terms that are not finite or too large; if positive, the sum is NAN */
} mha__fixed;

enum { MHA__FIXED_BITS = 40 };

static inline void mha__fixed_carry(mha__fixed *s)
{
    s->whole += s->fraction >> MHA__FIXED_BITS;
    s->fraction &= (INT64_C(1) << MHA__FIXED_BITS) - 1;
}

static inline void mha__fixed_add(mha__fixed *s, double x)
{
    static const double most = 0x1p53;
    if (!(x > -most && x < most)) {
        s->bad++;
        return;
    }
    const double whole = floor(x);
    s->whole += (int64_t)whole;
    s->fraction += (int64_t)nearbyint((x - whole) * (double)(INT64_C(1) << MHA__FIXED_BITS));
    mha__fixed_carry(s);
}

static inline double mha__fixed_value(const mha__fixed *s)
{
    return s->bad ? (double)NAN : (double)s->whole + (double)s->fraction * 0x1p-40;
}

#endif
