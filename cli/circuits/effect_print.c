/* effect_print.c - prints an effect grid in the terminal: rows down, the last axis across, colored by the change. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "circuits/effect_grid.h"
#include "lens/circuit_map.h"
#include "output.h"

enum { CELL = 7, MARGIN = 8 };

static double largest_change(const effect_grid *g)
{
    double most = 0;
    for (int64_t n = 0; n < g->count; n++)
        if (!g->absent[n]) most = fmax(most, fabs(effect_grid_change(g, n)));
    return most;
}

static void put_cell(const cli_session *s, const effect_grid *g, int64_t n, double most)
{
    if (g->absent[n]) {
        fprintf(s->out, "%*s", CELL, "");
        return;
    }
    const double share = most > 0 ? effect_grid_change(g, n) / (g->raw ? most : fmax(most, 1)) : 0;
    char text[32];
    snprintf(text, sizeof text, fabs(g->value[n]) < 9.995 ? "%+.2f" : "%+.1f", g->value[n]);
    fputs(" ", s->out);
    const bool colored = circuit_map_color(s, share);
    fprintf(s->out, "%*s", CELL - 1, text);
    if (colored) fputs(cli_plain(s), s->out);
}

static void put_heading(const cli_session *s, const effect_grid *g, const prompt_case *one, int64_t column)
{
    char token[PROMPT_TOKEN];
    const char *axis = g->axes[g->rank - 1];
    const bool tokens = strcmp(axis, "position") == 0 || strcmp(axis, "key") == 0;
    if (tokens && one)
        snprintf(token, sizeof token, "%s",
                 cli_shown_start(prompt_token(g->model, one->clean[column], token), CELL - 1));
    else
        effect_grid_index(g, g->rank - 1, column, token);
    const int columns = cli_shown_columns(token, strlen(token));
    fprintf(s->out, "%*s%s", CELL - columns, "", token);
}

/* Returns whether a row has elements: rows of heads that were removed have none. */
static bool has_row(const effect_grid *g, int64_t row, int64_t columns)
{
    for (int64_t c = 0; c < columns; c++)
        if (!g->absent[row * columns + c]) return true;
    return false;
}

/* Writes the name of a row: its indices, such as "0.1". */
static void put_row_name(const cli_session *s, const effect_grid *g, int64_t row)
{
    char name[EFFECT_INDEX];
    if (g->rank == 3)
        snprintf(name, sizeof name, "%lld.%lld", (long long)(row / g->shape[1]), (long long)(row % g->shape[1]));
    else
        effect_grid_index(g, 0, row, name);
    fprintf(s->out, "%*s", MARGIN, g->rank > 1 ? name : "");
}

static void put_table(const cli_session *s, const effect_grid *g, const prompt_case *one)
{
    const int64_t columns = g->shape[g->rank - 1], rows = g->count / columns;
    const int64_t fit = s->columns > MARGIN + CELL ? (s->columns - MARGIN) / CELL : 1;
    const double most = largest_change(g);
    for (int64_t first = 0; first < columns; first += fit) {
        const int64_t end = first + fit < columns ? first + fit : columns;
        fprintf(s->out, "%*s", MARGIN, g->rank == 3 ? "head" : g->axes[0]);
        for (int64_t c = first; c < end; c++)
            put_heading(s, g, one, c);
        fputc('\n', s->out);
        for (int64_t r = 0; r < rows; r++) {
            if (!has_row(g, r, columns)) continue;
            put_row_name(s, g, r);
            for (int64_t c = first; c < end; c++)
                put_cell(s, g, r * columns + c, most);
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

void effect_grid_print(const cli_session *s, const effect_grid *g, const prompt_case *one, int top)
{
    fprintf(s->out, "%s%s%s: %s, %s", cli_bold(s), g->title, cli_plain(s), g->metric,
            g->raw ? "nats" : "1 = as clean, 0 = as corrupted");
    if (g->estimate) fprintf(s->out, "; estimate (%s)", g->estimate);
    if (g->pairs > 1) fprintf(s->out, "; mean of %lld", (long long)g->pairs);
    fputc('\n', s->out);
    if (g->count == 1) {
        fprintf(s->out, "  %.2f; in the unchanged run %.2f\n", g->value[0], g->value[0] - effect_grid_change(g, 0));
        return;
    }
    if (!g->edges) put_table(s, g, one);
    if (top > 0) put_top(s, g, one, top);
}
