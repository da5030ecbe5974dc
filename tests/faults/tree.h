/* tree.h - what lies in a folder: copied, compared by a hash, removed. */
#ifndef TEST_TREE_H
#define TEST_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of text, without what differs from run to run: the numbers of its clocks ("seconds":). */
uint64_t text_hash(const char *text, size_t bytes);
/* Of names and text in the folder and all below it; false after a message where it cannot be read. With `no_leftovers`
 * without what a killed process may leave: NAME.tmp.PID, .NAME.old.PID, .NAME.lock. */
bool tree_hash(const char *folder, bool no_leftovers, uint64_t *hash);
/* Copies what lies in `from` into the folder `to`, which is there; hard links become files. */
bool tree_copy(const char *from, const char *to);
/* Removes what lies in the folder. */
bool tree_clear(const char *folder);

#endif
