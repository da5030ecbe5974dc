/* input_file.h - opens input files safely. Only regular files are opened, the size is read once, and a read is complete
 * or fails. */
#ifndef MHA_IO_FILES_INPUT_FILE_H
#define MHA_IO_FILES_INPUT_FILE_H

#include "base/error.h"
#include "io/files/file_fail.h"
#include "mha/ctx.h"
#include <stdbool.h>
#include <sys/types.h>

typedef struct mha__source {
    const char *name; /* file name for messages, as passed by the caller; not copied */
    int fd;
    const char *memory; /* the content of a source without a file; NULL = read from fd */
    size_t size;        /* [bytes] size when opened; data appended later is not read */
} mha__source;

/* Opens `name`, or the bare name `name` in `folder` if `folder` is not NULL. Follows symbolic links and never blocks
 * (FIFO, terminal). Anything other than a regular file is an error whose message states its kind. Errors:
 * MHA_ERR_IO. */
mha_status mha__source_open(mha__source *source, const char *folder, const char *name, mha_error *err);
void mha__source_close(mha__source *source);
/* Returns false if the folder has no entry `name`, or if the name of the folder is empty; used for optional files. A
 * broken link or a FIFO counts as an entry, which mha__source_open then rejects. */
bool mha__source_exists(const char *folder, const char *name);

/* Returns true for a regular file, or a symbolic link to one. */
bool mha__source_is_file(const char *path);

/* Calls openat, and repeats the call if a signal interrupts it. */
int mha__open_at(int dir, const char *name, int flags, mode_t mode);

/* Reads exactly `n` bytes from `offset`. Retries after EINTR and short reads; fails with MHA_ERR_IO if the file ends
 * early. */
mha_status mha__source_read(const mha__source *source, size_t offset, void *to, size_t n, mha_error *err);

/* Reads a small file and appends one NUL that *n does not count; free with mha__free. A file larger than `limit` bytes
 * fails with MHA_ERR_FORMAT before memory is allocated. */
mha_status mha__read_whole(mha_ctx *ctx, const char *folder, const char *name, size_t limit, char **bytes, size_t *n,
                           mha_error *err);

/* Returns true for a name that can only refer to a file in its folder: not empty, no '/', '\' or NUL, not "." or
 * "..". */
bool mha__bare_name(const char *name, size_t n);

/* Returns true if `name` ends with `end`. */
bool mha__name_ends(const char *name, const char *end);

/* Identifies a known foreign format by the first bytes of a file, for example "a Git LFS pointer ..."; NULL if unknown.
 * `n` bytes are available; 16 are enough. */
const char *mha__foreign(const void *head, size_t n);

/* Returns "a directory", "a fifo" and so on, for an st_mode other than a regular file. */
const char *mha__file_kind(mode_t mode);

#endif
