/* packed.h - a problem whose sequences are packed one after another instead of padded. */
#ifndef TEST_PACKED_H
#define TEST_PACKED_H

#include "support/attn/problem.h"

/* Packs a problem: q, out, lse and row statistics, and k and v unless they are paged. Lengths become those of the
 * packed sequences or, at random, remain lengths of sequences that are at least as long. Operands with a query and a
 * key axis remain padded. */
void packed_make(problem *p, uint64_t seed);

/* Compares two runs of the same problem. Returns false, with a message in why[capacity], unless all results of `packed`
 * are bitwise identical to those of `padded` and no other element was written. */
bool packed_same(const problem *packed, const problem *padded, char *why, size_t capacity);

#endif
