/* hash.h - a non-cryptographic hash, which detects accidental but not malicious changes of data. It identifies the
 * weights, tokens and labels that a saved state belongs to. Files from other programs are checked with SHA-256
 * (io/files/sha256.h). */
#ifndef MHA_MATH_HASH_H
#define MHA_MATH_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Returns the hash of `data`, chained to the previous hash h (0 at first). Hashes eight bytes at a time with
 * splitmix64, which is much faster than reading the weights of a model from a file. The result depends on how `data` is
 * divided among calls. */
uint64_t mha__hash(uint64_t h, const void *data, size_t bytes);

/* Prints h as 16 hexadecimal digits and a NUL. */
void mha__hash_print(char to[17], uint64_t h);

#endif
