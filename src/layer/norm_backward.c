/* norm_backward.c - gradients of norms, row by row: dx from a kernel (kernel.h), and
 *
 *     dw += sum over rows of dy z
 *     db += sum over rows of dy
 *
 * where z is the normalized row: (x - mean) / deviation in LayerNorm, x / rms in RMSNorm. The rows are divided into at
 * most PARTS parts, which depend only on the number of rows. Each part sums its own dw and db in double, and the sums
 * of all parts are added in order. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "kernel/kernel.h"
#include "layer/norm.h"

enum {
    PARTS = 32,
    ELEMENTS_PER_PART = 32768, /* minimum elements per part, so that a part takes at least a few microseconds */
};

typedef struct back_job {
    const mha__norm_back *p;
    const mha_norm *norm;
    const mha__kernels *kernels;
    int64_t rows_per_part;
    int64_t weights; /* elements of the weight: width, or groups * width */
    double *sums;    /* [parts, 2, weights] sums of each part for dweight and dbias */
} back_job;

static void add_sums(const back_job *job, mha__norm_terms t, const float *x, const float *dy, double *sums)
{
    for (int64_t i = 0; i < job->p->width; i++) {
        sums[i] += (double)dy[i] * ((double)x[i] - (double)t.mean) * (double)t.scale;
        sums[job->weights + i] += (double)dy[i];
    }
}

/* Computes the gradients of one group of columns, whose weight begins at element `at`. */
static void back_row(const back_job *job, int64_t at, const float *x, const float *dy, float *dx, double *sums)
{
    const mha__norm_back *p = job->p;
    const mha_norm *n = job->norm;
    const bool centred = n->kind == MHA_NORM_LAYER;
    const mha__norm_terms terms = job->kernels->norm_terms(x, p->width, (float)n->eps, centred);
    if (sums) add_sums(job, terms, x, dy, sums + at); /* computed before dx, which may overwrite dy */
    if (dx) job->kernels->norm_back(x, dy, p->width, n->weight + at, terms, centred, p->add, dx);
}

static void back_task(void *arg, int64_t part, int worker)
{
    (void)worker;
    const back_job *job = arg;
    const mha__norm_back *p = job->p;
    double *sums = job->sums ? job->sums + part * 2 * job->weights : NULL;
    const int64_t end = mha__min64(p->rows, (part + 1) * job->rows_per_part);
    for (int64_t r = part * job->rows_per_part; r < end; r++)
        for (int64_t g = 0; g < p->groups; g++) {
            const int64_t x = r * p->x_stride + g * p->width, y = r * p->y_stride + g * p->width;
            back_row(job, p->own ? g * p->width : 0, p->x + x, p->dy + y, p->dx ? p->dx + y : NULL, sums);
        }
}

static void add_parts(const back_job *job, int64_t parts)
{
    const mha__norm_back *p = job->p;
    for (int64_t i = 0; i < job->weights; i++) {
        double weight = 0, bias = 0;
        for (int64_t n = 0; n < parts; n++) {
            weight += job->sums[n * 2 * job->weights + i];
            bias += job->sums[(n * 2 + 1) * job->weights + i];
        }
        if (p->dweight) p->dweight[i] += (float)weight;
        if (p->dbias) p->dbias[i] += (float)bias;
    }
}

mha_status mha__norm_backward(mha_ctx *ctx, const mha_norm *norm, const mha__norm_back *p, mha_error *err)
{
    const int64_t per_row = p->width * p->groups;
    const int64_t min = mha__max64(1, ELEMENTS_PER_PART / per_row);
    back_job job = {.p = p,
                    .norm = norm,
                    .kernels = mha__kernels_f32(mha__ctx_isa(ctx)),
                    .weights = p->own ? per_row : p->width,
                    .rows_per_part = mha__max64(min, mha__ceil_div(p->rows, PARTS))};
    const int64_t parts = mha__ceil_div(p->rows, job.rows_per_part);
    const size_t bytes = (size_t)parts * 2 * (size_t)job.weights * sizeof(double);
    if (!p->rows) return MHA_OK;
    if (p->dweight || p->dbias) {
        job.sums = mha__calloc(ctx, 1, bytes);
        if (!job.sums) return mha__no_memory(err, bytes, "the gradients of a norm");
    }
    mha__parallel(ctx, parts, back_task, &job);
    if (job.sums) add_parts(&job, parts);
    mha__free(ctx, job.sums);
    return MHA_OK;
}

mha_status mha_norm_backward(mha_ctx *ctx, const mha_norm *norm, const mha_norm_gradient *gradient, mha_error *err)
{
    mha_norm_gradient g;
    size_t bytes = 0;
    MHA__TRY(mha__options_read(&g, sizeof g, gradient, "mha_norm_gradient", err));
    if (g.rows < 0 || g.width < 1 || !mha__bytes((int64_t[]){g.rows + 2 * PARTS, g.width}, 2, 32, &bytes))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_norm_gradient: rows must be at least 0, width at least 1, and all must fit "
                         "in memory (got %lld, %lld)",
                         (long long)g.rows, (long long)g.width);
    if (!norm || (g.rows && (!g.x || !g.dy)))
        return mha__fail(err, MHA_ERR_ARG, "mha_norm_gradient: %s must not be NULL", norm ? "x and dy" : "norm");
    MHA__TRY(mha__norm_check("norm", norm, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    const mha__norm_back plain = {.rows = g.rows,
                                  .width = g.width,
                                  .groups = 1,
                                  .x = g.x,
                                  .x_stride = g.width,
                                  .dy = g.dy,
                                  .y_stride = g.width,
                                  .dx = g.dx,
                                  .add = g.add != 0,
                                  .dweight = g.dweight,
                                  .dbias = g.dbias};
    return mha__norm_backward(ctx, norm, &plain, err);
}
