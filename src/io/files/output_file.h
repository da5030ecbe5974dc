/* output_file.h - a file that gets its name when it is whole: NAME.tmp.PID beside it, fsync, rename. */
#ifndef MHA_IO_FILES_OUTPUT_FILE_H
#define MHA_IO_FILES_OUTPUT_FILE_H

#include "io/files/input_file.h"
#include <limits.h>

typedef struct mha__outfile {
    char path[PATH_MAX + NAME_MAX + 2]; /* for sentences */
    char name[NAME_MAX + 1];            /* in the folder */
    char temporary[NAME_MAX + 32];
    int dir, fd;
    bool owns_dir;
    bool replaces; /* a regular file of that name exists */
    mode_t mode;   /* its permissions */
} mha__outfile;

/* The file at `path`, as mha_file_write says. */
mha_status mha__outfile_begin(mha__outfile *file, const char *path, bool overwrite, mha_error *err);
/* The new file `name` of the open folder `dir`, which sentences call `folder`; syncing that folder is the caller's. */
mha_status mha__outfile_begin_in(mha__outfile *file, int dir, const char *folder, const char *name, mha_error *err);
/* Bytes from `offset` on; what is never written is 0. */
mha_status mha__outfile_put(mha__outfile *file, size_t offset, const void *data, size_t bytes, mha_error *err);
/* Gives the file its name if `status` is MHA_OK, else removes it; returns what has become of it. */
mha_status mha__outfile_end(mha__outfile *file, mha_status status, mha_error *err);

/* `name` is a temporary file or folder that cannot be removed: says so after the sentence in *err; returns `status`. */
mha_status mha__fail_left(mha_status status, const char *name, mha_error *err);

/* Makes names in a folder last. 0, or an errno: some file systems cannot sync a folder and say EINVAL, which is none;
 * the files are whole all the same. */
int mha__sync_folder(int dir);

#endif
