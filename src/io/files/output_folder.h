/* output_folder.h - a folder of files that appears complete or not at all: .NAME.tmp.PID next to its destination,
 * fsync, one rename. */
#ifndef MHA_IO_FILES_OUTPUT_FOLDER_H
#define MHA_IO_FILES_OUTPUT_FOLDER_H

#include "io/files/output_file.h"
#include <dirent.h>

typedef struct mha__folder {
    const char *path;             /* as the caller passed it */
    char parent[PATH_MAX];        /* path of the parent folder */
    char name[NAME_MAX + 1];      /* last component of the path */
    char temporary[NAME_MAX + 1]; /* name in the parent */
    char place[PATH_MAX];         /* path of the temporary folder, to open it */
    int dir;                      /* descriptor of the parent */
    int inside;                   /* descriptor of the temporary folder */
    DIR *entries;                 /* the same folder: opened in advance, since removing it must not allocate memory */
    bool overwrite;               /* an existing folder of that name may be replaced */
    bool replaces;                /* such a folder exists, and contains only files that may be removed */
    char aside[NAME_MAX + 1];     /* new name of the replaced folder; "" = it is removed */
} mha__folder;

/* Begins a folder at `path`. `known` lists the names of files that an existing folder may contain, and nothing else,
 * to be replaced. A pattern "*x" matches names that end in x, "x*" names that begin with x; NULL ends the list.
 * Removes temporary folders of that name left behind by killed processes, and, if NAME exists, folders that such a
 * process had replaced (.NAME.old.PID). */
mha_status mha__folder_begin(mha__folder *folder, const char *path, bool overwrite, const char *const *known,
                             mha_error *err);
/* Checks whether that folder could be begun and committed; changes nothing. */
mha_status mha__folder_check(const char *path, bool overwrite, const char *const *known, mha_error *err);
/* Before the commit: keeps the replaced folder under another name next to it. An existing folder of that name is
 * replaced if it contains only files of `known`. */
mha_status mha__folder_aside(mha__folder *folder, const char *name, const char *const *known, mha_error *err);
/* Moves the folder to its final name. `folder` is released in any case. If several processes write one name
 * concurrently, their commits take effect one after another. If the replaced folder cannot be removed, this is a
 * failure with a message; the new folder has its name anyway. */
mha_status mha__folder_commit(mha__folder *folder, const char *const *known, mha_error *err);
/* Removes the temporary folder; returns `status`. If it cannot be removed, the message in *err names it. */
mha_status mha__folder_abort(mha__folder *folder, mha_status status, mha_error *err);

/* Begins a file in the folder, which mha__outfile_end completes; or writes a whole file. */
mha_status mha__folder_file(const mha__folder *folder, const char *name, mha__outfile *file, mha_error *err);
mha_status mha__folder_put(const mha__folder *folder, const char *name, const void *data, size_t bytes, mha_error *err);

#endif
