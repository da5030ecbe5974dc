/* figure_paint.h - what the figures share: fonts, the picture of a map, the colour bar, the formats of files. */
#ifndef CLI_DRAW_FIGURE_PAINT_H
#define CLI_DRAW_FIGURE_PAINT_H

#include <cairo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "page/color_scale.h"

/* In points, which are pixels of a PNG. */
enum {
    FIGURE_MARGIN = 16,
    FIGURE_TITLE = 22,
    FIGURE_FONT = 11,
    FIGURE_BAR = 14,
    FIGURE_BAR_GAP = 18,
    FIGURE_BAR_TEXT = 48
};

/* How every figure of this run looks. */
typedef struct figure_style {
    double scale;        /* pixels of a PNG per point; the size of SVG and PDF is multiplied by it, too */
    colour_scale colors; /* of weights */
    const char *font;    /* family, as fontconfig names it */
} figure_style;
/* The style of what is drawn from now on; without this call scale 1, square root, "sans-serif". */
void figure_set_style(figure_style style);

void figure_font(cairo_t *cr, double size, cairo_font_weight_t weight);
double figure_text_width(cairo_t *cr, const char *text);
/* Dark grey, the colour of all text. */
void figure_ink(cairo_t *cr);
/* Text whose middle is at x. */
void figure_centre(cairo_t *cr, double x, double y, const char *text);
/* White paper and the title. */
void figure_begin(cairo_t *cr, const char *title);

/* The map [n, n] as a square of `side` pixels at x, y: a pixel shows the greatest of the weights that fall on it, so
 * that no weight is lost where there are more than pixels. One image in the pixels of the scale, since vector formats
 * do not keep the "nearest" filter and would blur a scaled one. */
void figure_map(cairo_t *cr, const float *map, int64_t n, int side, double x, double y);

/* The colour scale with its numbers, FIGURE_BAR wide and `height` high, and what it is. */
void figure_bar(cairo_t *cr, double x, double y, double height);

/* Paints `what` on a surface of the format that the ending of `path` names; the bytes of the file are *data, to free
 * with free. Returns NULL, or a sentence about what went wrong (static). */
typedef void (*figure_painter)(cairo_t *cr, const void *what);
const char *figure_render(const char *path, int width, int height, figure_painter paint, const void *what,
                          unsigned char **data, size_t *size);

/* True if the font has a glyph for each character of `text`. */
bool figure_has_glyphs(cairo_t *cr, const char *text);

/* A surface to measure text on, before the size of the figure is known; destroyed with cairo_destroy. */
cairo_t *figure_scratch(void);

#endif
