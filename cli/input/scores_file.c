/* scores_file.c - see scores_file.h. The first character distinguishes the formats: JSON begins with a brace. */
#include "input/scores_file.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "input/input.h"
#include "options.h"
#include "output.h"
#include "session.h"

/* State of the parser of a scores file. */
typedef struct scores {
    const cli_session *session;
    const char *name;
    const mha_model *model;
    const mha_model_info *info;
    double *values; /* [layers, H] scores */
    char *text;     /* [bytes] contents of the file, terminated */
    size_t bytes;
} scores;

static int check_whole(const scores *f)
{
    for (int64_t l = 0; l < f->info->layers; l++)
        for (int64_t h = 0; h < f->info->heads_per_layer[l]; h++)
            if (isnan(f->values[l * f->info->heads + h]))
                return cli_error(f->session, CLI_REFUSED, "%s: head %lld.%lld of the model must have a score", f->name,
                                 (long long)l, (long long)mha_head_number(f->model, l, h));
    return CLI_DONE;
}

/* ---- JSON ---- */

/* Reports the rule that a JSON value violates; the message shows the value on one line. */
static int refuse_value(const scores *f, const char *place, const char *rule, const json_t *got)
{
    enum { COLUMNS_SHOWN = 60 };
    char *text = got ? json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    const int code = cli_error(f->session, CLI_REFUSED, "%s: %s must %s (got %s)", f->name, place, rule,
                               text ? cli_shown_start(text, COLUMNS_SHOWN) : "nothing");
    free(text);
    return code;
}

/* Reads the scores of one layer. `numbers` lists the head number of each score; NULL = the heads in order. */
static int read_row(const scores *f, const json_t *row, const json_t *numbers, int64_t layer)
{
    char place[64], rule[96];
    const int64_t heads = f->info->heads_per_layer[layer];
    snprintf(place, sizeof place, "importance.values[%lld]", (long long)layer);
    snprintf(rule, sizeof rule, "have one number for each of the %lld heads of the layer", (long long)heads);
    if (!json_is_array(row) || (int64_t)json_array_size(row) != heads) return refuse_value(f, place, rule, row);
    for (int64_t h = 0; h < heads; h++) {
        const json_t *item = json_array_get(row, (size_t)h);
        const double value = json_number_value(item);
        snprintf(place, sizeof place, "importance.values[%lld][%lld]", (long long)layer, (long long)h);
        if (!json_is_number(item) || !isfinite(value)) return refuse_value(f, place, "be a number", item);
        const json_t *number = json_array_get(numbers, (size_t)h);
        const int64_t head = numbers ? mha_head_place(f->model, layer, json_integer_value(number)) : h;
        snprintf(place, sizeof place, "head_numbers[%lld][%lld]", (long long)layer, (long long)h);
        if (head < 0) return refuse_value(f, place, "be a head of the model", number);
        f->values[layer * f->info->heads + head] = value;
    }
    return CLI_DONE;
}

static int read_lists(const scores *f, const json_t *root)
{
    char rule[96];
    const json_t *importance = json_object_get(root, "importance"), *values = json_object_get(importance, "values");
    const json_t *numbers = json_object_get(root, "head_numbers");
    snprintf(rule, sizeof rule, "have one list for each of the %lld layers of the model", (long long)f->info->layers);
    if (!json_is_object(importance))
        return refuse_value(f, "importance", "be an object written by mha heads --by SCORE --json", importance);
    if (!json_is_array(values) || (int64_t)json_array_size(values) != f->info->layers)
        return refuse_value(f, "importance.values", rule, values);
    int code = CLI_DONE;
    for (int64_t l = 0; l < f->info->layers && code == CLI_DONE; l++)
        code = read_row(f, json_array_get(values, (size_t)l), json_array_get(numbers, (size_t)l), l);
    return code == CLI_DONE ? check_whole(f) : code;
}

static int read_json(const scores *f, const char *at)
{
    json_t *root;
    int code = cli_json_parse(f->session, f->name, at, f->bytes - (size_t)(at - f->text), &root);
    if (code == CLI_DONE) code = read_lists(f, root);
    json_decref(root);
    return code;
}

/* ---- CSV ---- */

enum { LAYER, HEAD, SCORE, COLUMNS, CELLS = 256 };
static const char *const titles[COLUMNS] = {"layer", "head", "importance"};

/* A line of a CSV file, split at its commas. */
typedef struct cells {
    int64_t line;
    char *cell[CELLS];
    int count;
} cells;

/* Splits the line at *at and advances *at to the next line; returns false at the end of the text. */
static bool next_line(char **at, cells *c)
{
    char *line = *at;
    if (!*line) return false;
    const size_t bytes = strcspn(line, "\n");
    *at = line + bytes + (line[bytes] == '\n');
    line[bytes] = '\0';
    if (bytes && line[bytes - 1] == '\r') line[bytes - 1] = '\0';
    c->line++;
    c->count = 0;
    for (char *cell = line; cell && c->count < CELLS;) {
        char *comma = strchr(cell, ',');
        if (comma) *comma++ = '\0';
        c->cell[c->count++] = cell;
        cell = comma;
    }
    return true;
}

static int find_columns(const scores *f, const cells *c, int place[COLUMNS])
{
    for (int n = 0; n < COLUMNS; n++) {
        place[n] = 0;
        while (place[n] < c->count && strcmp(c->cell[place[n]], titles[n]) != 0)
            place[n]++;
        if (place[n] == c->count)
            return cli_error(f->session, CLI_REFUSED,
                             "%s: line 1 must name the columns written by mha heads --by SCORE --csv, including "
                             "\"%s\" (got \"%s\"%s)",
                             f->name, titles[n], cli_shown_start(c->cell[0], 40), c->count > 1 ? ", ..." : "");
    }
    return CLI_DONE;
}

/* Parses a layer or head number that has only digits and is less than `limit`. Returns -1 for any other text. */
static int64_t number_of(const char *cell, int64_t limit)
{
    const size_t digits = strspn(cell, "0123456789");
    if (digits == 0 || digits > 9 || cell[digits]) return -1;
    const int64_t number = strtoll(cell, NULL, 10);
    return number < limit ? number : -1;
}

static int refuse_cell(const scores *f, const cells *c, int column, const char *cell, const char *rule)
{
    return cli_error(f->session, CLI_REFUSED, "%s: line %lld: %s must be %s (got \"%s\")", f->name, (long long)c->line,
                     titles[column], rule, cli_shown(cell));
}

static int take_line(const scores *f, const cells *c, const int place[COLUMNS])
{
    char rule[64], *rest;
    const char *const cell[COLUMNS] = {c->cell[place[LAYER]], c->cell[place[HEAD]], c->cell[place[SCORE]]};
    const int64_t layer = number_of(cell[LAYER], f->info->layers);
    snprintf(rule, sizeof rule, "one of the %lld layers of the model", (long long)f->info->layers);
    if (layer < 0) return refuse_cell(f, c, LAYER, cell[LAYER], rule);
    const int64_t head = mha_head_place(f->model, layer, number_of(cell[HEAD], INT32_MAX));
    snprintf(rule, sizeof rule, "one of the %lld heads of the layer", (long long)f->info->heads_per_layer[layer]);
    if (head < 0) return refuse_cell(f, c, HEAD, cell[HEAD], rule);
    double *value = f->values + layer * f->info->heads + head;
    if (!isnan(*value))
        return cli_error(f->session, CLI_REFUSED,
                         "%s: line %lld: head %s of layer %lld must be on only one line (got a second line)", f->name,
                         (long long)c->line, cell[HEAD], (long long)layer);
    *value = strtod(cell[SCORE], &rest);
    if (rest == cell[SCORE] || *rest || isspace((unsigned char)*cell[SCORE]) || !isfinite(*value))
        return refuse_cell(f, c, SCORE, cell[SCORE], "a number");
    return CLI_DONE;
}

static int read_csv(const scores *f, char *at)
{
    cells c = {0};
    int place[COLUMNS], columns;
    if (strlen(f->text) != f->bytes)
        return cli_error(f->session, CLI_REFUSED, "%s: must be text (got a NUL character)", f->name);
    if (!next_line(&at, &c))
        return cli_error(f->session, CLI_REFUSED, "%s: must contain scores (got an empty file)", f->name);
    int code = find_columns(f, &c, place);
    columns = c.count;
    while (code == CLI_DONE && next_line(&at, &c)) {
        if (c.count == 1 && !*c.cell[0]) continue;
        if (c.count != columns)
            return cli_error(f->session, CLI_REFUSED, "%s: line %lld: must have %d cells, like line 1 (got %d)",
                             f->name, (long long)c.line, columns, c.count);
        code = take_line(f, &c, place);
    }
    return code == CLI_DONE ? check_whole(f) : code;
}

/* ---- format detection ---- */

static int read_either(scores *f)
{
    char *at = f->text;
    if (f->bytes >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0) at += 3;
    const char first = at[strspn(at, " \t\r\n")];
    return first == '{' || first == '[' ? read_json(f, at) : read_csv(f, at);
}

int scores_file_read(const cli_session *session, const char *path, const mha_model *model, double *values)
{
    const mha_model_info *info = mha_model_describe(model);
    scores f = {.session = session,
                .name = strcmp(path, "-") == 0 ? "standard input" : cli_shown(path),
                .model = model,
                .info = info,
                .values = values};
    for (int64_t n = 0; n < info->layers * info->heads; n++)
        values[n] = NAN;
    int code = cli_file_read(session, path, &f.text, &f.bytes);
    if (code == CLI_DONE) code = read_either(&f);
    free(f.text);
    return code;
}
