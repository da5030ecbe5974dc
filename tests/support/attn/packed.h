/* packed.h - a problem with its sequences one after another instead of side by side, padded. */
#ifndef TEST_PACKED_H
#define TEST_PACKED_H

#include "support/attn/problem.h"

/* The same problem, packed: q, out, lse and statistics of rows, and k and v where they do not lie in pages. Lengths
 * that the problem has become those of the packed sequences, or at random stay lengths of sequences that are at least
 * as long. What has a query and a key axis stays as it is, padded. */
void packed_make(problem *p, uint64_t seed);

/* False, with a sentence in why[capacity], if a result of `packed` has other bits than `padded` has at the same place,
 * or if one was written that no sequence has. Both are made of the same problem and have run. */
bool packed_same(const problem *packed, const problem *padded, char *why, size_t capacity);

#endif
