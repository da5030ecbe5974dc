/* chart.h - curves over one common axis, one panel under the other: PNG, SVG or PDF. */
#ifndef CLI_DRAW_CHART_H
#define CLI_DRAW_CHART_H

#include <stdbool.h>
#include <stddef.h>

enum { CHART_PANELS = 6 };

/* One curve. */
typedef struct chart_panel {
    const char *title;
    const double *y; /* [count of the chart] */
    double limit;    /* a line across it; NAN = none */
} chart_panel;

typedef struct chart {
    const char *title, *x_title;
    int count;       /* points, > 0 */
    const double *x; /* [count] ascending */
    double mark;     /* the point that is marked in every panel, by its x; NAN = none */
    bool plain;      /* a line without dots */
    int panels;
    chart_panel panel[CHART_PANELS];
} chart;

/* Draws it in the format that the ending of `path` names, as figure_draw. */
const char *chart_draw(const chart *c, const char *path, unsigned char **data, size_t *size);

#endif
