/* guarded.h - memory between inaccessible pages: an out-of-bounds access raises a signal, even in code that is not
 * instrumented by a sanitizer. */
#ifndef TEST_GUARDED_H
#define TEST_GUARDED_H

#include <stdbool.h>
#include <stddef.h>

enum { GUARDED_SLOTS = 48, GUARDED_MAX = 1 << 20, GUARDED_LARGEST = 1 << 26 };

/* Releases all memory returned by guarded_take. */
void guarded_reset(void);
/* Allocates `bytes` bytes and sets them to 0xA5. They begin just after a guard page if `at_start` is true; otherwise,
 * they end just before a guard page, except for padding that `align` requires. Returns NULL if all slots are used, or
 * for more than GUARDED_MAX bytes (GUARDED_LARGEST for the first allocation). */
void *guarded_take(size_t bytes, size_t align, bool at_start);
/* Returns true if the bytes just before and after all allocated memory are still 0xA5. */
bool guarded_intact(void);
/* Returns true if all `bytes` bytes are still 0xA5. */
bool guarded_unwritten(const void *memory, size_t bytes);

#endif
