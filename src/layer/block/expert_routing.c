/* expert_routing.c - chooses the experts of each row and their weights, and backpropagates the weights to the router.
 *
 *     softmax   probabilities over all experts; the highest are chosen
 *     sigmoid   a score per expert (DeepSeek-V3); the highest of score + correction are chosen, in the groups whose two
 *               best experts have the highest sums; weights are the scores without the correction, times a factor */
#include "base/ctx.h"
#include "layer/block/feed_forward.h"
#include "layer/linear/linear.h"
#include <math.h>

enum { ROWS_PER_TASK = 16 };

static const double SUM_MIN = 1e-20; /* added to the sum of scores, as in transformers */

typedef struct route_job {
    const mha__experts *experts;
    const mha__routes *routes;
    int64_t rows;
} route_job;

/* Replaces logits with their softmax. */
static void softmax(int64_t count, float *p)
{
    float max = p[0];
    double sum = 0;
    for (int64_t e = 1; e < count; e++)
        max = p[e] > max ? p[e] : max;
    for (int64_t e = 0; e < count; e++)
        sum += exp((double)p[e] - (double)max);
    for (int64_t e = 0; e < count; e++)
        p[e] = (float)(exp((double)p[e] - (double)max) / sum);
}

/* Returns the index of the highest of `count` values that is not in taken[0..n); of equal values, the first. */
static int32_t next_best(int64_t count, const float *p, const int32_t *taken, int64_t n)
{
    int32_t best = -1;
    for (int32_t e = 0; e < (int32_t)count; e++) {
        bool used = false;
        for (int64_t i = 0; i < n; i++)
            used |= taken[i] == e;
        if (!used && (best < 0 || p[e] > p[best])) best = e;
    }
    return best;
}

static void choose_best(const mha__experts *x, const float *score, int32_t *chosen)
{
    for (int64_t n = 0; n < x->chosen; n++)
        chosen[n] = next_best(x->count, score, chosen, n);
}

/* Sets the scores of all experts outside the best groups to -infinity. */
static void keep_groups(const mha__experts *x, float *score)
{
    const int64_t size = x->count / x->groups;
    float best[MHA__EXPERTS_MAX];
    int32_t kept[MHA__EXPERTS_MAX];
    for (int64_t g = 0; g < x->groups; g++) {
        const float *own = score + g * size;
        int32_t two[2] = {next_best(size, own, NULL, 0), 0};
        two[1] = next_best(size, own, two, 1);
        best[g] = own[two[0]] + own[two[1]];
    }
    for (int64_t n = 0; n < x->kept_groups; n++)
        kept[n] = next_best(x->groups, best, kept, n);
    for (int64_t e = 0; e < x->count; e++) {
        bool inside = false;
        for (int64_t n = 0; n < x->kept_groups; n++)
            inside |= kept[n] == e / size;
        if (!inside) score[e] = -INFINITY;
    }
}

/* Replaces logits with their sigmoids, and chooses the experts. */
static void choose_scored(const mha__experts *x, float *p, int32_t *chosen)
{
    float score[MHA__EXPERTS_MAX];
    for (int64_t e = 0; e < x->count; e++) {
        p[e] = (float)(1 / (1 + exp(-(double)p[e])));
        score[e] = p[e] + x->correction[e];
    }
    keep_groups(x, score);
    choose_best(x, score, chosen);
}

/* Returns the sum by which normalized weights are divided. */
static double sum_of(const mha__experts *x, const float *p, const int32_t *chosen)
{
    double sum = x->sigmoid ? SUM_MIN : 0;
    for (int64_t n = 0; n < x->chosen; n++)
        sum += (double)p[chosen[n]];
    return sum;
}

static void choose(const mha__experts *x, float *p, int32_t *chosen, float *share)
{
    if (x->sigmoid) {
        choose_scored(x, p, chosen);
    } else {
        softmax(x->count, p);
        choose_best(x, p, chosen);
    }
    const double sum = x->normalized ? sum_of(x, p, chosen) : 1;
    for (int64_t n = 0; n < x->chosen; n++)
        share[n] = (float)((double)p[chosen[n]] / sum * x->factor);
}

static void route_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const route_job *job = arg;
    const mha__experts *x = job->experts;
    const int64_t end = mha__min64(job->rows, (i + 1) * ROWS_PER_TASK);
    for (int64_t r = i * ROWS_PER_TASK; r < end; r++)
        choose(x, job->routes->probs + r * x->count, job->routes->expert + r * x->chosen,
               job->routes->share + r * x->chosen);
}

void mha__experts_route(mha_ctx *ctx, const mha__experts *x, int64_t rows, const float *in, const mha__routes *r)
{
    route_job job = {.experts = x, .routes = r, .rows = rows};
    mha__linear_run(x->router, &(mha__linear_call){.x = in, .rows = rows, .y = r->probs});
    mha__parallel(ctx, mha__ceil_div(rows, ROWS_PER_TASK), route_task, &job);
}

/* ---- backward pass ---- */

/* Computes the gradient of the logits of scored experts; `sum` is the sum of the weights times their gradients. */
static void scored_back(const mha__experts *x, const float *p, const int32_t *chosen, const float *dshare, double sum,
                        float *dlogits)
{
    const double all = sum_of(x, p, chosen);
    for (int64_t e = 0; e < x->count; e++)
        dlogits[e] = 0;
    for (int64_t n = 0; n < x->chosen; n++) {
        const double s = (double)p[chosen[n]], d = x->factor * (double)dshare[n];
        dlogits[chosen[n]] = (float)((x->normalized ? (d - sum) / all : d) * s * (1 - s));
    }
}

void mha__experts_route_back(const mha__experts *x, const mha__routes *r, int64_t row, const float *dshare,
                             float *dlogits)
{
    const float *probs = r->probs + row * x->count, *share = r->share + row * x->chosen;
    const int32_t *expert = r->expert + row * x->chosen;
    double sum = 0;
    for (int64_t n = 0; n < x->chosen; n++)
        sum += (double)dshare[n] * (double)share[n];
    if (x->sigmoid) {
        scored_back(x, probs, expert, dshare, sum, dlogits);
        return;
    }
    for (int64_t e = 0; e < x->count; e++) /* normalized weights are a softmax over the chosen experts only */
        dlogits[e] = x->normalized ? 0 : (float)(-sum * (double)probs[e]);
    for (int64_t n = 0; n < x->chosen; n++)
        dlogits[expert[n]] += (float)((double)share[n] * ((double)dshare[n] - (x->normalized ? sum : 0)));
}
