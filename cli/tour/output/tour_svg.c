/* tour_svg.c - draws tensors as SVG, with one image per matrix of the last two axes. A map has a square per element;
 * TOUR_HEADS has cells that contain the values and are colored by head; a curve is a line.
 *
 * Colors of squares are attributes; all other colors come from the style sheet of the page. */
#include "draw/figure_paint.h"
#include "page/color_scale.h"
#include "tour/output/tour_print.h"
#include "tour/tour_page.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

void tour_put_escaped(FILE *out, const char *text)
{
    const char *shape_end = text;
    for (; *text; text++) {
        if (*text == '[') shape_end = text + 1 + strspn(text + 1, "0123456789, ");
        if (*text == ' ' && text < shape_end)
            fputs("&nbsp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else
            fputc(*text, out);
    }
}

enum { MAPS = 16 }; /* maximum number of images per tensor */

/* Returns dark red for -1, white for 0 and dark blue for 1, the ends of RdBu (Brewer 2002), interpolated linearly. */
static color color_of_number(double x)
{
    const color end = x < 0 ? (color){178, 24, 43} : (color){33, 102, 172};
    const double t = fmin(fabs(x), 1);
    return (color){(unsigned char)(248 + (end.r - 248) * t), (unsigned char)(248 + (end.g - 248) * t),
                   (unsigned char)(248 + (end.b - 248) * t)};
}

static double greatest(const tour_tensor *t)
{
    double max = 0;
    for (int64_t n = 0; n < t->count; n++)
        if (isfinite(t->values[n])) max = fmax(max, fabs((double)t->values[n]));
    return max;
}

/* Stores the number of rows and columns of each image. A vector is one row. */
static void count_cells(const tour_tensor *t, int64_t *rows, int64_t *columns)
{
    *rows = t->rank > 1 ? t->shape[t->rank - 2] : 1;
    *columns = t->rank > 0 ? t->shape[t->rank - 1] : 1;
}

/* ---- maps ---- */

/* Layout of a map in pixels: its cells, and the space for row and column labels. */
typedef struct map_layout {
    int64_t rows, columns;
    double cell, left, top;
} map_layout;

static bool names_columns(const tour_tensor *t)
{
    return t->words && t->word_count == t->shape[t->rank - 1];
}

static bool names_rows(const tour_tensor *t)
{
    return t->words && t->rank > 1 && t->word_count == t->shape[t->rank - 2];
}

static map_layout plan_map(const tour_tensor *t)
{
    enum { CELL = 18, WORDED = 26, WIDEST = 288, LETTER = 8, GAP = 6 };
    map_layout m;
    size_t longest = 0;
    count_cells(t, &m.rows, &m.columns);
    for (int64_t n = 0; n < t->word_count; n++)
        longest = strlen(t->words[n]) > longest ? strlen(t->words[n]) : longest;
    const double cell = t->words ? WORDED : CELL, room = (double)(longest * LETTER + GAP);
    m.cell = (double)m.columns * cell > WIDEST ? (double)WIDEST / (double)m.columns : cell;
    m.left = names_rows(t) ? room : 0;
    m.top = names_columns(t) ? room : 0;
    return m;
}

/* Prints the label of a row or column: its word, or, for example, "row 2". */
static void put_place(FILE *out, const char *axis, const char *word, int64_t n)
{
    if (word)
        tour_put_escaped(out, word);
    else
        fprintf(out, "%s %lld", axis, (long long)n);
}

static void put_square(FILE *out, const tour_tensor *t, const map_layout *m, int64_t n, double max)
{
    const float x = t->values[n];
    const int64_t row = n / m->columns % m->rows, column = n % m->columns;
    const color c =
        t->look == TOUR_WEIGHTS ? color_of_weight(figure_colors(), x) : color_of_number(max > 0 ? (double)x / max : 0);
    fprintf(out, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"", m->left + (double)column * m->cell,
            m->top + (double)row * m->cell, m->cell, m->cell);
    if (isfinite(x))
        fprintf(out, " fill=\"#%02x%02x%02x\"", c.r, c.g, c.b);
    else
        fputs(" class=\"none\"", out);
    fputs("><title>", out);
    put_place(out, "row", names_rows(t) ? t->words[row] : NULL, row);
    fputs(", ", out);
    put_place(out, "column", names_columns(t) ? t->words[column] : NULL, column);
    fprintf(out, ": %.4g</title></rect>", (double)x);
}

/* Draws row labels on the left and column labels above, rotated by 90 degrees. */
static void put_axes(FILE *out, const tour_tensor *t, const map_layout *m)
{
    for (int64_t n = 0; names_rows(t) && n < m->rows; n++) {
        fprintf(out, "<text class=\"row\" x=\"%g\" y=\"%g\">", m->left - 5, m->top + ((double)n + 0.5) * m->cell);
        tour_put_escaped(out, t->words[n]);
        fputs("</text>", out);
    }
    for (int64_t n = 0; names_columns(t) && n < m->columns; n++) {
        fprintf(out, "<text class=\"column\" transform=\"translate(%g %g) rotate(-90)\">",
                m->left + ((double)n + 0.5) * m->cell, m->top - 5);
        tour_put_escaped(out, t->words[n]);
        fputs("</text>", out);
    }
}

static void put_map(FILE *out, const tour_tensor *t, int64_t map, double max)
{
    const map_layout m = plan_map(t);
    const double width = m.left + m.cell * (double)m.columns, height = m.top + m.cell * (double)m.rows;
    fprintf(out,
            "<svg role=\"img\" aria-label=\"map of %s\" class=\"%s\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %g "
            "%g\">",
            t->name, m.left > 0 || m.top > 0 ? "map worded" : "map", width, height, width, height);
    put_axes(out, t, &m);
    for (int64_t n = 0; n < m.rows * m.columns; n++)
        put_square(out, t, &m, map * m.rows * m.columns + n, max);
    fputs("</svg>", out);
}

/* ---- cells colored by head ---- */

static void put_cells(FILE *out, const tour_tensor *t, int64_t map)
{
    enum { WIDE = 62, HIGH = 22 };
    int64_t rows, columns;
    count_cells(t, &rows, &columns);
    fprintf(out,
            "<svg role=\"img\" aria-label=\"%s by head\" class=\"cells\" width=\"%lld\" height=\"%lld\" "
            "viewBox=\"0 0 %lld %lld\">",
            t->name, (long long)(columns * WIDE), (long long)(rows * HIGH), (long long)(columns * WIDE),
            (long long)(rows * HIGH));
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t n = map * rows * columns + i, x = i % columns * WIDE, y = i / columns * HIGH;
        fprintf(out,
                "<rect class=\"head%lld\" x=\"%lld\" y=\"%lld\" width=\"%d\" height=\"%d\"/>"
                "<text x=\"%lld\" y=\"%lld\">%.4f</text>",
                (long long)(n / t->head_step % t->heads % 4), (long long)x, (long long)y, WIDE, HIGH,
                (long long)(x + WIDE / 2), (long long)(y + HIGH / 2), (double)t->values[n]);
    }
    fputs("</svg>", out);
}

/* ---- curve ---- */

static void put_curve(FILE *out, const tour_tensor *t)
{
    enum { WIDE = 480, HIGH = 240, LEFT = 36, RIGHT = 464, TOP = 12, BOTTOM = 214 };
    const int64_t n = t->shape[0];
    const double low = (double)t->values[0], high = (double)t->values[2 * (n - 1)];
    fprintf(out,
            "<svg role=\"img\" aria-label=\"%s\" class=\"curve\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">",
            t->name, WIDE, HIGH, WIDE, HIGH);
    for (int tick = 0; tick <= 4; tick++) {
        const double y = BOTTOM - (BOTTOM - TOP) * tick / 4.0, x = LEFT + (RIGHT - LEFT) * tick / 4.0;
        fprintf(out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\">%.2f</text>", LEFT,
                RIGHT, y, y, LEFT - 18, y, tick / 4.0);
        fprintf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text x=\"%.1f\" y=\"%d\">%g</text>", x, x,
                TOP, BOTTOM, x, BOTTOM + 14, low + (high - low) * tick / 4);
    }
    fputs("<polyline points=\"", out);
    for (int64_t i = 0; i < n; i++)
        fprintf(out, "%.1f,%.1f ", LEFT + (RIGHT - LEFT) * ((double)t->values[2 * i] - low) / (high - low),
                BOTTOM - (BOTTOM - TOP) * (double)t->values[2 * i + 1]);
    fputs("\"/></svg>", out);
}

void tour_put_svg(FILE *out, const tour_tensor *t)
{
    if (t->look >= TOUR_ROWS) return;
    fputs("<div class=\"maps\">", out);
    if (t->look == TOUR_CURVE) put_curve(out, t);
    int64_t rows, columns;
    count_cells(t, &rows, &columns);
    const int64_t maps = t->look == TOUR_CURVE ? 0 : t->count / (rows * columns);
    const double max = greatest(t);
    char index[96];
    for (int64_t map = 0; map < maps && map < MAPS; map++) {
        fputs("<div>", out);
        if (t->look == TOUR_HEADS)
            put_cells(out, t, map);
        else
            put_map(out, t, map, max);
        if (maps > 1) fputs("<small>", out);
        if (maps > 1) fputs(tour_index_text(t, map, index), out);
        if (maps > 1) fputs("</small>", out);
        fputs("</div>", out);
    }
    fputs("</div>\n", out);
}
