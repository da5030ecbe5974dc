/* convolution.c - gathers the inputs of a convolution over time, and distributes their gradients. An input gets its
 * gradients in ascending order of the output rows. */
#include "layer/convolution.h"

#include <stdbool.h>

/* Finds the time of an input; returns false if that input counts as 0. */
static bool find_time(const mha__signal *s, int64_t stride, int64_t row, int64_t tap, int64_t *at)
{
    *at = row * stride + tap - s->taps / 2;
    return *at >= 0 && *at < s->length && (!s->real || s->real[*at]);
}

void mha__convolution_gather(const mha__signal *s, int64_t stride, int64_t first, int64_t count, const float *x,
                             float *rows)
{
    for (int64_t r = 0; r < count; r++, rows += s->channels * s->taps)
        for (int64_t tap = 0, at; tap < s->taps; tap++) {
            const bool read = find_time(s, stride, first + r, tap, &at);
            for (int64_t c = 0; c < s->channels; c++)
                rows[c * s->taps + tap] = read ? x[at * s->time + c * s->channel] : 0;
        }
}

void mha__convolution_scatter(const mha__signal *s, int64_t stride, int64_t first, int64_t count, const float *rows,
                              float *dx)
{
    for (int64_t r = 0; r < count; r++, rows += s->channels * s->taps)
        for (int64_t tap = 0, at; tap < s->taps; tap++) {
            if (!find_time(s, stride, first + r, tap, &at)) continue;
            for (int64_t c = 0; c < s->channels; c++)
                dx[at * s->time + c * s->channel] += rows[c * s->taps + tap];
        }
}
