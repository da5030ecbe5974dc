/* convolution.h - convolution over time with three taps and one row of padding on each side, as a matrix product. The
 * inputs of an output row are gathered into one row [channels, 3], the order of a weight [out, channels, 3]. */
#ifndef MHA_LAYER_CONVOLUTION_H
#define MHA_LAYER_CONVOLUTION_H

#include <stdint.h>

enum { MHA__TAPS = 3 };

/* The input of a convolution: channel c at time t is at t * time + c * channel. */
typedef struct mha__signal {
    int64_t length, channels;
    int64_t time, channel;
} mha__signal;

/* Returns the number of output rows. */
static inline int64_t mha__convolved(int64_t length, int64_t stride)
{
    return (length - 1) / stride + 1;
}

/* Writes rows [mha__convolved, channels, 3]; the padding is 0. */
void mha__convolution_gather(const mha__signal *signal, int64_t stride, const float *x, float *rows);
/* Adds the gradient of those rows to that of the input. */
void mha__convolution_scatter(const mha__signal *signal, int64_t stride, const float *rows, float *dx);

#endif
