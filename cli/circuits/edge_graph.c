/* edge_graph.c - places the nodes of a model, and selects the strongest edges. */
#include "circuits/edge_graph.h"

#include "circuits/head_numbers.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 640, TALL = 900, MARGIN = 16, END_WIDTH = 84, GAP = 6 };

/* ---- nodes ---- */

/* Order of the nodes: the embedding, then per layer `heads` heads by number and the feed-forward part, the logits. */
typedef struct layout {
    const mha_model *model;
    int64_t heads, layers;
    double column, row; /* distance of columns and layers */
    edge_graph *graph;
} layout;

/* Returns the node of the query head at a position; of the feed-forward part if it is -1. */
static int64_t node_of(const layout *l, int64_t layer, int64_t head)
{
    return 1 + layer * (l->heads + 1) + (head < 0 ? l->heads : mha_head_number(l->model, layer, head));
}

static int64_t sender_of(const layout *l, const mha_path_edge *e)
{
    return e->from == MHA_PATH_FROM_EMBEDDING ? 0 : node_of(l, e->from_layer, e->from_head);
}

/* Returns the node of a receiver; for k and v, the first query head that reads the key/value head. */
static int64_t receiver_of(const layout *l, const mha_path_edge *e)
{
    if (e->to == MHA_PATH_LOGITS) return l->graph->node_count - 1;
    const mha_site site = e->to == MHA_PATH_K ? MHA_SITE_K : e->to == MHA_PATH_V ? MHA_SITE_V : MHA_SITE_Q;
    return node_of(l, e->to_layer, e->to_head < 0 ? -1 : e->to_head * head_readers(l->model, site, e->to_layer));
}

static void place_layer(const layout *l, int64_t layer)
{
    const double y = l->graph->height - MARGIN - EDGE_NODE_HEIGHT - ((double)layer + 0.75) * l->row;
    for (int64_t h = 0; h <= l->heads; h++) {
        const bool mlp = h == l->heads;
        edge_graph_node *node = &l->graph->nodes[1 + layer * (l->heads + 1) + h];
        *node = (edge_graph_node){.x = MARGIN + ((double)h + 0.5) * l->column + (mlp ? GAP : 0),
                                  .y = mlp ? y - 0.45 * l->row : y,
                                  .width = l->column - GAP};
        if (mlp)
            snprintf(node->name, sizeof node->name, "mlp %lld", (long long)layer);
        else if (mha_head_place(l->model, layer, h) >= 0)
            snprintf(node->name, sizeof node->name, "%lld.%lld", (long long)layer, (long long)h);
    }
}

static void place_nodes(const layout *l)
{
    edge_graph *g = l->graph;
    g->width = 2 * MARGIN + GAP + (double)(l->heads + 1) * l->column;
    g->height = 2 * MARGIN + 2 * EDGE_NODE_HEIGHT + ((double)l->layers + 0.75) * l->row;
    g->nodes[0] = (edge_graph_node){"embedding", g->width / 2, g->height - MARGIN - EDGE_NODE_HEIGHT / 2.0, END_WIDTH};
    g->nodes[g->node_count - 1] = (edge_graph_node){"logits", g->width / 2, MARGIN + EDGE_NODE_HEIGHT / 2.0, END_WIDTH};
    for (int64_t layer = 0; layer < l->layers; layer++)
        place_layer(l, layer);
}

/* ---- edges ---- */

/* Sorts the strongest edges first; edges of equal strength in the order of the grid. */
static int compare(const void *a, const void *b)
{
    const edge_graph_edge *x = a, *y = b;
    const double difference = fabs(y->change) - fabs(x->change);
    return difference > 0 ? 1 : difference < 0 ? -1 : x->n < y->n ? -1 : 1;
}

/* Returns where an edge meets its receiver: q, k and v at the left, in the middle and at the right of a head. */
static double input_at(const edge_graph_node *node, mha_path_receiver to)
{
    return node->x + (to == MHA_PATH_Q ? -node->width / 4 : to == MHA_PATH_V ? node->width / 4 : 0);
}

static void take_edges(const effect_grid *grid, const layout *l, int64_t max)
{
    edge_graph *g = l->graph;
    for (int64_t n = 0; n < grid->count; n++) {
        const mha_path_edge *e = &grid->edges[n];
        const int64_t to = receiver_of(l, e);
        const double change = effect_grid_change(grid, n);
        if (change != 0)
            g->edges[g->edge_count++] =
                (edge_graph_edge){sender_of(l, e), to, input_at(&g->nodes[to], e->to), n, change};
    }
    qsort(g->edges, (size_t)g->edge_count, sizeof *g->edges, compare);
    if (g->edge_count > max) g->edge_count = max;
}

bool edge_graph_make(const effect_grid *grid, int64_t max, edge_graph *g)
{
    const int64_t layers = mha_model_describe(grid->model)->layers, heads = head_columns(grid->model, MHA_SITE_Z);
    const layout l = {.model = grid->model,
                      .heads = heads,
                      .layers = layers,
                      .column = fmin(fmax(WIDE / (double)(heads + 1), 22), 60),
                      .row = fmin(fmax(TALL / (double)layers, 48), 110),
                      .graph = g};
    *g = (edge_graph){.node_count = 2 + layers * (heads + 1)};
    g->nodes = calloc((size_t)g->node_count, sizeof *g->nodes);
    g->edges = calloc((size_t)grid->count, sizeof *g->edges);
    if (!g->nodes || !g->edges) return false;
    place_nodes(&l);
    take_edges(grid, &l, max);
    return true;
}

void edge_graph_free(edge_graph *g)
{
    free(g->nodes);
    free(g->edges);
}

/* ---- JSON ---- */

json_t *edge_graph_json(const edge_graph *g, const effect_grid *grid)
{
    json_t *nodes = json_array(), *edges = json_array();
    char name[EFFECT_PART];
    for (int64_t n = 0; n < g->node_count; n++)
        json_array_append_new(nodes, json_pack("{s:s, s:f, s:f, s:f}", "name", g->nodes[n].name, "x", g->nodes[n].x,
                                               "y", g->nodes[n].y, "width", g->nodes[n].width));
    for (int64_t n = 0; n < g->edge_count; n++) {
        const edge_graph_edge *e = &g->edges[n];
        effect_grid_part(grid, NULL, e->n, name);
        json_t *edge = json_pack("{s:s, s:I, s:I, s:f, s:o, s:o}", "name", name, "from", (json_int_t)e->from, "to",
                                 (json_int_t)e->to, "x", e->x, "value", cli_real(grid->value[e->n]), "change",
                                 cli_real(e->change));
        if (grid->pairs > 1) json_object_set_new(edge, "half", cli_real(grid->half[e->n]));
        json_array_append_new(edges, edge);
    }
    return json_pack("{s:f, s:f, s:i, s:o, s:o}", "width", g->width, "height", g->height, "node_height",
                     EDGE_NODE_HEIGHT, "nodes", nodes, "edges", edges);
}
