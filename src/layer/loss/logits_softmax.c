/* logits_softmax.c - applies the kernels' softmax of score panels (kernel.h) to a row of logits, one strip at a time;
 * all columns of a panel have the same maximum. */
#include "layer/loss/logits_softmax.h"

#include "base/size.h"
#include <math.h>
#include <string.h>

/* STRIP: elements per strip, whole panels on every ISA. LANES: columns of the widest panel. CHAINS: partial sums, a
 * divisor of every panel width. */
enum { STRIP = 1024, LANES = 64, CHAINS = 8 };

float mha__largest(const mha__kernels *k, int64_t n, const float *x)
{
    float top[LANES], max = x[n - 1];
    k->top(n / k->nr, k->nr, x, top);
    for (int64_t i = 0; i < k->nr && n >= k->nr; i++)
        max = top[i] > max ? top[i] : max;
    for (int64_t i = n / k->nr * k->nr; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

double mha__exponentials_below(const mha__kernels *k, int64_t n, const float *x, float max, float *e)
{
    float top[LANES], ones[LANES], strip[STRIP];
    double sum[CHAINS] = {0};
    for (int i = 0; i < LANES; i++)
        top[i] = max, ones[i] = 1;
    for (int64_t first = 0; first < n; first += STRIP) {
        const int64_t count = mha__min64(STRIP, n - first), whole = mha__round_up(count, k->nr);
        memcpy(strip, x + first, (size_t)count * sizeof *x);
        for (int64_t i = count; i < whole; i++)
            strip[i] = -INFINITY;
        k->probs(whole / k->nr, k->nr, top, ones, strip);
        for (int64_t i = 0; i < whole; i += CHAINS)
            for (int c = 0; c < CHAINS; c++)
                sum[c] += (double)strip[i + c];
        if (e) memcpy(e + first, strip, (size_t)count * sizeof *e);
    }
    for (int c = 1; c < CHAINS; c++)
        sum[0] += sum[c];
    return sum[0];
}

double mha__exponentials(const mha__kernels *k, int64_t n, const float *x, float *max, float *e)
{
    *max = mha__largest(k, n, x);
    return mha__exponentials_below(k, n, x, *max, e);
}
