/* top_tokens.c - see top_tokens.h. */
#include "logits/top_tokens.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

int64_t top_tokens_find(const float *logits, int64_t vocab, int64_t max, top_token *top)
{
    int64_t count = 0;
    for (; count < max; count++) {
        int64_t best = -1;
        const top_token *last = count ? &top[count - 1] : NULL;
        for (int64_t i = 0; i < vocab; i++) {
            const double x = (double)logits[i];
            const bool later = !last || x < last->logit || (x == last->logit && i > last->id);
            if (!isnan(x) && later && (best < 0 || x > (double)logits[best])) best = i;
        }
        if (best < 0) break;
        top[count] = (top_token){best, (double)logits[best], 0};
    }
    double sum = 0;
    for (int64_t i = 0; count > 0 && i < vocab; i++)
        sum += exp((double)logits[i] - top[0].logit);
    for (int64_t i = 0; i < count; i++)
        top[i].probability = exp(top[i].logit - top[0].logit) / sum;
    return count;
}
