/* norm_backward.c - gradients of norms. With z = (x - mean) / s or x / s, and g = w dy:
 *
 *     dx = (g - mean(g) - z mean(g z)) / s        (RMSNorm: without mean(g))
 *     dw += sum over rows of dy z                 db += sum over rows of dy
 *
 * Rows are cut into at most PARTS parts by their number alone; each sums its own dw and db in double, and the sums are
 * added in the order of the parts.
 */
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "layer/norm.h"
#include <math.h>
#include <string.h>

#define PARTS 32
#define NUMBERS_PER_PART 32768 /* at least: some tens of microseconds */

typedef struct back_job {
    const mha__norm_back *p;
    const mha_norm *norm;
    int64_t rows_per_part;
    double *sums; /* [parts, 2, width] of dweight and dbias */
} back_job;

/* What the formulas need of one row. */
typedef struct row_terms {
    double mean, inverse; /* inverse: 1 / s */
    double g, gz;         /* mean(g), mean(g z) */
} row_terms;

static row_terms look(const mha_norm *norm, int64_t width, const float *x, const float *dy)
{
    row_terms t = {0};
    double square = 0, g = 0, gz = 0;
    if (norm->kind == MHA_NORM_LAYER) {
        for (int64_t i = 0; i < width; i++)
            t.mean += (double)x[i];
        t.mean /= (double)width;
    }
    for (int64_t i = 0; i < width; i++) {
        const double z = (double)x[i] - t.mean, wide = (double)norm->weight[i] * (double)dy[i];
        square += z * z;
        g += wide;
        gz += wide * z;
    }
    t.inverse = 1 / sqrt(square / (double)width + norm->eps);
    if (norm->kind == MHA_NORM_LAYER) t.g = g / (double)width;
    t.gz = gz * t.inverse / (double)width;
    return t;
}

static void back_row(const back_job *job, const float *x, const float *dy, float *dx, double *sums)
{
    const mha__norm_back *p = job->p;
    const row_terms t = look(job->norm, p->width, x, dy);
    for (int64_t i = 0; i < p->width; i++) {
        const double z = ((double)x[i] - t.mean) * t.inverse, up = (double)dy[i];
        const double down = ((double)job->norm->weight[i] * up - t.g - z * t.gz) * t.inverse;
        if (sums) sums[i] += up * z;
        if (sums) sums[p->width + i] += up;
        if (dx) dx[i] = p->add ? dx[i] + (float)down : (float)down;
    }
}

static void back_task(void *arg, int64_t part, int worker)
{
    (void)worker;
    const back_job *job = arg;
    const mha__norm_back *p = job->p;
    double *sums = job->sums ? job->sums + part * 2 * p->width : NULL;
    const int64_t end = mha__min64(p->rows, (part + 1) * job->rows_per_part);
    for (int64_t r = part * job->rows_per_part; r < end; r++)
        for (int64_t g = 0; g < p->groups; g++) {
            const int64_t x = r * p->x_stride + g * p->width, y = r * p->y_stride + g * p->width;
            back_row(job, p->x + x, p->dy + y, p->dx ? p->dx + y : NULL, sums);
        }
}

static void add_parts(const back_job *job, int64_t parts)
{
    const mha__norm_back *p = job->p;
    for (int64_t i = 0; i < p->width; i++) {
        double weight = 0, bias = 0;
        for (int64_t n = 0; n < parts; n++) {
            weight += job->sums[n * 2 * p->width + i];
            bias += job->sums[(n * 2 + 1) * p->width + i];
        }
        if (p->dweight) p->dweight[i] += (float)weight;
        if (p->dbias) p->dbias[i] += (float)bias;
    }
}

mha_status mha__norm_backward(mha_ctx *ctx, const mha_norm *norm, const mha__norm_back *p, mha_error *err)
{
    const int64_t per_row = p->width * p->groups;
    const int64_t least = mha__max64(1, NUMBERS_PER_PART / per_row);
    back_job job = {.p = p, .norm = norm, .rows_per_part = mha__max64(least, mha__ceil_div(p->rows, PARTS))};
    const int64_t parts = mha__ceil_div(p->rows, job.rows_per_part);
    const size_t bytes = (size_t)parts * 2 * (size_t)p->width * sizeof(double);
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
        return mha__fail(err, MHA_ERR_ARG, "mha_norm_gradient: rows is %lld, width is %lld", (long long)g.rows,
                         (long long)g.width);
    if (!norm || (g.rows && (!g.x || !g.dy)))
        return mha__fail(err, MHA_ERR_ARG, "mha_norm_gradient: %s is NULL", norm ? "x or dy" : "norm");
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
