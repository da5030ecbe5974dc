/* hash.h - a number that tells data apart by accident, not by malice: of weights, tokens and labels that a state on
 * disk belongs to. For files that others write there is SHA-256 (io/files/sha256.h). */
#ifndef MHA_MATH_HASH_H
#define MHA_MATH_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Of what came before, h (0 at first), and of data. Eight bytes at a time through splitmix64: all weights of a model in
 * a fraction of the time that reading them takes. Where data is cut matters. */
uint64_t mha__hash(uint64_t h, const void *data, size_t bytes);

/* As 16 hexadecimal digits. */
void mha__hash_print(char to[24], uint64_t h);

#endif
