/* gguf_cursor.h - reads the header of a GGUF file from front to back. Every function fails with MHA_ERR_FORMAT, naming
 * the file and `what`, if the file ends early. */
#ifndef MHA_IO_GGUF_GGUF_CURSOR_H
#define MHA_IO_GGUF_GGUF_CURSOR_H

#include "io/files/file_fail.h"
#include "io/gguf/gguf.h"

typedef struct mha__gguf_cursor {
    mha_file *file;
    const char *bytes; /* [size] the whole file */
    size_t size, at;
    mha_error *err;
} mha__gguf_cursor;

/* Fails with "FILE: what". */
#define MHA__GGUF_FAIL(c, ...) mha__file_fail((c)->err, (c)->file->path, NULL, __VA_ARGS__)
mha_status mha__gguf_take(mha__gguf_cursor *c, size_t bytes, const char *what, const char **at);
mha_status mha__gguf_u32(mha__gguf_cursor *c, const char *what, uint32_t *value);
mha_status mha__gguf_u64(mha__gguf_cursor *c, const char *what, uint64_t *value);
/* Reads a string of any bytes, in place. */
mha_status mha__gguf_string(mha__gguf_cursor *c, const char *what, const char **text, size_t *bytes);
/* Skips a string. If it has more than `max` bytes or the file ends early, returns false and keeps the position. */
bool mha__gguf_skip_string(mha__gguf_cursor *c, size_t max);
/* Reads a string of 1..most bytes of UTF-8 without NUL. *name is a copy with a NUL that is freed with the file; errors
 * include MHA_ERR_MEMORY. */
mha_status mha__gguf_name(mha__gguf_cursor *c, const char *what, size_t max, const char **name);

/* Reads and validates all tensors, and sets their data. */
mha_status mha__gguf_tensors(mha__gguf_cursor *c, uint64_t count, size_t alignment);

#endif
