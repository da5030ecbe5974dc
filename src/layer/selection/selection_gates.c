/* selection_gates.c - ranks scores, and computes gates and their gradients. */
#include "layer/selection/selection_gates.h"

#include <math.h>
#include <string.h>

/* ---- gates ---- */

bool mha__choice_learns(const mha_layer_choice *c)
{
    return c->of == MHA_CHOICE_EXPERTS || c->selection != MHA_SELECTION_HARD;
}

/* Returns the index of the score of trained gate i. */
static int64_t place(const mha_layer_choice *c, const int32_t *list, int64_t i)
{
    return c->of == MHA_CHOICE_OPTIONS ? i : list[i];
}

/* Replaces scores with their softmax or, without `softmax`, with their sigmoids. */
static void soften(bool softmax, int64_t count, double *x)
{
    double top = -INFINITY, sum = 0;
    for (int64_t n = 0; n < count; n++)
        top = fmax(top, x[n]);
    for (int64_t n = 0; n < count; n++) {
        x[n] = softmax ? exp(x[n] - top) : 1 / (1 + exp(-x[n]));
        sum += x[n];
    }
    for (int64_t n = 0; softmax && n < count; n++)
        x[n] /= sum;
}

void mha__choice_gates(const mha_layer_choice *c, int64_t count, const double *score, const int32_t *list, double *soft,
                       double *gate)
{
    const bool options = c->of == MHA_CHOICE_OPTIONS;
    const bool is_soft = c->of == MHA_CHOICE_EXPERTS || c->selection == MHA_SELECTION_SOFT;
    const int64_t trained = options ? count : c->keep;
    for (int64_t i = 0; i < trained; i++)
        soft[i] = score[place(c, list, i)];
    soften(c->of != MHA_CHOICE_HEADS, trained, soft);
    memset(gate, 0, (size_t)count * sizeof *gate);
    for (int64_t i = 0; i < c->keep; i++)
        gate[list[i]] = is_soft ? soft[options ? list[i] : i] : 1;
}

void mha__choice_gates_back(const mha_layer_choice *c, int64_t count, const int32_t *list, const double *soft,
                            double *d)
{
    const int64_t trained = c->of == MHA_CHOICE_OPTIONS ? count : c->keep;
    double mean = 0;
    for (int64_t i = 0; i < trained; i++)
        mean += soft[i] * d[place(c, list, i)];
    for (int64_t i = 0; i < trained; i++) {
        double *at = d + place(c, list, i);
        *at = !mha__choice_learns(c) ? 0 : soft[i] * (c->of != MHA_CHOICE_HEADS ? *at - mean : (1 - soft[i]) * *at);
    }
}

/* ---- selection of the greatest scores ---- */

static bool goes_before(const double *score, int32_t one, int32_t other)
{
    const double x = score[one], y = score[other];
    if (isnan(x) != isnan(y)) return isnan(x);
    return x > y || (!(x < y) && one < other);
}

/* Sifts down list[at]: list[0, count) is a heap with the lowest rank at the root, except that list[at] may rank too
 * high for its position. */
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

/* Selects the `keep` greatest scores. Keeps a heap of the greatest scores found so far, with the lowest at the root; a
 * greater score replaces the root. Finally sorts the heap in place. */
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
