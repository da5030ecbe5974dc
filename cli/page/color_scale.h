/* color_scale.h - maps attention weights to colors, in figures, reports and the terminal. */
#ifndef CLI_PAGE_COLOR_SCALE_H
#define CLI_PAGE_COLOR_SCALE_H

typedef struct color {
    unsigned char r, g, b;
} color;

/* Equidistant samples of the viridis color scale (van der Walt and Smith 2015): dark violet at 0, yellow at 1. The
 * scale is readable in grayscale and with color vision deficiency. */
enum { COLOR_STOPS = 20 };
extern const color color_stops[COLOR_STOPS];

/* Mapping of weights to positions on the scale. The default is the square root, which assigns half of the colors to
 * weights below 1/4, so that small weights are distinguishable. Linear matches matplotlib's imshow for weights in
 * [0, 1]. */
typedef enum color_scale { COLOR_ROOT = 0, COLOR_LINEAR } color_scale;

/* Returns the color of an attention weight in [0, 1]. Weights outside this range are clamped; NaN is treated as 0. */
color color_of_weight(color_scale scale, float weight);

/* Returns the position of a weight on the scale, 0..1. */
double color_position(color_scale scale, double weight);

#endif
