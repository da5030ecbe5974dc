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
#define CHAINS 8

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

/* Sums of a row are CHAINS sums, number i in sum i % CHAINS: a single one would wait for itself. */
typedef struct chains {
    double sum[CHAINS];
} chains;

static double joined(const chains *c)
{
    double sum = 0;
    for (int n = 0; n < CHAINS; n++)
        sum += c->sum[n];
    return sum;
}

static double mean_of(int64_t width, const float *x)
{
    chains all = {0};
    int64_t i = 0;
    for (; i + CHAINS <= width; i += CHAINS)
        for (int n = 0; n < CHAINS; n++)
            all.sum[n] += (double)x[i + n];
    for (; i < width; i++)
        all.sum[i % CHAINS] += (double)x[i];
    return joined(&all) / (double)width;
}

static inline void look_at(double z, double wide, int chain, chains *square, chains *g, chains *gz)
{
    square->sum[chain] += z * z;
    g->sum[chain] += wide;
    gz->sum[chain] += wide * z;
}

static row_terms look(const mha_norm *norm, int64_t width, const float *x, const float *dy)
{
    row_terms t = {0};
    chains square = {0}, g = {0}, gz = {0};
    const float *w = norm->weight;
    int64_t i = 0;
    if (norm->kind == MHA_NORM_LAYER) t.mean = mean_of(width, x);
    for (; i + CHAINS <= width; i += CHAINS)
        for (int n = 0; n < CHAINS; n++)
            look_at((double)x[i + n] - t.mean, (double)w[i + n] * (double)dy[i + n], n, &square, &g, &gz);
    for (; i < width; i++)
        look_at((double)x[i] - t.mean, (double)w[i] * (double)dy[i], (int)(i % CHAINS), &square, &g, &gz);
    t.inverse = 1 / sqrt(joined(&square) / (double)width + norm->eps);
    if (norm->kind == MHA_NORM_LAYER) t.g = joined(&g) / (double)width;
    t.gz = joined(&gz) * t.inverse / (double)width;
    return t;
}

static void add_sums(int64_t width, const row_terms *t, const float *x, const float *dy, double *sums)
{
    for (int64_t i = 0; i < width; i++) {
        sums[i] += (double)dy[i] * ((double)x[i] - t->mean) * t->inverse;
        sums[width + i] += (double)dy[i];
    }
}

/* dx of `count` numbers, which may lie where dy does: all are read before the first is written. */
static inline void back_some(const row_terms *t, int count, const float *w, const float *x, const float *dy, bool add,
                             float *dx)
{
    float down[CHAINS];
    for (int n = 0; n < count; n++) {
        const double z = ((double)x[n] - t->mean) * t->inverse;
        down[n] = (float)(((double)w[n] * (double)dy[n] - t->g - z * t->gz) * t->inverse);
    }
    for (int n = 0; n < count; n++)
        dx[n] = add ? dx[n] + down[n] : down[n];
}

static void back_row(const back_job *job, const float *x, const float *dy, float *dx, double *sums)
{
    const mha__norm_back *p = job->p;
    const float *w = job->norm->weight;
    const row_terms t = look(job->norm, p->width, x, dy);
    int64_t i = 0;
    if (sums) add_sums(p->width, &t, x, dy, sums);
    if (!dx) return;
    for (; i + CHAINS <= p->width; i += CHAINS)
        back_some(&t, CHAINS, w + i, x + i, dy + i, p->add, dx + i);
    back_some(&t, (int)(p->width - i), w + i, x + i, dy + i, p->add, dx + i);
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
