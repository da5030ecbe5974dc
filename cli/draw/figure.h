/* figure.h - draws attention maps with title, axes and color bar, as PNG, SVG or PDF. */
#ifndef CLI_DRAW_FIGURE_H
#define CLI_DRAW_FIGURE_H

#include "mha/mha.h"
#include <stddef.h>
#include <stdint.h>

/* The attention map of one head. */
typedef struct figure {
    const char *title;
    int64_t n;                 /* number of tokens, > 0 */
    const char *const *tokens; /* [n] texts of the tokens, in UTF-8 */
    const float *map;          /* [n, n] weights, one row per query */
} figure;

/* Returns 1 if the extension of `path` is .png, .svg or .pdf. */
int figure_knows(const char *path);

/* Draws the figure in the format given by the extension of `path`. *data receives the contents of the file; the caller
 * must free it. Returns NULL, or an error message (static). */
const char *figure_draw(const figure *f, const char *path, unsigned char **data, size_t *size);

/* Returns the number of tokens with a character that the font lacks; *first receives the first such token. */
int64_t figure_count_unreadable(const figure *f, const char **first);

/* Draws the maps of all heads (measured with keep_maps) with their labels: a row per layer, a column per original head
 * number, empty if the head was removed. Same parameters and result as figure_draw. */
typedef struct figure_grid {
    const char *title;
    const mha_model *model;
    const mha_heads *heads;
    int64_t n; /* number of tokens */
} figure_grid;
const char *figure_grid_draw(const figure_grid *f, const char *path, unsigned char **data, size_t *size);

#endif
