/* hostile.h - files that a test builds or damages in memory, and the check of what a reader makes of them: each file
 * has a name, and must be refused with one sentence that names the file, or be accepted.
 *
 * If MHA_HOSTILE_FILES names a folder, every file is also written there, for the fuzz targets. */
#ifndef MHA_TEST_HOSTILE_H
#define MHA_TEST_HOSTILE_H

#include "mha/types.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hostile_bytes {
    uint8_t at[8192];
    size_t n;
} hostile_bytes;

void hostile_put(hostile_bytes *b, const void *bytes, size_t n);
void hostile_text(hostile_bytes *b, const char *text);
/* Append an integer, most or least significant byte first. */
void hostile_big(hostile_bytes *b, uint64_t value, int bytes);
void hostile_little(hostile_bytes *b, uint64_t value, int bytes);
/* Overwrite an integer at `at`. */
void hostile_set_big(hostile_bytes *b, size_t at, uint64_t value, int bytes);
void hostile_set_little(hostile_bytes *b, size_t at, uint64_t value, int bytes);
/* Return a copy without the bytes from `at` on, without `n` bytes at `at`, or with `n` more bytes at `at`. */
hostile_bytes hostile_cut(const hostile_bytes *b, size_t at);
hostile_bytes hostile_without(const hostile_bytes *b, size_t at, size_t n);
hostile_bytes hostile_with(const hostile_bytes *b, size_t at, const void *bytes, size_t n);

/* Reads a file in memory, which has no other bytes before or after it, and frees the result. `path` names it. */
typedef mha_status (*hostile_reader)(const char *path, const uint8_t *bytes, size_t n, mha_error *err);

typedef struct hostile_corpus {
    const char *kind; /* a prefix of the names */
    hostile_reader read;
    int refused, accepted;
} hostile_corpus;

/* Fails the running test unless the reader refuses the file with a status other than MHA_ERR_MEMORY, and with a
 * sentence that names the file and contains `part`. */
void hostile_refuse(hostile_corpus *corpus, const char *name, const hostile_bytes *file, const char *part);
void hostile_accept(hostile_corpus *corpus, const char *name, const hostile_bytes *file);
/* Refuses the file when it ends at `at`, which is within the segment `what`. */
void hostile_refuse_cut(hostile_corpus *corpus, const char *what, const hostile_bytes *file, size_t at,
                        const char *part);
/* Prints the counts, and fails the running test unless there are at least `min` files. */
void hostile_end(const hostile_corpus *corpus, int min);

#endif
