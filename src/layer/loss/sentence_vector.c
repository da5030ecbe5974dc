/* sentence_vector.c - sentence vectors and their gradient. If m is the mean of n hidden states h and e = m / |m|, the
 * gradient of each h is
 *
 *     dh = (de - e (e . de)) / (|m| n) */
#include "layer/loss/sentence_vector.h"

#include "math/linalg.h"
#include <math.h>
#include <string.h>

double mha__unit(const float *hidden, int64_t rows, int64_t width, double *e)
{
    memset(e, 0, (size_t)width * sizeof *e);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            e[i] += (double)hidden[r * width + i];
    for (int64_t i = 0; i < width; i++)
        e[i] /= (double)rows;
    const double length = fmax(sqrt(mha__dot(width, e, e)), 1e-12);
    for (int64_t i = 0; i < width; i++)
        e[i] /= length;
    return length;
}

void mha__unit_back(const double *e, double length, const double *de, int64_t rows, int64_t width, float *out)
{
    const double along = mha__dot(width, e, de), by = 1 / (length * (double)rows);
    for (int64_t i = 0; i < width; i++)
        out[i] = (float)((de[i] - e[i] * along) * by);
    for (int64_t r = 1; r < rows; r++)
        memcpy(out + r * width, out, (size_t)width * sizeof *out);
}
