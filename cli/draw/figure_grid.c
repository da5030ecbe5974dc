/* figure_grid.c - draws the maps of all heads: a row per layer, a column per head number, a label below each map. */
#include "draw/figure.h"
#include "draw/figure_paint.h"
#include <math.h>
#include <stdio.h>

enum { LAYER = 46, NUMBERS = 16, CAPTION = 14, GAP = 6, WIDEST = 1000, SIDE_MIN = 32, SIDE_MAX = 72 };

typedef struct layout {
    const figure_grid *f;
    int side; /* side of one map */
    int64_t columns;
    int width, height, bar; /* size of the whole figure; `bar` is the height of the color bar */
} layout;

static layout plan(const figure_grid *f)
{
    layout l = {.f = f, .columns = 1};
    const int64_t layers = mha_heads_layers(f->heads);
    for (int64_t i = 0; i < layers; i++)
        for (int64_t h = 0; h < mha_heads_count(f->heads, i); h++)
            if (mha_head_number(f->model, i, h) >= l.columns) l.columns = mha_head_number(f->model, i, h) + 1;
    l.side = (int)fmin(fmax(WIDEST / (double)l.columns - GAP, SIDE_MIN), SIDE_MAX);
    const int rows = (int)layers * (l.side + CAPTION + GAP), columns = (int)l.columns * (l.side + GAP);
    cairo_t *cr = figure_scratch();
    figure_font(cr, FIGURE_FONT + 2, CAIRO_FONT_WEIGHT_BOLD);
    const int title = (int)ceil(figure_text_width(cr, f->title)),
              content = LAYER + columns + FIGURE_BAR_GAP + FIGURE_BAR + FIGURE_BAR_TEXT;
    cairo_destroy(cr);
    l.width = 2 * FIGURE_MARGIN + (content > title ? content : title);
    l.height = 2 * FIGURE_MARGIN + FIGURE_TITLE + NUMBERS + rows;
    l.bar = (int)fmin(rows - CAPTION - GAP, 320);
    return l;
}

static void paint_head(cairo_t *cr, const layout *l, int64_t layer, int64_t head, double x, double y)
{
    figure_map(cr, mha_heads_map(l->f->heads, layer, head), l->f->n, l->side, x, y);
    figure_font(cr, FIGURE_FONT - 2, CAIRO_FONT_WEIGHT_NORMAL);
    figure_center(cr, x + l->side / 2.0, y + l->side + FIGURE_FONT - 1,
                  mha_head_label_key(mha_heads_label(l->f->heads, layer, head)));
}

static void paint(cairo_t *cr, const void *what)
{
    const layout *l = what;
    const double left = FIGURE_MARGIN + LAYER, top = FIGURE_MARGIN + FIGURE_TITLE + NUMBERS;
    char text[32];
    figure_begin(cr, l->f->title);
    figure_font(cr, FIGURE_FONT - 1, CAIRO_FONT_WEIGHT_NORMAL);
    for (int64_t h = 0; h < l->columns; h++) {
        snprintf(text, sizeof text, h == 0 ? "head %lld" : "%lld", (long long)h);
        figure_center(cr, left + (double)h * (l->side + GAP) + l->side / 2.0, top - 5, text);
    }
    for (int64_t layer = 0; layer < mha_heads_layers(l->f->heads); layer++) {
        const double y = top + (double)layer * (l->side + CAPTION + GAP);
        snprintf(text, sizeof text, "layer %lld", (long long)layer);
        figure_font(cr, FIGURE_FONT - 1, CAIRO_FONT_WEIGHT_NORMAL);
        cairo_move_to(cr, FIGURE_MARGIN, y + l->side / 2.0 + 4);
        cairo_show_text(cr, text);
        for (int64_t h = 0; h < mha_heads_count(l->f->heads, layer); h++)
            paint_head(cr, l, layer, h, left + (double)mha_head_number(l->f->model, layer, h) * (l->side + GAP), y);
    }
    figure_bar(cr, left + (double)l->columns * (l->side + GAP) - GAP + FIGURE_BAR_GAP, top, l->bar);
}

const char *figure_grid_draw(const figure_grid *f, const char *path, unsigned char **data, size_t *size)
{
    const layout l = plan(f);
    return figure_render(path, l.width, l.height, paint, &l, data, size);
}
