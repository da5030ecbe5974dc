/* quantized_blocks.h - converts one block of each quantized type of GGUF files to f32.
 *
 * The conversions are those of ggml's reference, in float32 and in the same order of operations, so that every element
 * is bitwise identical. */
#ifndef MHA_IO_QUANTIZED_BLOCKS_H
#define MHA_IO_QUANTIZED_BLOCKS_H

enum { MHA__SUPER_BLOCK = 256 }; /* elements of a block of the types with a K, and of IQ4_XS */

/* Blocks of 32 elements. */
void mha__q8_0_to_f32(const unsigned char *block, float *out);
void mha__q4_0_to_f32(const unsigned char *block, float *out);
void mha__q4_1_to_f32(const unsigned char *block, float *out);
void mha__q5_0_to_f32(const unsigned char *block, float *out);
void mha__q5_1_to_f32(const unsigned char *block, float *out);
void mha__iq4_nl_to_f32(const unsigned char *block, float *out);
void mha__mxfp4_to_f32(const unsigned char *block, float *out);
/* Blocks of 256 elements. */
void mha__q2_k_to_f32(const unsigned char *block, float *out);
void mha__q3_k_to_f32(const unsigned char *block, float *out);
void mha__q4_k_to_f32(const unsigned char *block, float *out);
void mha__q5_k_to_f32(const unsigned char *block, float *out);
void mha__q6_k_to_f32(const unsigned char *block, float *out);
void mha__iq4_xs_to_f32(const unsigned char *block, float *out);

#endif
