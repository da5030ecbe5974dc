/* figure.h - one attention map as a picture for papers and slides: title, token axes, colour bar. PNG, SVG or PDF. */
#ifndef CLI_FIGURE_H
#define CLI_FIGURE_H

#include <stddef.h>
#include <stdint.h>

typedef struct figure {
    const char *title;
    int64_t n;                 /* tokens, > 0 */
    const char *const *tokens; /* [n] UTF-8 */
    const float *map;          /* [n, n], row = query */
} figure;

/* 1 if figure_draw knows the ending of `path` (.png .svg .pdf). */
int figure_knows(const char *path);

/* Draws the figure in the format that the ending of `path` names; the bytes of the file are *data, to be freed with
 * free. Returns NULL, or a sentence about what went wrong (static). */
const char *figure_draw(const figure *f, const char *path, unsigned char **data, size_t *size);

#endif
