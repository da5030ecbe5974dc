/* regroup_groups.c - assigns heads to groups: repeatedly exchanges the two units of heads that reduce the cost most,
 * until no exchange reduces it. The result is a deterministic local minimum. */
#include "heads/edit/regroup_model.h"

typedef struct search {
    int64_t heads, unit;
    int64_t size[2]; /* heads per group of keys, and of values; 0 = not part of the cost */
    double *const *costs;
    int32_t *order;
} search;

/* Returns the cost of `unit` at position `at`: the cost of its heads with the other heads of that group, except the
 * unit at `without`. The cost is averaged over these other heads, so that large groups do not have a larger weight. */
static double cost_at(const search *s, int64_t unit, int64_t at, int64_t without)
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

/* Returns the change in cost if two units are exchanged; 0 if both are in the same group. */
static double change(const search *s, int64_t a, int64_t b)
{
    return cost_at(s, a, b, a) + cost_at(s, b, a, b) - cost_at(s, a, a, b) - cost_at(s, b, b, a);
}

static void exchange(const search *s, int64_t a, int64_t b)
{
    for (int64_t i = 0; i < s->unit; i++) {
        const int32_t head = s->order[a * s->unit + i];
        s->order[a * s->unit + i] = s->order[b * s->unit + i];
        s->order[b * s->unit + i] = head;
    }
}

/* Makes the exchange that reduces the cost most; returns false if no reduction exceeds the rounding error. */
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
        if (size % unit) return; /* groups of this size would split units */
        s.size[n] = size;
        any = true;
    }
    while (any && improve(&s)) {
    }
}
