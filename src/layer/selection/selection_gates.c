/* selection_gates.c - see selection_gates.h. */
#include "layer/selection/selection_gates.h"
#include <math.h>

void mha__soft_gates(bool softmax, int64_t count, const double *score, double *gate)
{
    double top = -INFINITY, sum = 0;
    for (int64_t n = 0; n < count; n++)
        top = fmax(top, score[n]);
    for (int64_t n = 0; n < count; n++) {
        gate[n] = softmax ? exp(score[n] - top) : 1 / (1 + exp(-score[n]));
        sum += gate[n];
    }
    for (int64_t n = 0; softmax && n < count; n++)
        gate[n] /= sum;
}

void mha__soft_gates_back(bool softmax, int64_t count, const double *gate, const double *dgate, double *dscore)
{
    double mean = 0;
    for (int64_t n = 0; n < count; n++)
        mean += gate[n] * dgate[n];
    for (int64_t n = 0; n < count; n++)
        dscore[n] = gate[n] * (softmax ? dgate[n] - mean : (1 - gate[n]) * dgate[n]);
}

/* `first`: x is the first of both. */
static bool goes_before(double x, double y, bool first)
{
    if (isnan(x) != isnan(y)) return isnan(x);
    return x > y || (!(x < y) && first);
}

int64_t mha__score_rank(int64_t count, const double *score, int64_t n)
{
    int64_t before = 0;
    for (int64_t other = 0; other < count; other++)
        before += goes_before(score[other], score[n], other < n);
    return before;
}
