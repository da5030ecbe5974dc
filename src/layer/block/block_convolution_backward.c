/* block_convolution_backward.c - the forward pass with a trace, and the backward pass, of the convolution parallel
 * to a block. The gathered rows are computed again. */
#include "base/error.h"
#include "layer/block/block_convolution.h"
#include "layer/elementwise.h"
#include "layer/selection/head_selection.h"

void mha__convolution_trace_take(mha__arena *arena, size_t rows, size_t width, mha__block_trace *t)
{
    t->convolved = mha__take(arena, rows, width);
    t->convolution_sum = mha__take(arena, rows, width);
}

void mha__convolution_scratch_take(mha__arena *arena, const mha_block *block, int64_t rows, mha__block_scratch *s)
{
    const size_t chunk = (size_t)mha__block_chunk(block, rows);
    const size_t gathered = (size_t)mha__gathered_width(block->convolution) * sizeof(float);
    s->dconvolved = mha__take(arena, (size_t)rows, (size_t)block->hidden * sizeof(float));
    s->gathered = mha__take(arena, chunk, gathered);
    s->dgathered = mha__take(arena, chunk, gathered);
}

void mha__convolution_keep(const mha__block_call *c, const float *x)
{
    mha__block_convolve(c->block, c->attn.in, x, true, c->scratch.gathered, c->trace.convolved);
    mha__drop_rows(c->block->ctx, &c->convolution_drop, c->attn.in, c->block->hidden, c->trace.convolved);
}

mha_status mha__convolution_join(const mha__block_call *c, float *x, mha_error *err)
{
    const mha__block_convolution *convolution = c->block->convolution;
    const int64_t rows = mha__block_rows(c), E = c->block->hidden;
    float *sum = c->trace.convolution_sum;
    mha__block_copy(c, c->trace.convolved, sum);
    MHA__TRY(mha_activation_forward(c->block->ctx, convolution->activation, rows, E, sum, err));
    mha__block_add(c, x, sum);
    if (c->again) return MHA_OK;
    MHA__TRY(mha_norm_forward(c->block->ctx, &convolution->norm, rows, E, sum, NULL, x, err));
    mha__block_clear_padding(c->attn.in, E, x);
    return MHA_OK;
}

mha_status mha__convolution_split(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    const mha__block_convolution *convolution = c->block->convolution;
    const mha_norm_gradient g = {.size = sizeof g,
                                 .rows = mha__block_rows(c),
                                 .width = c->block->hidden,
                                 .x = c->trace.convolution_sum,
                                 .dy = dx,
                                 .dx = dx,
                                 .dweight = slots->convolution_norm.dweight,
                                 .dbias = slots->convolution_norm.dbias};
    float *const dconvolved = c->scratch.dconvolved;
    mha__block_clear_padding(c->attn.in, g.width, dx);
    MHA__TRY(mha_norm_backward(c->block->ctx, &convolution->norm, &g, err));
    if (c->ends) return MHA_OK;
    MHA__TRY(mha_activation_backward(c->block->ctx, convolution->activation, g.rows, g.width, c->trace.convolved, dx,
                                     dconvolved, err));
    mha__drop_rows(c->block->ctx, &c->convolution_drop, c->attn.in, g.width, dconvolved);
    mha__block_clear_padding(c->attn.in, g.width, dconvolved);
    return MHA_OK;
}

/* ---- gradients of the product ---- */

typedef struct scatter_job {
    const mha__block_convolution *convolution;
    const mha_layer_input *in;
    int64_t first, count;
    const float *dgathered;
    float *dx; /* the channels of the group */
} scatter_job;

/* Adds the gradients of gathered rows to those of their inputs, one sequence after another. */
static void scatter(const scatter_job *job)
{
    const mha__block_convolution *c = job->convolution;
    for (int64_t row = job->first, next, end = row + job->count; row < end; row = next) {
        const int64_t n = mha__row_sequence(job->in, row), start = mha__layer_first_row(job->in, n);
        const mha__signal signal = mha__block_signal(c, job->in, n);
        next = mha__min64(end, mha__layer_first_row(job->in, n + 1));
        mha__convolution_scatter(&signal, 1, row - start, next - row,
                                 job->dgathered + (row - job->first) * mha__gathered_width(c),
                                 job->dx + start * c->hidden);
    }
}

/* Returns the slot of the weights of group g. */
static mha__grad_slot slot_of(const mha__block_convolution *c, const mha__grad_slot *whole, int64_t g)
{
    const int64_t out = c->hidden / c->groups, count = out * mha__gathered_width(c);
    mha__grad_slot part = *whole;
    part.weight = (const float *)part.weight + g * count;
    if (part.dweight) part.dweight = (float *)part.dweight + g * count;
    if (part.dbias) part.dbias = (float *)part.dbias + g * out;
    return part;
}

/* Backpropagates `count` rows of group g. */
static mha_status group_back(const mha__block_call *c, const mha__grad_slot *slot, int64_t g, int64_t first,
                             int64_t count, float *dx, mha_error *err)
{
    const mha__block_convolution *convolution = c->block->convolution;
    const mha__block_scratch *s = &c->scratch;
    const int64_t E = convolution->hidden, out = E / convolution->groups;
    if (slot->dweight) mha__block_gather(convolution, c->attn.in, g, first, count, c->trace.x, s->gathered);
    const mha__linear_grad grad = {.slot = slot_of(convolution, slot, g),
                                   .rows = count,
                                   .in = mha__gathered_width(convolution),
                                   .out = out,
                                   .x = s->gathered,
                                   .dy = s->dconvolved + first * E + g * out,
                                   .dy_stride = E,
                                   .dx = s->dgathered};
    MHA__TRY(mha__linear_backward(c->block->ctx, &grad, err));
    scatter(&(scatter_job){convolution, c->attn.in, first, count, s->dgathered, dx + g * out});
    return MHA_OK;
}

mha_status mha__convolution_back(const mha__block_call *c, const mha__block_slots *slots, float *dx, mha_error *err)
{
    const int64_t rows = mha__block_rows(c);
    for (int64_t r = 0, chunk; r < rows; r += chunk) {
        chunk = mha__block_chunk(c->block, rows - r);
        for (int64_t g = 0; g < c->block->convolution->groups; g++)
            MHA__TRY(group_back(c, &slots->convolution, g, r, chunk, dx, err));
    }
    return MHA_OK;
}
