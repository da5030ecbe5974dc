/* train_store_struct.h - the folder of a run, and what lies beside it. */
#ifndef MHA_TRAIN_STORE_TRAIN_STORE_STRUCT_H
#define MHA_TRAIN_STORE_TRAIN_STORE_STRUCT_H

#include "mha/train_store.h"
#include <limits.h>
#include <stdbool.h>

struct mha_train_store {
    mha_ctx *ctx;
    bool resume, overwrite;
    char folder[PATH_MAX]; /* without slashes at its end */
    const char *name;      /* its last part */
    int parent;            /* the folder that it lies in, opened */
    int lock;              /* descriptor of its lock; -1 = none */
    int64_t keep;
    int64_t saved;  /* step of the checkpoint in the folder; -1: it has none of this run */
    int64_t logged; /* highest step whose FOLDER.step-STEP has been looked at */
};

/* "NAME" in the parent as a path. */
void mha__store_path(const mha_train_store *store, const char *name, char path[PATH_MAX]);

/* The name for the checkpoint that is replaced; *name is NULL if it is not kept. */
mha_status mha__retention_name(mha_train_store *store, char entry[NAME_MAX + 1], const char **name, mha_error *err);
/* Removes kept checkpoints but the newest `most`. */
mha_status mha__retention_leave(mha_train_store *store, int64_t most, mha_error *err);
/* With `resume`, gives the folder the checkpoint back that a killed run had only renamed. */
mha_status mha__retention_restore(const mha_train_store *store, mha_error *err);

#endif
