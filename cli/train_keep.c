/* train_keep.c - checkpoints beside the folder. --keep: older ones, as FOLDER.step-STEP; a checkpoint that is replaced
 * gets that name instead of being removed, so keeping them writes nothing twice. And .FOLDER.old.PID, the only one
 * there is where a file system cannot exchange two folders and the program was killed between two renames. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static int list_numbered(const cli_session *s, int parent, const char *start, number_list *list)
{
    int code = CLI_DONE;
    *list = (number_list){0};
    const int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries && fd >= 0) close(fd);
    for (struct dirent *e = entries ? readdir(entries) : NULL; e && code == CLI_DONE; e = readdir(entries)) {
        const long long number = number_behind(e->d_name, start);
        if (number >= 0) code = add_number(s, list, number);
    }
    if (entries) closedir(entries);
    if (list->count) qsort(list->number, (size_t)list->count, sizeof *list->number, compare);
    return code;
}

/* The path of another entry of the folder that FOLDER lies in. */
static void path_beside(const cli_session *s, const char *entry, char path[PATH_MAX])
{
    char name[NAME_MAX + 1];
    const char *out = s->options.out;
    size_t n = strlen(out);
    train_run_name(s, name);
    while (n > 1 && out[n - 1] == '/')
        n--;
    snprintf(path, PATH_MAX, "%.*s%s", (int)(n - strlen(name)), out, entry);
}

/* ---- what a checkpoint is ---- */

/* The step of the state in an entry beside the folder; -1: there is none. */
static long long step_of(const cli_session *s, const char *entry)
{
    char path[PATH_MAX], state[NAME_MAX + 32];
    mha_file *file;
    long long step = -1;
    snprintf(state, sizeof state, "%s/training.safetensors", entry);
    path_beside(s, state, path);
    if (mha_file_open(s->ctx, path, NULL, &file, NULL) != MHA_OK) return -1;
    for (int64_t n = 0; n < mha_file_metadata_count(file); n++) {
        const char *key, *value;
        if (mha_file_metadata(file, n, &key, &value, NULL) == MHA_OK && strcmp(key, "mha.train.step") == 0)
            step = number_behind(value, "");
    }
    mha_file_free(file);
    return step;
}

/* Is FOLDER.step-STEP what was put there: the checkpoint of that step, nothing else, and no training goes on in it? */
static bool is_kept(const cli_session *s, int parent, const char *entry, long long step)
{
    char path[PATH_MAX];
    path_beside(s, entry, path);
    return mha_model_save_check(path, 1, NULL) == MHA_OK && step_of(s, entry) == step &&
           !train_lock_held(parent, entry);
}

static void name_kept(const cli_session *s, long long step, char entry[NAME_MAX + 1])
{
    char name[NAME_MAX + 1];
    train_run_name(s, name);
    snprintf(entry, NAME_MAX + 1, "%.*s" STEP "%lld", NAME_MAX - 32, name, step);
}

static void tell_other(const cli_session *s, const char *entry)
{
    cli_say(s, "%s stays: a training went on in it, or it holds files of another kind", cli_shown(entry));
}

/* ---- keeping ---- */

/* Removes a checkpoint, first its name: what a kill leaves then is a temporary folder, which goes with the next save.
 * False: it is there still. */
static bool remove_kept(const cli_session *s, int parent, const char *entry)
{
    char name[NAME_MAX + 1], temporary[NAME_MAX + 32];
    train_run_name(s, name);
    snprintf(temporary, sizeof temporary, ".%s.tmp.%ld", name, (long)getpid());
    if (renameat(parent, entry, parent, temporary) != 0) return false;
    const int fd = openat(parent, temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *files = fd >= 0 ? fdopendir(fd) : NULL;
    if (!files && fd >= 0) close(fd);
    for (struct dirent *e = files ? readdir(files) : NULL; e; e = readdir(files))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(fd, e->d_name, 0);
    if (files) closedir(files);
    return unlinkat(parent, temporary, AT_REMOVEDIR) == 0;
}

/* Those of the list that are kept checkpoints; the first time that others are seen, this is said. */
static void only_kept(train_run *run, int parent, number_list *list)
{
    char entry[NAME_MAX + 1];
    int count = 0;
    for (int n = 0; n < list->count; n++) {
        const long long step = list->number[n];
        name_kept(run->s, step, entry);
        if (is_kept(run->s, parent, entry, step))
            list->number[count++] = step;
        else if (step > run->told)
            tell_other(run->s, entry);
        if (step > run->told) run->told = step;
    }
    list->count = count;
}

/* Leaves `most` of them, the newest. */
static int leave(train_run *run, int most)
{
    const cli_session *s = run->s;
    char entry[NAME_MAX + 1], start[NAME_MAX + 32];
    number_list list;
    const int parent = train_run_parent(s);
    if (parent < 0) return CLI_DONE; /* what is to be written there will say why */
    train_run_name(s, entry);
    snprintf(start, sizeof start, "%s" STEP, entry);
    int code = list_numbered(s, parent, start, &list);
    if (code == CLI_DONE && list.count > most) only_kept(run, parent, &list);
    for (int n = 0; n < list.count - most && code == CLI_DONE; n++) {
        name_kept(s, list.number[n], entry);
        if (!remove_kept(s, parent, entry))
            code = cli_error(s, CLI_FAILED, "%s: cannot remove: %s", cli_shown(entry), strerror(errno));
    }
    free(list.number);
    close(parent);
    return code;
}

int train_keep_begin(const train_run *run)
{
    char name[NAME_MAX + 1], start[NAME_MAX + 32];
    number_list list = {0};
    const cli_session *s = run->s;
    if (run->goes_on || run->t.keep < 1 || s->options.force) return CLI_DONE;
    const int parent = train_run_parent(s);
    train_run_name(s, name);
    snprintf(start, sizeof start, "%s" STEP, name);
    int code = parent < 0 ? CLI_DONE : list_numbered(s, parent, start, &list);
    if (parent >= 0) close(parent);
    if (code == CLI_DONE && list.count)
        code = cli_usage(s, "%s%lld: it exists; give --force to replace it", cli_shown(start), list.number[0]);
    free(list.number);
    return code;
}

const char *train_keep_name(const train_run *run, char name[NAME_MAX + 1])
{
    struct stat st;
    const cli_session *s = run->s;
    if (run->t.keep < 1 || run->saved < 1) return NULL;
    name_kept(s, run->saved, name);
    const int parent = train_run_parent(s);
    const bool other =
        parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !is_kept(s, parent, name, run->saved);
    if (parent >= 0) close(parent);
    if (other) tell_other(s, name);
    return other ? NULL : name;
}

int train_keep_none(train_run *run)
{
    return run->t.keep < 1 ? CLI_DONE : leave(run, 0);
}

int train_keep_end(train_run *run)
{
    return run->t.keep < 1 ? CLI_DONE : leave(run, (int)run->t.keep);
}

/* ---- what a kill has left aside ---- */

/* Of .FOLDER.old.NUMBER the one with the most steps. */
static int find_old(const cli_session *s, int parent, char old[NAME_MAX + 32], bool *found)
{
    char name[NAME_MAX + 1], start[NAME_MAX + 8], entry[NAME_MAX + 32];
    number_list list;
    long long most = -2;
    train_run_name(s, name);
    snprintf(start, sizeof start, ".%s.old.", name);
    const int code = list_numbered(s, parent, start, &list);
    for (int n = 0; n < list.count; n++) {
        snprintf(entry, sizeof entry, "%s%lld", start, list.number[n]);
        const long long step = step_of(s, entry);
        if (step <= most) continue;
        most = step;
        memcpy(old, entry, sizeof entry);
    }
    *found = list.count > 0;
    free(list.number);
    return code;
}

static int restore(const cli_session *s, int parent, const char *old, const char *name)
{
    if (renameat(parent, old, parent, name) != 0)
        return cli_error(s, CLI_FAILED, "%s: cannot rename: %s", cli_shown(old), strerror(errno));
    cli_say(s, "%s was %s: its run was killed while it put a new one in its place", cli_shown(name), cli_shown(old));
    return CLI_DONE;
}

int train_keep_restore(const cli_session *s, bool resume)
{
    char name[NAME_MAX + 1], old[NAME_MAX + 32];
    struct stat st;
    bool found = false;
    int code = CLI_DONE;
    const int parent = train_run_parent(s);
    if (parent < 0) return CLI_DONE;
    train_run_name(s, name);
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0) code = find_old(s, parent, old, &found);
    if (code == CLI_DONE && found && resume) code = restore(s, parent, old, name);
    if (code == CLI_DONE && found && !resume && !s->options.force)
        code =
            cli_usage(s, "%s is what a killed training has left of %s; --resume goes on with it, --force begins anew",
                      cli_shown(old), cli_shown(name));
    close(parent);
    return code;
}
