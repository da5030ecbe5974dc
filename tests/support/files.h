/* files.h - reads, writes and removes files of tests, and creates temporary folders. */
#ifndef MHA_TEST_FILES_H
#define MHA_TEST_FILES_H

#include <stddef.h>

/* Creates an empty folder below $TMPDIR or /tmp; fails the running test on error. The name is valid until the program
 * ends. */
const char *files_folder(void);
/* Removes a folder and its files; the folder must have no subfolders. */
void files_remove(const char *folder);
/* Returns the number of entries in a folder. */
int files_count(const char *folder);

/* Returns the path "FOLDER/NAME", which is valid until the eighth next call. */
const char *files_path(const char *folder, const char *name);

/* Returns the contents of a file, followed by NUL and allocated by malloc, and sets *n to their size; NULL on failure.
 */
char *files_read(const char *path, size_t *n);
/* Creates or replaces a file; fails the running test on error. */
void files_write(const char *path, const void *bytes, size_t n);

#endif
