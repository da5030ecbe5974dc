/* folder_entries.h - the entries of an open folder: listed, and removed with it. */
#ifndef MHA_IO_FILES_FOLDER_ENTRIES_H
#define MHA_IO_FILES_FOLDER_ENTRIES_H

#include <dirent.h>
#include <stdbool.h>

/* The folder `name` in `dir`, to go through; not through a symbolic link. NULL with errno. */
DIR *mha__entries_open(int dir, const char *name);
/* The name of the next entry but "." and ".."; NULL at the end. */
const char *mha__entries_next(DIR *entries);
/* Is `name` one of `known`? A pattern "*x" there stands for all names that end in x, "x*" for those that begin so; NULL
 * ends the list. */
bool mha__entries_known(const char *name, const char *const *known);
/* Is this open folder still the one of that name? */
bool mha__entries_are(int dir, const char *name, DIR *entries);
/* Removes the files of the folder `name` in `dir`, which `entries` lists, and then the folder. 0, or an errno: it is
 * there still. Another process may be about to do the same, so what is not there any more has been removed. Takes no
 * memory. */
int mha__entries_remove(int dir, const char *name, DIR *entries);

#endif
