/* figure_paint.c - draws with cairo, and encodes figures as PNG, SVG and PDF. */
#include "draw/figure_paint.h"

#include "draw/figure.h"
#include "page/color_scale.h"
#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- output of a cairo surface ---- */

typedef struct buffer {
    unsigned char *data;
    size_t size, room;
} buffer;

static cairo_status_t buffer_append(void *closure, const unsigned char *data, unsigned int length)
{
    buffer *b = closure;
    if (length > b->room - b->size) {
        size_t room = (b->size + length) * 2;
        unsigned char *grown = realloc(b->data, room);
        if (!grown) return CAIRO_STATUS_NO_MEMORY;
        b->data = grown;
        b->room = room;
    }
    memcpy(b->data + b->size, data, length);
    b->size += length;
    return CAIRO_STATUS_SUCCESS;
}

/* ---- style and text ---- */

static figure_style style = {.scale = 1, .colors = COLOR_ROOT, .font = "sans-serif"};

void figure_set_style(figure_style wanted)
{
    style = wanted;
}

color_scale figure_colors(void)
{
    return style.colors;
}

void figure_font(cairo_t *cr, double size, cairo_font_weight_t weight)
{
    cairo_select_font_face(cr, style.font, CAIRO_FONT_SLANT_NORMAL, weight);
    cairo_set_font_size(cr, size);
}

double figure_text_width(cairo_t *cr, const char *text)
{
    cairo_text_extents_t e;
    cairo_text_extents(cr, text, &e);
    return e.x_advance;
}

/* A character is missing if its glyph is 0, the placeholder of every font. */
bool figure_has_glyphs(cairo_t *cr, const char *text)
{
    cairo_glyph_t *glyphs = NULL;
    int count = 0;
    bool all = true;
    if (cairo_scaled_font_text_to_glyphs(cairo_get_scaled_font(cr), 0, 0, text, -1, &glyphs, &count, NULL, NULL,
                                         NULL) != CAIRO_STATUS_SUCCESS)
        return true; /* drawing the text will report the error */
    for (int i = 0; i < count; i++)
        all = all && glyphs[i].index != 0;
    cairo_glyph_free(glyphs);
    return all;
}

bool figure_has_font(void)
{
    cairo_t *cr = figure_scratch();
    const bool found = cairo_scaled_font_get_type(cairo_get_scaled_font(cr)) != CAIRO_FONT_TYPE_USER;
    cairo_destroy(cr);
    return found;
}

void figure_ink(cairo_t *cr)
{
    cairo_set_source_rgb(cr, 0.11, 0.12, 0.14);
}

void figure_sign_ink(cairo_t *cr, double value, double opacity)
{
    if (value > 0)
        cairo_set_source_rgba(cr, 0.76, 0.25, 0.05, opacity);
    else
        cairo_set_source_rgba(cr, 0.11, 0.31, 0.85, opacity);
}

void figure_center(cairo_t *cr, double x, double y, const char *text)
{
    cairo_move_to(cr, x - figure_text_width(cr, text) / 2, y);
    cairo_show_text(cr, text);
}

void figure_begin(cairo_t *cr, const char *title)
{
    cairo_set_source_rgb(cr, 1, 1, 1);
    cairo_paint(cr);
    figure_ink(cr);
    figure_font(cr, FIGURE_FONT + 2, CAIRO_FONT_WEIGHT_BOLD);
    cairo_move_to(cr, FIGURE_MARGIN, FIGURE_MARGIN + FIGURE_FONT);
    cairo_show_text(cr, title);
}

/* ---- maps ---- */

/* Finds the range of the n weights that pixel p of `side` pixels shows: *from to *to - 1, at least one weight. */
static void span(int64_t n, int side, int p, int64_t *from, int64_t *to)
{
    *from = p * n / side;
    *to = (p + 1) * n / side;
    if (*to == *from) *to = *from + 1;
}

static float greatest(const float *map, int64_t n, int side, int x, int y)
{
    int64_t i, i_end, j, j_end;
    float max = 0;
    span(n, side, x, &j, &j_end);
    for (span(n, side, y, &i, &i_end); i < i_end; i++)
        for (int64_t k = j; k < j_end; k++)
            max = fmaxf(max, map[i * n + k]);
    return max;
}

static cairo_surface_t *map_image(const float *map, int64_t n, int side)
{
    cairo_surface_t *image = cairo_image_surface_create(CAIRO_FORMAT_RGB24, side, side);
    if (cairo_surface_status(image) != CAIRO_STATUS_SUCCESS) return image;
    cairo_surface_flush(image);
    unsigned char *data = cairo_image_surface_get_data(image);
    int stride = cairo_image_surface_get_stride(image);
    for (int y = 0; y < side; y++) {
        uint32_t *line = (uint32_t *)(void *)(data + (ptrdiff_t)y * stride);
        for (int x = 0; x < side; x++) {
            color c = color_of_weight(style.colors, greatest(map, n, side, x, y));
            line[x] = (uint32_t)c.r << 16 | (uint32_t)c.g << 8 | c.b;
        }
    }
    cairo_surface_mark_dirty(image);
    return image;
}

void figure_map(cairo_t *cr, const float *map, int64_t n, int side, double x, double y)
{
    const int pixels = (int)fmax(1, round(side * style.scale));
    cairo_surface_t *image = map_image(map, n, pixels);
    cairo_save(cr);
    cairo_translate(cr, x, y);
    cairo_scale(cr, side / (double)pixels, side / (double)pixels);
    cairo_set_source_surface(cr, image, 0, 0);
    cairo_pattern_set_filter(cairo_get_source(cr), CAIRO_FILTER_NEAREST);
    cairo_paint(cr);
    cairo_restore(cr);
    cairo_surface_destroy(image);
    figure_ink(cr);
}

static void paint_ramp(cairo_t *cr, double x, double y, double height)
{
    cairo_pattern_t *ramp = cairo_pattern_create_linear(0, y + height, 0, y);
    for (int i = 0; i < COLOR_STOPS; i++) {
        color c = color_stops[i];
        cairo_pattern_add_color_stop_rgb(ramp, i / (COLOR_STOPS - 1.0), c.r / 255.0, c.g / 255.0, c.b / 255.0);
    }
    cairo_rectangle(cr, x, y, FIGURE_BAR, height);
    cairo_set_source(cr, ramp);
    cairo_fill(cr);
    cairo_pattern_destroy(ramp);
}

void figure_bar(cairo_t *cr, double x, double y, double height)
{
    static const double roots[] = {0, 0.05, 0.25, 0.5, 1}, even[] = {0, 0.25, 0.5, 0.75, 1};
    const double *ticks = style.colors == COLOR_LINEAR ? even : roots;
    paint_ramp(cr, x, y, height);
    figure_ink(cr);
    figure_font(cr, FIGURE_FONT - 1, CAIRO_FONT_WEIGHT_NORMAL);
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        char text[16];
        double at = y + height * (1 - color_position(style.colors, ticks[i]));
        snprintf(text, sizeof text, "%g", ticks[i]);
        cairo_move_to(cr, x + FIGURE_BAR + 4, fmin(fmax(at + 3.5, y + FIGURE_FONT - 2), y + height));
        cairo_show_text(cr, text);
    }
    cairo_save(cr);
    cairo_translate(cr, x + FIGURE_BAR + FIGURE_BAR_TEXT - 6, y + height / 2);
    cairo_rotate(cr, -acos(-1.0) / 2);
    figure_center(cr, 0, 0, "attention weight");
    cairo_restore(cr);
}

/* ---- file formats ---- */

static cairo_surface_t *png_create(buffer *out, int width, int height)
{
    (void)out; /* png_finish writes to `out` */
    return cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
}

static cairo_surface_t *svg_create(buffer *out, int width, int height)
{
    return cairo_svg_surface_create_for_stream(buffer_append, out, width, height);
}

static cairo_surface_t *pdf_create(buffer *out, int width, int height)
{
    cairo_surface_t *pdf = cairo_pdf_surface_create_for_stream(buffer_append, out, width, height);
    /* not the time of the run, so that equal figures are equal files */
    cairo_pdf_surface_set_metadata(pdf, CAIRO_PDF_METADATA_CREATE_DATE, "1980-01-01T00:00:00Z");
    return pdf;
}

static cairo_status_t png_finish(cairo_surface_t *surface, buffer *out)
{
    return cairo_surface_write_to_png_stream(surface, buffer_append, out);
}

static cairo_status_t vector_finish(cairo_surface_t *surface, buffer *out)
{
    (void)out; /* the surface writes to `out` */
    cairo_surface_finish(surface);
    return cairo_surface_status(surface);
}

static const struct format {
    const char *ending;
    cairo_surface_t *(*create)(buffer *out, int width, int height);
    cairo_status_t (*finish)(cairo_surface_t *surface, buffer *out);
} formats[] = {
    {".png", png_create, png_finish},
    {".svg", svg_create, vector_finish},
    {".pdf", pdf_create, vector_finish},
};

static const struct format *format_of(const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (n > 4 && strcmp(path + n - 4, formats[i].ending) == 0) return &formats[i];
    return NULL;
}

int figure_knows(const char *path)
{
    return format_of(path) != NULL;
}

cairo_t *figure_scratch(void)
{
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1);
    cairo_t *cr = cairo_create(surface);
    cairo_surface_destroy(surface); /* the context holds a reference */
    figure_font(cr, FIGURE_FONT, CAIRO_FONT_WEIGHT_NORMAL);
    return cr;
}

static cairo_status_t render(const struct format *format, int width, int height, figure_painter paint, const void *what,
                             buffer *out)
{
    const double wide = ceil(width * style.scale), high = ceil(height * style.scale);
    cairo_surface_t *surface = format->create(out, (int)wide, (int)high);
    cairo_t *cr = cairo_create(surface);
    cairo_scale(cr, style.scale, style.scale);
    paint(cr, what);
    cairo_status_t status = cairo_status(cr);
    cairo_destroy(cr);
    if (status == CAIRO_STATUS_SUCCESS) status = format->finish(surface, out);
    cairo_surface_destroy(surface);
    return status;
}

const char *figure_render(const char *path, int width, int height, figure_painter paint, const void *what,
                          unsigned char **data, size_t *size)
{
    buffer out = {0};
    cairo_status_t status = render(format_of(path), width, height, paint, what, &out);
    if (status != CAIRO_STATUS_SUCCESS) {
        free(out.data);
        return cairo_status_to_string(status);
    }
    *data = out.data;
    *size = out.size;
    return NULL;
}
