/* input_file.c - opens and reads input files (input_file.h).
 *
 * All checks use the open descriptor, not the name, so a file that is replaced after the checks is never read. */
#include "io/files/input_file.h"

#include "base/ctx.h"
#include "base/size.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool mha__bare_name(const char *name, size_t n)
{
    if (n == 0 || memchr(name, '/', n) || memchr(name, '\\', n) || memchr(name, '\0', n)) return false;
    return !(n <= 2 && memcmp(name, "..", n) == 0);
}

bool mha__name_ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

const char *mha__file_kind(mode_t mode)
{
    static const struct {
        mode_t type;
        const char *text;
    } kinds[] = {{S_IFDIR, "a directory"},
                 {S_IFIFO, "a fifo"},
                 {S_IFSOCK, "a socket"},
                 {S_IFCHR, "a character device"},
                 {S_IFBLK, "a block device"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if ((mode & S_IFMT) == kinds[i].type) return kinds[i].text;
    return "not a file";
}

int mha__open_at(int dir, const char *name, int flags, mode_t mode)
{
    for (;;) {
        const int fd = openat(dir, name, flags, mode);
        if (fd >= 0 || errno != EINTR) return fd;
    }
}

static int open_folder(const char *folder)
{
    return folder ? mha__open_at(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : AT_FDCWD;
}

static void close_folder(int dir)
{
    const int saved = errno;
    if (dir != AT_FDCWD) close(dir);
    errno = saved;
}

/* Opens `name` in `folder`. Returns the descriptor, or -1 and sets errno. */
static int open_in(const char *folder, const char *name)
{
    const int dir = open_folder(folder);
    if (dir == -1) return -1;
    const int fd = mha__open_at(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    close_folder(dir);
    return fd;
}

mha_status mha__source_open(mha__source *source, const char *folder, const char *name, mha_error *err)
{
    *source = (mha__source){.name = name, .fd = -1};
    mha__quoted q;
    if (!*name || (folder && !*folder))
        return mha__fail(err, MHA_ERR_IO, "%s name must not be empty", *name ? "folder" : "file");
    if (folder && !mha__bare_name(name, strlen(name)))
        return mha__fail(err, MHA_ERR_FORMAT, "file name must be a bare name (got \"%s\")",
                         mha__quote(&q, name, strlen(name)));
    int fd = open_in(folder, name);
    if (fd < 0) return mha__fail_errno(err, "cannot open", name, errno);
    struct stat st;
    mha_status status = MHA_OK;
    if (fstat(fd, &st) != 0)
        status = mha__fail_errno(err, "cannot get file status", name, errno);
    else if (!S_ISREG(st.st_mode))
        status = mha__fail(err, MHA_ERR_IO, "%s: must be a regular file (got %s)", mha__quote(&q, name, strlen(name)),
                           mha__file_kind(st.st_mode));
    else if (st.st_size < 0 || (off_t)(size_t)st.st_size != st.st_size)
        status = mha__fail(err, MHA_ERR_IO, "%s: size must fit the address space", mha__quote(&q, name, strlen(name)));
    if (status != MHA_OK) {
        close(fd);
        return status;
    }
    source->fd = fd;
    source->size = (size_t)st.st_size;
    return MHA_OK;
}

void mha__source_close(mha__source *source)
{
    if (source->fd >= 0) close(source->fd);
    source->fd = -1;
}

bool mha__source_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool mha__source_exists(const char *folder, const char *name)
{
    struct stat st;
    if (folder && !*folder) return false; /* a model in memory */
    const int dir = open_folder(folder);
    const bool found = dir != -1 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    const bool absent = !found && (errno == ENOENT || errno == ENOTDIR);
    if (dir != -1) close_folder(dir);
    return !absent;
}

mha_status mha__source_read(const mha__source *source, size_t offset, void *to, size_t n, mha_error *err)
{
    char *p = to;
    if (source->memory) {
        memcpy(to, source->memory + offset, n);
        return MHA_OK;
    }
    while (n > 0) {
        ssize_t got = pread(source->fd, p, n, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return mha__fail_errno(err, "cannot read", source->name, errno);
        if (got == 0)
            return mha__fail(err, MHA_ERR_IO, "%s: file must not shrink while it is read (got %zu of %zu bytes)",
                             mha__quote(&(mha__quoted){0}, source->name, strlen(source->name)), offset, source->size);
        p += got;
        n -= (size_t)got;
        offset += (size_t)got;
    }
    return MHA_OK;
}

mha_status mha__read_whole(mha_ctx *ctx, const char *folder, const char *name, size_t limit, char **bytes, size_t *n,
                           mha_error *err)
{
    *bytes = NULL;
    *n = 0;
    mha__source source;
    MHA__TRY(mha__source_open(&source, folder, name, err));
    mha__quoted q;
    mha_status status = MHA_OK;
    char *text = NULL;
    if (source.size > limit)
        status = mha__fail(err, MHA_ERR_FORMAT, "%s: size must be at most %zu bytes (got %zu)",
                           mha__quote(&q, name, strlen(name)), limit, source.size);
    else if (!(text = mha__alloc(ctx, source.size + 1)))
        status = mha__no_memory(err, source.size + 1, mha__quote(&q, name, strlen(name)));
    else
        status = mha__source_read(&source, 0, text, source.size, err);
    mha__source_close(&source);
    if (status != MHA_OK) {
        mha__free(ctx, text);
        return status;
    }
    text[source.size] = '\0';
    *bytes = text;
    *n = source.size;
    return MHA_OK;
}

const char *mha__foreign(const void *head, size_t n)
{
    static const struct {
        const char *magic;
        size_t bytes;
        const char *text;
    } known[] = {
        {"version https://", 16, "a Git LFS pointer: the file itself was not downloaded"},
        {"PK\003\004", 4, "a zip archive (a PyTorch .bin or .pt, or .npz)"},
        {"\x80\x02", 2, "a Python pickle (a PyTorch .bin or .pt); a pickle can run code and is never read"},
        {"\x80\x03", 2, "a Python pickle; a pickle can run code and is never read"},
        {"\x80\x04", 2, "a Python pickle; a pickle can run code and is never read"},
        {"\x80\x05", 2, "a Python pickle; a pickle can run code and is never read"},
        {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file"},
        {"\x1f\x8b", 2, "a gzip file"},
        {"<!DOCTYPE", 9, "an HTML page instead of the requested file"},
        {"<!doctype", 9, "an HTML page instead of the requested file"},
        {"<html", 5, "an HTML page instead of the requested file"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (n >= known[i].bytes && memcmp(head, known[i].magic, known[i].bytes) == 0) return known[i].text;
    return NULL;
}
