/* files.h - files for tests: read one, and a folder of one's own that goes away. */
#ifndef MHA_TEST_FILES_H
#define MHA_TEST_FILES_H

#include <stddef.h>

/* A fresh empty folder below $TMPDIR or /tmp; aborts the test if there is none. The name lives until the program
 * ends. */
const char *files_folder(void);
/* Removes the folder's files (not folders inside it) and the folder. */
void files_remove(const char *folder);
/* How many entries the folder has. */
int files_count(const char *folder);

/* "FOLDER/NAME" in one of eight buffers that take turns. */
const char *files_path(const char *folder, const char *name);

/* The content of a file in malloc's memory, NUL after it, or NULL; *n may not be NULL. */
char *files_read(const char *path, size_t *n);
/* Creates or replaces a file; aborts the test on failure. */
void files_write(const char *path, const void *bytes, size_t n);

#endif
