/* paged.h - moves keys and values of a problem into pages in random order, with NaN in all unused positions. */
#ifndef TEST_PAGED_H
#define TEST_PAGED_H

#include "support/attn/problem.h"

/* Moves k and v into pages of `page_size` keys, shuffled, with three spare pages. Unused pages, and positions after
 * the last key of a sequence, contain NaN. Table entries after the last page of a sequence are out of range. */
void paged_make(problem *p, int64_t page_size, uint64_t seed);
/* Drops page `page` of entry b: sets its table entry to -1 and its elements to NaN. */
void paged_drop(problem *p, int64_t b, int64_t page);

#endif
