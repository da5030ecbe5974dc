/* guarded.c - implements guarded.h. The pages are mapped once, because mapping them takes longer than most tested
 * calls. */
#define _GNU_SOURCE /* for MAP_ANONYMOUS and MAP_NORESERVE */
#include "support/attn/guarded.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILL = 0xA5, BESIDE = 64 };

typedef struct slot {
    char *begin, *end; /* the usable memory between its guard pages */
    char *taken;
    size_t bytes;
} slot;

static slot slots[GUARDED_SLOTS];
static int used;

static void map_slot(slot *s, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *all = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || mprotect(all + page, bytes, PROT_READ | PROT_WRITE) != 0) abort();
    s->begin = all + page;
    s->end = s->begin + bytes;
}

void guarded_reset(void)
{
    used = 0;
}

/* Returns the start of the bytes that are filled and checked: at most BESIDE bytes before the allocated memory, and not
 * in the guard page. */
static char *fill_begin(const slot *s)
{
    return s->taken - s->begin > BESIDE ? s->taken - BESIDE : s->begin;
}
static char *fill_end(const slot *s)
{
    return s->end - (s->taken + s->bytes) > BESIDE ? s->taken + s->bytes + BESIDE : s->end;
}

void *guarded_take(size_t bytes, size_t align, bool at_start)
{
    if (used == GUARDED_SLOTS) return NULL;
    slot *s = &slots[used];
    if (!s->begin) map_slot(s, used == 0 ? GUARDED_LARGEST : GUARDED_MAX);
    if (bytes > (size_t)(s->end - s->begin)) return NULL;
    used++;
    s->bytes = bytes;
    s->taken = at_start ? s->begin : s->end - (bytes + align - 1) / align * align;
    memset(fill_begin(s), FILL, (size_t)(fill_end(s) - fill_begin(s)));
    return s->taken;
}

bool guarded_unwritten(const void *memory, size_t bytes)
{
    for (size_t n = 0; n < bytes; n++)
        if (((const uint8_t *)memory)[n] != FILL) return false;
    return true;
}

bool guarded_intact(void)
{
    for (const slot *s = slots; s < slots + used; s++) {
        const char *begin = fill_begin(s), *end = s->taken + s->bytes;
        if (!guarded_unwritten(begin, (size_t)(s->taken - begin)) ||
            !guarded_unwritten(end, (size_t)(fill_end(s) - end)))
            return false;
    }
    return true;
}
