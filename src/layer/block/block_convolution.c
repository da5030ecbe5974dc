/* block_convolution.c - creates the convolution parallel to a block, and computes it: each group of channels is one
 * matrix product of gathered rows, a chunk of rows at a time. */
#include "layer/block/block_convolution.h"

#include "base/ctx.h"
#include "base/error.h"
#include "layer/repack.h"
#include "layer/selection/head_selection.h"
#include <string.h>

enum { GATHER_ROWS = 16 }; /* rows per task */

/* ---- creation ---- */

/* Returns the weights of group g. */
static mha_matrix part_of(const mha__block_convolution *c, const mha_matrix *whole, int64_t g)
{
    const int64_t out = c->hidden / c->groups;
    mha_matrix part = *whole;
    part.weight += g * out * mha__gathered_width(c);
    part.bias += g * out;
    part.out = out;
    return part;
}

static mha_status create(mha_block *b, const mha__convolution_options *o, mha_error *err)
{
    const size_t groups = (size_t)o->groups, norms = 2 * (size_t)b->hidden * sizeof(float);
    const size_t bytes = sizeof(mha__block_convolution) + groups * sizeof(mha_linear *);
    mha__block_convolution *c = b->convolution = mha__calloc(b->ctx, 1, bytes);
    if (!c) return mha__no_memory(err, bytes, "a convolution");
    c->ctx = b->ctx;
    c->hidden = b->hidden;
    c->taps = o->taps;
    c->groups = o->groups;
    c->activation = o->activation;
    c->norms = mha__alloc(b->ctx, norms);
    if (!c->norms) return mha__no_memory(err, norms, "the norm of a convolution");
    for (int64_t g = 0; g < c->groups; g++) {
        const mha_matrix part = part_of(c, &o->weight, g);
        MHA__TRY(mha_linear_create_stack(b->ctx, mha__gathered_width(c), &part, 1, c->activation, &c->linear[g], err));
    }
    return MHA_OK;
}

static void keep_norm(mha__block_convolution *c, const mha_norm *norm)
{
    const size_t bytes = (size_t)c->hidden * sizeof *c->norms;
    c->norm = *norm;
    c->norm.weight = memcpy(c->norms, norm->weight, bytes);
    c->norm.bias = memcpy(c->norms + c->hidden, norm->bias, bytes);
}

mha_status mha__block_convolution_set(mha_block *block, const mha__convolution_options *o, mha_error *err)
{
    mha__block_convolution *const old = block->convolution;
    if (!old) MHA__TRY(create(block, o, err));
    for (int64_t g = 0; old && g < old->groups; g++) {
        const mha_matrix part = part_of(old, &o->weight, g);
        mha__linear_repack(old->linear[g], &part, 1);
    }
    keep_norm(block->convolution, &o->norm);
    return MHA_OK;
}

void mha__block_convolution_free(mha__block_convolution *c)
{
    if (!c) return;
    for (int64_t g = 0; g < c->groups; g++)
        mha_linear_free(c->linear[g]);
    mha__free(c->ctx, c->norms);
    mha__free(c->ctx, c);
}

/* ---- padding ---- */

static bool is_padding(const mha_layer_input *in, int64_t row)
{
    if (in->lengths) return row % in->length >= in->lengths[row / in->length];
    return in->real && !in->real[row];
}

void mha__block_clear_padding(const mha_layer_input *in, int64_t width, float *x)
{
    for (int64_t r = 0; (in->lengths || in->real) && r < in->batch * in->length; r++)
        if (is_padding(in, r)) memset(x + r * width, 0, (size_t)width * sizeof *x);
}

/* ---- gathered rows ---- */

mha__signal mha__block_signal(const mha__block_convolution *c, const mha_layer_input *in, int64_t sequence)
{
    const int64_t first = mha__layer_first_row(in, sequence);
    return (mha__signal){.length = mha__layer_end_row(in, sequence) - first,
                         .channels = c->hidden / c->groups,
                         .time = c->hidden,
                         .channel = 1,
                         .taps = c->taps,
                         .real = in->real ? in->real + first : NULL};
}

typedef struct gather_job {
    const mha__block_convolution *convolution;
    const mha_layer_input *in;
    int64_t first, count;
    const float *x; /* the channels of the group */
    float *gathered;
} gather_job;

static void gather_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const gather_job *job = arg;
    const mha__block_convolution *c = job->convolution;
    const int64_t end = job->first + mha__min64(job->count, (i + 1) * GATHER_ROWS);
    for (int64_t row = job->first + i * GATHER_ROWS, next; row < end; row = next) {
        const int64_t n = mha__row_sequence(job->in, row), start = mha__layer_first_row(job->in, n);
        const mha__signal signal = mha__block_signal(c, job->in, n);
        next = mha__min64(end, mha__layer_first_row(job->in, n + 1));
        mha__convolution_gather(&signal, 1, row - start, next - row, job->x + start * c->hidden,
                                job->gathered + (row - job->first) * mha__gathered_width(c));
    }
}

void mha__block_gather(const mha__block_convolution *c, const mha_layer_input *in, int64_t g, int64_t first,
                       int64_t count, const float *x, float *gathered)
{
    gather_job job = {c, in, first, count, x + g * (c->hidden / c->groups), gathered};
    mha__parallel(c->ctx, mha__ceil_div(count, GATHER_ROWS), gather_task, &job);
}

void mha__block_convolve(const mha_block *block, const mha_layer_input *in, const float *x, bool linear,
                         float *gathered, float *y)
{
    const mha__block_convolution *c = block->convolution;
    const int64_t rows = in->batch * in->length, E = c->hidden;
    for (int64_t r = 0, chunk; r < rows; r += chunk) {
        chunk = mha__block_chunk(block, rows - r);
        for (int64_t g = 0; g < c->groups; g++) {
            mha__block_gather(c, in, g, r, chunk, x, gathered);
            mha__linear_run(c->linear[g], &(mha__linear_call){.x = gathered,
                                                              .rows = chunk,
                                                              .y = y + r * E + g * (E / c->groups),
                                                              .y_stride = E,
                                                              .linear = linear});
        }
    }
    mha__block_clear_padding(in, E, y);
}
