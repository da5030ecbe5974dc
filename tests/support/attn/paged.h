/* paged.h - moves keys and values of a problem into pages in random order, with NaN in all unused positions. */
#ifndef TEST_PAGED_H
#define TEST_PAGED_H

#include "support/attn/problem.h"

/* Moves k and v into pages of `page_size` keys, shuffled, with three spare pages. Unused pages, and positions after the
 * keys of a sequence (its length, or Lk), hold NaN; table entries after the keys are out of range. */
void paged_make(problem *p, int64_t page_size, uint64_t seed);
/* Drops page `page` of entry b: its table entry becomes -1, its elements NaN. */
void paged_drop(problem *p, int64_t b, int64_t page);

#endif
