/* folder_entries.h - lists the entries of an open folder, and removes the folder with its files. */
#ifndef MHA_IO_FILES_FOLDER_ENTRIES_H
#define MHA_IO_FILES_FOLDER_ENTRIES_H

#include <dirent.h>
#include <stdbool.h>

/* Opens the folder `name` in `dir` for listing; does not follow a symbolic link. On failure, returns NULL and sets
 * errno. */
DIR *mha__entries_open(int dir, const char *name);
/* Returns the name of the next entry, skipping "." and ".."; NULL at the end. */
const char *mha__entries_next(DIR *entries);
/* Returns true if `name` matches an entry of `known`, which ends with NULL. A pattern "*x" matches names that end in
 * x, "x*" names that begin with x. */
bool mha__entries_known(const char *name, const char *const *known);
/* Returns true if `name` in `dir` still refers to the open folder `entries`. */
bool mha__entries_are(int dir, const char *name, DIR *entries);
/* Renames an entry of `dir`. Returns 0, or an errno. */
int mha__entries_rename(int dir, const char *from, const char *to);
/* Removes the files listed by `entries` from the folder `name` in `dir`, and then the folder. Returns 0, or an errno if
 * the folder still exists. Another process may remove the same folder concurrently, so a missing entry counts as
 * removed. Allocates no memory. */
int mha__entries_remove(int dir, const char *name, DIR *entries);

#endif
