/* train_lock.c - one training at a time for a folder. It holds a lock on .FOLDER.lock, which lies beside the folder as
 * that is another one after each checkpoint. The lock ends with the process; the file goes with the training, and after
 * a kill with the next one. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"
#include "train_run.h"

static void name_of(const char *folder, char lock[NAME_MAX + 8])
{
    snprintf(lock, NAME_MAX + 8, ".%s.lock", folder);
}

/* Is the open file still the one of that name? */
static bool is_there(int parent, const char *lock, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(parent, lock, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

/* The file, locked unless the file system has no locks; -1: it cannot be written, and saving will say why. */
static int open_locked(int parent, const char *lock, bool *taken)
{
    for (;;) {
        const int fd = openat(parent, lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        *taken = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (fd < 0 || *taken || is_there(parent, lock, fd)) return fd;
        close(fd); /* its training has just ended */
    }
}

int train_lock_take(train_run *run)
{
    char name[NAME_MAX + 1], lock[NAME_MAX + 8];
    bool taken = false;
    const int parent = train_run_parent(run->s);
    if (parent < 0) return CLI_DONE; /* as above */
    train_run_name(run->s, name);
    name_of(name, lock);
    run->lock = open_locked(parent, lock, &taken);
    close(parent);
    if (!taken) return CLI_DONE;
    close(run->lock);
    run->lock = -1;
    return cli_error(run->s, CLI_FAILED, "%s: another training writes it now", cli_shown(run->s->options.out));
}

void train_lock_free(train_run *run)
{
    char name[NAME_MAX + 1], lock[NAME_MAX + 8];
    if (run->lock < 0) return;
    const int parent = train_run_parent(run->s);
    train_run_name(run->s, name);
    name_of(name, lock);
    if (parent >= 0) unlinkat(parent, lock, 0); /* before the lock goes: who waits for it looks whether it is there */
    if (parent >= 0) close(parent);
    close(run->lock);
    run->lock = -1;
}

bool train_lock_held(int parent, const char *folder)
{
    char lock[NAME_MAX + 8];
    name_of(folder, lock);
    const int fd = openat(parent, lock, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}
