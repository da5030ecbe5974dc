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

/* ---- the greatest scores ---- */

static bool goes_before(const double *score, int32_t one, int32_t other)
{
    const double x = score[one], y = score[other];
    if (isnan(x) != isnan(y)) return isnan(x);
    return x > y || (!(x < y) && one < other);
}

/* list[0, count) is a heap with the last one on top, but list[at] may stand too high: it sinks to where it belongs. */
static void sink(const double *score, int32_t *list, int64_t at, int64_t count)
{
    for (int64_t child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
        if (child + 1 < count && goes_before(score, list[child], list[child + 1])) child++;
        if (!goes_before(score, list[at], list[child])) return;
        const int32_t last = list[child];
        list[child] = list[at];
        list[at] = last;
    }
}

/* A heap of the best so far, the last of them on top, where a better one replaces it; then sorted where it lies. */
void mha__score_best(int64_t count, const double *score, int64_t keep, int32_t *list)
{
    for (int32_t c = 0; c < keep; c++)
        list[c] = c;
    for (int64_t i = keep / 2; i-- > 0;)
        sink(score, list, i, keep);
    for (int32_t c = (int32_t)keep; keep && c < count; c++)
        if (goes_before(score, c, *list)) {
            *list = c;
            sink(score, list, 0, keep);
        }
    for (int64_t end = keep - 1; end > 0; end--) {
        const int32_t last = *list;
        *list = list[end];
        list[end] = last;
        sink(score, list, 0, end);
    }
}
