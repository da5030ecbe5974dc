/* train_lock.c - one training at a time for a folder. It holds a lock on .FOLDER.lock, which lies beside the folder as
 * that is another one after each checkpoint. The lock ends with the process; the file goes with the training, and after
 * a kill with the next one. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "output.h"
#include "session.h"
#include "train/train_run.h"

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

static bool is_taken(int fd, int how)
{
    return flock(fd, how | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

/* Who only looks whether it is locked locks it, too, for less than this. */
static const struct timespec a_moment = {.tv_nsec = 20 * 1000 * 1000};

/* The file, locked unless the file system has no locks; -1: it cannot be written, and saving will say why. */
static int open_locked(int parent, const char *lock, bool *taken)
{
    for (;;) {
        const int fd = cli_open_at(parent, lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        *taken = fd >= 0 && is_taken(fd, LOCK_EX) && (nanosleep(&a_moment, NULL) != 0 || is_taken(fd, LOCK_EX));
        if (fd < 0 || *taken || is_there(parent, lock, fd)) return fd;
        close(fd); /* its training has just ended */
    }
}

static void let_go(void *run)
{
    train_lock_free(run);
}

int train_lock_take(train_run *run)
{
    char lock[NAME_MAX + 8];
    bool taken = false;
    name_of(run->name, lock);
    run->lock = open_locked(run->parent, lock, &taken);
    if (!taken) {
        cli_memory_at_end(let_go, run);
        return CLI_DONE;
    }
    close(run->lock);
    run->lock = -1;
    return cli_error(run->s, CLI_FAILED, "%s: another training run is writing it", cli_shown(run->s->options.out));
}

int train_lock_free(train_run *run)
{
    char lock[NAME_MAX + 8];
    int code = CLI_DONE;
    if (run->lock < 0) return CLI_DONE;
    cli_memory_at_end(NULL, NULL);
    name_of(run->name, lock);
    /* Before the lock goes: who waits for it looks whether it is there. */
    if (unlinkat(run->parent, lock, 0) != 0 && errno != ENOENT)
        code = cli_error(run->s, CLI_FAILED, "%s: cannot be removed: %s", cli_shown(lock), strerror(errno));
    close(run->lock);
    run->lock = -1;
    return code;
}

bool train_lock_held(int parent, const char *folder)
{
    char lock[NAME_MAX + 8];
    name_of(folder, lock);
    const int fd = cli_open_at(parent, lock, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool held = is_taken(fd, LOCK_SH);
    close(fd);
    return held;
}
