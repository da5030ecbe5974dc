/* output_folder_replace.h - the last step of a folder that replaces another one (output_folder.c). */
#ifndef MHA_IO_FILES_OUTPUT_FOLDER_REPLACE_H
#define MHA_IO_FILES_OUTPUT_FOLDER_REPLACE_H

#include "io/files/output_folder.h"

/* Folders that go, opened before anything is changed. */
typedef struct mha__replaced {
    DIR *old, *aside; /* NULL: not there */
    const char *left; /* what could not be removed */
    char name[NAME_MAX + 1];
} mha__replaced;

/* The temporary folder gets the name, and the folder that had it the name aside, or is removed. 0, or an errno: with
 * `left` if the new folder has its name all the same; ENOENT without it if what stood at the name is to be looked at
 * again. */
int mha__folder_exchange(const mha__folder *f, const char *const *known, mha__replaced *r);

#endif
