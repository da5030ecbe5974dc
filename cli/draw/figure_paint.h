/* figure_paint.h - drawing functions shared by all figures: text, map image, color bar, file formats. */
#ifndef CLI_DRAW_FIGURE_PAINT_H
#define CLI_DRAW_FIGURE_PAINT_H

#include "page/color_scale.h"
#include <cairo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes in points; at scale 1, a point is one pixel of a PNG. */
enum {
    FIGURE_MARGIN = 16,
    FIGURE_TITLE = 22,
    FIGURE_FONT = 11,
    FIGURE_BAR = 14,
    FIGURE_BAR_GAP = 18,
    FIGURE_BAR_TEXT = 48
};

/* Style of all figures of one run of the program. */
typedef struct figure_style {
    double scale;       /* PNG pixels per point; also scales SVG and PDF */
    color_scale colors; /* color scale of weights */
    const char *font;   /* family name for fontconfig */
} figure_style;
/* Sets the style of all later figures. Default: scale 1, square-root color scale, font "sans-serif". */
void figure_set_style(figure_style style);
/* Returns the color scale of the style. */
color_scale figure_colors(void);

void figure_font(cairo_t *cr, double size, cairo_font_weight_t weight);
double figure_text_width(cairo_t *cr, const char *text);
/* Sets the drawing color to dark gray, the color of all text. */
void figure_ink(cairo_t *cr);
/* Sets the drawing color of a signed value: orange for positive values, blue for negative ones. */
void figure_sign_ink(cairo_t *cr, double value, double opacity);
/* Draws text centered at x. */
void figure_center(cairo_t *cr, double x, double y, const char *text);
/* Draws a white background and the title. */
void figure_begin(cairo_t *cr, const char *title);

/* Draws the map [n, n] as a square of `side` points at (x, y). Each pixel shows the largest weight that it covers, so
 * no large weight is lost if the map has more weights than pixels. The map is drawn as one image at the final
 * resolution, because vector formats do not keep the "nearest" filter and would blur a scaled image. */
void figure_map(cairo_t *cr, const float *map, int64_t n, int side, double x, double y);

/* Draws the color bar, FIGURE_BAR points wide and `height` points high, with ticks and caption. */
void figure_bar(cairo_t *cr, double x, double y, double height);

/* Paints `what` on a surface in the format given by the extension of `path`. *data receives the contents of the file;
 * the caller must free it. Returns NULL, or an error message (static). */
typedef void (*figure_painter)(cairo_t *cr, const void *what);
const char *figure_render(const char *path, int width, int height, figure_painter paint, const void *what,
                          unsigned char **data, size_t *size);

/* Returns true if the font has a glyph for each character of `text`. */
bool figure_has_glyphs(cairo_t *cr, const char *text);
/* Returns false if no font is installed. Cairo then draws text in a built-in font, which has only ASCII characters. */
bool figure_has_font(void);

/* Creates a context to measure text before the size of the figure is known. The caller must call cairo_destroy. */
cairo_t *figure_scratch(void);

#endif
