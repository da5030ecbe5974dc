/* regroup_groups.c - which heads come together: units of heads change places, two at a time, the best exchange first,
 * until none helps. A minimum that no single exchange betters, found in the same way every time. */
#include "heads/edit/regroup_model.h"

typedef struct search {
    int64_t heads, unit;
    int64_t size[2]; /* heads of a group; 0 = this side does not matter */
    double *const *costs;
    int32_t *order;
} search;

/* Cost of the heads of `unit`, standing at the place of `at`, with the other heads of that group, but for those of the
 * unit at `without`. The mean over partners, so that large groups weigh no more. */
static double beside(const search *s, int64_t unit, int64_t at, int64_t without)
{
    double sum = 0;
    for (int n = 0; n < 2; n++) {
        if (!s->size[n]) continue;
        const int64_t first = at * s->unit / s->size[n] * s->size[n];
        for (int64_t i = first; i < first + s->size[n]; i++) {
            if (i / s->unit == at || i / s->unit == without) continue;
            for (int64_t h = unit * s->unit; h < (unit + 1) * s->unit; h++)
                sum += s->costs[n][s->order[h] * s->heads + s->order[i]] / (double)(s->size[n] - 1);
        }
    }
    return sum;
}

/* What the exchange of two units changes. Inside a group of both nothing does. */
static double change(const search *s, int64_t a, int64_t b)
{
    return beside(s, a, b, a) + beside(s, b, a, b) - beside(s, a, a, b) - beside(s, b, b, a);
}

static void exchange(const search *s, int64_t a, int64_t b)
{
    for (int64_t i = 0; i < s->unit; i++) {
        const int32_t head = s->order[a * s->unit + i];
        s->order[a * s->unit + i] = s->order[b * s->unit + i];
        s->order[b * s->unit + i] = head;
    }
}

/* Makes the best exchange; false where none is better than what rounding does. */
static bool improve(const search *s)
{
    double best = -1e-12;
    int64_t best_a = 0, best_b = 0;
    for (int64_t a = 0; a < s->heads / s->unit; a++)
        for (int64_t b = 0; b < a; b++) {
            const double c = change(s, a, b);
            if (c >= best) continue;
            best = c;
            best_a = a;
            best_b = b;
        }
    exchange(s, best_a, best_b);
    return best < -1e-12;
}

void mha__order_find(int64_t heads, int64_t unit, const int64_t counts[2], double *const costs[2], int32_t *order)
{
    search s = {.heads = heads, .unit = unit, .costs = costs, .order = order};
    bool any = false;
    for (int n = 0; n < 2; n++) {
        const int64_t size = heads / counts[n];
        if (!costs[n] || size <= unit || size == heads) continue;
        if (size % unit) return; /* units would have to be cut */
        s.size[n] = size;
        any = true;
    }
    while (any && improve(&s)) {
    }
}
