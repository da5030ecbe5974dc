/* binary_cross_entropy.c - see binary_cross_entropy.h. Exponentials have arguments of at most 0, so that none
 * overflows. */
#include "layer/loss/binary_cross_entropy.h"

#include <math.h>

double mha__binary_cross_entropy(int64_t rows, const float *logits, const int32_t *labels, double scale, float *dlogits)
{
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double z = (double)logits[r], small = exp(-fabs(z));
        sum += fmax(z, 0) + log1p(small) - (double)labels[r] * z;
        const double sigmoid = z >= 0 ? 1 / (1 + small) : small / (1 + small);
        if (dlogits) dlogits[r] = (float)(scale * (sigmoid - (double)labels[r]));
    }
    return scale * sum;
}
