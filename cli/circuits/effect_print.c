/* effect_print.c - prints an effect grid in the terminal, and makes a map of it for figures: rows down, the last axis
 * across, colored by the change. */
#include "circuits/effect_grid.h"
#include "lens/circuit_map.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 7, MARGIN = 8, MAP_NAME = 32, VALUE_TEXT = 32, TITLE = 200 };

static double largest_change(const effect_grid *g)
{
    double max = 0;
    for (int64_t n = 0; n < g->count; n++)
        if (!g->absent[n]) max = fmax(max, fabs(effect_grid_change(g, n)));
    return max;
}

static void value_text(const effect_grid *g, int64_t n, char text[VALUE_TEXT])
{
    snprintf(text, VALUE_TEXT, fabs(g->value[n]) < 9.995 ? "%+.2f" : "%+.1f", g->value[n]);
}

static void put_cell(const cli_session *s, const effect_grid *g, int64_t n, double max)
{
    if (g->absent[n]) {
        fprintf(s->out, "%*s", CELL, "");
        return;
    }
    const double share = max > 0 ? effect_grid_change(g, n) / (g->raw ? max : fmax(max, 1)) : 0;
    char text[VALUE_TEXT];
    value_text(g, n, text);
    fputs(" ", s->out);
    const bool colored = circuit_map_color(s, share);
    fprintf(s->out, "%*s", CELL - 1, text);
    if (colored) fputs(cli_plain(s), s->out);
}

/* Writes the name of a column, in at most `max` columns of text: its token, or its index. */
static const char *column_name(const effect_grid *g, const prompt_case *one, int64_t column, int max,
                               char name[PROMPT_TOKEN])
{
    const char *axis = g->axes[g->rank - 1];
    const bool tokens = strcmp(axis, "position") == 0 || strcmp(axis, "key") == 0;
    if (tokens && one)
        snprintf(name, PROMPT_TOKEN, "%s", cli_shown_start(prompt_token(g->model, one->clean[column], name), max));
    else
        effect_grid_index(g, g->rank - 1, column, name);
    return name;
}

static void put_heading(const cli_session *s, const effect_grid *g, const prompt_case *one, int64_t column)
{
    char name[PROMPT_TOKEN];
    column_name(g, one, column, CELL - 1, name);
    const int columns = cli_shown_columns(name, strlen(name));
    fprintf(s->out, "%*s%s", CELL - columns, "", name);
}

/* Returns whether a row has elements: rows of heads that were removed have none. */
static bool has_row(const effect_grid *g, int64_t row, int64_t columns)
{
    for (int64_t c = 0; c < columns; c++)
        if (!g->absent[row * columns + c]) return true;
    return false;
}

/* Writes the name of a row: its indices, such as "0.1"; "" if there is only one row. */
static const char *row_name(const effect_grid *g, int64_t row, char name[EFFECT_INDEX])
{
    if (g->rank == 3)
        snprintf(name, EFFECT_INDEX, "%lld.%lld", (long long)(row / g->shape[1]), (long long)(row % g->shape[1]));
    else
        effect_grid_index(g, 0, row, name);
    return g->rank > 1 ? name : "";
}

/* Returns the name of the row axis. */
static const char *row_axis(const effect_grid *g)
{
    return g->rank == 3 ? "head" : g->axes[0];
}

static void put_table(const cli_session *s, const effect_grid *g, const prompt_case *one)
{
    const int64_t columns = g->shape[g->rank - 1], rows = g->count / columns;
    const int64_t fit = s->columns > MARGIN + CELL ? (s->columns - MARGIN) / CELL : 1;
    const double max = largest_change(g);
    char name[EFFECT_INDEX];
    for (int64_t first = 0; first < columns; first += fit) {
        const int64_t end = first + fit < columns ? first + fit : columns;
        fprintf(s->out, "%*s", MARGIN, row_axis(g));
        for (int64_t c = first; c < end; c++)
            put_heading(s, g, one, c);
        fputc('\n', s->out);
        for (int64_t r = 0; r < rows; r++) {
            if (!has_row(g, r, columns)) continue;
            fprintf(s->out, "%*s", MARGIN, row_name(g, r, name));
            for (int64_t c = first; c < end; c++)
                put_cell(s, g, r * columns + c, max);
            fputc('\n', s->out);
        }
    }
}

/* Prints the elements with the largest changes. */
static void put_top(const cli_session *s, const effect_grid *g, const prompt_case *one, int top)
{
    char part[EFFECT_PART];
    bool *taken = calloc((size_t)g->count, sizeof *taken);
    for (int k = 0; taken && k < top && k < g->count; k++) {
        const int64_t best = effect_grid_next(g, taken);
        if (best < 0 || effect_grid_change(g, best) == 0) break;
        fprintf(s->out, "  %s%s%s %.2f", effect_grid_part(g, one, best, part), g->edges ? "" : " ",
                g->edges ? "" : g->site, g->value[best]);
        if (g->pairs > 1) fprintf(s->out, " +-%.2f", g->half[best]);
        fputc('\n', s->out);
    }
    free(taken);
}

/* Writes the part of the title after the site: the metric, its unit, the estimate and the number of pairs. */
static const char *title_of(const effect_grid *g, char title[TITLE])
{
    char pairs[40] = "";
    if (g->pairs > 1) snprintf(pairs, sizeof pairs, "; mean of %lld", (long long)g->pairs);
    snprintf(title, TITLE, ": %s, %s%s%s%s%s", g->metric, g->raw ? "nats" : "1 = as clean, 0 = as corrupted",
             g->estimate ? "; estimate (" : "", g->estimate ? g->estimate : "", g->estimate ? ")" : "", pairs);
    return title;
}

void effect_grid_print(const cli_session *s, const effect_grid *g, const prompt_case *one, int top)
{
    char title[TITLE];
    fprintf(s->out, "%s%s%s%s\n", cli_bold(s), g->title, cli_plain(s), title_of(g, title));
    if (g->count == 1) {
        fprintf(s->out, "  %.2f; in the unchanged run %.2f\n", g->value[0], g->value[0] - effect_grid_change(g, 0));
        return;
    }
    if (!g->edges) put_table(s, g, one);
    if (top > 0) put_top(s, g, one, top);
}

/* Appends a cell: its color is that of the change, and its text the value. */
static void map_cell(json_t *map, const effect_grid *g, int64_t n)
{
    char text[VALUE_TEXT];
    value_text(g, n, text);
    circuit_map_cell(map, g->absent[n] ? NAN : effect_grid_change(g, n), g->absent[n] ? NULL : json_string(text), NULL);
}

json_t *effect_grid_map(const effect_grid *g, const prompt_case *one)
{
    const int64_t columns = g->shape[g->rank - 1], rows = g->count / columns;
    char column[PROMPT_TOKEN], row[EFFECT_INDEX], title[TITLE];
    json_t *map = circuit_map("", "", g->raw ? "signed" : "effect", g->rank > 1 ? row_axis(g) : "", "");
    json_object_set_new(map, "title", json_sprintf("%s%s", g->title, title_of(g, title)));
    for (int64_t c = 0; c < columns; c++)
        circuit_map_column(map, json_string(g->count > 1 ? column_name(g, one, c, MAP_NAME, column) : ""));
    for (int64_t r = 0; r < rows; r++) {
        if (!has_row(g, r, columns)) continue;
        circuit_map_row(map, json_string(row_name(g, r, row)));
        for (int64_t c = 0; c < columns; c++)
            map_cell(map, g, r * columns + c);
    }
    return map;
}
