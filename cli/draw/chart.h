/* chart.h - draws curves in stacked panels with a common x axis, as PNG, SVG or PDF. */
#ifndef CLI_DRAW_CHART_H
#define CLI_DRAW_CHART_H

#include <stdbool.h>
#include <stddef.h>

enum { CHART_PANELS = 6 };

/* One panel of the chart, with one curve. */
typedef struct chart_panel {
    const char *title;
    const double *y; /* [count] values of the curve */
    double limit;    /* y value of a dashed horizontal line; NAN = no line */
} chart_panel;

typedef struct chart {
    const char *title, *x_title;
    int count;       /* number of points, > 0 */
    const double *x; /* [count] x coordinates, ascending */
    double mark;     /* x of the point marked in every panel; NAN = none */
    bool plain;      /* draw the line without dots */
    int panels;
    chart_panel panel[CHART_PANELS];
} chart;

/* Draws the chart in the format given by the extension of `path`; same parameters and result as figure_draw. */
const char *chart_draw(const chart *c, const char *path, unsigned char **data, size_t *size);

#endif
