/* input_file.h - an input file, opened safely: regular files only, size read once, reads that are complete or fail. */
#ifndef MHA_IO_FILES_INPUT_FILE_H
#define MHA_IO_FILES_INPUT_FILE_H

#include "base/error.h"
#include "mha/ctx.h"
#include <stdbool.h>
#include <sys/types.h>

typedef struct mha__source {
    const char *name; /* for messages, as the caller passed it; borrowed */
    int fd;
    size_t size; /* [bytes], from the open descriptor; data appended later is not read */
} mha__source;

/* Opens `name`, or the bare name `name` in `folder` if that is not NULL. Never blocks (FIFO, terminal) and follows
 * symbolic links. Anything other than a regular file is an error that states its kind. Errors: MHA_ERR_IO. */
mha_status mha__source_open(mha__source *source, const char *folder, const char *name, mha_error *err);
void mha__source_close(mha__source *source);
/* Returns false if no entry of that name exists, for optional files of a folder. Any other entry, such as a broken
 * link or a FIFO, exists, and mha__source_open rejects it. */
bool mha__source_exists(const char *folder, const char *name);

/* openat, restarted after a signal. */
int mha__open_at(int dir, const char *name, int flags, mode_t mode);

/* Reads exactly `n` bytes from `offset`. Retries after EINTR and short reads; an early end of file is MHA_ERR_IO. */
mha_status mha__source_read(const mha__source *source, size_t offset, void *to, size_t n, mha_error *err);

/* Reads the whole content of a small file, followed by one NUL that *n does not count; free with mha__free. A file
 * larger than `limit` bytes is MHA_ERR_FORMAT, before memory is allocated. */
mha_status mha__read_whole(mha_ctx *ctx, const char *folder, const char *name, size_t limit, char **bytes, size_t *n,
                           mha_error *err);

/* Messages about a file of a folder begin with its bare name. If `status` is a failure with such a message, prepends
 * the folder. Returns `status`. */
mha_status mha__in_folder(mha_status status, const char *folder, const char *name, mha_error *err);

/* Returns true for a name that can only refer to a file in its folder: not empty, no '/', '\' or NUL, not "." or
 * "..". */
bool mha__bare_name(const char *name, size_t n);

/* Returns true if `name` ends with `end`. */
bool mha__name_ends(const char *name, const char *end);

/* Identifies a known foreign format by the first bytes of a file: "a Git LFS pointer ..."; NULL if unknown. `n` bytes
 * are available; 16 are enough. */
const char *mha__foreign(const void *head, size_t n);

/* Returns "a directory", "a fifo" ... for the st_mode of anything but a regular file. */
const char *mha__file_kind(mode_t mode);

/* Fails with "NAME: WHAT: reason"; `number` is an errno. MHA_ERR_MEMORY for ENOMEM, else MHA_ERR_IO. */
mha_status mha__fail_errno(mha_error *err, const char *what, const char *name, int number);

#endif
