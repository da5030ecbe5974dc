/* guarded.h - memory between pages that nobody may touch: an access past either end is a signal, also from code that no
 * sanitizer instruments. */
#ifndef TEST_GUARDED_H
#define TEST_GUARDED_H

#include <stdbool.h>
#include <stddef.h>

enum { GUARDED_SLOTS = 48, GUARDED_MOST = 1 << 20, GUARDED_LARGEST = 1 << 26 };

/* Gives back all that was taken. */
void guarded_reset(void);
/* `bytes` that end where a guard page begins, but for what `align` needs, or begin where one ends. NULL if all slots
 * are taken, or for more than GUARDED_MOST bytes (GUARDED_LARGEST for what is taken first). Every byte is 0xA5. */
void *guarded_take(size_t bytes, size_t align, bool at_start);
/* True if the bytes beside all that was taken, in the same pages, still are 0xA5. */
bool guarded_intact(void);
/* True if all these bytes are. */
bool guarded_unwritten(const void *memory, size_t bytes);

#endif
