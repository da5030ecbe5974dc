/* e2m1.h - the type of the elements of MXFP4: 4 bits, of which one is the sign, two the exponent and one the mantissa
 * (OCP Microscaling Formats, section 5.3.3). */
#ifndef MHA_MATH_E2M1_H
#define MHA_MATH_E2M1_H

/* Returns twice the value of a code from 0 to 15, a whole number; code 8 is -0. Multiplied by half of a scale (e8m0.h),
 * it gives the element without overflow in between. */
static inline float mha__e2m1_doubled(unsigned code)
{
    static const float doubled[16] = {0.0F,  1.0F,  2.0F,  3.0F,  4.0F,  6.0F,  8.0F,  12.0F,
                                      -0.0F, -1.0F, -2.0F, -3.0F, -4.0F, -6.0F, -8.0F, -12.0F};
    return doubled[code];
}

#endif
