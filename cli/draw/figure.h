/* figure.h - attention maps as pictures for papers and slides: title, axes, colour bar. PNG, SVG or PDF. */
#ifndef CLI_DRAW_FIGURE_H
#define CLI_DRAW_FIGURE_H

#include <stddef.h>
#include <stdint.h>

#include "mha/mha.h"

/* One map. */
typedef struct figure {
    const char *title;
    int64_t n;                 /* tokens, > 0 */
    const char *const *tokens; /* [n] UTF-8 */
    const float *map;          /* [n, n], row = query */
} figure;

/* 1 if the ending of `path` is known (.png .svg .pdf). */
int figure_knows(const char *path);

/* Draws the figure in the format that the ending of `path` names; the bytes of the file are *data, to be freed with
 * free. Returns NULL, or a sentence about what went wrong (static). */
const char *figure_draw(const figure *f, const char *path, unsigned char **data, size_t *size);

/* How many of the tokens have a character that the font lacks; *first is the first of them. */
int64_t figure_count_unreadable(const figure *f, const char **first);

/* figure_draw of the maps of all heads, measured with keep_maps, with their labels: a row per layer, a column per
 * original head number, empty where the head was removed. */
typedef struct figure_grid {
    const char *title;
    const mha_model *model;
    const mha_heads *heads;
    int64_t n; /* tokens */
} figure_grid;
const char *figure_grid_draw(const figure_grid *f, const char *path, unsigned char **data, size_t *size);

#endif
