/* distillation_kl.c - Kullback-Leibler divergence of each row of logits from the teacher's row, and its gradient. Both
 * rows are read one strip at a time, so no temporary array has the size of the vocabulary. A task is a range of whole
 * rows; the losses of rows are added in order. */
#include "layer/loss/distillation_kl.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "layer/loss/logits_softmax.h"
#include <math.h>

enum { ELEMENTS_PER_TASK = 8192 }; /* elements per task: tens of microseconds of exponentials */
enum { STRIP = 1024 };

typedef struct divergence_job {
    const mha__divergence *a;
    const mha__kernels *kernels;
    int64_t rows_per_task;
    double *loss; /* [rows] loss of each row */
} divergence_job;

/* The softmax of a row x with temperature T. */
typedef struct softmax {
    const float *x;
    float inverse; /* 1 / T */
    float max;     /* maximum of x */
    double sum;    /* sum of exp((x - most) / T) */
} softmax;

/* Computes (x - most) / T for columns [first, first + count). The maximum is subtracted before the division, since x /
 * T may be in the thousands, where rounding is coarse. */
static void cool(const softmax *s, int64_t first, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (s->x[first + i] - s->max) * s->inverse;
}

static softmax softmax_of(const divergence_job *job, const float *x)
{
    const int64_t n = job->a->classes;
    float strip[STRIP];
    softmax s = {.x = x, .inverse = (float)(1 / job->a->temperature)};
    s.max = mha__largest(job->kernels, n, x);
    for (int64_t first = 0; first < n; first += STRIP) {
        const int64_t count = mha__min64(STRIP, n - first);
        cool(&s, first, count, strip);
        s.sum += mha__exponentials_below(job->kernels, count, strip, 0, NULL);
    }
    return s;
}

/* One term of KL(p || q), with u = log(p / q): slope = q - p = p expm1(-u), loss = p (expm1(-u) + u). Near u = 0, q - p
 * suffers from cancellation, so slope and loss are computed from a series; for larger u, they are computed directly. */
typedef struct term {
    double slope, loss;
} term;

static term term_of(double p, double q, double u)
{
    if (!(fabs(u) < 0.25)) return (term){q - p, q - p + p * u};
    const double rest = (1. / 120) - u * ((1. / 720) - u * ((1. / 5040) - u * (1. / 40320)));
    const double bend = u * u * (0.5 - u * ((1. / 6) - u * ((1. / 24) - u * rest)));
    return (term){p * (bend - u), p * bend};
}

/* Returns the sum of p (expm1(-u) + u) over a strip, and adds the gradient to dlogits. All terms are >= 0. Since p and
 * q both sum to 1, the total over all strips equals the sum of p u. `apart` is the value of u at an element that is the
 * maximum of both rows. */
static double compare(const divergence_job *job, const softmax *own, const softmax *teacher, double apart,
                      int64_t first, float *dlogits)
{
    const int64_t count = mha__min64(STRIP, job->a->classes - first);
    const double p = 1 / teacher->sum, q = 1 / own->sum, factor = job->a->scale * job->a->temperature;
    const double offset = (double)own->max - (double)teacher->max, inverse = 1 / job->a->temperature;
    float x[STRIP] = {0}, y[STRIP] = {0}, of_x[STRIP], of_y[STRIP];
    double sum = 0;
    cool(own, first, count, x);
    cool(teacher, first, count, y);
    mha__exponentials_below(job->kernels, count, x, 0, of_x);
    mha__exponentials_below(job->kernels, count, y, 0, of_y);
    for (int64_t i = 0; i < count; i++) {
        const double further = (double)teacher->x[first + i] - (double)own->x[first + i] + offset;
        const term t = term_of((double)of_y[i] * p, (double)of_x[i] * q, further * inverse + apart);
        sum += t.loss;
        if (dlogits) dlogits[i] += (float)(factor * t.slope);
    }
    return sum;
}

static double divergence_of_row(const divergence_job *job, int64_t row)
{
    const mha__divergence *a = job->a;
    const int64_t at = row * a->classes;
    const softmax own = softmax_of(job, a->logits + at), teacher = softmax_of(job, a->teacher + at);
    const double apart = log(own.sum / teacher.sum);
    double sum = 0;
    for (int64_t first = 0; first < a->classes; first += STRIP)
        sum += compare(job, &own, &teacher, apart, first, a->dlogits ? a->dlogits + at + first : NULL);
    return sum;
}

static void divergence_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const divergence_job *job = arg;
    const int64_t end = mha__min64(job->a->rows, (task + 1) * job->rows_per_task);
    for (int64_t r = task * job->rows_per_task; r < end; r++)
        job->loss[r] = divergence_of_row(job, r);
}

mha_status mha__divergence_run(mha_ctx *ctx, const mha__divergence *a, double *loss, mha_error *err)
{
    const size_t bytes = (size_t)a->rows * sizeof(double);
    divergence_job job = {.a = a,
                          .kernels = mha__kernels_f32(mha__ctx_isa(ctx)),
                          .rows_per_task = mha__max64(1, ELEMENTS_PER_TASK / a->classes),
                          .loss = mha__alloc(ctx, bytes)};
    double sum = 0;
    if (!job.loss) return mha__no_memory(err, bytes, "the loss of each row");
    mha__parallel(ctx, mha__ceil_div(a->rows, job.rows_per_task), divergence_task, &job);
    for (int64_t r = 0; r < a->rows; r++)
        sum += job.loss[r];
    mha__free(ctx, job.loss);
    *loss = a->scale * a->temperature * a->temperature * sum;
    return MHA_OK;
}
