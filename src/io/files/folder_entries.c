/* folder_entries.c - lists, names, renames and removes the entries of a folder. */
#include "io/files/folder_entries.h"

#include "io/files/input_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

DIR *mha__entries_open(int dir, const char *name)
{
    const int fd = mha__open_at(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries && fd >= 0) {
        const int number = errno;
        close(fd);
        errno = number;
    }
    return entries;
}

const char *mha__entries_next(DIR *entries)
{
    const struct dirent *e;
    do
        e = readdir(entries);
    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    return e ? e->d_name : NULL;
}

bool mha__entries_known(const char *name, const char *const *known)
{
    for (; *known; known++) {
        const char *want = *known;
        const size_t n = strlen(name), all = strlen(want), max = all - 1;
        if (want[0] == '*' && n >= max && strcmp(name + n - max, want + 1) == 0) return true;
        if (want[max] == '*' && strncmp(name, want, max) == 0) return true;
        if (strcmp(name, want) == 0) return true;
    }
    return false;
}

bool mha__entry_is(int dir, const char *name, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(dir, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

void mha__entry_temporary(const char *name, const char *kind, char temporary[NAME_MAX + 1])
{
    snprintf(temporary, NAME_MAX + 1, ".%.*s.%s.%ld", MHA__FOLDER_NAME_MAX, name, kind, (long)getpid());
}

bool mha__entry_is_temporary(const char *entry, const char *name, const char *kind)
{
    char start[NAME_MAX + 1];
    const int length = snprintf(start, sizeof start, ".%.*s.%s.", MHA__FOLDER_NAME_MAX, name, kind);
    if (strncmp(entry, start, (size_t)length) != 0) return false;
    const char *number = entry + length;
    return *number && !number[strspn(number, "0123456789")];
}

bool mha__entry_lock(int fd, bool waits)
{
#if defined(__wasi__) /* WASI has no locks */
    (void)fd, (void)waits;
    return false;
#else
    int failed;
    do
        failed = flock(fd, waits ? LOCK_EX : LOCK_EX | LOCK_NB);
    while (failed && errno == EINTR);
    return !failed;
#endif
}

bool mha__entry_is_left(int dir, const char *name, int fd)
{
    return mha__entry_lock(fd, false) && mha__entry_is(dir, name, fd);
}

int mha__entries_rename(int dir, const char *from, const char *to)
{
    return renameat(dir, from, dir, to) == 0 ? 0 : errno;
}

int mha__entries_remove(int dir, const char *name, DIR *entries)
{
    int failed = 0;
    rewinddir(entries);
    for (const char *e = mha__entries_next(entries); e; e = mha__entries_next(entries))
        if (unlinkat(dirfd(entries), e, 0) != 0 && errno != ENOENT) failed = errno;
    if (unlinkat(dir, name, AT_REMOVEDIR) != 0 && errno != ENOENT && !failed) failed = errno;
    return failed;
}
