/* alloc.h - an allocator for contexts that counts, and fails on demand. */
#ifndef TEST_ALLOC_H
#define TEST_ALLOC_H

#include "mha/ctx.h"
#include <stdatomic.h>

typedef struct counting {
    atomic_long calls;  /* successful and failed */
    atomic_long live;   /* allocated and not yet freed */
    atomic_long budget; /* calls that succeed before the next ones fail; negative = all succeed */
} counting;

/* The allocator that counts into `c`, which the caller zeroes (and sets the budget of). */
mha_allocator counting_allocator(counting *c);

#endif
