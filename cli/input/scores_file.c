/* scores_file.c - see scores_file.h. The first character distinguishes the formats: JSON begins with a brace. */
#include "input/scores_file.h"

#include "input/input.h"
#include "options.h"
#include "output.h"
#include "session.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* State of the parser of a scores file. */
typedef struct scores {
    const cli_session *session;
    const char *name;
    const head_part *part;          /* [parts] kinds of heads to read */
    double *values[MHA_HEAD_KINDS]; /* scores of each part, [layers, H] */
    int parts;
    char *text; /* [bytes] contents of the file, terminated */
    size_t bytes;
} scores;

static int64_t layers_of(const scores *f, int n)
{
    return mha_model_describe(f->part[n].model)->layers;
}

/* Returns the element for the head at `place` of a layer of part n. */
static double *element(const scores *f, int n, int64_t layer, int64_t place)
{
    return f->values[n] + layer * mha_model_describe(f->part[n].model)->heads + place;
}

static int check_part(const scores *f, int n)
{
    const head_part *part = &f->part[n];
    for (int64_t l = 0; l < layers_of(f, n); l++)
        for (int64_t h = 0; h < head_part_heads(part, l); h++)
            if (isnan(*element(f, n, l, h)))
                return cli_error(f->session, CLI_REFUSED, "%s: head %s%s%lld.%lld of the model must have a score",
                                 f->name, part->name, *part->name ? "." : "", (long long)l,
                                 (long long)head_part_number(part, l, h));
    return CLI_DONE;
}

static int check_whole(const scores *f)
{
    int code = CLI_DONE;
    for (int n = 0; n < f->parts && code == CLI_DONE; n++)
        code = check_part(f, n);
    return code;
}

/* Checks that the kinds of heads in the file are those to read. A file without kinds has the scores of one model, and a
 * file with kinds those of an encoder-decoder. */
static int check_kinds(const scores *f, bool kinds)
{
    const char *family = mha_model_describe(f->part->model)->family;
    if (kinds && !*f->part->name)
        return cli_error(f->session, CLI_REFUSED,
                         "%s: must contain the scores of one kind of heads for %s (got the scores of an "
                         "encoder-decoder)",
                         f->name, family);
    if (!kinds && f->parts > 1)
        return cli_error(f->session, CLI_REFUSED,
                         "%s: must contain the scores of the decoder, cross and encoder heads of %s, as written by mha "
                         "heads --by SCORE on source/target pairs (got one kind of heads; --part encoder reads scores "
                         "of the encoder only)",
                         f->name, family);
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

/* The scores of one part in a JSON file. */
typedef struct lists {
    int part;
    const char *of; /* path of `values` and, for a named part, `numbers`: "importance" or longer */
    const json_t *values,
        *numbers; /* lists per layer; `numbers` lists the head number of each score, NULL = in order */
} lists;

/* Reads the scores of one layer. */
static int read_row(const scores *f, const lists *from, int64_t layer)
{
    char place[96], rule[96];
    const head_part *part = &f->part[from->part];
    const json_t *row = json_array_get(from->values, (size_t)layer),
                 *numbers = json_array_get(from->numbers, (size_t)layer);
    const int64_t heads = head_part_heads(part, layer);
    snprintf(place, sizeof place, "%s.values[%lld]", from->of, (long long)layer);
    snprintf(rule, sizeof rule, "have one number for each of the %lld heads of the layer", (long long)heads);
    if (!json_is_array(row) || (int64_t)json_array_size(row) != heads) return refuse_value(f, place, rule, row);
    for (int64_t h = 0; h < heads; h++) {
        const json_t *item = json_array_get(row, (size_t)h), *number = json_array_get(numbers, (size_t)h);
        const double value = json_number_value(item);
        snprintf(place, sizeof place, "%s.values[%lld][%lld]", from->of, (long long)layer, (long long)h);
        if (!json_is_number(item) || !isfinite(value)) return refuse_value(f, place, "be a number", item);
        const int64_t named = json_is_integer(number) ? json_integer_value(number) : -1;
        const int64_t head = numbers ? head_part_place(part, layer, named) : h;
        snprintf(place, sizeof place, "%s%shead_numbers[%lld][%lld]", *part->name ? from->of : "",
                 *part->name ? "." : "", (long long)layer, (long long)h);
        if (head < 0) return refuse_value(f, place, "be a head of the model", number);
        if (!isnan(*element(f, from->part, layer, head)))
            return refuse_value(f, place, "be a head that occurs only once in the layer", number);
        *element(f, from->part, layer, head) = value;
    }
    return CLI_DONE;
}

static int read_part(const scores *f, const lists *from)
{
    char place[64], rule[96];
    const int64_t layers = layers_of(f, from->part);
    snprintf(place, sizeof place, "%s.values", from->of);
    snprintf(rule, sizeof rule, "have one list for each of the %lld layers of the model", (long long)layers);
    if (!json_is_array(from->values) || (int64_t)json_array_size(from->values) != layers)
        return refuse_value(f, place, rule, from->values);
    int code = CLI_DONE;
    for (int64_t l = 0; l < layers && code == CLI_DONE; l++)
        code = read_row(f, from, l);
    return code;
}

/* Reads importance.NAME of every part. */
static int read_kinds(const scores *f, const json_t *importance)
{
    int code = CLI_DONE;
    for (int n = 0; n < f->parts && code == CLI_DONE; n++) {
        char place[32];
        const json_t *kind = json_object_get(importance, f->part[n].name);
        snprintf(place, sizeof place, "importance.%s", f->part[n].name);
        if (!json_is_object(kind)) return refuse_value(f, place, "be an object with the scores of these heads", kind);
        code = read_part(f, &(lists){n, place, json_object_get(kind, "values"), json_object_get(kind, "head_numbers")});
    }
    return code;
}

static int read_lists(const scores *f, const json_t *root)
{
    const json_t *importance = json_object_get(root, "importance");
    const bool kinds = json_object_get(importance, "decoder") || json_object_get(importance, "cross") ||
                       json_object_get(importance, "encoder");
    if (!json_is_object(importance))
        return refuse_value(f, "importance", "be an object written by mha heads --by SCORE --json", importance);
    int code = check_kinds(f, kinds);
    if (code == CLI_DONE && kinds) code = read_kinds(f, importance);
    if (code == CLI_DONE && !kinds)
        code = read_part(
            f, &(lists){0, "importance", json_object_get(importance, "values"), json_object_get(root, "head_numbers")});
    return code == CLI_DONE ? check_whole(f) : code;
}

static int read_json(const scores *f, const char *at)
{
    json_t *root;
    int code = cli_json_parse(f->session, f->name, 1, at, f->bytes - (size_t)(at - f->text), &root);
    if (code == CLI_DONE) code = read_lists(f, root);
    json_decref(root);
    return code;
}

/* ---- CSV ---- */

enum { KIND, LAYER, HEAD, SCORE, COLUMNS, CELLS = 256 };
static const char *const titles[COLUMNS] = {"kind", "layer", "head", "importance"};

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

/* Finds the place of each column. Only "kind" is optional; if it is absent, its place is the number of cells. */
static int find_columns(const scores *f, const cells *c, int place[COLUMNS])
{
    for (int n = 0; n < COLUMNS; n++) {
        place[n] = 0;
        while (place[n] < c->count && strcmp(c->cell[place[n]], titles[n]) != 0)
            place[n]++;
        if (n != KIND && place[n] == c->count)
            return cli_error(f->session, CLI_REFUSED,
                             "%s: line 1 must name the columns written by mha heads --by SCORE --csv, including "
                             "\"%s\" (got \"%s\"%s)",
                             f->name, titles[n], cli_shown_start(c->cell[0], 40), c->count > 1 ? ", ..." : "");
    }
    return check_kinds(f, place[KIND] < c->count);
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

/* Finds the part that the line names: *n is -1 if its scores are not read. A file without kinds has only one part. */
static int find_part(const scores *f, const cells *c, const int place[COLUMNS], int *n)
{
    const char *kind = place[KIND] < c->count ? c->cell[place[KIND]] : f->part->name;
    for (*n = f->parts - 1; *n >= 0 && strcmp(kind, f->part[*n].name) != 0;)
        (*n)--;
    if (*n >= 0 || strcmp(kind, "decoder") == 0 || strcmp(kind, "cross") == 0 || strcmp(kind, "encoder") == 0)
        return CLI_DONE;
    return refuse_cell(f, c, KIND, kind, "decoder, cross or encoder");
}

/* Reads the score of a line for a head of part n. */
static int take_score(const scores *f, const cells *c, const int place[COLUMNS], int n)
{
    char rule[64], *rest;
    const char *const layers = c->cell[place[LAYER]], *const head = c->cell[place[HEAD]],
                      *const score = c->cell[place[SCORE]];
    const int64_t layer = number_of(layers, layers_of(f, n));
    snprintf(rule, sizeof rule, "one of the %lld layers of the model", (long long)layers_of(f, n));
    if (layer < 0) return refuse_cell(f, c, LAYER, layers, rule);
    const int64_t at = head_part_place(&f->part[n], layer, number_of(head, INT32_MAX));
    snprintf(rule, sizeof rule, "one of the %lld heads of the layer", (long long)head_part_heads(&f->part[n], layer));
    if (at < 0) return refuse_cell(f, c, HEAD, head, rule);
    double *value = element(f, n, layer, at);
    if (!isnan(*value))
        return cli_error(f->session, CLI_REFUSED,
                         "%s: line %lld: head %s of layer %lld must be on only one line (got a second line)", f->name,
                         (long long)c->line, head, (long long)layer);
    *value = cli_decimal(score, &rest);
    if (rest == score || *rest || !isfinite(*value)) return refuse_cell(f, c, SCORE, score, "a number");
    return CLI_DONE;
}

static int read_csv(const scores *f, char *at)
{
    cells c = {0};
    int place[COLUMNS], columns, part = 0;
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
        code = find_part(f, &c, place, &part);
        if (code == CLI_DONE && part >= 0) code = take_score(f, &c, place, part);
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

int scores_file_read(const cli_session *session, const char *path, const head_part *parts, int count, double *values)
{
    scores f = {.session = session,
                .name = strcmp(path, "-") == 0 ? "standard input" : cli_shown(path),
                .part = parts,
                .parts = count};
    for (int n = 0; n < count; n++) {
        f.values[n] = values;
        for (size_t cells = head_part_cells(&parts[n]); cells > 0; cells--)
            *values++ = NAN;
    }
    int code = cli_file_read(session, path, &f.text, &f.bytes);
    if (code == CLI_DONE) code = read_either(&f);
    free(f.text);
    return code;
}
