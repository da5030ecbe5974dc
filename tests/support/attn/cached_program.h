/* cached_program.h - bytes as a program of operations on a KV cache: made in any way, appended to, forked, truncated,
 * saved and loaded, read by the operator, with memory that runs out. After each operation the cache is held against a
 * naive copy. A unit test writes such programs at random; a fuzz target is given them. */
#ifndef TEST_CACHED_PROGRAM_H
#define TEST_CACHED_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

typedef enum cached_operation {
    CACHED_APPEND_ONE,
    CACHED_APPEND_ALL,
    CACHED_TRUNCATE,
    CACHED_FORK,
    CACHED_CLEAR,
    CACHED_RELOAD,
    CACHED_ATTEND,
    CACHED_STARVE, /* the next operation finds memory for a few allocations only */
    CACHED_OPERATIONS
} cached_operation;

/* How often each was done, refused, and ended without memory. */
typedef struct cached_tally {
    int64_t done[CACHED_OPERATIONS], refused[CACHED_OPERATIONS], starved[CACHED_OPERATIONS];
} cached_tally;

/* NULL, or the law that is broken. `tally` is added to. */
const char *cached_program(const uint8_t *bytes, size_t n, cached_tally *tally);

#endif
