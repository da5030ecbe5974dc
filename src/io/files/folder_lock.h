/* folder_lock.h - one writer at a time for a folder that is replaced: a lock on .FOLDER.lock, which lies beside the
 * folder as each checkpoint is another folder of that name. The lock ends with the process; the file is removed with
 * the lock, and after a kill by the next writer. */
#ifndef MHA_IO_FILES_FOLDER_LOCK_H
#define MHA_IO_FILES_FOLDER_LOCK_H

#include "base/error.h"
#include <stdbool.h>

/* Locks `folder`, a name in the open folder `parent`. False: another process holds the lock. *fd is -1 where the file
 * cannot be written; whoever then saves fails with the reason. */
bool mha__folder_lock_take(int parent, const char *folder, int *fd);
/* Removes the file and ends the lock; fd -1: nothing. Errors: MHA_ERR_IO; the lock has ended even so. */
mha_status mha__folder_lock_free(int parent, const char *folder, int fd, mha_error *err);
bool mha__folder_lock_held(int parent, const char *folder);

#endif
