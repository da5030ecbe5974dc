/* train_store.c - opens and locks the folder of a training run, and resumes and saves the run. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "io/files/folder_entries.h"
#include "io/files/folder_lock.h"
#include "io/files/input_file.h"
#include "train/state_names.h"
#include "train/store/train_store_struct.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- opening and locking ---- */

static mha_status take_folder(mha_train_store *s, const char *folder, mha_error *err)
{
    size_t n = strlen(folder);
    mha__quoted q;
    while (n > 0 && folder[n - 1] == '/')
        n--;
    if (n < sizeof s->folder) memcpy(s->folder, folder, n);
    const char *slash = n < sizeof s->folder ? strrchr(s->folder, '/') : NULL;
    s->name = slash ? slash + 1 : s->folder;
    if (n < sizeof s->folder && *s->name && strlen(s->name) <= MHA__FOLDER_NAME_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "mha_train_store_open: the last component of folder must have 1 to %d bytes (got \"%s\")",
                     MHA__FOLDER_NAME_MAX, mha__quote(&q, folder, strlen(folder)));
}

static mha_status open_parent(mha_train_store *s, mha_error *err)
{
    char path[PATH_MAX];
    mha__store_path(s, "", path);
    s->parent = mha__open_at(AT_FDCWD, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return s->parent >= 0 ? MHA_OK : mha__fail_errno(err, "cannot write", s->folder, errno);
}

static mha_status lock(mha_train_store *s, mha_error *err)
{
    mha__quoted q;
    if (mha__folder_lock_take(s->parent, s->name, &s->lock)) return MHA_OK;
    return mha__fail(err, MHA_ERR_IO, "%s: another training run is writing to it",
                     mha__quote(&q, s->folder, strlen(s->folder)));
}

mha_status mha_train_store_open(mha_ctx *ctx, const char *folder, const mha_train_store_options *options,
                                mha_train_store **out, mha_error *err)
{
    mha_train_store_options o;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_train_store_open: out must not be NULL");
    *out = NULL;
    if (!folder) return mha__fail(err, MHA_ERR_ARG, "mha_train_store_open: folder must not be NULL");
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_train_store_options", err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha_train_store *s = mha__calloc(ctx, 1, sizeof *s);
    if (!s) return mha__no_memory(err, sizeof *s, "the folder of a training run");
    s->ctx = ctx;
    s->resume = o.resume != 0;
    s->overwrite = o.overwrite != 0;
    s->parent = s->lock = -1;
    s->saved = s->logged = -1;
    mha_status status = take_folder(s, folder, err);
    if (status == MHA_OK) status = open_parent(s, err);
    if (status == MHA_OK) status = lock(s, err);
    if (status == MHA_OK) status = mha__retention_restore(s, err);
    if (status == MHA_OK)
        *out = s;
    else
        mha_train_store_close(s, NULL);
    return status;
}

mha_status mha_train_store_close(mha_train_store *s, mha_error *err)
{
    if (!s) return MHA_OK;
    const mha_status status = mha__folder_lock_free(s->parent, s->name, s->lock, err);
    if (s->parent >= 0) close(s->parent);
    mha__free(s->ctx, s);
    return status;
}

/* ---- resuming and saving ---- */

int mha_train_store_has_checkpoint(const mha_train_store *s)
{
    return s && s->resume && mha__source_exists(s->folder, MHA__TRAIN_STATE);
}

mha_status mha_train_store_resume(mha_train_store *s, const mha_train_options *options, mha_trainer **out,
                                  mha_error *err)
{
    if (out) *out = NULL;
    if (!s) return mha__fail(err, MHA_ERR_ARG, "mha_train_store_resume: store must not be NULL");
    MHA__TRY(mha_trainer_resume(s->ctx, s->folder, options, out, err));
    s->saved = mha_trainer_step_count(*out);
    return MHA_OK;
}

mha_status mha_train_store_save(mha_train_store *s, const mha_trainer *trainer, const mha_train_file *files,
                                int64_t file_count, mha_error *err)
{
    char entry[NAME_MAX + 1];
    const char *aside;
    if (!s) return mha__fail(err, MHA_ERR_ARG, "mha_train_store_save: store must not be NULL");
    const bool begins = s->saved < 0;
    MHA__TRY(mha__retention_name(s, entry, &aside, err));
    const mha_trainer_save_options o = {.size = sizeof o,
                                        .overwrite = s->overwrite || !begins,
                                        .files = files,
                                        .file_count = file_count,
                                        .aside = aside};
    MHA__TRY(mha_trainer_save(trainer, s->folder, &o, err));
    s->saved = mha_trainer_step_count(trainer);
    return s->keep ? mha__retention_leave(s, begins ? 0 : s->keep, err) : MHA_OK;
}
