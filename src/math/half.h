/* half.h - bf16 and f16 to f32 and back; one number at a time. Kernels have vector forms. */
#ifndef MHA_MATH_HALF_H
#define MHA_MATH_HALF_H

#include <stdint.h>

float mha__bf16_to_f32(uint16_t bits);  /* exact */
float mha__f16_to_f32(uint16_t bits);   /* exact, subnormals and inf too; nan becomes quiet */
uint16_t mha__f32_to_bf16(float value); /* nearest even; nan stays nan (quiet) */
uint16_t mha__f32_to_f16(float value);  /* nearest even; overflow to inf; nan stays nan (quiet) */

#endif
