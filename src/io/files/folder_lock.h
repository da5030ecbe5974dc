/* folder_lock.h - a lock on the file .FOLDER.lock, which ensures that only one process at a time replaces a folder.
 * The lock file is next to the folder, because each checkpoint is a new folder of the same name. The process holds
 * the lock until it exits. The file is removed when the lock is released or, after a kill, by the next writer. */
#ifndef MHA_IO_FILES_FOLDER_LOCK_H
#define MHA_IO_FILES_FOLDER_LOCK_H

#include "base/error.h"
#include <stdbool.h>

/* Locks `folder`, a name in the open folder `parent`. Returns false if another process holds the lock. *fd is -1 if the
 * lock file cannot be written; a later save then reports the reason. */
bool mha__folder_lock_take(int parent, const char *folder, int *fd);
/* Removes the lock file and releases the lock; does nothing if fd is -1. Errors: MHA_ERR_IO; the lock is released even
 * then. */
mha_status mha__folder_lock_free(int parent, const char *folder, int fd, mha_error *err);
/* Returns true if a process holds the lock; false if there is no readable lock file. */
bool mha__folder_lock_held(int parent, const char *folder);

#endif
