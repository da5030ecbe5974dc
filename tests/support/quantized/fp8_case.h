/* fp8_case.h - writes a checkpoint whose tables of the vocabulary are 8-bit codes with scales. */
#ifndef TESTS_SUPPORT_QUANTIZED_FP8_CASE_H
#define TESTS_SUPPORT_QUANTIZED_FP8_CASE_H

/* Returns a temporary copy (support/files.h) of data/quantized/llama-compressed, in which the word embeddings and the
 * output matrix have the same codes in F8_E4M3, and one scale each. Fails the running test on error. */
const char *fp8_tables(float words_scale, float head_scale);

#endif
