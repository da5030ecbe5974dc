/* output_folder.h - writes a folder of files that appears complete or not at all: it is written as .NAME.tmp.PID next
 * to its destination, synced and renamed. */
#ifndef MHA_IO_FILES_OUTPUT_FOLDER_H
#define MHA_IO_FILES_OUTPUT_FOLDER_H

#include "io/files/output_file.h"
#include <dirent.h>

typedef struct mha__folder {
    const char *path;             /* path as passed by the caller */
    char parent[PATH_MAX];        /* path of the parent folder */
    char name[NAME_MAX + 1];      /* last component of the path */
    char temporary[NAME_MAX + 1]; /* temporary name in the parent folder */
    char place[PATH_MAX];         /* path of the temporary folder */
    int dir;                      /* descriptor of the parent folder */
    int inside;                   /* descriptor of the temporary folder */
    DIR *entries;                 /* the temporary folder, opened in advance because removing it must not allocate
                                     memory */
    bool overwrite;               /* true if an existing folder with the final name may be replaced */
    bool replaces;                /* true if a folder with the final name exists and contains only removable files */
    char aside[NAME_MAX + 1];     /* new name of the replaced folder; "" = it is removed */
} mha__folder;

/* Begins writing a folder at `path`. An existing folder is replaced only if all of its files are listed in `known`. A
 * pattern "*x" matches names that end in x, "x*" names that begin with x; NULL ends the list. Removes temporary folders
 * of that name left by killed processes, and, if NAME exists, folders that such a process had replaced
 * (.NAME.old.PID). */
mha_status mha__folder_begin(mha__folder *folder, const char *path, bool overwrite, const char *const *known,
                             mha_error *err);
/* Checks whether a folder at `path` can be written, without changing anything. */
mha_status mha__folder_check(const char *path, bool overwrite, const char *const *known, mha_error *err);
/* Keeps the replaced folder under another name next to the new folder; must be called before the commit. An existing
 * folder of that name is replaced if it contains only files listed in `known`. */
mha_status mha__folder_aside(mha__folder *folder, const char *name, const char *const *known, mha_error *err);
/* Moves the folder to its final name. Releases `folder` even on failure. If several processes write one name
 * concurrently, their commits take effect one after another. If the replaced folder cannot be removed, fails with a
 * message, but the new folder already has its final name. */
mha_status mha__folder_commit(mha__folder *folder, const char *const *known, mha_error *err);
/* Removes the temporary folder; returns `status`. If the folder cannot be removed, the message in *err names it. */
mha_status mha__folder_abort(mha__folder *folder, mha_status status, mha_error *err);

/* mha__folder_file begins a file in the folder, which mha__outfile_end completes. mha__folder_put writes a whole
 * file. */
mha_status mha__folder_file(const mha__folder *folder, const char *name, mha__outfile *file, mha_error *err);
mha_status mha__folder_put(const mha__folder *folder, const char *name, const void *data, size_t bytes, mha_error *err);

#endif
