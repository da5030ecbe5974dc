/* guarded.h - memory between inaccessible pages: an access out of bounds raises a signal, also in code that no
 * sanitizer instruments. */
#ifndef TEST_GUARDED_H
#define TEST_GUARDED_H

#include <stdbool.h>
#include <stddef.h>

enum { GUARDED_SLOTS = 48, GUARDED_MOST = 1 << 20, GUARDED_LARGEST = 1 << 26 };

/* Releases all taken memory. */
void guarded_reset(void);
/* Takes `bytes` bytes that end at a guard page, apart from padding for `align`, or begin right after one. Returns NULL
 * if all slots are taken, or for more than GUARDED_MOST bytes (GUARDED_LARGEST for the first one taken). Every byte is
 * set to 0xA5. */
void *guarded_take(size_t bytes, size_t align, bool at_start);
/* Returns true if the unused bytes in the pages of all taken memory still are 0xA5. */
bool guarded_intact(void);
/* Returns true if all these bytes still are 0xA5. */
bool guarded_unwritten(const void *memory, size_t bytes);

#endif
