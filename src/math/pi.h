/* pi.h - the constant pi. */
#ifndef MHA_MATH_PI_H
#define MHA_MATH_PI_H

static const double MHA__PI = 0x1.921fb54442d18p+1; /* 2 * MHA__PI is exact */

#endif
