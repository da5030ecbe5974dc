/* alloc.c - implements the counting allocator of alloc.h. */
#include "support/alloc.h"

#include <stdlib.h>

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    counting *c = user;
    long call = atomic_fetch_add(&c->calls, 1), budget = atomic_load(&c->budget);
    if (budget >= 0 && call >= budget) return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) != 0) return NULL;
    atomic_fetch_add(&c->live, 1);
    return memory;
}

static void count_free(void *user, void *memory)
{
    counting *c = user;
    atomic_fetch_sub(&c->live, 1);
    free(memory);
}

mha_allocator counting_allocator(counting *c)
{
    return (mha_allocator){count_alloc, count_free, c};
}
