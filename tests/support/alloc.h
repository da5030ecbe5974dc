/* alloc.h - an allocator for contexts that counts allocations and can fail after a given number of them. */
#ifndef TEST_ALLOC_H
#define TEST_ALLOC_H

#include "mha/ctx.h"
#include <stdatomic.h>

typedef struct counting {
    atomic_long calls;  /* number of allocations, successful or failed */
    atomic_long live;   /* number of allocations not yet freed */
    atomic_long budget; /* number of allocations that still succeed; negative: no limit */
} counting;

/* Returns an allocator that counts in `c`. The caller must set the fields of `c` to 0, and `budget` as required. */
mha_allocator counting_allocator(counting *c);

#endif
