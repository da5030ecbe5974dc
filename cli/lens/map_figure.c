/* map_figure.c - draws maps as tables of colored cells with their values, like the page (cli/lens/page). Text is
 * measured first, so that the columns of a map are as wide as the widest text in them. */
#include "lens/map_figure.h"

#include "draw/figure.h"
#include "draw/figure_paint.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 17, PAD = 8, LETTERS = 16, VALUE_TEXT = 32 };
enum { BAND = 3000 }; /* width of a map in points beyond which its columns are split, to remain readable */

/* Opacity of the largest magnitude; text on it remains readable. */
static const double STRONGEST = 0.65;

typedef struct picture {
    const char *title;
    const json_t *lines, *maps;
} picture;

/* A map with its sizes in points. */
typedef struct table {
    const json_t *map;
    double max; /* circuit_map_max */
    size_t rows, columns;
    double margin, width; /* of the row names and of a column */
    size_t band;          /* columns drawn side by side */
} table;

/* Returns a name of a row or column, truncated. */
static const char *label(const table *t, const char *key, size_t n)
{
    return cli_shown_start(circuit_map_name(t->map, key, n), LETTERS);
}

static const char *row_axis(const table *t)
{
    return json_string_value(json_object_get(t->map, "row"));
}

/* Returns the text of a cell: its own text, or its value with as many digits as on the page. */
static const char *cell_text(const table *t, size_t r, size_t c, char text[VALUE_TEXT])
{
    const char *given = json_string_value(circuit_map_at(t->map, "texts", r, c));
    const json_t *value = circuit_map_at(t->map, "values", r, c);
    const int digits = t->max >= 2 ? 2 : 3;
    if (given) return cli_shown_start(given, LETTERS);
    if (!json_is_number(value)) return "";
    const double v = json_number_value(value);
    snprintf(text, VALUE_TEXT, "%.*f", digits, fabs(v) < 0.5 * pow(10, -digits) ? 0 : v);
    return text;
}

/* Measures a map. */
static table table_of(cairo_t *cr, const json_t *map)
{
    table t = {.map = map,
               .max = circuit_map_max(map),
               .rows = json_array_size(json_object_get(map, "rows")),
               .columns = json_array_size(json_object_get(map, "columns"))};
    char text[VALUE_TEXT];
    figure_font(cr, FIGURE_FONT, CAIRO_FONT_WEIGHT_NORMAL);
    t.margin = figure_text_width(cr, row_axis(&t));
    for (size_t c = 0; c < t.columns; c++)
        t.width = fmax(t.width, figure_text_width(cr, label(&t, "columns", c)));
    for (size_t r = 0; r < t.rows; r++) {
        t.margin = fmax(t.margin, figure_text_width(cr, label(&t, "rows", r)));
        for (size_t c = 0; c < t.columns; c++)
            t.width = fmax(t.width, figure_text_width(cr, cell_text(&t, r, c, text)));
    }
    t.margin += PAD;
    t.width += PAD;
    t.band = (size_t)fmin((double)t.columns, fmax(1, floor((BAND - t.margin) / t.width)));
    return t;
}

static void put_cell(cairo_t *cr, const table *t, size_t r, size_t c, double x, double y)
{
    char text[VALUE_TEXT];
    const double value = json_number_value(circuit_map_at(t->map, "values", r, c));
    cairo_rectangle(cr, x + 1, y + 1, t->width - 2, LINE - 2);
    figure_sign_ink(cr, value, t->max > 0 ? STRONGEST * fmin(fabs(value) / t->max, 1) : 0);
    cairo_fill(cr);
    figure_ink(cr);
    figure_center(cr, x + t->width / 2, y + LINE - 5, cell_text(t, r, c, text));
}

static void put_at(cairo_t *cr, double x, double y, const char *text)
{
    cairo_move_to(cr, x, y + LINE - 5);
    cairo_show_text(cr, text);
}

/* Draws the columns from `first` to `end` at y: their names, and rows. Returns the y of the last row. */
static double put_band(cairo_t *cr, const table *t, size_t first, size_t end, double y)
{
    const double left = FIGURE_MARGIN + t->margin;
    put_at(cr, FIGURE_MARGIN, y, row_axis(t));
    for (size_t c = first; c < end; c++)
        figure_center(cr, left + ((double)(c - first) + 0.5) * t->width, y + LINE - 5, label(t, "columns", c));
    for (size_t r = 0; r < t->rows; r++) {
        y += LINE;
        put_at(cr, FIGURE_MARGIN, y, label(t, "rows", r));
        for (size_t c = first; c < end; c++)
            put_cell(cr, t, r, c, left + (double)(c - first) * t->width, y);
    }
    return y;
}

/* Returns the number of bands that the columns of a map are split into, at least 1. */
static size_t bands(const table *t)
{
    return t->columns ? (t->columns + t->band - 1) / t->band : 1;
}

/* Draws a map at y: its title and its bands. Returns the y below it. */
static double put_map(cairo_t *cr, const json_t *map, double y)
{
    const table t = table_of(cr, map);
    figure_font(cr, FIGURE_FONT, CAIRO_FONT_WEIGHT_BOLD);
    put_at(cr, FIGURE_MARGIN, y, json_string_value(json_object_get(map, "title")));
    figure_font(cr, FIGURE_FONT, CAIRO_FONT_WEIGHT_NORMAL);
    for (size_t n = 0; n < bands(&t); n++) {
        const size_t first = n * t.band, end = first + t.band < t.columns ? first + t.band : t.columns;
        y = put_band(cr, &t, first, end, y + LINE + (n ? PAD : 0));
    }
    return y + LINE + PAD;
}

static void paint(cairo_t *cr, const void *what)
{
    const picture *p = what;
    double y = FIGURE_MARGIN + FIGURE_TITLE - PAD;
    size_t n;
    const json_t *item;
    figure_begin(cr, p->title);
    figure_font(cr, FIGURE_FONT, CAIRO_FONT_WEIGHT_NORMAL);
    json_array_foreach(p->lines, n, item)
    {
        put_at(cr, FIGURE_MARGIN, y, cli_shown(json_string_value(item)));
        y += LINE;
    }
    y += PAD;
    json_array_foreach(p->maps, n, item) y = put_map(cr, item, y);
}

/* Measures the figure in points. */
static void measure(const picture *p, int *width, int *height)
{
    cairo_t *cr = figure_scratch();
    double wide = 0, high = FIGURE_MARGIN + FIGURE_TITLE + LINE * (double)json_array_size(p->lines);
    size_t n;
    const json_t *item;
    json_array_foreach(p->lines, n, item)
    {
        wide = fmax(wide, figure_text_width(cr, cli_shown(json_string_value(item))));
    }
    json_array_foreach(p->maps, n, item)
    {
        const table t = table_of(cr, item);
        figure_font(cr, FIGURE_FONT, CAIRO_FONT_WEIGHT_BOLD);
        wide = fmax(wide, figure_text_width(cr, json_string_value(json_object_get(item, "title"))));
        wide = fmax(wide, t.margin + (double)t.band * t.width);
        high += LINE * (1 + (double)(bands(&t) * (t.rows + 1))) + (double)bands(&t) * PAD;
    }
    figure_font(cr, FIGURE_FONT + 2, CAIRO_FONT_WEIGHT_BOLD);
    wide = fmax(wide, figure_text_width(cr, p->title));
    cairo_destroy(cr);
    *width = (int)ceil(wide) + 2 * FIGURE_MARGIN;
    *height = (int)ceil(high) + FIGURE_MARGIN;
}

int map_figure_save(const cli_session *s, const char *title, const json_t *lines, const json_t *maps)
{
    const picture p = {title, lines, maps};
    unsigned char *data = NULL;
    size_t bytes = 0;
    int width, height;
    figure_set_style((figure_style){.scale = cli_out_ends(s, ".png") ? 2 : 1, .font = "sans-serif"});
    measure(&p, &width, &height);
    const char *wrong = figure_render(s->options.out, width, height, paint, &p, &data, &bytes);
    const int code = wrong
                         ? cli_error(s, CLI_FAILED,
                                     "cannot draw a figure of %d x %d points: %s (.svg and .html files have no limit)",
                                     width, height, wrong)
                         : cli_write_file(s, data, bytes);
    if (code == CLI_DONE) cli_say(s, "%s: %.1f KB", cli_shown(s->options.out), (double)bytes / 1e3);
    free(data);
    return code;
}
