/* write.c - a whole file written atomically: NAME.tmp.PID beside it, fsync, rename, fsync of the folder.
 *
 * Invariant: the name itself is touched by rename alone, and on every failure the temporary file is removed again. Only
 * a process that is killed leaves one behind.
 */
#include "base/error.h"
#include "io/source.h"
#include "mha/io.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct target {
    const char *path, *base; /* base: the last part of path */
    char folder[PATH_MAX];
    char temporary[NAME_MAX + 32];
    int dir, fd;
    bool replaces; /* a regular file of that name exists */
    mode_t mode;   /* its permissions */
} target;

static mha_status split_path(target *t, const char *path, mha_error *err)
{
    const char *slash = strrchr(path, '/');
    t->path = path;
    t->base = slash ? slash + 1 : path;
    if (!*t->base || strcmp(t->base, ".") == 0 || strcmp(t->base, "..") == 0)
        return mha__fail_errno(err, "cannot write", path, *path ? EISDIR : ENOENT);
    size_t n = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
    if (n >= sizeof t->folder || strlen(t->base) > NAME_MAX)
        return mha__fail_errno(err, "cannot write", path, ENAMETOOLONG);
    memcpy(t->folder, slash ? path : ".", n);
    t->folder[n] = '\0';
    snprintf(t->temporary, sizeof t->temporary, "%s.tmp.%ld", t->base, (long)getpid());
    return MHA_OK;
}

/* What stands at the name now; symbolic links are not followed. */
static mha_status look(target *t, int overwrite, mha_error *err)
{
    struct stat st;
    mha__quoted q;
    mha__quote(&q, t->path, strlen(t->path));
    if (fstatat(t->dir, t->base, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? MHA_OK : mha__fail_errno(err, "cannot write", t->path, errno);
    if (!S_ISREG(st.st_mode))
        return mha__fail(err, MHA_ERR_IO, "%s: will not be written over: it is %s", q.text,
                         S_ISLNK(st.st_mode) ? "a symbolic link" : mha__file_kind(st.st_mode));
    if (!overwrite) return mha__fail(err, MHA_ERR_IO, "%s: will not be written over: it exists", q.text);
    t->replaces = true;
    t->mode = st.st_mode & 0777;
    return MHA_OK;
}

static mha_status create_temporary(target *t, mha_error *err)
{
    t->fd = openat(t->dir, t->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (t->fd >= 0) return MHA_OK;
    if (errno != EEXIST) return mha__fail_errno(err, "cannot write", t->path, errno);
    mha__quoted q1, q2;
    return mha__fail(err, MHA_ERR_IO, "%s: will not be written: %s is left over from a killed run or in use; remove it",
                     mha__quote(&q1, t->path, strlen(t->path)), mha__quote(&q2, t->temporary, strlen(t->temporary)));
}

int mha__write_full(int fd, const void *data, size_t n)
{
    const char *p = data;
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put < 0 ? errno : EIO;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

/* Content, permissions and safety of the temporary file; closes it in any case. 0, or an errno. */
static int fill_temporary(target *t, const void *data, size_t bytes)
{
    int failed = mha__write_full(t->fd, data, bytes);
    if (!failed && t->replaces && fchmod(t->fd, t->mode) != 0) failed = errno;
    if (!failed && fsync(t->fd) != 0) failed = errno;
    if (close(t->fd) != 0 && !failed) failed = errno;
    return failed;
}

/* Makes the new name last. Some file systems cannot sync a folder and say EINVAL; the file is whole all the same. */
static int sync_folder(const target *t)
{
    return fsync(t->dir) == 0 || errno == EINVAL ? 0 : errno;
}

mha_status mha_file_write(const char *path, const void *data, size_t bytes, int overwrite, mha_error *err)
{
    if (!path || (!data && bytes))
        return mha__fail(err, MHA_ERR_ARG, "mha_file_write: %s is NULL", path ? "data" : "path");
    target t = {.dir = -1, .fd = -1};
    MHA__TRY(split_path(&t, path, err));
    t.dir = open(t.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t.dir < 0) return mha__fail_errno(err, "cannot write", path, errno);
    mha_status status = look(&t, overwrite, err);
    if (status == MHA_OK) status = create_temporary(&t, err);
    if (status == MHA_OK) {
        int failed = fill_temporary(&t, data, bytes);
        if (!failed && renameat(t.dir, t.temporary, t.dir, t.base) != 0) failed = errno;
        if (failed)
            unlinkat(t.dir, t.temporary, 0);
        else
            failed = sync_folder(&t);
        if (failed) status = mha__fail_errno(err, "cannot write", path, failed);
    }
    close(t.dir);
    return status;
}
