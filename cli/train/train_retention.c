/* train_retention.c - checkpoints beside the folder. --keep: older ones, as FOLDER.step-STEP; a checkpoint that is
 * replaced gets that name instead of being removed, so keeping them writes nothing twice. And .FOLDER.old.PID, the
 * only one there is where a file system cannot exchange two folders and the program was killed between two renames. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"
#include "session.h"
#include "train/train_run.h"

#define STEP ".step-"

/* The number behind `start` in a name; -1 for other names. */
static long long number_behind(const char *entry, const char *start)
{
    const size_t n = strlen(start);
    if (strncmp(entry, start, n) != 0) return -1;
    const char *digits = entry + n;
    const size_t count = strspn(digits, "0123456789");
    return count && count < 19 && !digits[count] ? strtoll(digits, NULL, 10) : -1;
}

/* The numbers of folders that are called `start` and a number, the least first. */
typedef struct number_list {
    long long *number; /* [count]; freed by the caller */
    int count;
} number_list;

static int compare(const void *a, const void *b)
{
    const long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static int add_number(const cli_session *s, number_list *list, long long number)
{
    long long *more = realloc(list->number, (size_t)(list->count + 1) * sizeof *more);
    if (!more) return cli_error(s, CLI_FAILED, "out of memory for the names of checkpoints");
    list->number = more;
    list->number[list->count++] = number;
    return CLI_DONE;
}

static int list_numbered(const train_run *run, const char *start, number_list *list)
{
    int code = CLI_DONE;
    *list = (number_list){0};
    const int fd = cli_open_at(run->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries && fd >= 0) close(fd);
    for (struct dirent *e = entries ? readdir(entries) : NULL; e && code == CLI_DONE; e = readdir(entries)) {
        const long long number = number_behind(e->d_name, start);
        if (number >= 0) code = add_number(run->s, list, number);
    }
    if (entries) closedir(entries);
    if (list->count) qsort(list->number, (size_t)list->count, sizeof *list->number, compare);
    return code;
}

/* The path of another entry of the folder that FOLDER lies in. */
static void path_beside(const train_run *run, const char *entry, char path[PATH_MAX])
{
    const char *out = run->s->options.out;
    snprintf(path, PATH_MAX, "%.*s%s", (int)(run->name - out), out, entry);
}

/* ---- what a checkpoint is ---- */

long long train_keep_step(const cli_session *s, const char *path, mha_error *error)
{
    mha_file *file;
    long long step = -1;
    if (mha_file_open(s->ctx, path, NULL, &file, error) != MHA_OK) return -1;
    for (int64_t n = 0; n < mha_file_metadata_count(file); n++) {
        const char *key, *value;
        if (mha_file_metadata(file, n, &key, &value, NULL) == MHA_OK && strcmp(key, "mha.train.step") == 0)
            step = number_behind(value, "");
    }
    mha_file_free(file);
    return step;
}

/* The step of the state in an entry beside the folder; -1: there is none. */
static long long step_of(const train_run *run, const char *entry)
{
    char path[PATH_MAX], state[NAME_MAX + 64];
    mha_error error = {0};
    snprintf(state, sizeof state, "%s/training.safetensors", entry);
    path_beside(run, state, path);
    return train_keep_step(run->s, path, &error);
}

/* Is FOLDER.step-STEP what was put there: the checkpoint of that step, nothing else, and no training goes on in it? */
static bool is_kept(const train_run *run, const char *entry, long long step)
{
    char path[PATH_MAX];
    path_beside(run, entry, path);
    return mha_model_save_check(path, 1, NULL) == MHA_OK && step_of(run, entry) == step &&
           !train_lock_held(run->parent, entry);
}

static void name_kept(const train_run *run, long long step, char entry[NAME_MAX + 1])
{
    snprintf(entry, NAME_MAX + 1, "%s" STEP "%lld", run->name, step);
}

static int list_kept(const train_run *run, number_list *list)
{
    char start[NAME_MAX + 1];
    snprintf(start, sizeof start, "%s" STEP, run->name);
    return list_numbered(run, start, list);
}

/* ---- keeping ---- */

/* Removes the files of a folder; false, with errno, if one is there still. */
static bool empty_folder(const train_run *run, const char *folder)
{
    const int fd = cli_open_at(run->parent, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    DIR *files = fd >= 0 ? fdopendir(fd) : NULL;
    int wrong = files ? 0 : errno;
    if (!files && fd >= 0) close(fd);
    for (struct dirent *e = files ? readdir(files) : NULL; e; e = readdir(files))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlinkat(fd, e->d_name, 0) != 0)
            wrong = errno;
    if (files) closedir(files);
    errno = wrong;
    return !wrong;
}

/* Removes a checkpoint, first its name: what a kill leaves then is a temporary folder, which goes with the next save.
 * False: it is there still. */
static bool remove_kept(const train_run *run, const char *entry)
{
    char temporary[NAME_MAX + 1];
    snprintf(temporary, sizeof temporary, ".%s.tmp.%ld", run->name, (long)getpid());
    if (renameat(run->parent, entry, run->parent, temporary) != 0) return false;
    return empty_folder(run, temporary) && unlinkat(run->parent, temporary, AT_REMOVEDIR) == 0;
}

/* Those of the list that are kept checkpoints; the first time that others are seen, this is said. */
static void only_kept(train_run *run, number_list *list)
{
    char entry[NAME_MAX + 1];
    int count = 0;
    for (int n = 0; n < list->count; n++) {
        const long long step = list->number[n];
        name_kept(run, step, entry);
        if (is_kept(run, entry, step))
            list->number[count++] = step;
        else if (step > run->told)
            cli_say(run->s, "keeping %s: a training run continued in it, or it contains other files", cli_shown(entry));
        if (step > run->told) run->told = step;
    }
    list->count = count;
}

/* Leaves `most` of them, the newest. */
static int leave(train_run *run, int most)
{
    char entry[NAME_MAX + 1];
    number_list list;
    int code = list_kept(run, &list);
    if (code == CLI_DONE && list.count > most) only_kept(run, &list);
    for (int n = 0; n < list.count - most && code == CLI_DONE; n++) {
        name_kept(run, list.number[n], entry);
        if (!remove_kept(run, entry))
            code = cli_error(run->s, CLI_FAILED, "%s: cannot remove: %s", cli_shown(entry), strerror(errno));
    }
    free(list.number);
    return code;
}

int train_keep_begin(const train_run *run)
{
    char entry[NAME_MAX + 1];
    number_list list;
    if (run->goes_on || run->t.keep < 1 || run->s->options.force) return CLI_DONE;
    int code = list_kept(run, &list);
    if (code == CLI_DONE && list.count) {
        name_kept(run, list.number[0], entry);
        code = cli_usage(run->s, "%s exists; --force replaces it", cli_shown(entry));
    }
    free(list.number);
    return code;
}

int train_keep_none(train_run *run)
{
    return run->t.keep < 1 ? CLI_DONE : leave(run, 0);
}

int train_keep_name(train_run *run, char entry[NAME_MAX + 1], const char **name)
{
    struct stat st;
    number_list list;
    *name = NULL;
    if (run->t.keep < 1 || run->saved < 1) return CLI_DONE;
    name_kept(run, run->saved, entry);
    const bool there = fstatat(run->parent, entry, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there || is_kept(run, entry, run->saved)) {
        *name = entry;
        return CLI_DONE;
    }
    const int code = list_kept(run, &list);
    if (code == CLI_DONE) only_kept(run, &list); /* says so, of this one and of those before it */
    free(list.number);
    return code;
}

int train_keep_end(train_run *run)
{
    return run->t.keep < 1 ? CLI_DONE : leave(run, (int)run->t.keep);
}

/* ---- what a kill has left aside ---- */

/* Of .FOLDER.old.NUMBER the one with the most steps. */
static int find_old(const train_run *run, char old[NAME_MAX + 32], bool *found)
{
    char start[NAME_MAX + 1], entry[NAME_MAX + 32];
    number_list list;
    long long most = -2;
    snprintf(start, sizeof start, ".%s.old.", run->name);
    const int code = list_numbered(run, start, &list);
    for (int n = 0; n < list.count; n++) {
        snprintf(entry, sizeof entry, "%s%lld", start, list.number[n]);
        const long long step = step_of(run, entry);
        if (step <= most) continue;
        most = step;
        memcpy(old, entry, sizeof entry);
    }
    *found = list.count > 0;
    free(list.number);
    return code;
}

static int restore(const train_run *run, const char *old)
{
    const cli_session *s = run->s;
    if (renameat(run->parent, old, run->parent, run->name) != 0)
        return cli_error(s, CLI_FAILED, "%s: cannot rename: %s", cli_shown(old), strerror(errno));
    cli_say(s, "%s was %s: its run was killed while it put a new one in its place", cli_shown(run->name),
            cli_shown(old));
    return CLI_DONE;
}

int train_keep_restore(const train_run *run, bool resume)
{
    char old[NAME_MAX + 32];
    struct stat st;
    bool found = false;
    int code = CLI_DONE;
    if (fstatat(run->parent, run->name, &st, AT_SYMLINK_NOFOLLOW) != 0) code = find_old(run, old, &found);
    if (code != CLI_DONE || !found) return code;
    if (resume) return restore(run, old);
    if (run->s->options.force) return CLI_DONE;
    return cli_usage(run->s, "%s was left by a killed run of %s: --resume continues it, --force starts again",
                     cli_shown(old), cli_shown(run->name));
}
