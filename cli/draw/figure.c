/* figure.c - draws one attention map.
 *
 * Layout, in points: the map is a square of n x n cells. The column tokens are above the map (text rotated by 90
 * degrees), the row tokens to its left and the color bar to its right. The axis names are outside the tokens, and the
 * title is at the top.
 */
#include "draw/figure.h"

#include "draw/figure_paint.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LABEL_MAX = 120, GAP = 5, AXIS = 16 };

typedef struct layout {
    const figure *f;
    int cell;          /* side of the square that shows one weight */
    int side;          /* side of the map, n * cell */
    int label;         /* space for the widest token */
    int every;         /* every n-th token is labeled */
    int width, height; /* size of the whole figure */
} layout;

/* Truncates a token to LABEL_MAX points at a character boundary and appends an ellipsis. */
static void shorten(cairo_t *cr, const char *token, char *out, size_t room)
{
    cairo_text_extents_t e;
    snprintf(out, room, "%.*s", (int)(room - 4), token);
    size_t n = strlen(out);
    for (cairo_text_extents(cr, out, &e); e.x_advance > LABEL_MAX && n > 0; cairo_text_extents(cr, out, &e)) {
        do
            n--;
        while (n > 0 && ((unsigned char)token[n] & 0xC0) == 0x80);
        memcpy(out + n, "\xE2\x80\xA6", 4);
    }
}

static layout plan(const figure *f)
{
    layout l = {.f = f, .cell = f->n <= 48 ? 16 : f->n < 768 ? (int)(768 / f->n) : 1};
    l.side = (int)f->n * l.cell;
    l.every = (FIGURE_FONT + 2 + l.cell - 1) / l.cell;
    char text[128];
    double widest = 0;
    cairo_t *cr = figure_scratch();
    for (int64_t i = 0; i < f->n; i += l.every) {
        shorten(cr, f->tokens[i], text, sizeof text);
        widest = fmax(widest, figure_text_width(cr, text));
    }
    figure_font(cr, FIGURE_FONT + 2, CAIRO_FONT_WEIGHT_BOLD);
    const int title = (int)ceil(figure_text_width(cr, f->title));
    cairo_destroy(cr);
    l.label = (int)ceil(widest) + GAP;
    int content = AXIS + l.label + l.side + FIGURE_BAR_GAP + FIGURE_BAR + FIGURE_BAR_TEXT;
    l.width = 2 * FIGURE_MARGIN + (content > title ? content : title);
    l.height = 2 * FIGURE_MARGIN + FIGURE_TITLE + AXIS + l.label + l.side;
    return l;
}

/* Draws text rotated by 90 degrees, upwards from (x, y). */
static void upright(cairo_t *cr, double x, double y, const char *text, int centered)
{
    cairo_save(cr);
    cairo_translate(cr, x, y);
    cairo_rotate(cr, -acos(-1.0) / 2);
    if (centered) {
        figure_center(cr, 0, 0, text);
    } else {
        cairo_move_to(cr, 0, 0);
        cairo_show_text(cr, text);
    }
    cairo_restore(cr);
}

static void paint_tokens(cairo_t *cr, const layout *l, double x, double y)
{
    char text[128];
    figure_font(cr, FIGURE_FONT, CAIRO_FONT_WEIGHT_NORMAL);
    for (int64_t i = 0; i < l->f->n; i += l->every) {
        double middle = ((double)i + 0.5) * l->cell + FIGURE_FONT * 0.35;
        shorten(cr, l->f->tokens[i], text, sizeof text);
        cairo_move_to(cr, x - GAP - figure_text_width(cr, text), y + middle);
        cairo_show_text(cr, text);
        upright(cr, x + middle, y - GAP, text, 0);
    }
}

static void paint_axes(cairo_t *cr, const layout *l, double x, double y)
{
    figure_font(cr, FIGURE_FONT - 1, CAIRO_FONT_WEIGHT_NORMAL);
    figure_center(cr, x + l->side / 2.0, y - l->label - 6, "key token");
    upright(cr, x - l->label - 6, y + l->side / 2.0, "query token", 1);
}

static void paint(cairo_t *cr, const void *what)
{
    const layout *l = what;
    double x = FIGURE_MARGIN + AXIS + l->label, y = FIGURE_MARGIN + FIGURE_TITLE + AXIS + l->label;
    figure_begin(cr, l->f->title);
    figure_map(cr, l->f->map, l->f->n, l->side, x, y);
    paint_tokens(cr, l, x, y);
    paint_axes(cr, l, x, y);
    figure_bar(cr, x + l->side + FIGURE_BAR_GAP, y, l->side);
}

int64_t figure_count_unreadable(const figure *f, const char **first)
{
    int64_t count = 0;
    cairo_t *cr = figure_scratch();
    for (int64_t i = 0; i < f->n; i++) {
        if (figure_has_glyphs(cr, f->tokens[i])) continue;
        if (count++ == 0) *first = f->tokens[i];
    }
    cairo_destroy(cr);
    return count;
}

const char *figure_draw(const figure *f, const char *path, unsigned char **data, size_t *size)
{
    const layout l = plan(f);
    return figure_render(path, l.width, l.height, paint, &l, data, size);
}
