/* train_settings.c - parses settings from the command line and from JSON with one table. */
#include "train/train_settings.h"

#include "input/input.h"
#include "input/text_reader.h"
#include "options.h"
#include "output.h"
#include "output_is_input.h"
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- table of settings ---- */

typedef enum kind { TEXT, SHAPE, PATH, TEXTS, PATHS, WHOLE, NUMBER, FLAG } kind;

struct train_given train_given;

typedef struct row {
    kind kind;
    const char *key, *option; /* for example "save_every", "--save-every" */
    double min, max;          /* bounds; bounds of integers, up to 2^62, are exact */
    size_t field;             /* offset of the field in train_settings */
    void *given;
} row;

static const row rows[] = {
#define X(kind, field, letter, option, min, max, help, value) \
    {kind, #field, "--" option, (double)(min), (double)(max), offsetof(train_settings, field), &train_given.field},
    TRAIN_SETTINGS_MAP(X)
#undef X
};
enum { ROWS = sizeof rows / sizeof *rows };

static void *at(const train_settings *t, const row *r)
{
    return (char *)t + r->field;
}

static bool is_list(const row *r)
{
    return r->kind == TEXTS || r->kind == PATHS;
}

/* ---- copies of values ---- */

static int no_memory(const cli_session *s)
{
    return cli_error(s, CLI_FAILED, "out of memory for the settings");
}

/* Returns a copy of a value. Paths except "-" become absolute, and an output path loses trailing slashes. */
static char *copy(const row *r, const char *text)
{
    char here[PATH_MAX];
    size_t n = strlen(text);
    while (r->kind == PATH && n > 1 && text[n - 1] == '/')
        n--;
    const bool path = (r->kind == PATH || r->kind == PATHS) && *text && *text != '/' && strcmp(text, "-") != 0;
    if (!path || !getcwd(here, sizeof here)) return strndup(text, n);
    const size_t bytes = strlen(here) + n + 2;
    char *all = malloc(bytes);
    if (all) snprintf(all, bytes, "%s/%.*s", here, (int)n, text);
    return all;
}

static void free_list(train_list *list)
{
    for (int n = 0; n < list->count; n++)
        free(list->item[n]);
    free(list->item);
    *list = (train_list){0};
}

static int set_text(const cli_session *s, const row *r, const char *text, train_settings *t)
{
    char **to = at(t, r);
    char *own = copy(r, text);
    if (!own) return no_memory(s);
    free(*to);
    *to = own;
    return CLI_DONE;
}

static int append(const cli_session *s, const row *r, const char *text, train_list *list)
{
    char **grown = realloc(list->item, ((size_t)list->count + 1) * sizeof *grown);
    if (!grown) return no_memory(s);
    list->item = grown;
    grown[list->count] = copy(r, text);
    return grown[list->count++] ? CLI_DONE : no_memory(s);
}

/* ---- JSON ---- */

static int wants(const cli_session *s, const char *name, const row *r, const char *what)
{
    return cli_error(s, CLI_REFUSED, "%s: \"%s\" must be %s", cli_shown(name), r->key, what);
}

static int take_whole(const cli_session *s, const char *name, const row *r, const json_t *value, train_settings *t)
{
    char what[80];
    const json_int_t number = json_integer_value(value);
    const long long min = (long long)r->min, max = (long long)r->max;
    snprintf(what, sizeof what, "a whole number from %lld to %lld", min, max);
    if (!json_is_integer(value) || number < min || number > max) return wants(s, name, r, what);
    *(long long *)at(t, r) = number;
    return CLI_DONE;
}

static int take_number(const cli_session *s, const char *name, const row *r, const json_t *value, train_settings *t)
{
    char what[80];
    const double number = json_number_value(value);
    snprintf(what, sizeof what, "a number from %g to %g", r->min, r->max);
    if (!json_is_number(value) || !(number >= r->min && number <= r->max)) return wants(s, name, r, what);
    *(double *)at(t, r) = number;
    return CLI_DONE;
}

static int take_text(const cli_session *s, const char *name, const row *r, const json_t *value, train_settings *t)
{
    if (json_is_string(value)) return set_text(s, r, json_string_value(value), t);
    if (r->kind != SHAPE) return wants(s, name, r, "a string");
    if (!json_is_object(value)) return wants(s, name, r, "a string, or an object as in config.json");
    char *text = json_dumps(value, JSON_COMPACT);
    const int code = text ? set_text(s, r, text, t) : no_memory(s);
    free(text);
    return code;
}

/* Parses a list of strings, or one string. */
static int take_list(const cli_session *s, const char *name, const row *r, const json_t *value, train_settings *t)
{
    train_list *list = at(t, r);
    const bool one = json_is_string(value);
    const size_t count = one ? 1 : json_array_size(value);
    if (!one && !json_is_array(value)) return wants(s, name, r, "a string or a list of strings");
    free_list(list);
    int code = CLI_DONE;
    for (size_t i = 0; i < count && code == CLI_DONE; i++) {
        const char *text = json_string_value(one ? value : json_array_get(value, i));
        code = text ? append(s, r, text, list) : wants(s, name, r, "a list of strings");
    }
    return code;
}

static int take_flag(const cli_session *s, const char *name, const row *r, const json_t *value, train_settings *t)
{
    if (!json_is_boolean(value)) return wants(s, name, r, "true or false");
    *(bool *)at(t, r) = json_is_true(value);
    return CLI_DONE;
}

static int take(const cli_session *s, const char *name, const row *r, const json_t *value, train_settings *t)
{
    return is_list(r)          ? take_list(s, name, r, value, t)
           : r->kind == WHOLE  ? take_whole(s, name, r, value, t)
           : r->kind == NUMBER ? take_number(s, name, r, value, t)
           : r->kind == FLAG   ? take_flag(s, name, r, value, t)
                               : take_text(s, name, r, value, t);
}

int train_settings_take(const cli_session *s, const char *name, const json_t *object, train_settings *t)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return cli_error(s, CLI_REFUSED, "%s must be an object of settings", cli_shown(name));
    json_object_foreach((json_t *)object, key, value)
    {
        int n = 0;
        while (n < ROWS && strcmp(rows[n].key, key) != 0)
            n++;
        if (n == ROWS) return cli_error(s, CLI_REFUSED, "%s: unknown setting \"%s\"", cli_shown(name), cli_shown(key));
        const int code = take(s, name, &rows[n], value, t);
        if (code != CLI_DONE) return code;
    }
    return CLI_DONE;
}

/* Clears the setting of --epochs if --steps is given, and vice versa; they are mutually exclusive. */
static int choose_length(const cli_session *s, bool steps, bool epochs, train_settings *t)
{
    if (steps && epochs) return cli_usage(s, "steps and epochs are mutually exclusive");
    if (steps) t->epochs = NAN;
    if (epochs) t->steps = -1;
    return CLI_DONE;
}

/* Records whether texts or token files are named. New texts replace the token files in the settings of the checkpoint,
 * and vice versa. */
static void name_data(bool file, bool tokens, bool eval, train_settings *t)
{
    if (file && !tokens) free_list(&t->tokens);
    if (tokens && !file) free_list(&t->file);
    t->names_data |= file || tokens;
    t->names_eval |= eval;
}

static bool has(const json_t *all, const char *key)
{
    return json_object_get(all, key) != NULL;
}

int train_settings_load(const cli_session *s, const char *path, train_settings *t)
{
    json_t *all;
    int code = cli_json_read(s, path, &all);
    if (code != CLI_DONE) return code;
    code = choose_length(s, has(all, "steps"), has(all, "epochs"), t);
    name_data(has(all, "file"), has(all, "tokens"), has(all, "eval"), t);
    t->names_teacher |= has(all, "teacher");
    if (code == CLI_DONE) code = train_settings_take(s, path, all, t);
    json_decref(all);
    return code;
}

/* Returns the strings of a setting; *count is 0 if it is not given or has no strings. */
static char *const *texts_of(const train_settings *t, const row *r, int *count)
{
    const train_list *list = at(t, r);
    char *const *one = at(t, r);
    const bool text = r->kind == TEXT || r->kind == SHAPE || r->kind == PATH;
    *count = is_list(r) ? list->count : text && *one;
    return is_list(r) ? list->item : one;
}

static bool is_set(const train_settings *t, const row *r)
{
    int count;
    if (r->kind == WHOLE) return *(const long long *)at(t, r) >= 0;
    if (r->kind == NUMBER) return !isnan(*(const double *)at(t, r));
    if (r->kind == FLAG) return *(const bool *)at(t, r);
    texts_of(t, r, &count);
    return count > 0;
}

/* Returns a setting as JSON; NULL if memory is exhausted. */
static json_t *value_json(const train_settings *t, const row *r)
{
    int count;
    if (r->kind == WHOLE) return json_integer(*(const long long *)at(t, r));
    if (r->kind == NUMBER) return json_real(*(const double *)at(t, r));
    if (r->kind == FLAG) return json_true();
    char *const *texts = texts_of(t, r, &count);
    if (!is_list(r)) return json_string(*texts);
    json_t *array = json_array();
    for (int n = 0; n < count; n++)
        if (json_array_append_new(array, json_string(texts[n])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

json_t *train_settings_json(const train_settings *t)
{
    json_t *all = json_object();
    for (int n = 0; n < ROWS; n++)
        if (is_set(t, &rows[n]) && json_object_set_new(all, rows[n].key, value_json(t, &rows[n])) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

int train_settings_check_texts(const cli_session *s, const train_settings *t)
{
    for (int n = 0; n < ROWS; n++) {
        int count;
        char *const *texts = texts_of(t, &rows[n], &count);
        for (int i = 0; i < count; i++)
            if (cli_utf8_bytes(texts[i], strlen(texts[i])) < strlen(texts[i]))
                return cli_error(s, CLI_REFUSED,
                                 "%s must be UTF-8, because training.json stores it for --resume (got \"%s\")",
                                 rows[n].option, cli_shown(texts[i]));
    }
    return CLI_DONE;
}

/* ---- options ---- */

static int take_option(const cli_session *s, const row *r, train_settings *t)
{
    const char *text = is_list(r) || r->kind == FLAG ? NULL : *(const char *const *)r->given;
    if (r->kind == WHOLE) return cli_whole(s, r->option, text, (long long)r->min, (long long)r->max, at(t, r));
    if (r->kind == NUMBER) return cli_number(s, r->option, text, r->min, r->max, at(t, r));
    if (text) return set_text(s, r, text, t);
    if (r->kind == FLAG) {
        *(bool *)at(t, r) |= *(const int *)r->given != 0;
        return CLI_DONE;
    }
    const char *const *list = is_list(r) ? *(const char *const *const *)r->given : NULL;
    int code = CLI_DONE;
    if (list) free_list(at(t, r));
    for (int n = 0; list && list[n] && code == CLI_DONE; n++)
        code = append(s, r, list[n], at(t, r));
    return code;
}

static const row *row_of(size_t field)
{
    const row *r = rows;
    while (r->field != field)
        r++;
    return r;
}

int train_settings_take_options(const cli_session *s, train_settings *t)
{
    int code = choose_length(s, train_given.steps != NULL, train_given.epochs != NULL, t);
    name_data(train_given.file != NULL, train_given.tokens != NULL, train_given.eval != NULL, t);
    t->names_teacher |= train_given.teacher != NULL;
    if (train_given.from && s->options.model) return cli_usage(s, "-m and --from are synonyms: give only one");
    const bool dash = s->arg_count == 1 && strcmp(s->args[0], "-") == 0; /* the argument - means -f - */
    if (s->arg_count && !train_given.file && train_given.tokens)
        return cli_usage(s, "unexpected argument \"%s\": each token file requires its own --tokens",
                         cli_shown(s->args[0]));
    if (s->arg_count && !train_given.file && !dash) return cli_texts_refuse(s);
    for (int n = 0; n < ROWS && code == CLI_DONE; n++)
        code = take_option(s, &rows[n], t);
    if (code == CLI_DONE && s->options.model)
        code = set_text(s, row_of(offsetof(train_settings, from)), s->options.model, t);
    for (int n = 0; n < s->arg_count && code == CLI_DONE; n++)
        code = append(s, row_of(offsetof(train_settings, file)), s->args[n], &t->file);
    if (code != CLI_DONE || t->file.count || t->tokens.count || !text_reader_piped()) return code;
    code = cli_stdin_check(s, true);
    return code == CLI_DONE ? append(s, row_of(offsetof(train_settings, file)), "-", &t->file) : code;
}

/* ---- initialization and cleanup ---- */

void train_settings_none(train_settings *t)
{
    *t = (train_settings){0};
    for (int n = 0; n < ROWS; n++) {
        if (rows[n].kind == WHOLE) *(long long *)at(t, &rows[n]) = -1;
        if (rows[n].kind == NUMBER) *(double *)at(t, &rows[n]) = NAN;
    }
}

void train_settings_free(train_settings *t)
{
    for (int n = 0; n < ROWS; n++) {
        const row *r = &rows[n];
        if (is_list(r)) free_list(at(t, r));
        if (r->kind == TEXT || r->kind == SHAPE || r->kind == PATH) free(*(char **)at(t, r));
    }
}

void train_settings_free_options(void)
{
    for (int n = 0; n < ROWS; n++) {
        const char **list = is_list(&rows[n]) ? *(const char ***)rows[n].given : NULL;
        for (int i = 0; list && list[i]; i++)
            free((char *)list[i]); /* popt allocates copies of list arguments */
        free(list);
    }
}
