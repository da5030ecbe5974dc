/* output_folder.h - a folder of files that appears whole or not at all: .NAME.tmp.PID beside its place, fsync, one
 * rename. */
#ifndef MHA_IO_FILES_OUTPUT_FOLDER_H
#define MHA_IO_FILES_OUTPUT_FOLDER_H

#include "io/files/output_file.h"
#include <dirent.h>

typedef struct mha__folder {
    const char *path;             /* as the caller gave it */
    char parent[PATH_MAX];        /* where it lies */
    char name[NAME_MAX + 1];      /* its last part */
    char temporary[NAME_MAX + 1]; /* in the parent */
    char place[PATH_MAX];         /* of the temporary folder, to open it */
    int dir;                      /* the parent */
    int inside;                   /* the temporary folder */
    DIR *entries;                 /* the same: opened at first, as removing it must not take memory */
    bool overwrite;               /* a folder of that name may be replaced */
    bool replaces;                /* a folder with files of the kind that may be removed is there */
    char aside[NAME_MAX + 1];     /* the name that one gets which is replaced; "" = it is removed */
} mha__folder;

/* Names of the files that a folder may hold, and nothing else, to be replaced; a pattern "*x" stands for all names that
 * end in x, "x*" for those that begin so. NULL ends the list. Temporary folders of that name that killed processes have
 * left behind are removed, and folders that such a process had replaced, .NAME.old.PID, where NAME is there. */
mha_status mha__folder_begin(mha__folder *folder, const char *path, bool overwrite, const char *const *known,
                             mha_error *err);
/* Would that begin, and be committed? Nothing changes. */
mha_status mha__folder_check(const char *path, bool overwrite, const char *const *known, mha_error *err);
/* Before the commit: the folder that is replaced gets a name beside it. One of that name is replaced, if it holds
 * nothing but files of `known`. */
mha_status mha__folder_aside(mha__folder *folder, const char *name, const char *const *known, mha_error *err);
/* Gives the folder its name; `folder` is done with, whatever comes. Of several processes that write one name at the
 * same time each gets it in turn. Where the folder that was replaced cannot be removed, that is a failure which says
 * so; the name is the new folder's all the same. */
mha_status mha__folder_commit(mha__folder *folder, const char *const *known, mha_error *err);
/* Removes what has been written; returns `status`. A folder that stays is named after the sentence in *err. */
mha_status mha__folder_abort(mha__folder *folder, mha_status status, mha_error *err);

/* Begins a file in it, which mha__outfile_end names; or writes a whole one. */
mha_status mha__folder_file(const mha__folder *folder, const char *name, mha__outfile *file, mha_error *err);
mha_status mha__folder_put(const mha__folder *folder, const char *name, const void *data, size_t bytes, mha_error *err);

#endif
