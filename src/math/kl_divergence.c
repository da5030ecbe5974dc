/* kl_divergence.c - Kullback-Leibler divergence of rows of logits from a distribution. */
#include "math/kl_divergence.h"

#include "base/ctx.h"
#include <math.h>

typedef struct kl_job {
    int64_t count;
    const float *logits;
    const double *log_p;
    double *log_sum, *kl;
} kl_job;

double mha__log_sum_exp(const float *x, int64_t count)
{
    double top = -INFINITY, sum = 0;
    for (int64_t v = 0; v < count; v++)
        top = fmax(top, (double)x[v]);
    for (int64_t v = 0; v < count; v++)
        sum += exp((double)x[v] - top);
    return top + log(sum);
}

/* Returns p (log p - log q), which is 0 for p = 0 whatever q is; NaN stays NaN. */
static double kl_term(double log_p, double log_q)
{
    const double p = exp(log_p);
    return p == 0 ? 0 : p * (log_p - log_q);
}

double mha__kl_of_logits(const float *p, double p_sum, const float *q, double q_sum, int64_t count)
{
    double kl = 0;
    for (int64_t v = 0; v < count; v++)
        kl += kl_term((double)p[v] - p_sum, (double)q[v] - q_sum);
    return kl < 0 ? 0 : kl; /* rounding */
}

static void kl_task(void *arg, int64_t row, int worker)
{
    (void)worker;
    const kl_job *job = arg;
    const float *x = job->logits + row * job->count;
    const double total = mha__log_sum_exp(x, job->count);
    double kl = 0;
    for (int64_t v = 0; v < job->count; v++)
        kl += kl_term(job->log_p[v], (double)x[v] - total);
    job->log_sum[row] = total;
    job->kl[row] = kl;
}

void mha__kl_rows(mha_ctx *ctx, int64_t rows, int64_t count, const float *logits, const double *log_p, double *log_sum,
                  double *kl)
{
    kl_job job = {count, logits, log_p, log_sum, kl};
    mha__parallel(ctx, rows, kl_task, &job);
}
