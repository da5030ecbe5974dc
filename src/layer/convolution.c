/* convolution.c - gathers the inputs of a convolution over time, and distributes their gradients. */
#include "layer/convolution.h"

void mha__convolution_gather(const mha__signal *s, int64_t stride, const float *x, float *rows)
{
    for (int64_t t = 0; t < mha__convolved(s->length, stride); t++)
        for (int64_t c = 0; c < s->channels; c++)
            for (int64_t tap = 0; tap < MHA__TAPS; tap++) {
                const int64_t at = t * stride + tap - 1;
                *rows++ = at >= 0 && at < s->length ? x[at * s->time + c * s->channel] : 0;
            }
}

void mha__convolution_scatter(const mha__signal *s, int64_t stride, const float *rows, float *dx)
{
    for (int64_t t = 0; t < mha__convolved(s->length, stride); t++)
        for (int64_t c = 0; c < s->channels; c++)
            for (int64_t tap = 0; tap < MHA__TAPS; tap++, rows++) {
                const int64_t at = t * stride + tap - 1;
                if (at >= 0 && at < s->length) dx[at * s->time + c * s->channel] += *rows;
            }
}
