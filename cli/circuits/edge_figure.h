/* edge_figure.h - the figure of the strongest direct paths, as PNG, SVG or PDF. */
#ifndef CLI_CIRCUITS_EDGE_FIGURE_H
#define CLI_CIRCUITS_EDGE_FIGURE_H

#include "circuits/edge_graph.h"

/* Writes the figure of a finished grid of edges, with the `max` strongest, to the file of -o, in the format of its
 * extension. Returns an exit code. */
int edge_figure_save(const cli_session *session, const effect_grid *grid, int64_t max);

#endif
