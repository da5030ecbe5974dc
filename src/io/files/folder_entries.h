/* folder_entries.h - lists the entries of an open folder, names temporary ones, and removes the folder with its files.
 */
#ifndef MHA_IO_FILES_FOLDER_ENTRIES_H
#define MHA_IO_FILES_FOLDER_ENTRIES_H

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>

/* Maximum length of a folder name; leaves space for .NAME.tmp.PID, .NAME.old.PID and NAME.step-STEP. */
enum { MHA__FOLDER_NAME_MAX = NAME_MAX - 32 };

/* Opens the folder `name` in `dir` for listing; does not follow a symbolic link. On failure, returns NULL and sets
 * errno. */
DIR *mha__entries_open(int dir, const char *name);
/* Returns the name of the next entry, skipping "." and ".."; NULL at the end. */
const char *mha__entries_next(DIR *entries);
/* Returns true if `name` matches an entry of `known`, which ends with NULL. A pattern "*x" matches names that end in
 * x, "x*" names that begin with x. */
bool mha__entries_known(const char *name, const char *const *known);
/* Returns true if `name` in `dir` still refers to the open file or folder `fd`. */
bool mha__entry_is(int dir, const char *name, int fd);

/* Stores the name .NAME.KIND.PID, where KIND is "tmp" or "old"; NAME is truncated to MHA__FOLDER_NAME_MAX bytes. */
void mha__entry_temporary(const char *name, const char *kind, char temporary[NAME_MAX + 1]);
/* Returns true if the entry has such a name, with the number of any process. */
bool mha__entry_is_temporary(const char *entry, const char *name, const char *kind);
/* Locks an open temporary file or folder until it is closed; waits for another process if `waits` is true. Returns
 * false if it cannot be locked: in use, or on a file system without locks. */
bool mha__entry_lock(int fd, bool waits);
/* Locks an open temporary file or folder. A process that writes or replaces one holds a lock on it, so one that can be
 * locked was left by a killed process. Returns false if it is in use, or no longer has this name. */
bool mha__entry_is_left(int dir, const char *name, int fd);

/* Renames an entry of `dir`. Returns 0, or an errno. */
int mha__entries_rename(int dir, const char *from, const char *to);
/* Removes the files listed by `entries` from the folder `name` in `dir`, and then the folder. Returns 0, or an errno if
 * the folder still exists. Another process may remove the same folder concurrently, so a missing entry counts as
 * removed. Allocates no memory. */
int mha__entries_remove(int dir, const char *name, DIR *entries);

#endif
