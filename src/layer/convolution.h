/* convolution.h - convolution over time with an odd number of taps, and padding that keeps the length, as a matrix
 * product. The inputs of an output row are gathered into one row [channels, taps], the order of a weight [out,
 * channels, taps]. */
#ifndef MHA_LAYER_CONVOLUTION_H
#define MHA_LAYER_CONVOLUTION_H

#include <stdint.h>

enum { MHA__TAPS = 3 }; /* of the convolutions of encoders that read audio features */

/* The input of a convolution: channel c at time t is at t * time + c * channel. */
typedef struct mha__signal {
    int64_t length, channels;
    int64_t time, channel;
    int64_t taps;
    const uint8_t *real; /* [length] 0 = the input is not read at this time, and counts as 0; NULL = none */
} mha__signal;

/* Returns the number of output rows. */
static inline int64_t mha__convolved(int64_t length, int64_t stride)
{
    return (length - 1) / stride + 1;
}

/* Writes rows [count, channels, taps] for output rows [first, first + count); the padding is 0. */
void mha__convolution_gather(const mha__signal *signal, int64_t stride, int64_t first, int64_t count, const float *x,
                             float *rows);
/* Adds the gradient of those rows to that of the input. */
void mha__convolution_scatter(const mha__signal *signal, int64_t stride, int64_t first, int64_t count,
                              const float *rows, float *dx);

#endif
