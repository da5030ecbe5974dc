/* tree.h - copies, hashes and removes the contents of a folder. */
#ifndef TEST_TREE_H
#define TEST_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns a hash of a text without its times and speeds ("seconds":), which differ between runs. */
uint64_t text_hash(const char *text, size_t bytes);
/* Computes a hash of the names and contents of all files in the folder. Returns false after printing a message. With
 * `no_leftovers`, skips files that a killed process may leave: .NAME.tmp.PID, .NAME.old.PID, .NAME.lock. */
bool tree_hash(const char *folder, bool no_leftovers, uint64_t *hash);
/* Copies the contents of `from` into the existing folder `to`; each hard link becomes a separate file. */
bool tree_copy(const char *from, const char *to);
/* Removes the contents of a folder. */
bool tree_clear(const char *folder);

#endif
