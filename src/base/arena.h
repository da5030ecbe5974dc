/* arena.h - several arrays in one allocation.
 *
 * A layout function allocates its arrays from an arena, one after another. It runs twice: with an empty arena to
 * measure the size, then with memory of that size to get the pointers. Sizes are checked; an overflow sets a flag that
 * is read at the end, except in layouts whose sizes were checked before. */
#ifndef MHA_BASE_ARENA_H
#define MHA_BASE_ARENA_H

#include "base/redzone.h"
#include "base/size.h"

typedef struct mha__arena {
    char *base;    /* NULL while measuring; 64-byte aligned */
    size_t used;   /* bytes allocated so far, a multiple of 64 */
    bool overflow; /* true if a size overflowed size_t */
    bool overlaps; /* several layouts use the same bytes: red zones of one would lie in arrays of another */
} mha__arena;

/* Allocates count * size bytes from the arena, 64-byte aligned, with a red zone after them; returns NULL while
 * measuring. */
static inline void *mha__take(mha__arena *arena, size_t count, size_t size)
{
    size_t bytes = 0, padded = 0, end = 0;
    if (!mha__mul(count, size, &bytes) || !mha__add(bytes, 63 + MHA__REDZONE, &padded) ||
        !mha__add(arena->used, padded & ~(size_t)63, &end)) {
        arena->overflow = true;
        return NULL;
    }
    char *place = arena->base ? arena->base + arena->used : NULL;
    mha__redzone(place, arena->overlaps ? end - arena->used : bytes, end - arena->used);
    arena->used = end;
    return place;
}

#endif
