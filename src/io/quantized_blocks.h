/* quantized_blocks.h - converts one block of each quantized type of GGUF files to f32.
 *
 * The conversions are those of ggml's reference, in float32 and in the same order of operations, so that every element
 * is bitwise identical. */
#ifndef MHA_IO_QUANTIZED_BLOCKS_H
#define MHA_IO_QUANTIZED_BLOCKS_H

#include <stdint.h>

enum { MHA__SUPER_BLOCK = 256 }; /* elements of a block of the types with a K, and of IQ4_XS */

/* Blocks of 32 elements. */
void mha__q8_0_to_f32(const unsigned char *block, float *out);
void mha__q4_0_to_f32(const unsigned char *block, float *out);
void mha__q4_1_to_f32(const unsigned char *block, float *out);
void mha__q5_0_to_f32(const unsigned char *block, float *out);
void mha__q5_1_to_f32(const unsigned char *block, float *out);
void mha__iq4_nl_to_f32(const unsigned char *block, float *out);
void mha__mxfp4_to_f32(const unsigned char *block, float *out);
/* Rounds n elements, a multiple of 32, to the nearest of MXFP4, with the largest scale that wastes no code: elements
 * that were MXFP4 keep their values. */
void mha__mxfp4_round(const float *x, int64_t n, unsigned char *to);
/* Blocks of 256 elements. */
void mha__q2_k_to_f32(const unsigned char *block, float *out);
void mha__q3_k_to_f32(const unsigned char *block, float *out);
void mha__q4_k_to_f32(const unsigned char *block, float *out);
void mha__q5_k_to_f32(const unsigned char *block, float *out);
void mha__q6_k_to_f32(const unsigned char *block, float *out);
void mha__iq4_xs_to_f32(const unsigned char *block, float *out);

#endif
