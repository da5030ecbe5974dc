/* half.h - conversion between f32 and bf16 or f16, one element at a time. src/kernel has vectorized versions. */
#ifndef MHA_MATH_HALF_H
#define MHA_MATH_HALF_H

#include <stdint.h>

float mha__bf16_to_f32(uint16_t bits);  /* exact */
float mha__f16_to_f32(uint16_t bits);   /* exact, including subnormals and infinity; a NaN becomes quiet */
uint16_t mha__f32_to_bf16(float value); /* rounds to nearest even; a NaN becomes quiet */
uint16_t mha__f32_to_f16(float value);  /* rounds to nearest even; values of at least 65520 become infinite; a NaN
                                         * becomes quiet */

#endif
