/* output_is_input.c - see output_is_input.h. Inputs are found in the option table: every option whose value is a file,
 * a folder or a model, except those marked as outputs. */
#include "output_is_input.h"

#include "model_name.h"
#include "option_values.h"
#include "options.h"
#include "output.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- comparison with one input ---- */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Returns true if models or training runs read folder entries of this name. Other entries, such as a report on the
 * model, are not read. */
static bool is_read(const char *name)
{
    static const char *const names[] = {"vocab.txt", "merges.txt", "tokenizer.model"};
    bool found = strncmp(name, "training.", 9) == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found |= strcmp(name, names[i]) == 0;
    return found || cli_ends(name, ".json") || cli_ends(name, ".safetensors");
}

/* Returns true if the open folder contains `file` as an entry that is_read accepts; with `any`, as any entry. */
static bool lists(DIR *entries, const struct stat *file, bool any)
{
    bool found = false;
    struct stat entry;
    for (struct dirent *e = readdir(entries); e && !found; e = readdir(entries))
        found = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && (any || is_read(e->d_name)) &&
                fstatat(dirfd(entries), e->d_name, &entry, 0) == 0 && is_same(&entry, file);
    return found;
}

static DIR *open_folder(int dir, const char *name)
{
    const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (!entries && fd >= 0) close(fd);
    return entries;
}

/* Returns true if `file` is the subfolder `name`, or a file that is read from it. */
static bool is_in_module(DIR *entries, const char *name, const struct stat *file)
{
    struct stat st;
    DIR *inside = open_folder(dirfd(entries), name);
    const bool found = inside && ((fstat(dirfd(inside), &st) == 0 && is_same(&st, file)) || lists(inside, file, false));
    if (inside) closedir(inside);
    return found;
}

/* Returns true if `file` is or is in a subfolder of a sentence-transformers folder, such as 1_Pooling or 2_Dense. */
static bool is_in_modules(DIR *entries, const struct stat *file)
{
    bool found = false;
    if (faccessat(dirfd(entries), "modules.json", F_OK, 0) != 0) return false;
    rewinddir(entries);
    for (struct dirent *e = readdir(entries); e && !found; e = readdir(entries)) {
        const size_t digits = strspn(e->d_name, "0123456789");
        found = digits > 0 && e->d_name[digits] == '_' && is_in_module(entries, e->d_name, file);
    }
    return found;
}

/* Returns true if the folder contains `file`; unless `any`, only files that models or training runs read count. */
static bool holds(const char *folder, const struct stat *file, bool any)
{
    DIR *entries = open_folder(AT_FDCWD, folder);
    const bool found = entries && (lists(entries, file, any) || (!any && is_in_modules(entries, file)));
    if (entries) closedir(entries);
    return found;
}

static int refuse(const cli_session *s, const char *output, const char *path, const char *what, const char *option)
{
    return cli_usage(s, "%s must not be an input (got \"%s\", %s %s)", output, cli_shown(path), what, option);
}

int cli_input_check(const cli_session *s, const char *output, const char *path, const char *option, const char *input)
{
    struct stat out, in;
    if (!path || !input || stat(path, &out) != 0 || stat(input, &in) != 0) return CLI_DONE;
    const bool folder = S_ISDIR(in.st_mode);
    if (is_same(&out, &in)) return refuse(s, output, path, folder ? "the folder read by" : "the file read by", option);
    if (folder && holds(input, &out, false)) return refuse(s, output, path, "a file in the folder read by", option);
    if (S_ISDIR(out.st_mode) && holds(path, &in, true))
        return refuse(s, output, path, "which contains the input of", option);
    return CLI_DONE;
}

/* ---- comparison with all inputs ---- */

static bool is_output(const struct poptOption *o)
{
    return o->val == CLI_OUTPUT || o->val == CLI_OUTPUT_BASE;
}

/* Returns true if the value of the option is a file, folder or model that the command reads. */
static bool is_input(const cli_session *s, const struct poptOption *o)
{
    const option_kind kind = option_kind_of(s->command, o);
    return (kind == OPTION_PATH || kind == OPTION_MODEL) && !is_output(o);
}

static int check_value(const cli_session *s, const char *output, const char *path, const struct poptOption *o,
                       const char *value)
{
    char option[CLI_OPTION_NAME], folder[PATH_MAX];
    const bool model = option_kind_of(s->command, o) == OPTION_MODEL;
    return cli_input_check(s, output, path, cli_option_name(o, option),
                           model && value ? cli_model_folder(value, folder) : value);
}

static int check_option(const cli_session *s, const char *output, const char *path, const struct poptOption *o)
{
    if (o->argInfo == POPT_ARG_STRING) return check_value(s, output, path, o, *(const char *const *)o->arg);
    const char *const *list = *(const char *const *const *)o->arg;
    int code = CLI_DONE;
    for (int n = 0; list && list[n] && code == CLI_DONE; n++)
        code = check_value(s, output, path, o, list[n]);
    return code;
}

static int check_stdin(const cli_session *s, const char *output, const char *path)
{
    struct stat out, in;
    if (stat(path, &out) != 0 || fstat(STDIN_FILENO, &in) != 0 || !S_ISREG(in.st_mode) || !is_same(&out, &in))
        return CLI_DONE;
    return refuse(s, output, path, "which is", "standard input");
}

int cli_inputs_check(const cli_session *s, const char *output, const char *path)
{
    struct poptOption table[CLI_MAX_OPTIONS];
    cli_option_table(s->command, table);
    int code = check_stdin(s, output, path);
    for (const struct poptOption *o = table; (o->longName || o->shortName) && code == CLI_DONE; o++)
        if (is_input(s, o)) code = check_option(s, output, path, o);
    return code;
}

int cli_outputs_check(const cli_session *s)
{
    char output[CLI_OPTION_NAME];
    struct poptOption table[CLI_MAX_OPTIONS];
    if (!cli_writes(s)) return CLI_DONE;
    const bool resumes = s->command->resumes && s->command->resumes();
    cli_option_table(s->command, table);
    int code = CLI_DONE;
    for (const struct poptOption *o = table; (o->longName || o->shortName) && code == CLI_DONE; o++) {
        const char *path = o->val == CLI_OUTPUT ? *(const char *const *)o->arg : NULL;
        const bool continued = resumes && path == s->options.out;
        if (path && !continued && strcmp(path, "-") != 0) code = cli_inputs_check(s, cli_option_name(o, output), path);
    }
    return code;
}

/* ---- standard input ---- */

/* The number of options and arguments that are "-", and the names of the first and the last. */
typedef struct claims {
    int count;
    char first[CLI_OPTION_NAME], last[CLI_OPTION_NAME];
} claims;

static void claim(claims *c, const char *name, const char *value)
{
    if (!value || strcmp(value, "-") != 0) return;
    snprintf(c->count++ ? c->last : c->first, CLI_OPTION_NAME, "%s", name);
}

static void claim_option(claims *c, const struct poptOption *o)
{
    char option[CLI_OPTION_NAME];
    cli_option_name(o, option);
    if (o->argInfo == POPT_ARG_STRING) claim(c, option, *(const char *const *)o->arg);
    if (o->argInfo != POPT_ARG_ARGV) return;
    const char *const *list = *(const char *const *const *)o->arg;
    for (int n = 0; list && list[n]; n++)
        claim(c, option, list[n]);
}

int cli_stdin_check(const cli_session *s, bool piped)
{
    claims c = {0};
    struct poptOption table[CLI_MAX_OPTIONS];
    cli_option_table(s->command, table);
    for (const struct poptOption *o = table; o->longName || o->shortName; o++)
        if (option_kind_of(s->command, o) == OPTION_PATH && !is_output(o)) claim_option(&c, o);
    for (int n = 0; n < s->arg_count; n++)
        claim(&c, "the argument", s->args[n]);
    if (piped) claim(&c, "texts from", "-");
    if (c.count < 2) return CLI_DONE;
    return cli_usage(s, "- (standard input) must be given at most once (got %s - and %s -)", c.first, c.last);
}
