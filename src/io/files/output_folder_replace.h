/* output_folder_replace.h - the last step of writing a folder that replaces an existing folder (output_folder.c). */
#ifndef MHA_IO_FILES_OUTPUT_FOLDER_REPLACE_H
#define MHA_IO_FILES_OUTPUT_FOLDER_REPLACE_H

#include "io/files/output_folder.h"

/* Folders that will be removed. They are opened before the replacement begins. */
typedef struct mha__replaced {
    DIR *old, *aside; /* NULL = the folder does not exist */
    const char *left; /* name of the folder that could not be removed */
    char name[NAME_MAX + 1];
} mha__replaced;

/* Moves the temporary folder to the final name. Renames the folder that had this name to the name `aside`, or removes
 * it. Returns 0, or an errno. If `left` is set, the new folder already has its final name. ENOENT without `left` means
 * that the entry has changed and must be checked again. */
int mha__folder_exchange(const mha__folder *f, const char *const *known, mha__replaced *r);

#endif
