/* train_keep.c - checkpoints beside the folder. --keep: older ones, as FOLDER.step-STEP; a checkpoint that is replaced
 * gets that name instead of being removed, so keeping them writes nothing twice. And .FOLDER.old.PID, the only one
 * there is where a file system cannot exchange two folders and the program was killed between two renames. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "output.h"
#include "train_run.h"

#define STEP ".step-"

void train_run_name(const cli_session *s, char name[NAME_MAX + 1])
{
    const char *out = s->options.out, *end = out + strlen(out);
    while (end > out + 1 && end[-1] == '/')
        end--;
    const char *start = end;
    while (start > out && start[-1] != '/')
        start--;
    snprintf(name, NAME_MAX + 1, "%.*s", (int)(end - start), start);
}

int train_run_parent(const cli_session *s)
{
    char path[PATH_MAX], name[NAME_MAX + 1];
    train_run_name(s, name);
    snprintf(path, sizeof path, "%s", s->options.out);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    path[n - strlen(name)] = '\0';
    return open(*path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The number behind `start` in a name; -1 for other names. */
static long long number_behind(const char *entry, const char *start)
{
    const size_t n = strlen(start);
    if (strncmp(entry, start, n) != 0) return -1;
    const char *digits = entry + n;
    const size_t count = strspn(digits, "0123456789");
    return count && count < 19 && !digits[count] ? strtoll(digits, NULL, 10) : -1;
}

/* How many folders there are that are called `name`, `middle` and a number, and the least number. */
static long long count_numbered(int parent, const char *name, const char *middle, long long *least)
{
    char start[NAME_MAX + 32];
    long long count = 0;
    snprintf(start, sizeof start, "%s%s", name, middle);
    const int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries && fd >= 0) close(fd);
    for (struct dirent *e = entries ? readdir(entries) : NULL; e; e = readdir(entries)) {
        const long long number = number_behind(e->d_name, start);
        if (number < 0) continue;
        if (count++ == 0 || number < *least) *least = number;
    }
    if (entries) closedir(entries);
    return count;
}

/* Removes a checkpoint of a training, and nothing that is none. False: it is there still. */
static bool remove_kept(int parent, const char *name, long long step)
{
    char entry[NAME_MAX + 32];
    snprintf(entry, sizeof entry, "%s" STEP "%lld", name, step);
    const int fd = openat(parent, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *files = fd >= 0 && faccessat(fd, "training.json", F_OK, 0) == 0 ? fdopendir(fd) : NULL;
    if (!files && fd >= 0) close(fd);
    for (struct dirent *e = files ? readdir(files) : NULL; e; e = readdir(files))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(fd, e->d_name, 0);
    if (files) closedir(files);
    return unlinkat(parent, entry, AT_REMOVEDIR) == 0;
}

/* Leaves `most` of them, the newest. */
static int leave(const cli_session *s, long long most)
{
    char name[NAME_MAX + 1];
    long long oldest = 0;
    int code = CLI_DONE;
    const int parent = train_run_parent(s);
    if (parent < 0) return CLI_DONE; /* what is to be written there will say why */
    train_run_name(s, name);
    while (code == CLI_DONE && count_numbered(parent, name, STEP, &oldest) > most)
        if (!remove_kept(parent, name, oldest))
            code =
                cli_error(s, CLI_FAILED, "%s" STEP "%lld: cannot remove: %s", cli_shown(name), oldest, strerror(errno));
    close(parent);
    return code;
}

int train_keep_begin(const train_run *run)
{
    char name[NAME_MAX + 1];
    long long oldest = 0;
    const cli_session *s = run->s;
    if (run->goes_on || run->t.keep < 1) return CLI_DONE;
    if (s->options.force) return leave(s, 0);
    const int parent = train_run_parent(s);
    train_run_name(s, name);
    const long long count = parent < 0 ? 0 : count_numbered(parent, name, STEP, &oldest);
    if (parent >= 0) close(parent);
    if (count == 0) return CLI_DONE;
    return cli_usage(s, "%s" STEP "%lld: it exists; give --force to replace it", cli_shown(name), oldest);
}

const char *train_keep_name(const train_run *run, char name[NAME_MAX + 1])
{
    char base[NAME_MAX + 1];
    if (run->t.keep < 1 || run->saved < 1) return NULL;
    train_run_name(run->s, base);
    snprintf(name, NAME_MAX + 1, "%.*s" STEP "%lld", NAME_MAX - 32, base, (long long)run->saved);
    return name;
}

int train_keep_end(const train_run *run)
{
    return run->t.keep < 1 ? CLI_DONE : leave(run->s, run->t.keep);
}

int train_keep_restore(const cli_session *s)
{
    char name[NAME_MAX + 1], hidden[NAME_MAX + 2], old[NAME_MAX + 64];
    long long number = 0;
    int code = CLI_DONE;
    const int parent = train_run_parent(s);
    train_run_name(s, name);
    snprintf(hidden, sizeof hidden, ".%s", name);
    if (parent >= 0 && faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
        count_numbered(parent, hidden, ".old.", &number) == 1) {
        snprintf(old, sizeof old, "%s.old.%lld", hidden, number);
        if (renameat(parent, old, parent, name) == 0)
            cli_say(s, "%s was %s: its run was killed while it put a new one in its place", cli_shown(name),
                    cli_shown(old));
        else
            code = cli_error(s, CLI_FAILED, "%s: cannot rename: %s", cli_shown(old), strerror(errno));
    }
    if (parent >= 0) close(parent);
    return code;
}
