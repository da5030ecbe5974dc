/* paged.h - keys and values of a problem moved into pages, in any order, with NaN wherever no key lies. */
#ifndef TEST_PAGED_H
#define TEST_PAGED_H

#include "support/attn/problem.h"

/* The same problem with k and v in pages of `page_size` keys, shuffled, three pages more than are needed. Unused pages,
 * and what lies behind the keys of a sequence (its length, or Lk), hold NaN; table entries behind it are out of
 * range. */
void paged_make(problem *p, int64_t page_size, uint64_t seed);
/* Drops page `page` of entry b: the table says -1, the page holds NaN. */
void paged_drop(problem *p, int64_t b, int64_t page);

#endif
