/* figure.c - draws an attention map with cairo.
 *
 * Layout, in points (pixels of a PNG): the map is a square of n cells; above it the column tokens, upright text turned
 * by a quarter; left of it the row tokens; right of it the colour bar; the title on top. The map is painted as one
 * image at its final size, since vector formats do not keep the "nearest" filter and would blur a scaled one.
 */
#include "figure.h"

#include "colour.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 16, TITLE = 22, FONT = 11, BAR_WIDTH = 14, BAR_GAP = 18, BAR_TEXT = 40, LABEL_MOST = 120, GAP = 5 };

typedef struct layout {
    int cell;          /* side of one weight */
    int side;          /* n * cell */
    int label;         /* room for the longest token */
    int every;         /* one token in so many is written */
    int width, height; /* of the whole figure */
} layout;

/* ---- the bytes a cairo surface writes ---- */

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

/* ---- text ---- */

/* The token cut to what fits LABEL_MOST points, with an ellipsis; cut between characters. */
static void shorten(cairo_t *cr, const char *token, char *out, size_t room)
{
    cairo_text_extents_t e;
    snprintf(out, room, "%.*s", (int)(room - 4), token);
    size_t n = strlen(out);
    for (cairo_text_extents(cr, out, &e); e.x_advance > LABEL_MOST && n > 0; cairo_text_extents(cr, out, &e)) {
        do
            n--;
        while (n > 0 && ((unsigned char)token[n] & 0xC0) == 0x80);
        memcpy(out + n, "\xE2\x80\xA6", 4);
    }
}

static void set_font(cairo_t *cr, double size, cairo_font_weight_t weight)
{
    cairo_select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, weight);
    cairo_set_font_size(cr, size);
}

static double text_width(cairo_t *cr, const char *text)
{
    cairo_text_extents_t e;
    cairo_text_extents(cr, text, &e);
    return e.x_advance;
}

/* ---- layout ---- */

static layout plan(cairo_t *cr, const figure *f)
{
    layout l = {.cell = f->n <= 48 ? 16 : f->n < 768 ? (int)(768 / f->n) : 1};
    l.side = (int)f->n * l.cell;
    l.every = (FONT + 2 + l.cell - 1) / l.cell;
    char text[128];
    double widest = 0;
    for (int64_t i = 0; i < f->n; i += l.every) {
        shorten(cr, f->tokens[i], text, sizeof text);
        widest = fmax(widest, text_width(cr, text));
    }
    l.label = (int)ceil(widest) + GAP;
    int content = l.label + l.side + BAR_GAP + BAR_WIDTH + BAR_TEXT;
    l.width = 2 * MARGIN + (content > 320 ? content : 320);
    l.height = 2 * MARGIN + TITLE + l.label + l.side;
    return l;
}

/* ---- painting ---- */

static cairo_surface_t *map_image(const figure *f, int cell)
{
    int side = (int)f->n * cell;
    cairo_surface_t *image = cairo_image_surface_create(CAIRO_FORMAT_RGB24, side, side);
    if (cairo_surface_status(image) != CAIRO_STATUS_SUCCESS) return image;
    cairo_surface_flush(image);
    unsigned char *data = cairo_image_surface_get_data(image);
    int stride = cairo_image_surface_get_stride(image);
    for (int y = 0; y < side; y++) {
        uint32_t *line = (uint32_t *)(void *)(data + (ptrdiff_t)y * stride);
        for (int x = 0; x < side; x++) {
            colour c = colour_of_weight(f->map[(y / cell) * f->n + x / cell]);
            line[x] = (uint32_t)c.r << 16 | (uint32_t)c.g << 8 | c.b;
        }
    }
    cairo_surface_mark_dirty(image);
    return image;
}

static void paint_map(cairo_t *cr, const figure *f, const layout *l, double x, double y)
{
    cairo_surface_t *image = map_image(f, l->cell);
    cairo_set_source_surface(cr, image, x, y);
    cairo_paint(cr);
    cairo_surface_destroy(image);
    cairo_set_source_rgb(cr, 0.11, 0.12, 0.14);
}

static void paint_tokens(cairo_t *cr, const figure *f, const layout *l, double x, double y)
{
    char text[128];
    set_font(cr, FONT, CAIRO_FONT_WEIGHT_NORMAL);
    for (int64_t i = 0; i < f->n; i += l->every) {
        double middle = ((double)i + 0.5) * l->cell + FONT * 0.35;
        shorten(cr, f->tokens[i], text, sizeof text);
        cairo_move_to(cr, x - GAP - text_width(cr, text), y + middle);
        cairo_show_text(cr, text);
        cairo_save(cr);
        cairo_translate(cr, x + middle, y - GAP);
        cairo_rotate(cr, -acos(-1.0) / 2);
        cairo_move_to(cr, 0, 0);
        cairo_show_text(cr, text);
        cairo_restore(cr);
    }
}

static void paint_bar(cairo_t *cr, const layout *l, double x, double y)
{
    static const double ticks[] = {0, 0.05, 0.25, 0.5, 1};
    cairo_pattern_t *ramp = cairo_pattern_create_linear(0, y + l->side, 0, y);
    for (int i = 0; i < COLOUR_STOPS; i++) {
        colour c = colour_stops[i];
        cairo_pattern_add_color_stop_rgb(ramp, i / (COLOUR_STOPS - 1.0), c.r / 255.0, c.g / 255.0, c.b / 255.0);
    }
    cairo_rectangle(cr, x, y, BAR_WIDTH, l->side);
    cairo_set_source(cr, ramp);
    cairo_fill(cr);
    cairo_pattern_destroy(ramp);
    cairo_set_source_rgb(cr, 0.11, 0.12, 0.14);
    set_font(cr, FONT - 1, CAIRO_FONT_WEIGHT_NORMAL);
    for (size_t i = 0; i < sizeof ticks / sizeof *ticks; i++) {
        char text[16];
        double at = y + l->side * (1 - colour_position(ticks[i]));
        snprintf(text, sizeof text, "%g", ticks[i]);
        cairo_move_to(cr, x + BAR_WIDTH + 4, fmin(fmax(at + 3.5, y + FONT - 2), y + l->side));
        cairo_show_text(cr, text);
    }
}

static void paint(cairo_t *cr, const figure *f, const layout *l)
{
    double x = MARGIN + l->label, y = MARGIN + TITLE + l->label;
    cairo_set_source_rgb(cr, 1, 1, 1);
    cairo_paint(cr);
    cairo_set_source_rgb(cr, 0.11, 0.12, 0.14);
    set_font(cr, FONT + 2, CAIRO_FONT_WEIGHT_BOLD);
    cairo_move_to(cr, MARGIN, MARGIN + FONT);
    cairo_show_text(cr, f->title);
    paint_map(cr, f, l, x, y);
    paint_tokens(cr, f, l, x, y);
    paint_bar(cr, l, x + l->side + BAR_GAP, y);
}

/* ---- formats ---- */

static cairo_surface_t *png_create(buffer *out, int width, int height)
{
    (void)out; /* written by png_finish */
    return cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
}

static cairo_surface_t *svg_create(buffer *out, int width, int height)
{
    return cairo_svg_surface_create_for_stream(buffer_append, out, width, height);
}

static cairo_surface_t *pdf_create(buffer *out, int width, int height)
{
    return cairo_pdf_surface_create_for_stream(buffer_append, out, width, height);
}

static cairo_status_t png_finish(cairo_surface_t *surface, buffer *out)
{
    return cairo_surface_write_to_png_stream(surface, buffer_append, out);
}

static cairo_status_t vector_finish(cairo_surface_t *surface, buffer *out)
{
    (void)out; /* the surface streams into it */
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

/* Text can only be measured on a surface, so the layout is planned on a throw-away one. */
static layout plan_alone(const figure *f)
{
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1);
    cairo_t *cr = cairo_create(surface);
    set_font(cr, FONT, CAIRO_FONT_WEIGHT_NORMAL);
    layout l = plan(cr, f);
    cairo_destroy(cr);
    cairo_surface_destroy(surface);
    return l;
}

static cairo_status_t render(const figure *f, const struct format *format, buffer *out)
{
    layout l = plan_alone(f);
    cairo_surface_t *surface = format->create(out, l.width, l.height);
    cairo_t *cr = cairo_create(surface);
    paint(cr, f, &l);
    cairo_status_t status = cairo_status(cr);
    cairo_destroy(cr);
    if (status == CAIRO_STATUS_SUCCESS) status = format->finish(surface, out);
    cairo_surface_destroy(surface);
    return status;
}

const char *figure_draw(const figure *f, const char *path, unsigned char **data, size_t *size)
{
    buffer out = {0};
    cairo_status_t status = render(f, format_of(path), &out);
    if (status != CAIRO_STATUS_SUCCESS) {
        free(out.data);
        return cairo_status_to_string(status);
    }
    *data = out.data;
    *size = out.size;
    return NULL;
}
