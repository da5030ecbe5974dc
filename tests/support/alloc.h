/* alloc.h - an allocator for contexts that counts its calls and fails on demand. */
#ifndef TEST_ALLOC_H
#define TEST_ALLOC_H

#include "mha/ctx.h"
#include <stdatomic.h>

typedef struct counting {
    atomic_long calls;  /* calls, successful or failed */
    atomic_long live;   /* allocations not yet freed */
    atomic_long budget; /* calls that succeed before all further calls fail; negative = all succeed */
} counting;

/* Returns an allocator whose calls are counted in `c`. The caller zeroes `c` and sets its budget. */
mha_allocator counting_allocator(counting *c);

#endif
