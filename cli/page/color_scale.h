/* color_scale.h - the color scale of figures and reports. */
#ifndef CLI_PAGE_COLOR_SCALE_H
#define CLI_PAGE_COLOR_SCALE_H

typedef struct colour {
    unsigned char r, g, b;
} colour;

/* viridis (van der Walt and Smith 2015): dark violet at 0, yellow at 1; readable in gray and with color vision
 * deficiency. */
enum { COLOUR_STOPS = 20 };
extern const colour colour_stops[COLOUR_STOPS];

/* Mapping of weights to the scale. The default is the square root: it gives half of the colors to the lowest quarter,
 * since small weights matter. Linear matches matplotlib's imshow for weights in [0, 1]. */
typedef enum colour_scale { COLOUR_ROOT = 0, COLOUR_LINEAR } colour_scale;

/* The color of an attention weight in [0, 1]. Values outside the range are clamped; NaN counts as 0. */
colour colour_of_weight(colour_scale scale, float weight);

/* Position of a weight on the scale, 0..1. */
double colour_position(colour_scale scale, double weight);

#endif
