/* packed.h - a problem whose sequences are packed one after another instead of padded. */
#ifndef TEST_PACKED_H
#define TEST_PACKED_H

#include "support/attn/problem.h"

/* Packs q, out, lse and row statistics of a problem, and k and v unless they are paged. Lengths become those of the
 * packed sequences or, at random, remain larger or equal. Operands with a query axis and a key axis remain padded. */
void packed_make(problem *p, uint64_t seed);

/* Compares two runs of the same problem. Returns true if all results of `packed` are bitwise identical to those of
 * `padded` and no other element was written; otherwise, false with a message in why[capacity]. */
bool packed_same(const problem *packed, const problem *padded, char *why, size_t capacity);

#endif
