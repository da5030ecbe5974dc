/* color_scale.h - the one colour scale of figures and reports. */
#ifndef CLI_COLOR_SCALE_H
#define CLI_COLOR_SCALE_H

typedef struct colour {
    unsigned char r, g, b;
} colour;

/* viridis (van der Walt and Smith 2015): dark violet at 0, yellow at 1; readable in grey and by colour-blind people. */
enum { COLOUR_STOPS = 20 };
extern const colour colour_stops[COLOUR_STOPS];

/* How weights lie on the ramp. The square root is the usual one: small weights matter, so half of the colours go to the
 * lowest quarter. Linear is what matplotlib's imshow draws of weights in [0, 1]. */
typedef enum colour_scale { COLOUR_ROOT = 0, COLOUR_LINEAR } colour_scale;

/* The colour of an attention weight in [0, 1]. Values outside, and NaN, take the nearer end. */
colour colour_of_weight(colour_scale scale, float weight);

/* Where on the ramp a weight lies, 0..1. */
double colour_position(colour_scale scale, double weight);

#endif
