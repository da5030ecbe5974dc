/* output_file.c - writes a file under a temporary name next to its destination, then renames it.
 *
 * Invariant: only rename modifies the entry of the final name, and every failure removes the temporary file. Only a
 * killed process leaves a temporary file behind, which the next write of the same name removes. */
#include "io/files/output_file.h"

#include "io/files/folder_entries.h"
#include "mha/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static mha_status fail(const mha__outfile *f, int number, mha_error *err)
{
    return mha__fail_errno(err, "cannot write", f->path, number);
}

/* ---- file names ---- */

static void set_name(mha__outfile *f, const char *name)
{
    snprintf(f->name, sizeof f->name, "%s", name);
    mha__entry_temporary(f->name, "tmp", f->temporary);
}

static mha_status split_path(mha__outfile *f, const char *path, char folder[PATH_MAX], mha_error *err)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const size_t n = !slash || slash == path ? 1 : (size_t)(slash - path);
    if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return mha__fail_errno(err, "cannot write", path, *path ? EISDIR : ENOENT);
    if (n >= PATH_MAX || strlen(base) > NAME_MAX) return mha__fail_errno(err, "cannot write", path, ENAMETOOLONG);
    memcpy(folder, slash ? path : ".", n);
    folder[n] = '\0';
    memcpy(f->path, path, strlen(path) + 1);
    set_name(f, base);
    return MHA_OK;
}

/* ---- writing a file ---- */

/* Checks whether an existing entry with the final name may be replaced; does not follow symbolic links. */
static mha_status look(mha__outfile *f, bool overwrite, mha_error *err)
{
    struct stat st;
    mha__quoted q;
    mha__quote(&q, f->path, strlen(f->path));
    if (fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? MHA_OK : fail(f, errno, err);
    if (!S_ISREG(st.st_mode))
        return mha__fail(err, MHA_ERR_IO, "%s: cannot overwrite: it is %s", q.text,
                         S_ISLNK(st.st_mode) ? "a symbolic link" : mha__file_kind(st.st_mode));
    if (!overwrite) return mha__fail(err, MHA_ERR_IO, "%s: cannot create: it already exists", q.text);
    f->replaces = true;
    f->mode = st.st_mode & 0777;
    return MHA_OK;
}

/* Opens a file for locking, also one that may not be written. */
static int open_for_lock(int dir, const char *entry)
{
    const int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, fd = mha__open_at(dir, entry, O_RDWR | flags, 0);
    return fd >= 0 || errno != EACCES ? fd : mha__open_at(dir, entry, O_RDONLY | flags, 0);
}

/* Removes a file left by a killed process; a file that cannot be removed remains. */
static void remove_if_left(const mha__outfile *f, const char *entry)
{
    struct stat st;
    if (!mha__entry_is_temporary(entry, f->name, "tmp")) return;
    const int fd = open_for_lock(f->dir, entry);
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && mha__entry_is_left(f->dir, entry, fd)) unlinkat(f->dir, entry, 0);
    close(fd);
}

static void remove_leftovers(const mha__outfile *f)
{
    DIR *entries = mha__entries_open(f->dir, ".");
    for (const char *e = entries ? mha__entries_next(entries) : NULL; e; e = mha__entries_next(entries))
        remove_if_left(f, e);
    if (entries) closedir(entries);
}

/* Creates and locks the temporary file. Before the file is locked, another process may mistake it for a leftover and
 * remove it; the file is then created again. On a file system without locks, leftovers are kept. */
static mha_status create_temporary(mha__outfile *f, mha_error *err)
{
    for (;;) {
        f->fd = mha__open_at(f->dir, f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (f->fd < 0) return errno == EEXIST ? mha__fail_in_use(err, f->path, f->temporary) : fail(f, errno, err);
        mha__entry_lock(f->fd, true);
        if (mha__entry_is(f->dir, f->temporary, f->fd)) return MHA_OK;
        close(f->fd);
    }
}

static mha_status begin(mha__outfile *f, bool overwrite, mha_error *err)
{
    mha_status status = look(f, overwrite, err);
    if (status == MHA_OK && f->owns_dir) remove_leftovers(f);
    if (status == MHA_OK) status = create_temporary(f, err);
    if (status != MHA_OK && f->owns_dir) close(f->dir);
    return status;
}

static mha_status open_folder(mha__outfile *f, const char *path, mha_error *err)
{
    char folder[PATH_MAX];
    *f = (mha__outfile){.fd = -1, .owns_dir = true};
    MHA__TRY(split_path(f, path, folder, err));
    f->dir = mha__open_at(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return f->dir < 0 ? fail(f, errno, err) : MHA_OK;
}

mha_status mha__outfile_begin(mha__outfile *file, const char *path, bool overwrite, mha_error *err)
{
    MHA__TRY(open_folder(file, path, err));
    return begin(file, overwrite, err);
}

mha_status mha__outfile_begin_in(mha__outfile *file, int dir, const char *folder, const char *name, mha_error *err)
{
    *file = (mha__outfile){.dir = dir, .fd = -1};
    snprintf(file->path, sizeof file->path, "%s/%s", folder, name);
    set_name(file, name);
    return begin(file, false, err);
}

mha_status mha__outfile_put(mha__outfile *file, size_t offset, const void *data, size_t bytes, mha_error *err)
{
    const char *p = data;
    while (bytes > 0) {
        const ssize_t put = pwrite(file->fd, p, bytes, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return fail(file, put < 0 ? errno : EIO, err);
        p += put;
        offset += (size_t)put;
        bytes -= (size_t)put;
    }
    return MHA_OK;
}

/* Syncs an open file. Returns 0, or an errno. */
static int sync_open(int fd)
{
    while (fsync(fd) != 0)
        if (errno != EINTR) return errno;
    return 0;
}

int mha__sync_folder(int dir)
{
    const int failed = sync_open(dir);
    return failed == EINVAL ? 0 : failed;
}

/* Sets permissions, and syncs the temporary file. Returns 0, or an errno. */
static int complete(const mha__outfile *f)
{
#if !defined(__wasi__) /* WASI has no permissions */
    if (f->replaces && fchmod(f->fd, f->mode) != 0) return errno;
#endif
    return sync_open(f->fd);
}

mha_status mha__outfile_end(mha__outfile *file, mha_status status, mha_error *err)
{
    mha__outfile *f = file;
    int failed = status == MHA_OK ? complete(f) : 0;
    if (status == MHA_OK && !failed && renameat(f->dir, f->temporary, f->dir, f->name) != 0) failed = errno;
    const bool named = status == MHA_OK && !failed;
    if (named && f->owns_dir) failed = mha__sync_folder(f->dir);
    if (failed && status == MHA_OK) status = fail(f, failed, err);
    const bool left = !named && unlinkat(f->dir, f->temporary, 0) != 0 && errno != ENOENT;
    if (left) mha__fail_left(status, f->temporary, err);
    close(f->fd); /* only now, because this ends the lock; the content is on disk, so a failure changes nothing */
    if (f->owns_dir) close(f->dir);
    return status;
}

mha_status mha_file_write(const char *path, const void *data, size_t bytes, int overwrite, mha_error *err)
{
    mha__outfile file;
    if (!path || (!data && bytes))
        return mha__fail(err, MHA_ERR_ARG, "mha_file_write: %s must not be NULL", path ? "data" : "path");
    MHA__TRY(mha__outfile_begin(&file, path, overwrite != 0, err));
    return mha__outfile_end(&file, mha__outfile_put(&file, 0, data, bytes, err), err);
}

mha_status mha_file_write_check(const char *path, int overwrite, mha_error *err)
{
    mha__outfile file;
    if (!path) return mha__fail(err, MHA_ERR_ARG, "mha_file_write_check: path must not be NULL");
    MHA__TRY(open_folder(&file, path, err));
    mha_status status = look(&file, overwrite != 0, err);
    if (status == MHA_OK && faccessat(file.dir, ".", W_OK | X_OK, 0) != 0) status = fail(&file, errno, err);
    close(file.dir);
    return status;
}
