/* output_file.h - writes a file that appears only when complete: it is written as .NAME.tmp.PID in the same
 * folder, synced and renamed. */
#ifndef MHA_IO_FILES_OUTPUT_FILE_H
#define MHA_IO_FILES_OUTPUT_FILE_H

#include "io/files/input_file.h"
#include <limits.h>

typedef struct mha__outfile {
    char path[PATH_MAX + NAME_MAX + 2]; /* path for messages */
    char name[NAME_MAX + 1];            /* file name in its folder */
    char temporary[NAME_MAX + 1];       /* name of the temporary file */
    int dir, fd;
    bool owns_dir;
    bool replaces; /* true if a regular file with the final name exists */
    mode_t mode;   /* permissions of the existing file */
} mha__outfile;

/* Begins writing the file at `path`; the rules of mha_file_write apply. Removes temporary files of that name left
 * behind by killed processes. */
mha_status mha__outfile_begin(mha__outfile *file, const char *path, bool overwrite, mha_error *err);
/* Begins writing the new file `name` in the open folder `dir`; messages name the folder `folder`. The caller must sync
 * the folder. */
mha_status mha__outfile_begin_in(mha__outfile *file, int dir, const char *folder, const char *name, mha_error *err);
/* Writes bytes at `offset`; unwritten bytes are 0. */
mha_status mha__outfile_put(mha__outfile *file, size_t offset, const void *data, size_t bytes, mha_error *err);
/* Renames the file to its final name if `status` is MHA_OK, otherwise removes it. Returns the resulting status. */
mha_status mha__outfile_end(mha__outfile *file, mha_status status, mha_error *err);

/* Syncs the entries of a folder to disk. Returns 0, or an errno. EINVAL counts as success: some file systems cannot
 * sync a folder, and the files are complete anyway. */
int mha__sync_folder(int dir);

#endif
