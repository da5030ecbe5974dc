/* input_file.h - a file from outside, opened safely: regular files only, size taken once, reads that are complete or
 * fail. */
#ifndef MHA_IO_FILES_INPUT_FILE_H
#define MHA_IO_FILES_INPUT_FILE_H

#include "base/error.h"
#include "mha/ctx.h"
#include <stdbool.h>
#include <sys/types.h>

typedef struct mha__source {
    const char *name; /* for sentences, as the caller gave it; borrowed */
    int fd;
    size_t size; /* bytes, from the open descriptor; what the file grows by afterwards is not read */
} mha__source;

/* Opens `name`, or the bare name `name` in `folder` when that is not NULL. Never blocks (fifo, terminal), follows
 * symbolic links, refuses whatever is not a regular file by saying what it is. Errors: MHA_ERR_IO. */
mha_status mha__source_open(mha__source *source, const char *folder, const char *name, mha_error *err);
void mha__source_close(mha__source *source);
/* False if there is nothing of that name: for files that a folder may have or not. Whatever else is there, a broken
 * link or a fifo, exists, and mha__source_open refuses it. */
bool mha__source_exists(const char *folder, const char *name);

/* openat that goes on after a signal. */
int mha__open_at(int dir, const char *name, int flags, mode_t mode);

/* Reads exactly `n` bytes from `offset`; EINTR and short reads are normal, an early end is MHA_ERR_IO. */
mha_status mha__source_read(const mha__source *source, size_t offset, void *to, size_t n, mha_error *err);

/* The whole content of a small file, followed by one NUL that *n does not count; freed with mha__free. More than
 * `limit` bytes are refused before any memory is asked for (MHA_ERR_FORMAT). */
mha_status mha__read_whole(mha_ctx *ctx, const char *folder, const char *name, size_t limit, char **bytes, size_t *n,
                           mha_error *err);

/* Sentences about a file of a folder begin with its bare name: puts the folder before it, where `status` is a failure
 * and its sentence is of that kind. Returns `status`. */
mha_status mha__in_folder(mha_status status, const char *folder, const char *name, mha_error *err);

/* A name that stands for a file in its folder and nowhere else: not empty, no '/', '\' or NUL, not "." or "..". */
bool mha__bare_name(const char *name, size_t n);

/* What a file is that does not belong here, by its first bytes: "a Git LFS pointer ..."; NULL if it is nothing known.
 * `n` bytes are at hand; 16 are enough. */
const char *mha__foreign(const void *head, size_t n);

/* "a directory", "a fifo" ... for the st_mode of something that is not a regular file. */
const char *mha__file_kind(mode_t mode);

/* "NAME: WHAT: reason"; `number` is an errno. MHA_ERR_MEMORY for ENOMEM, else MHA_ERR_IO. */
mha_status mha__fail_errno(mha_error *err, const char *what, const char *name, int number);

#endif
