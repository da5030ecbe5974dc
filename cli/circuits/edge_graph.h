/* edge_graph.h - the graph of direct paths: the nodes of a model with their places, and the strongest edges, for
 * figures and pages. */
#ifndef CLI_CIRCUITS_EDGE_GRAPH_H
#define CLI_CIRCUITS_EDGE_GRAPH_H

#include "circuits/effect_grid.h"

enum { EDGE_NODE_NAME = 48, EDGE_NODE_HEIGHT = 18 };

/* A node: a box EDGE_NODE_HEIGHT high. */
typedef struct edge_graph_node {
    char name[EDGE_NODE_NAME]; /* such as "0.5" or "mlp 0" */
    double x, y, width;        /* center and width, in points */
} edge_graph_node;

/* An edge, from the top of a node to the bottom of another, at the horizontal position x of the input. */
typedef struct edge_graph_edge {
    int64_t from, to; /* nodes */
    double x;
    int64_t n; /* element of the grid */
    double change;
} edge_graph_edge;

typedef struct edge_graph {
    double width, height; /* in points */
    edge_graph_node *nodes;
    edge_graph_edge *edges; /* the strongest first; edges without an effect are left out */
    int64_t node_count, edge_count;
} edge_graph;

/* Places all nodes of the model - the embedding at the bottom, a row of heads per layer with its feed-forward part at
 * the right, the logits at the top - and takes the `max` strongest edges of a finished grid of edges. Returns false if
 * memory is exhausted. Call edge_graph_free in any case. */
bool edge_graph_make(const effect_grid *grid, int64_t max, edge_graph *graph);
void edge_graph_free(edge_graph *graph);

/* Returns {width, height, nodes: [{name, x, y, width}], edges: [{name, from, to, x, value, change, half}]}; `half`, of
 * several pairs only, is half of the interval of `value`. */
json_t *edge_graph_json(const edge_graph *graph, const effect_grid *grid);

#endif
