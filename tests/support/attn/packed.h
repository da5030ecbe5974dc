/* packed.h - converts a problem with padded sequences to one with packed sequences, and compares both. */
#ifndef TEST_PACKED_H
#define TEST_PACKED_H

#include "support/attn/problem.h"

/* Packs q, out, lse and the row statistics of a problem, and k and v unless they are paged. The packed sequences have
 * the lengths of the problem or, at random, are longer than these lengths. Maps, masks and biases remain padded. */
void packed_make(problem *p, uint64_t seed);

/* Compares two runs of the same problem. Returns true if all results of `packed` are bitwise identical to those of
 * `padded` and no other element was written; otherwise, false with a message in why[capacity]. */
bool packed_same(const problem *packed, const problem *padded, char *why, size_t capacity);

#endif
