/* folder.c - a folder written beside its place and then named.
 *
 * Invariant: the name is touched by one rename, or one exchange, and only when every file lies on the disk. What is
 * removed are files of known names in a folder that holds no others.
 */
#include "io/folder.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/fs.h>
#include <sys/syscall.h>
#endif

static mha_status fail(const mha__folder *f, int number, mha_error *err)
{
    return mha__fail_errno(err, "cannot write", f->path, number);
}

/* ---- names ---- */

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
    if (n >= sizeof f->parent - 2 || name > NAME_MAX - 32) return fail(f, ENAMETOOLONG, err);
    memcpy(f->name, path + start, name);
    if (start)
        memcpy(f->parent, path, start);
    else
        memcpy(f->parent, "./", 2);
    snprintf(f->temporary, sizeof f->temporary, ".%.*s.tmp.%ld", (int)name, f->name, (long)getpid());
    const int length = snprintf(f->place, sizeof f->place, "%s%s", f->parent, f->temporary);
    return length < (int)sizeof f->place ? MHA_OK : fail(f, ENAMETOOLONG, err);
}

static bool is_known(const char *name, const char *const *known)
{
    for (; *known; known++) {
        const char *want = *known;
        const size_t n = strlen(name), all = strlen(want), most = all - 1;
        if (want[0] == '*' && n >= most && strcmp(name + n - most, want + 1) == 0) return true;
        if (want[most] == '*' && strncmp(name, want, most) == 0) return true;
        if (strcmp(name, want) == 0) return true;
    }
    return false;
}

/* ---- what lies in a folder ---- */

typedef mha_status (*visit_fn)(void *user, int dir, const char *name, mha_error *err);

/* Calls `visit` for each entry of the folder `name` in `dir`. */
static mha_status each_entry(const mha__folder *f, const char *name, visit_fn visit, void *user, mha_error *err)
{
    const int fd = openat(f->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        const int number = errno;
        if (fd >= 0) close(fd);
        return fail(f, number, err);
    }
    mha_status status = MHA_OK;
    for (struct dirent *e = readdir(entries); e && status == MHA_OK; e = readdir(entries))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) status = visit(user, fd, e->d_name, err);
    closedir(entries);
    return status;
}

typedef struct look_job {
    mha__folder *folder;
    const char *const *known;
    bool overwrite;
} look_job;

static mha_status look_at(void *user, int dir, const char *name, mha_error *err)
{
    const look_job *job = user;
    struct stat st;
    mha__quoted q1 = {0}, q2 = {0};
    mha__quote(&q1, job->folder->path, strlen(job->folder->path));
    mha__quote(&q2, name, strlen(name));
    if (!job->overwrite)
        return mha__fail(err, MHA_ERR_IO, "%s: will not be written over: it holds %s", q1.text, q2.text);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return fail(job->folder, errno, err);
    if (S_ISDIR(st.st_mode) || !is_known(name, job->known))
        return mha__fail(err, MHA_ERR_IO, "%s: will not be written over: it holds %s, which is no file of a checkpoint",
                         q1.text, q2.text);
    job->folder->replaces = true;
    return MHA_OK;
}

/* What stands at the name now; symbolic links are not followed. */
static mha_status look(mha__folder *f, bool overwrite, const char *const *known, mha_error *err)
{
    struct stat st;
    mha__quoted q = {0};
    if (fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? MHA_OK : fail(f, errno, err);
    if (!S_ISDIR(st.st_mode))
        return mha__fail(err, MHA_ERR_IO, "%s: will not be written over: it is %s",
                         mha__quote(&q, f->path, strlen(f->path)),
                         S_ISREG(st.st_mode)   ? "a file"
                         : S_ISLNK(st.st_mode) ? "a symbolic link"
                                               : mha__file_kind(st.st_mode));
    look_job job = {f, known, overwrite};
    return each_entry(f, f->name, look_at, &job, err);
}

static mha_status remove_entry(void *user, int dir, const char *name, mha_error *err)
{
    (void)user, (void)err;
    unlinkat(dir, name, 0);
    return MHA_OK;
}

/* As far as it goes: what cannot be removed stays. */
static void remove_folder(const mha__folder *f, const char *name)
{
    each_entry(f, name, remove_entry, NULL, NULL);
    unlinkat(f->dir, name, AT_REMOVEDIR);
}

static bool is_there(const mha__folder *f)
{
    struct stat st;
    return fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ".NAME.tmp.PID", with "tmp" for `kind`? */
static bool is_leftover(const mha__folder *f, const char *entry, const char *kind)
{
    char start[NAME_MAX + 1];
    const int length = snprintf(start, sizeof start, ".%.*s.%s.", NAME_MAX - 32, f->name, kind);
    const char *number = entry + length;
    return strncmp(entry, start, (size_t)length) == 0 && *number && !number[strspn(number, "0123456789")];
}

/* Whoever writes a temporary folder, or replaces one, holds a lock on it, which ends with the process: one that can be
 * locked was left behind by a process that was killed. What it had replaced is all there is where the name is not
 * there: nobody else can have taken that away once the lock is held. */
static void remove_if_left(const mha__folder *f, const char *entry)
{
    const bool old = is_leftover(f, entry, "old");
    if (!old && !is_leftover(f, entry, "tmp")) return;
    const int fd = openat(f->dir, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && (!old || is_there(f))) remove_folder(f, entry);
    close(fd);
}

static void remove_leftovers(const mha__folder *f)
{
    const int fd = openat(f->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e = entries ? readdir(entries) : NULL; e; e = readdir(entries))
        remove_if_left(f, e->d_name);
    if (entries)
        closedir(entries);
    else if (fd >= 0)
        close(fd);
}

/* ---- from begin to commit ---- */

static mha_status create_temporary(mha__folder *f, mha_error *err)
{
    mha__quoted q1 = {0}, q2 = {0};
    if (mkdirat(f->dir, f->temporary, 0777) != 0) {
        if (errno != EEXIST) return fail(f, errno, err);
        return mha__fail(err, MHA_ERR_IO,
                         "%s: will not be written: %s is in use, or left over from a killed run; remove it then",
                         mha__quote(&q1, f->path, strlen(f->path)), mha__quote(&q2, f->place, strlen(f->place)));
    }
    f->inside = openat(f->dir, f->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (f->inside >= 0) {
        flock(f->inside, LOCK_EX | LOCK_NB); /* a file system without locks keeps what is left over */
        return MHA_OK;
    }
    const int number = errno;
    unlinkat(f->dir, f->temporary, AT_REMOVEDIR);
    return fail(f, number, err);
}

static void close_both(mha__folder *f)
{
    if (f->inside >= 0) close(f->inside);
    if (f->dir >= 0) close(f->dir);
    f->inside = f->dir = -1;
}

/* The parent, opened, and what stands in it at the name. */
static mha_status open_parent(mha__folder *f, const char *path, bool overwrite, const char *const *known,
                              mha_error *err)
{
    MHA__TRY(split_path(f, path, err));
    f->dir = open(f->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir < 0) return fail(f, errno, err);
    return look(f, overwrite, known, err);
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
    if (!mha__bare_name(name, bytes) || strcmp(name, folder->name) == 0) return fail(&other, EINVAL, err);
    if (bytes > NAME_MAX) return fail(&other, ENAMETOOLONG, err);
    memcpy(other.name, name, bytes + 1);
    MHA__TRY(look(&other, true, known, err));
    memcpy(folder->aside, name, bytes + 1);
    return MHA_OK;
}

void mha__folder_abort(mha__folder *folder)
{
    if (folder->inside >= 0) remove_folder(folder, folder->temporary);
    close_both(folder);
}

/* What has been replaced stands at `name` now. A folder that cannot be put aside goes, as the others do. */
static void put_aside(const mha__folder *f, const char *name)
{
    if (f->aside[0]) remove_folder(f, f->aside);
    if (!f->aside[0] || renameat(f->dir, name, f->dir, f->aside) != 0) remove_folder(f, name);
}

/* The old folder and the new one change places; 0, or an errno. Without that call the old one steps aside first. */
static int swap(const mha__folder *f)
{
    char aside[NAME_MAX + 1];
#if defined(__linux__) && defined(SYS_renameat2) && defined(RENAME_EXCHANGE)
    if (syscall(SYS_renameat2, f->dir, f->temporary, f->dir, f->name, RENAME_EXCHANGE) == 0) {
        put_aside(f, f->temporary);
        return 0;
    }
    if (errno != ENOSYS && errno != EINVAL) return errno;
#endif
    snprintf(aside, sizeof aside, ".%.*s.old.%ld", NAME_MAX - 32, f->name, (long)getpid());
    if (renameat(f->dir, f->name, f->dir, aside) != 0) return errno;
    if (renameat(f->dir, f->temporary, f->dir, f->name) == 0) {
        put_aside(f, aside);
        return 0;
    }
    const int number = errno;
    return renameat(f->dir, aside, f->dir, f->name) == 0 ? number : errno;
}

/* The old folder is locked until it has gone where it is to go, so that nobody takes it for left over. */
static int exchange(const mha__folder *f)
{
    const int old = openat(f->dir, f->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (old >= 0) flock(old, LOCK_EX | LOCK_NB);
    const int failed = swap(f);
    if (old >= 0) close(old);
    return failed;
}

mha_status mha__folder_commit(mha__folder *folder, const char *const *known, mha_error *err)
{
    mha__folder *f = folder;
    f->replaces = false;
    mha_status status = look(f, true, known, err); /* once more: it may have changed */
    int failed = status == MHA_OK ? mha__sync_folder(f->inside) : 0;
    if (status == MHA_OK && !failed) {
        if (f->replaces)
            failed = exchange(f);
        else if (renameat(f->dir, f->temporary, f->dir, f->name) != 0)
            failed = errno;
    }
    if (status != MHA_OK || failed) {
        if (failed) status = fail(f, failed, err);
        mha__folder_abort(f);
        return status;
    }
    failed = mha__sync_folder(f->dir);
    close_both(f);
    return failed ? fail(f, failed, err) : MHA_OK;
}

/* ---- files ---- */

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
