/* map_figure.h - draws maps (circuit_map.h) below each other, as PNG, SVG or PDF. */
#ifndef CLI_LENS_MAP_FIGURE_H
#define CLI_LENS_MAP_FIGURE_H

#include "lens/circuit_map.h"

/* Writes the figure of -o in the format of its extension (figure_knows): a title, lines of text, and maps, which are
 * arrays of strings and of maps. Returns an exit code. */
int map_figure_save(const cli_session *session, const char *title, const json_t *lines, const json_t *maps);

#endif
