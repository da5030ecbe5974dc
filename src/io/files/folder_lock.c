/* folder_lock.c - takes and releases the lock of a folder. */
#include "io/files/folder_lock.h"

#include "io/files/input_file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct lock_name {
    char text[NAME_MAX + 8];
} lock_name;

static lock_name name_of(const char *folder)
{
    lock_name name;
    snprintf(name.text, sizeof name.text, ".%.*s.lock", NAME_MAX, folder);
    return name;
}

/* Returns true if the name `lock` still refers to the open file. */
static bool is_there(int parent, const char *lock, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(parent, lock, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

static bool is_taken(int fd, int how)
{
    return flock(fd, how | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

/* Pause between two attempts to take the lock. Must exceed the time for which mha__folder_lock_held holds the lock
 * while it checks. */
static const struct timespec a_moment = {.tv_nsec = 20 * 1000 * 1000};

/* Opens and locks the lock file; on a file system without locks, only opens it. */
static int open_locked(int parent, const char *lock, bool *taken)
{
    for (;;) {
        const int fd = mha__open_at(parent, lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        *taken = fd >= 0 && is_taken(fd, LOCK_EX) && (nanosleep(&a_moment, NULL) != 0 || is_taken(fd, LOCK_EX));
        if (fd < 0 || *taken || is_there(parent, lock, fd)) return fd;
        close(fd); /* the lock file is gone: the previous writer has just finished and removed it */
    }
}

bool mha__folder_lock_take(int parent, const char *folder, int *fd)
{
    bool taken;
    *fd = open_locked(parent, name_of(folder).text, &taken);
    if (!taken) return true;
    close(*fd);
    *fd = -1;
    return false;
}

mha_status mha__folder_lock_free(int parent, const char *folder, int fd, mha_error *err)
{
    mha_status status = MHA_OK;
    const lock_name name = name_of(folder);
    if (fd < 0) return MHA_OK;
    /* Removes the file before releasing the lock; a waiting writer checks that the file still exists. */
    if (unlinkat(parent, name.text, 0) != 0 && errno != ENOENT)
        status = mha__fail_errno(err, "cannot be removed", name.text, errno);
    close(fd);
    return status;
}

bool mha__folder_lock_held(int parent, const char *folder)
{
    const int fd = mha__open_at(parent, name_of(folder).text, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool held = is_taken(fd, LOCK_SH);
    close(fd);
    return held;
}
