/* output_folder.c - writes a folder under a temporary name next to its destination, then renames it.
 *
 * Invariant: a single rename or exchange modifies the entry of the final name, after all files are on disk. Only files
 * with known names are removed, and only from a folder that contains no other files. */
#include "io/files/output_folder.h"

#include "io/files/folder_entries.h"
#include "io/files/output_folder_replace.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static mha_status fail(const mha__folder *f, int number, mha_error *err)
{
    return mha__fail_errno(err, "cannot write", f->path, number);
}

/* ---- folder names ---- */

static mha_status split_path(mha__folder *f, const char *path, mha_error *err)
{
    size_t n = strlen(path);
    *f = (mha__folder){.path = path, .dir = -1, .inside = -1};
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    const size_t name = n - start;
    if (!name || !mha__bare_name(path + start, name)) return fail(f, name ? EEXIST : ENOENT, err);
    if (n >= sizeof f->parent - 2 || name > MHA__FOLDER_NAME_MAX) return fail(f, ENAMETOOLONG, err);
    memcpy(f->name, path + start, name);
    if (start)
        memcpy(f->parent, path, start);
    else
        memcpy(f->parent, "./", 2);
    mha__entry_temporary(f->name, "tmp", f->temporary);
    const int length = snprintf(f->place, sizeof f->place, "%s%s", f->parent, f->temporary);
    return length < (int)sizeof f->place ? MHA_OK : fail(f, ENAMETOOLONG, err);
}

/* ---- content of a folder ---- */

/* Checks whether the entry `name` of the existing folder may be removed. A missing entry passes the check, because
 * another process may be replacing the folder. */
static mha_status look_at(mha__folder *f, int dir, const char *name, const char *const *known, mha_error *err)
{
    struct stat st;
    mha__quoted q1 = {0}, q2 = {0};
    mha__quote(&q1, f->path, strlen(f->path));
    mha__quote(&q2, name, strlen(name));
    if (!f->overwrite) return mha__fail(err, MHA_ERR_IO, "%s: cannot overwrite: it contains %s", q1.text, q2.text);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? MHA_OK : fail(f, errno, err);
    if (S_ISDIR(st.st_mode) || !mha__entries_known(name, known))
        return mha__fail(err, MHA_ERR_IO, "%s: cannot overwrite: it contains %s, which is not a checkpoint file",
                         q1.text, q2.text);
    f->replaces = true;
    return MHA_OK;
}

/* Checks whether an existing entry with the final name may be replaced; does not follow symbolic links. */
static mha_status look(mha__folder *f, const char *const *known, mha_error *err)
{
    struct stat st;
    mha__quoted q = {0};
    f->replaces = false;
    if (fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? MHA_OK : fail(f, errno, err);
    if (!S_ISDIR(st.st_mode))
        return mha__fail(err, MHA_ERR_IO, "%s: cannot overwrite: it is %s", mha__quote(&q, f->path, strlen(f->path)),
                         S_ISREG(st.st_mode)   ? "a file"
                         : S_ISLNK(st.st_mode) ? "a symbolic link"
                                               : mha__file_kind(st.st_mode));
    DIR *entries = mha__entries_open(f->dir, f->name);
    if (!entries) return errno == ENOENT ? MHA_OK : fail(f, errno, err);
    mha_status status = MHA_OK;
    for (const char *e = mha__entries_next(entries); e && status == MHA_OK; e = mha__entries_next(entries))
        status = look_at(f, dirfd(entries), e, known, err);
    closedir(entries);
    return status;
}

static bool is_there(const mha__folder *f)
{
    struct stat st;
    return fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Removes a folder left by a killed process. If NAME does not exist, a leftover .NAME.old.PID is the only
 * remaining copy and is kept; no other process can have removed NAME while the lock is held. A folder that has been
 * renamed in the meantime is complete, not a leftover. A folder that cannot be removed remains. */
static void remove_if_left(const mha__folder *f, const char *entry)
{
    const bool old = mha__entry_is_temporary(entry, f->name, "old");
    DIR *entries = old || mha__entry_is_temporary(entry, f->name, "tmp") ? mha__entries_open(f->dir, entry) : NULL;
    if (!entries) return;
    const bool left = mha__entry_is_left(f->dir, entry, dirfd(entries));
    if (left && (!old || is_there(f))) mha__entries_remove(f->dir, entry, entries);
    closedir(entries);
}

static void remove_leftovers(const mha__folder *f)
{
    DIR *entries = mha__entries_open(f->dir, ".");
    for (const char *e = entries ? mha__entries_next(entries) : NULL; e; e = mha__entries_next(entries))
        remove_if_left(f, e);
    if (entries) closedir(entries);
}

/* ---- beginning a folder ---- */

/* Creates and locks the temporary folder. Before the folder is locked, another process may mistake it for a leftover
 * and remove it; the folder is then created again. On a file system without locks, leftovers are kept. */
static mha_status create_temporary(mha__folder *f, mha_error *err)
{
    for (;;) {
        if (mkdirat(f->dir, f->temporary, 0777) != 0)
            return errno == EEXIST ? mha__fail_in_use(err, f->path, f->place) : fail(f, errno, err);
        f->entries = mha__entries_open(f->dir, f->temporary);
        const int number = errno;
        if (!f->entries && number != ENOENT) {
            unlinkat(f->dir, f->temporary, AT_REMOVEDIR);
            return fail(f, number, err);
        }
        if (!f->entries) continue;
        f->inside = dirfd(f->entries);
        mha__entry_lock(f->inside, true);
        if (mha__entry_is(f->dir, f->temporary, f->inside)) return MHA_OK;
        closedir(f->entries);
        f->entries = NULL;
        f->inside = -1;
    }
}

static void close_both(mha__folder *f)
{
    if (f->entries) closedir(f->entries);
    if (f->dir >= 0) close(f->dir);
    f->entries = NULL;
    f->inside = f->dir = -1;
}

/* Opens the parent folder and checks whether an existing entry with the final name may be replaced. */
static mha_status open_parent(mha__folder *f, const char *path, bool overwrite, const char *const *known,
                              mha_error *err)
{
    MHA__TRY(split_path(f, path, err));
    f->dir = mha__open_at(AT_FDCWD, f->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (f->dir < 0) return fail(f, errno, err);
    f->overwrite = overwrite;
    return look(f, known, err);
}

mha_status mha__folder_check(const char *path, bool overwrite, const char *const *known, mha_error *err)
{
    mha__folder f;
    mha_status status = open_parent(&f, path, overwrite, known, err);
    if (status == MHA_OK && faccessat(f.dir, ".", W_OK | X_OK, 0) != 0) status = fail(&f, errno, err);
    close_both(&f);
    return status;
}

mha_status mha__folder_begin(mha__folder *folder, const char *path, bool overwrite, const char *const *known,
                             mha_error *err)
{
    mha_status status = open_parent(folder, path, overwrite, known, err);
    if (status == MHA_OK) {
        remove_leftovers(folder);
        status = create_temporary(folder, err);
    }
    if (status != MHA_OK) close_both(folder);
    return status;
}

mha_status mha__folder_aside(mha__folder *folder, const char *name, const char *const *known, mha_error *err)
{
    mha__folder other = *folder;
    const size_t bytes = strlen(name);
    other.path = name;
    other.overwrite = true;
    if (!mha__bare_name(name, bytes) || strcmp(name, folder->name) == 0) return fail(&other, EINVAL, err);
    if (bytes > NAME_MAX) return fail(&other, ENAMETOOLONG, err);
    memcpy(other.name, name, bytes + 1);
    MHA__TRY(look(&other, known, err));
    memcpy(folder->aside, name, bytes + 1);
    return MHA_OK;
}

mha_status mha__folder_abort(mha__folder *folder, mha_status status, mha_error *err)
{
    const bool left = folder->entries && mha__entries_remove(folder->dir, folder->temporary, folder->entries) != 0;
    close_both(folder);
    return left ? mha__fail_left(status, folder->temporary, err) : status;
}

/* ---- commit ---- */

/* Moves the folder to its final name. Returns 0, or an errno. */
static int take_name(const mha__folder *f, const char *const *known, mha__replaced *r)
{
    if (f->replaces) return mha__folder_exchange(f, known, r);
    return renameat(f->dir, f->temporary, f->dir, f->name) == 0 ? 0 : errno;
}

/* Returns true if another process created or removed the entry between the check and the rename. */
static bool is_overtaken(const mha__folder *f, int failed)
{
    return f->replaces ? failed == ENOENT : failed == ENOTEMPTY || failed == EEXIST;
}

static mha_status fail_left(const mha__folder *f, const char *left, int number, mha_error *err)
{
    mha__quoted q = {0};
    char why[sizeof q.text + 64];
    snprintf(why, sizeof why, "written, but cannot remove %s, which it replaces", mha__quote(&q, left, strlen(left)));
    return mha__fail_errno(err, why, f->path, number);
}

mha_status mha__folder_commit(mha__folder *folder, const char *const *known, mha_error *err)
{
    enum { TURNS = 1000 }; /* maximum attempts; an attempt fails if another process changes the entry first */
    mha__folder *f = folder;
    mha__replaced r = {0};
    int failed = mha__sync_folder(f->inside);
    mha_status status = failed ? fail(f, failed, err) : MHA_OK;
    for (int turn = 0; status == MHA_OK; turn++) {
        status = look(f, known, err); /* check again, because the entry may have changed */
        failed = status == MHA_OK ? take_name(f, known, &r) : 0;
        if (!failed || r.left || !is_overtaken(f, failed) || turn == TURNS) break;
    }
    if (status == MHA_OK && failed) status = r.left ? fail_left(f, r.left, failed, err) : fail(f, failed, err);
    if (status != MHA_OK && !r.left) return mha__folder_abort(f, status, err);
    failed = mha__sync_folder(f->dir);
    if (failed && status == MHA_OK) status = fail(f, failed, err);
    close_both(f);
    return status;
}

/* ---- files of the folder ---- */

mha_status mha__folder_put(const mha__folder *folder, const char *name, const void *data, size_t bytes, mha_error *err)
{
    mha__outfile file;
    MHA__TRY(mha__folder_file(folder, name, &file, err));
    return mha__outfile_end(&file, mha__outfile_put(&file, 0, data, bytes, err), err);
}

mha_status mha__folder_file(const mha__folder *folder, const char *name, mha__outfile *file, mha_error *err)
{
    return mha__outfile_begin_in(file, folder->inside, folder->path, name, err);
}
