/* train_outputs.c - checks the outputs of a training run, -o, --export and --log, before the data is read.
 *
 * No output may be an input of the run. Without --force, an existing output is replaced only if training.json names it
 * and its contents show that this run wrote it. The contents of the log are compared when the log is opened. */
#include "input/input.h"
#include "output.h"
#include "output_is_input.h"
#include "train/train_run.h"
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- errors of the library ---- */

/* Returns the end of a message that begins with "; set " and names `overwrite`; NULL if the message has no such end. */
static const char *find_advice(const char *message)
{
    const char *advice = NULL;
    for (const char *next = message; (next = strstr(next, "; set ")); next++)
        advice = next;
    return advice && strstr(advice, "overwrite to 1") ? advice : NULL;
}

int train_run_refuse(const cli_session *s, const mha_error *error)
{
    const char *advice = find_advice(error->message);
    if (!advice) return cli_fail(s, error);
    return cli_usage(s, "%.*s; %s", (int)(advice - error->message), error->message,
                     strstr(advice, "resume") ? "--resume continues it, --force starts over" : "--force replaces it");
}

/* ---- paths ---- */

/* Resolves a path to an absolute path without links, even if the file does not exist yet. Returns false if its
 * folder does not exist. */
static bool find_place(const char *path, char place[PATH_MAX])
{
    char parent[PATH_MAX], name[PATH_MAX]; /* dirname and basename modify their argument */
    if (realpath(path, place)) return true;
    if (snprintf(parent, sizeof parent, "%s", path) >= PATH_MAX || !realpath(dirname(parent), place)) return false;
    memcpy(name, path, strlen(path) + 1);
    const size_t used = strlen(place);
    return snprintf(place + used, PATH_MAX - used, "/%s", basename(name)) < (int)(PATH_MAX - used);
}

/* Returns true if `path` is `other` or inside `other`; false if either is NULL. */
static bool is_within(const char *path, const char *other)
{
    char a[PATH_MAX], b[PATH_MAX];
    if (!path || !other || !find_place(path, a) || !find_place(other, b)) return false;
    const size_t n = strlen(b);
    return strncmp(a, b, n) == 0 && (!a[n] || a[n] == '/');
}

/* Checks that the run may write to `path`. The run may replace its own earlier output, `named`. */
static int check_free(const train_run *run, const char *option, const char *path, const char *named)
{
    if (run->s->options.force || (named && strcmp(path, named) == 0) || access(path, F_OK) != 0) return CLI_DONE;
    return cli_usage(run->s, "%s %s exists; --force replaces it", option, cli_shown(path));
}

/* ---- outputs ---- */

/* An option that names a folder; `path` is NULL if the option is not given. */
typedef struct taken {
    const char *option, *path;
} taken;

static const char *find_taken(const char *path, const taken *list, size_t count)
{
    for (size_t n = 0; n < count; n++)
        if (is_within(path, list[n].path)) return list[n].option;
    return NULL;
}

static int check_list(const cli_session *s, const char *output, const char *path, const char *option,
                      const train_list *list)
{
    int code = CLI_DONE;
    for (int n = 0; n < list->count && code == CLI_DONE; n++)
        code = cli_input_check(s, output, path, option, list->item[n]);
    return code;
}

/* Checks that `path`, the value of the option `output`, is not an input of the run. The settings include inputs named
 * in --config and training.json. A resumed run does not read --from, --tokenizer and --shape. */
static int check_inputs(const train_run *run, const char *output, const char *path, const char *from)
{
    const cli_session *s = run->s;
    const train_settings *t = &run->t;
    const taken list[] = {
        {"--teacher", t->teacher}, {"--from", from}, {"--tokenizer", t->tokenizer}, {"--shape", t->shape}};
    const size_t count = run->resumed ? 1 : sizeof list / sizeof *list;
    int code = cli_inputs_check(s, output, path);
    if (code == CLI_DONE) code = check_list(s, output, path, "-f", &t->file);
    if (code == CLI_DONE) code = check_list(s, output, path, "--tokens", &t->tokens);
    if (code == CLI_DONE) code = check_list(s, output, path, "--eval", &t->eval);
    for (size_t n = 0; n < count && code == CLI_DONE; n++)
        code = cli_input_check(s, output, path, list[n].option, list[n].path);
    return code;
}

static int check_export(train_run *run, const char *named, const char *from)
{
    char inside[PATH_MAX];
    const cli_session *s = run->s;
    const train_settings *t = &run->t;
    const taken list[] = {{"-o", s->options.out}, {"--from", from}, {"--teacher", t->teacher}};
    const char *other = find_taken(t->export, list, sizeof list / sizeof *list);
    if (other)
        return cli_usage(s, "--export %s must not be the %s folder or be inside it", cli_shown(t->export), other);
    if (is_within(s->options.out, t->export))
        return cli_usage(s, "--export %s must not contain the -o folder", cli_shown(t->export));
    snprintf(inside, sizeof inside, "%s/training.json", t->export);
    if (!s->options.force && access(inside, F_OK) == 0)
        return cli_usage(s, "--export %s already contains a training run; --force replaces it", cli_shown(t->export));
    int code = check_inputs(run, "--export", t->export, from);
    if (code == CLI_DONE) code = check_free(run, "--export", t->export, named);
    if (code != CLI_DONE) return code;
    run->own_export = s->options.force || train_run_is_export(run, t->export);
    if (!run->own_export && access(t->export, F_OK) == 0)
        return cli_usage(s, "--export %s is not an export of this run; --force replaces it", cli_shown(t->export));
    return cli_check_folder(s, t->export, run->own_export);
}

static int check_log(train_run *run, const char *named, const char *from)
{
    const cli_session *s = run->s;
    const train_settings *t = &run->t;
    const taken list[] = {{"--export", t->export}, {"--from", from}, {"--teacher", t->teacher}};
    if (strcmp(t->log, "-") == 0) return cli_usage(s, "--log must be the name of a file (got \"-\")");
    if (is_within(t->log, s->options.out))
        return cli_usage(s, "--log %s must not be in the -o folder, since that folder has its own log",
                         cli_shown(t->log));
    const char *other = find_taken(t->log, list, sizeof list / sizeof *list);
    if (other) return cli_usage(s, "--log %s must not be in the %s folder", cli_shown(t->log), other);
    const int code = check_inputs(run, "--log", t->log, from);
    return code == CLI_DONE ? check_free(run, "--log", t->log, named) : code;
}

/* Finds the --from folder. A resumed run does not read this folder, which may no longer exist. */
static int find_from(const train_run *run, const char **from)
{
    *from = run->t.from;
    if (run->resumed || !*from) return CLI_DONE;
    const int code = cli_model_find(run->s, *from);
    *from = run->s->model;
    return code;
}

int train_places_check(train_run *run, const char *export, const char *log)
{
    const char *from;
    const cli_session *s = run->s;
    const train_settings *t = &run->t;
    int code = find_from(run, &from);
    if (code == CLI_DONE && is_within(t->teacher, s->options.out))
        return cli_usage(s, "--teacher %s must not be the -o folder or be inside it", cli_shown(t->teacher));
    if (code == CLI_DONE && !run->resumed) code = check_inputs(run, "-o", s->options.out, from);
    if (code == CLI_DONE) code = cli_check_folder(s, s->options.out, run->resumed || s->options.force);
    if (code == CLI_DONE && t->export) code = check_export(run, export, from);
    return code == CLI_DONE && t->log ? check_log(run, log, from) : code;
}
