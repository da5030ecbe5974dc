/* retention.c - keeps earlier checkpoints next to the run's folder. A kept checkpoint is named FOLDER.step-STEP. When a
 * checkpoint is replaced, it is renamed instead of removed, so keeping it writes no data. On file systems that cannot
 * exchange two folders, a process that was killed between two renames leaves .FOLDER.old.PID, which is then the only
 * checkpoint. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/files/folder_entries.h"
#include "io/files/folder_lock.h"
#include "io/files/input_file.h"
#include "mha/io.h"
#include "mha/model_save.h"
#include "train/data/grow_array.h"
#include "train/state_names.h"
#include "train/store/train_store_struct.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void mha__store_path(const mha_train_store *s, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s%s", (int)(s->name - s->folder), s->folder, name);
}

/* ---- numbered names ---- */

/* Returns the number that follows `start` in a name; -1 if the name is not `start` and a number. */
static int64_t number_after(const char *entry, const char *start)
{
    const size_t n = strlen(start);
    if (strncmp(entry, start, n) != 0) return -1;
    const char *digits = entry + n;
    const size_t count = strspn(digits, "0123456789");
    return count && count < 19 && !digits[count] ? strtoll(digits, NULL, 10) : -1;
}

/* The numbers in names that consist of a given start and a number, in ascending order. */
typedef struct number_list {
    int64_t *number; /* [count]; freed by the caller */
    int64_t count, room;
} number_list;

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static mha_status add_number(mha_ctx *ctx, number_list *list, int64_t number, mha_error *err)
{
    if (number < 0) return MHA_OK;
    MHA__TRY(mha__grow_array(ctx, &list->number, list->count, 1, sizeof *list->number, &list->room,
                             "the names of checkpoints", err));
    list->number[list->count++] = number;
    return MHA_OK;
}

static mha_status list_numbered(const mha_train_store *s, const char *start, number_list *list, mha_error *err)
{
    mha_status status = MHA_OK;
    *list = (number_list){0};
    DIR *entries = mha__entries_open(s->parent, ".");
    for (const char *e = entries ? mha__entries_next(entries) : NULL; e && status == MHA_OK;
         e = mha__entries_next(entries))
        status = add_number(s->ctx, list, number_after(e, start), err);
    if (entries) closedir(entries);
    if (list->count) qsort(list->number, (size_t)list->count, sizeof *list->number, compare);
    return status;
}

/* ---- steps of checkpoints ---- */

/* Returns the step of the checkpoint in an entry of the parent folder; -1 if there is no state file, or if it cannot be
 * read. */
static int64_t step_of(const mha_train_store *s, const char *entry, mha_error *err)
{
    char path[PATH_MAX], state[NAME_MAX + 64];
    mha_file *file;
    int64_t step = -1;
    snprintf(state, sizeof state, "%s/" MHA__TRAIN_STATE, entry);
    mha__store_path(s, state, path);
    if (mha_file_open(s->ctx, path, NULL, &file, err) != MHA_OK) return -1;
    for (int64_t n = 0; n < mha_file_metadata_count(file); n++) {
        const char *key, *value;
        if (mha_file_metadata(file, n, &key, &value, NULL) == MHA_OK && strcmp(key, MHA__TRAIN_STEP) == 0)
            step = number_after(value, "");
    }
    mha_file_free(file);
    return step;
}

int64_t mha_train_store_step(const mha_train_store *s, mha_error *err)
{
    if (s) return step_of(s, s->name, err);
    mha__fail(err, MHA_ERR_ARG, "mha_train_store_step: store must not be NULL");
    return -1;
}

/* Returns true if FOLDER.step-STEP is still the checkpoint of that step, has no other files, and is not used by a
 * run. */
static bool is_kept(const mha_train_store *s, const char *entry, int64_t step)
{
    char path[PATH_MAX];
    mha__store_path(s, entry, path);
    return mha_model_save_check(path, 1, NULL) == MHA_OK && step_of(s, entry, NULL) == step &&
           !mha__folder_lock_held(s->parent, entry);
}

static void name_kept(const mha_train_store *s, int64_t step, char entry[NAME_MAX + 1])
{
    snprintf(entry, NAME_MAX + 1, "%s.step-%lld", s->name, (long long)step);
}

static mha_status list_kept(const mha_train_store *s, number_list *list, mha_error *err)
{
    char start[NAME_MAX + 1];
    snprintf(start, sizeof start, "%s.step-", s->name);
    return list_numbered(s, start, list, err);
}

/* ---- kept checkpoints ---- */

/* Removes a checkpoint. The folder is renamed first, so that a killed process leaves a temporary folder, which the next
 * save removes. Returns 0 or an errno. */
static int remove_kept(const mha_train_store *s, const char *entry)
{
    char temporary[NAME_MAX + 1];
    mha__entry_temporary(s->name, "tmp", temporary);
    DIR *files = mha__entries_open(s->parent, entry);
    if (!files) return errno;
    int failed = mha__entries_rename(s->parent, entry, temporary);
    if (!failed) failed = mha__entries_remove(s->parent, temporary, files);
    closedir(files);
    return failed;
}

/* Reduces the list to kept checkpoints. Other folders with names of this form are logged once. */
static void only_kept(mha_train_store *s, number_list *list)
{
    char entry[NAME_MAX + 1];
    int64_t count = 0;
    mha__quoted q;
    for (int64_t n = 0; n < list->count; n++) {
        const int64_t step = list->number[n];
        name_kept(s, step, entry);
        if (is_kept(s, entry, step))
            list->number[count++] = step;
        else if (step > s->logged)
            mha__log(s->ctx, 0, "not removing %s: a training run used it, or it contains other files",
                     mha__quote(&q, entry, strlen(entry)));
        s->logged = mha__max64(s->logged, step);
    }
    list->count = count;
}

mha_status mha__retention_leave(mha_train_store *s, int64_t max, mha_error *err)
{
    char entry[NAME_MAX + 1];
    number_list list;
    mha_status status = list_kept(s, &list, err);
    if (status == MHA_OK && list.count > max) only_kept(s, &list);
    for (int64_t n = 0; n < list.count - max && status == MHA_OK; n++) {
        name_kept(s, list.number[n], entry);
        const int failed = remove_kept(s, entry);
        if (failed) status = mha__fail_errno(err, "cannot remove", entry, failed);
    }
    mha__free(s->ctx, list.number);
    return status;
}

mha_status mha_train_store_keep(mha_train_store *s, int64_t count, mha_error *err)
{
    char entry[NAME_MAX + 1];
    number_list list;
    mha__quoted q;
    if (!s) return mha__fail(err, MHA_ERR_ARG, "mha_train_store_keep: store must not be NULL");
    if (count < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_store_keep: count must be at least 0 (got %lld)",
                         (long long)count);
    s->keep = count;
    if (s->saved >= 0 || count == 0 || s->overwrite) return MHA_OK;
    mha_status status = list_kept(s, &list, err);
    if (status == MHA_OK && list.count) {
        name_kept(s, list.number[0], entry);
        status = mha__fail(err, MHA_ERR_ARG, "%s exists; set overwrite to 1 to replace it",
                           mha__quote(&q, entry, strlen(entry)));
    }
    mha__free(s->ctx, list.number);
    return status;
}

mha_status mha__retention_name(mha_train_store *s, char entry[NAME_MAX + 1], const char **name, mha_error *err)
{
    struct stat st;
    number_list list;
    *name = NULL;
    if (s->keep < 1 || s->saved < 1) return MHA_OK;
    name_kept(s, s->saved, entry);
    const bool there = fstatat(s->parent, entry, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there || is_kept(s, entry, s->saved)) {
        *name = entry;
        return MHA_OK;
    }
    const mha_status status = list_kept(s, &list, err);
    if (status == MHA_OK) only_kept(s, &list); /* logs the folders that are not kept checkpoints */
    mha__free(s->ctx, list.number);
    return status;
}

/* ---- checkpoint left by a killed process ---- */

/* Finds the .FOLDER.old.NUMBER whose checkpoint has the most steps; sets *found to false if there is no such folder. */
static mha_status find_old(const mha_train_store *s, char old[NAME_MAX + 32], bool *found, mha_error *err)
{
    char start[NAME_MAX + 1], entry[NAME_MAX + 32];
    number_list list;
    int64_t max = -2;
    snprintf(start, sizeof start, ".%s.old.", s->name);
    const mha_status status = list_numbered(s, start, &list, err);
    for (int64_t n = 0; n < list.count; n++) {
        snprintf(entry, sizeof entry, "%s%lld", start, (long long)list.number[n]);
        const int64_t step = step_of(s, entry, NULL);
        if (step <= max) continue;
        max = step;
        memcpy(old, entry, sizeof entry);
    }
    *found = list.count > 0;
    mha__free(s->ctx, list.number);
    return status;
}

static mha_status restore(const mha_train_store *s, const char *old, mha_error *err)
{
    mha__quoted q1, q2;
    const int failed = mha__entries_rename(s->parent, old, s->name);
    if (failed) return mha__fail_errno(err, "cannot rename", old, failed);
    mha__log(s->ctx, 0, "restored %s from %s: the training run was killed while replacing its checkpoint",
             mha__quote(&q1, s->name, strlen(s->name)), mha__quote(&q2, old, strlen(old)));
    return MHA_OK;
}

mha_status mha__retention_restore(const mha_train_store *s, mha_error *err)
{
    char old[NAME_MAX + 32];
    struct stat st;
    mha__quoted q1, q2;
    bool found = false;
    if (fstatat(s->parent, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0) return MHA_OK;
    MHA__TRY(find_old(s, old, &found, err));
    if (!found || (s->overwrite && !s->resume)) return MHA_OK;
    if (s->resume) return restore(s, old, err);
    return mha__fail(
        err, MHA_ERR_ARG,
        "%s was left behind by a training run that was killed while writing %s; set resume or overwrite to 1",
        mha__quote(&q1, old, strlen(old)), mha__quote(&q2, s->name, strlen(s->name)));
}
