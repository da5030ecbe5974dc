/* hash.h - a non-cryptographic hash: detects accidental, not malicious, differences of data. It identifies the weights,
 * tokens and labels that a state on disk belongs to. Files written by others are checked with SHA-256
 * (io/files/sha256.h). */
#ifndef MHA_MATH_HASH_H
#define MHA_MATH_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Returns the hash of `data`, chained to the previous hash h (0 at first). Processes eight bytes at a time through
 * splitmix64, which takes a fraction of the time needed to read the weights of a model. The result depends on how data
 * is split into calls. */
uint64_t mha__hash(uint64_t h, const void *data, size_t bytes);

/* Prints h as 16 hexadecimal digits. */
void mha__hash_print(char to[24], uint64_t h);

#endif
