/* train_store_struct.h - the state of an open run folder. */
#ifndef MHA_TRAIN_STORE_TRAIN_STORE_STRUCT_H
#define MHA_TRAIN_STORE_TRAIN_STORE_STRUCT_H

#include "mha/train_store.h"
#include <limits.h>
#include <stdbool.h>

struct mha_train_store {
    mha_ctx *ctx;
    bool resume, overwrite;
    char folder[PATH_MAX]; /* without trailing slashes */
    const char *name;      /* last component of the path */
    int parent;            /* descriptor of the parent folder */
    int lock;              /* descriptor of the lock file; -1 = none */
    int64_t keep;
    int64_t saved;  /* step of this run's checkpoint in the folder; -1 = none yet */
    int64_t logged; /* highest step whose FOLDER.step-STEP has been checked */
};

/* Writes the path of entry `name` of the parent folder. */
void mha__store_path(const mha_train_store *store, const char *name, char path[PATH_MAX]);

/* Chooses the name to which the next save renames the checkpoint that it replaces; sets *name to NULL if that
 * checkpoint is not kept. */
mha_status mha__retention_name(mha_train_store *store, char entry[NAME_MAX + 1], const char **name, mha_error *err);
/* Removes all kept checkpoints except the `max` newest. */
mha_status mha__retention_leave(mha_train_store *store, int64_t max, mha_error *err);
/* If `resume` is set, restores a missing folder from the checkpoint that a killed process left under another name. If
 * neither `resume` nor `overwrite` is set, fails if there is such a checkpoint. */
mha_status mha__retention_restore(const mha_train_store *store, mha_error *err);

#endif
