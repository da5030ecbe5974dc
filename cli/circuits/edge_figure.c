/* edge_figure.c - draws the strongest direct paths: nodes from the embedding (bottom) to the logits (top), edges as
 * curves whose width is the size of the effect, and a list of the effects. */
#include "circuits/edge_figure.h"

#include "draw/figure.h"
#include "draw/figure_paint.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 15, LIST = 190, INTERVAL = 50, WIDEST = 5 };

static const double OPACITY = 0.85;

typedef struct picture {
    const effect_grid *grid;
    const edge_graph *graph;
    char title[200];
    double left, top; /* of the graph */
    int list;         /* width of the list */
    bool *used;       /* [nodes] an edge meets the node */
} picture;

/* Sets the width of an edge, in quarters of a point, so that rounding of effects does not change the figure. */
static void set_width(cairo_t *cr, const edge_graph *g, double change)
{
    const double max = fabs(g->edges[0].change);
    cairo_set_line_width(cr, fmax(1, round(4 * WIDEST * fabs(change) / max) / 4));
}

static void paint_edge(cairo_t *cr, const picture *p, const edge_graph_edge *e)
{
    const edge_graph_node *a = &p->graph->nodes[e->from], *b = &p->graph->nodes[e->to];
    const double from = p->top + a->y - EDGE_NODE_HEIGHT / 2.0, to = p->top + b->y + EDGE_NODE_HEIGHT / 2.0;
    const double bend = (from - to) / 2;
    figure_sign_ink(cr, e->change, OPACITY);
    set_width(cr, p->graph, e->change);
    cairo_move_to(cr, p->left + a->x, from);
    cairo_curve_to(cr, p->left + a->x, from - bend, p->left + e->x, to + bend, p->left + e->x, to);
    cairo_stroke(cr);
}

/* Draws a node; nodes without edges are pale. */
static void paint_node(cairo_t *cr, const picture *p, int64_t n)
{
    const edge_graph_node *node = &p->graph->nodes[n];
    const double x = p->left + node->x, y = p->top + node->y, gray = p->used[n] ? 0.25 : 0.8;
    if (!*node->name) return;
    cairo_rectangle(cr, x - node->width / 2, y - EDGE_NODE_HEIGHT / 2.0, node->width, EDGE_NODE_HEIGHT);
    cairo_set_source_rgb(cr, 1, 1, 1);
    cairo_fill_preserve(cr);
    cairo_set_source_rgb(cr, gray, gray, gray);
    cairo_set_line_width(cr, 1);
    cairo_stroke(cr);
    figure_font(cr, FIGURE_FONT - 1, CAIRO_FONT_WEIGHT_NORMAL);
    if (!p->used[n]) cairo_set_source_rgb(cr, 0.55, 0.56, 0.6);
    if (p->used[n] || figure_text_width(cr, node->name) < node->width) figure_center(cr, x, y + 3.5, node->name);
}

static void paint_list(cairo_t *cr, const picture *p)
{
    const double x = p->left + p->graph->width + FIGURE_MARGIN;
    char part[EFFECT_PART], value[64];
    for (int64_t n = 0; n < p->graph->edge_count; n++) {
        const edge_graph_edge *e = &p->graph->edges[n];
        const double y = p->top + FIGURE_MARGIN + (double)n * LINE;
        figure_sign_ink(cr, e->change, OPACITY);
        set_width(cr, p->graph, e->change);
        cairo_move_to(cr, x, y - 4);
        cairo_line_to(cr, x + 16, y - 4);
        cairo_stroke(cr);
        figure_ink(cr);
        figure_font(cr, FIGURE_FONT, CAIRO_FONT_WEIGHT_NORMAL);
        cairo_move_to(cr, x + 24, y);
        cairo_show_text(cr, effect_grid_part(p->grid, NULL, e->n, part));
        const int length = snprintf(value, sizeof value, "%.2f", p->grid->value[e->n]);
        if (p->grid->pairs > 1) snprintf(value + length, sizeof value - (size_t)length, " +-%.2f", p->grid->half[e->n]);
        cairo_move_to(cr, x + p->list - figure_text_width(cr, value), y);
        cairo_show_text(cr, value);
    }
}

static void paint(cairo_t *cr, const void *what)
{
    const picture *p = what;
    figure_begin(cr, p->title);
    for (int64_t n = p->graph->edge_count - 1; n >= 0; n--)
        paint_edge(cr, p, &p->graph->edges[n]);
    for (int64_t n = 0; n < p->graph->node_count; n++)
        paint_node(cr, p, n);
    paint_list(cr, p);
}

/* Draws the figure; returns NULL or an error message. */
static const char *draw(const cli_session *s, picture *p, unsigned char **data, size_t *bytes)
{
    const edge_graph *g = p->graph;
    p->used = calloc((size_t)g->node_count, sizeof *p->used);
    if (!p->used) return "out of memory";
    for (int64_t n = 0; n < g->edge_count; n++)
        p->used[g->edges[n].from] = p->used[g->edges[n].to] = true;
    const double list = 2.0 * FIGURE_MARGIN + (double)g->edge_count * LINE;
    const int width = (int)ceil(g->width) + p->list + 2 * FIGURE_MARGIN;
    const int height = (int)ceil(p->top + fmax(g->height, list));
    const char *wrong = figure_render(s->options.out, width, height, paint, p, data, bytes);
    free(p->used);
    return wrong;
}

int edge_figure_save(const cli_session *s, const effect_grid *grid, int64_t max)
{
    edge_graph g;
    unsigned char *data = NULL;
    size_t bytes = 0;
    const char *wrong = edge_graph_make(grid, max, &g) ? NULL : "out of memory";
    picture p = {.grid = grid,
                 .graph = &g,
                 .top = FIGURE_MARGIN + FIGURE_TITLE,
                 .list = LIST + (grid->pairs > 1 ? INTERVAL : 0)};
    char pairs[40] = "";
    if (grid->pairs > 1) snprintf(pairs, sizeof pairs, "; mean of %lld", (long long)grid->pairs);
    snprintf(p.title, sizeof p.title, "%s: %s, %s%s", grid->title, grid->metric,
             grid->raw ? "nats" : "1 = as clean, 0 = as corrupted", pairs);
    figure_set_style((figure_style){.scale = cli_out_ends(s, ".png") ? 2 : 1, .font = "sans-serif"});
    if (!wrong) wrong = draw(s, &p, &data, &bytes);
    int code = wrong ? cli_error(s, CLI_FAILED, "cannot draw the paths: %s", wrong) : cli_write_file(s, data, bytes);
    if (code == CLI_DONE)
        cli_say(s, "%s: %.1f KB; the %lld strongest of %lld edges", cli_shown(s->options.out), (double)bytes / 1e3,
                (long long)g.edge_count, (long long)grid->count);
    free(data);
    edge_graph_free(&g);
    return code;
}
