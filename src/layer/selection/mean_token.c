/* mean_token.c - computes the mean of the tokens of each sequence, which determines the selected heads; forward and
 * backward. */
#include "base/ctx.h"
#include "layer/selection/head_selection.h"
#include <string.h>

int64_t mha__layer_sequences(const mha_layer_input *in)
{
    return in->starts ? in->sequences : in->batch;
}

int64_t mha__layer_first_row(const mha_layer_input *in, int64_t n)
{
    return in->starts ? in->starts[n] : n * in->length;
}

int64_t mha__layer_end_row(const mha_layer_input *in, int64_t n)
{
    return in->lengths ? mha__layer_first_row(in, n) + in->lengths[n] : mha__layer_first_row(in, n + 1);
}

static bool counts(const mha_layer_input *in, int64_t row)
{
    return !in->real || in->real[row];
}

static int64_t count_real(const mha_layer_input *in, int64_t n)
{
    int64_t count = 0;
    for (int64_t r = mha__layer_first_row(in, n); r < mha__layer_end_row(in, n); r++)
        count += counts(in, r);
    return count;
}

/* Adds row r of x to the array `to` [width]. */
static void add_row(mha_dtype dtype, const void *x, int64_t r, int64_t width, double *to)
{
    if (dtype == MHA_F64)
        for (int64_t e = 0; e < width; e++)
            to[e] += ((const double *)x)[r * width + e];
    else
        for (int64_t e = 0; e < width; e++)
            to[e] += (double)((const float *)x)[r * width + e];
}

void mha__attn_mean(const mha_attn_layer *layer, const mha_layer_input *in, const void *x, int64_t n, double *to)
{
    const int64_t E = layer->options.hidden, count = count_real(in, n);
    memset(to, 0, (size_t)E * sizeof *to);
    for (int64_t r = mha__layer_first_row(in, n); r < mha__layer_end_row(in, n); r++)
        if (counts(in, r)) add_row(layer->options.dtype, x, r, E, to);
    for (int64_t e = 0; count && e < E; e++)
        to[e] /= (double)count;
}

typedef struct mean_job {
    const mha_attn_layer *layer;
    const mha_layer_input *in;
    const double *dmean;
    void *dx;
} mean_job;

static void mean_back_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const mean_job *job = arg;
    const int64_t E = job->layer->options.hidden, count = count_real(job->in, n);
    const double *dmean = job->dmean + n * E;
    for (int64_t r = mha__layer_first_row(job->in, n); r < mha__layer_end_row(job->in, n); r++) {
        if (!counts(job->in, r)) continue;
        for (int64_t e = 0; e < E; e++)
            mha__add_to(job->layer->options.dtype, job->dx, r * E + e, dmean[e] / (double)count);
    }
}

void mha__attn_mean_back(const mha_attn_layer *layer, const mha_layer_input *in, const double *dmean, void *dx)
{
    mean_job job = {.layer = layer, .in = in, .dmean = dmean, .dx = dx};
    mha__parallel(layer->ctx, mha__layer_sequences(in), mean_back_task, &job);
}
