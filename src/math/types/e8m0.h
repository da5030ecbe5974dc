/* e8m0.h - the type of the scales of microscaling formats: 8 bits of an exponent with bias 127, without a sign (OCP
 * Microscaling Formats, section 5.4.1). */
#ifndef MHA_MATH_E8M0_H
#define MHA_MATH_E8M0_H

#include <stdint.h>

/* Returns half of the scale, 2^(code - 128), which is exact for every code. Multiplied by twice a value, it gives
 * value * 2^(code - 127) without overflow in between. */
static inline float mha__e8m0_half(uint8_t code)
{
    const union {
        uint32_t bits;
        float value;
    } power = {code < 2 ? (uint32_t)1 << (21 + code) : (uint32_t)(code - 1) << 23};
    return power.value;
}

#endif
