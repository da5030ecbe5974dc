/* chart.c - draws curves with cairo in stacked panels, each with its own y axis on the left. */
#include "draw/chart.h"

#include "draw/figure_paint.h"
#include <math.h>
#include <stdio.h>

enum { WIDTH = 720, PANEL = 150, LEFT = 90, RIGHT = 24, TOP = 64, BOTTOM = 46, GAP = 34, TICKS = 4 };

/* Position of a panel on the page, and the data values at its corners. */
typedef struct frame {
    double x, y, width, height;
    double x0, x1, y0, y1;
} frame;

static double across(const frame *f, double x)
{
    return f->x + (f->x1 > f->x0 ? (x - f->x0) / (f->x1 - f->x0) : 0.5) * f->width;
}

static double up(const frame *f, double y)
{
    return f->y + f->height * (1 - (y - f->y0) / (f->y1 - f->y0));
}

/* Returns the smallest number of the form 1, 2 or 5 times 10^n that is at least `min`. */
static double round_step(double min)
{
    const double power = pow(10, floor(log10(min)));
    const double digit = min / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

/* Returns the frame of panel n. Its y axis runs from min(0, smallest value) to max(largest value, limit). */
static frame frame_of(const chart *c, int n)
{
    const chart_panel *p = &c->panel[n];
    frame f = {.x = LEFT, .y = TOP + n * (PANEL + GAP), .width = WIDTH - LEFT - RIGHT, .height = PANEL};
    f.x0 = c->x[0];
    f.x1 = c->x[c->count - 1];
    for (int i = 0; i < c->count; i++) {
        f.y0 = fmin(f.y0, p->y[i]);
        f.y1 = fmax(f.y1, p->y[i]);
    }
    if (!isnan(p->limit)) f.y1 = fmax(f.y1, p->limit);
    if (!(f.y1 > f.y0)) f.y1 = f.y0 + 1;
    return f;
}

static void put_text(cairo_t *cr, double x, double y, double align, const char *text)
{
    cairo_move_to(cr, x - align * figure_text_width(cr, text), y);
    cairo_show_text(cr, text);
}

static void put_number(cairo_t *cr, double x, double y, double align, double value)
{
    static const struct {
        double from;
        const char *letter;
    } units[] = {{1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
    char text[32];
    size_t n = 0;
    while (n < 3 && fabs(value) < units[n].from)
        n++;
    const double unit = n == 0 ? 1e9 : n == 1 ? 1e6 : n == 2 ? 1e3 : 1;
    snprintf(text, sizeof text, "%.4g%s", value / unit, n < 3 ? units[n].letter : "");
    put_text(cr, x, y, align, text);
}

static void paint_scale(cairo_t *cr, const frame *f)
{
    const double step = round_step((f->y1 - f->y0) / TICKS);
    for (double y = ceil(f->y0 / step) * step; y <= f->y1 * (1 + 1e-9); y += step) {
        cairo_set_source_rgb(cr, 0.88, 0.89, 0.91);
        cairo_move_to(cr, f->x, up(f, y));
        cairo_line_to(cr, f->x + f->width, up(f, y));
        cairo_stroke(cr);
        figure_ink(cr);
        put_number(cr, f->x - 6, up(f, y) + FIGURE_FONT * 0.35, 1, y);
    }
}

static void paint_curve(cairo_t *cr, const chart *c, const frame *f, const double *y)
{
    cairo_set_source_rgb(cr, 0.13, 0.34, 0.55);
    cairo_new_path(cr); /* cairo_show_text sets a current point, which would be joined to the next path */
    for (int i = 0; i < c->count; i++)
        cairo_line_to(cr, across(f, c->x[i]), up(f, y[i]));
    cairo_stroke(cr);
    for (int i = 0; i < c->count && !c->plain; i++) {
        const bool marked = c->x[i] == c->mark;
        cairo_new_path(cr);
        cairo_arc(cr, across(f, c->x[i]), up(f, y[i]), marked ? 5 : 2.5, 0, 2 * acos(-1.0));
        cairo_fill(cr);
        if (!marked) continue;
        figure_ink(cr);
        put_number(cr, across(f, c->x[i]), up(f, y[i]) - 9, 0.5, y[i]);
        cairo_set_source_rgb(cr, 0.13, 0.34, 0.55);
    }
}

static void paint_panel(cairo_t *cr, const chart *c, int n)
{
    const chart_panel *p = &c->panel[n];
    const frame f = frame_of(c, n);
    figure_ink(cr);
    put_text(cr, f.x, f.y - 10, 0, p->title);
    paint_scale(cr, &f);
    if (!isnan(p->limit)) {
        const double dash[] = {5, 4};
        cairo_set_source_rgb(cr, 0.75, 0.2, 0.15);
        cairo_set_dash(cr, dash, 2, 0);
        cairo_move_to(cr, f.x, up(&f, p->limit));
        cairo_line_to(cr, f.x + f.width, up(&f, p->limit));
        cairo_stroke(cr);
        cairo_set_dash(cr, NULL, 0, 0);
    }
    paint_curve(cr, c, &f, p->y);
}

static void paint_axis(cairo_t *cr, const chart *c)
{
    const frame f = frame_of(c, c->panels - 1);
    const double step = fmax(1, round_step((f.x1 - f.x0) / 10 + 1e-9));
    figure_ink(cr);
    for (double x = ceil(f.x0 / step) * step; x <= f.x1; x += step)
        put_number(cr, across(&f, x), f.y + f.height + 16, 0.5, x);
    put_text(cr, f.x + f.width / 2, f.y + f.height + 34, 0.5, c->x_title);
}

static void paint(cairo_t *cr, const void *what)
{
    const chart *c = what;
    figure_begin(cr, c->title);
    cairo_set_line_width(cr, 1.2);
    figure_font(cr, FIGURE_FONT, CAIRO_FONT_WEIGHT_NORMAL);
    for (int n = 0; n < c->panels; n++)
        paint_panel(cr, c, n);
    paint_axis(cr, c);
}

const char *chart_draw(const chart *c, const char *path, unsigned char **data, size_t *size)
{
    return figure_render(path, WIDTH, TOP + c->panels * (PANEL + GAP) - GAP + BOTTOM, paint, c, data, size);
}
