/* cached_program.h - interprets bytes as a program of operations on a KV cache: create, append, fork, truncate, save,
 * load and attend, with and without failing allocations.
 * After each operation, the cache is compared with a reference model. A unit test runs random programs; a fuzz target
 * runs its input. */
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
    CACHED_STARVE, /* lets the next operation fail after a few allocations */
    CACHED_OPERATIONS
} cached_operation;

/* How often each operation succeeded, returned an error, and ran out of memory. */
typedef struct cached_tally {
    int64_t done[CACHED_OPERATIONS], refused[CACHED_OPERATIONS], starved[CACHED_OPERATIONS];
} cached_tally;

/* Runs a program of n bytes and adds the outcomes of its operations to `tally`. Returns NULL, or the violated
 * invariant. */
const char *cached_program(const uint8_t *bytes, size_t n, cached_tally *tally);

#endif
