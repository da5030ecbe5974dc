/* attention_rows.c - rows of q, k and v: their layout in one buffer, conversions between 16-bit types and f32, fills,
 * copies of activations, and clearing of masked rows of q. Rows are independent, so results are bitwise identical for
 * any number of tasks. */
#include "base/ctx.h"
#include "base/size.h"
#include "kernel/kernel.h"
#include "layer/attention/attention_layer.h"
#include <string.h>

mha__qkv mha__qkv_of(const mha_attn_layer *layer, const mha__attn_call *call, void *buffer, size_t size)
{
    const int64_t D = layer->options.head_dim, q_width = layer->options.heads * D;
    const int64_t kv_width = layer->options.kv_heads * D, rows = mha__attn_rows(call),
                  length = mha__attn_kv_given(layer, call) ? 0 : mha__attn_kv_length(layer, call);
    const bool apart = length != call->in->length;
    mha__qkv at = {.q = buffer,
                   .q_row = apart ? q_width : q_width + 2 * kv_width,
                   .kv_row = apart ? 2 * kv_width : q_width + 2 * kv_width,
                   .q_rows = rows,
                   .kv_rows = call->in->batch * length};
    at.elements = rows * q_width + at.kv_rows * 2 * kv_width;
    if (!buffer) return at;
    at.k = at.q + (size_t)(apart ? rows * q_width : q_width) * size;
    at.v = at.k + (size_t)kv_width * size;
    at.written_v = at.k + (size_t)(layer->k_heads * D) * size;
    return at;
}

enum { TASK_ROWS = 32 };

typedef struct convert_job {
    const mha__kernels *kernels;
    mha__half type;
    int64_t rows, width;
    float *reals;
    uint16_t *halves;
    bool widen;
} convert_job;

static void convert_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const convert_job *job = arg;
    const int64_t first = i * TASK_ROWS, rows = mha__min64(TASK_ROWS, job->rows - first);
    float *reals = job->reals + first * job->width;
    uint16_t *halves = job->halves + first * job->width;
    if (job->widen)
        job->kernels->widen[job->type](rows, job->width, halves, job->width, 1, reals, job->width);
    else
        job->kernels->narrow[job->type](rows, job->width, reals, job->width, halves, job->width, 1);
}

void mha__attn_convert(const mha_attn_layer *layer, int64_t rows, int64_t width, float *reals, uint16_t *halves,
                       bool widen)
{
    convert_job job = {.kernels = mha__kernels_of(layer->ctx, MHA_F32),
                       .type = layer->options.dtype == MHA_BF16 ? MHA__BF16 : MHA__F16,
                       .rows = rows,
                       .width = width,
                       .reals = reals,
                       .halves = halves,
                       .widen = widen};
    mha__parallel(layer->ctx, mha__ceil_div(rows, TASK_ROWS), convert_task, &job);
}

typedef struct fill_job {
    int64_t rows, width;
    const float *fills;
    float *context;
} fill_job;

static void fill_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const fill_job *job = arg;
    const int64_t first = i * TASK_ROWS, end = mha__min64(first + TASK_ROWS, job->rows);
    for (int64_t r = first; r < end; r++)
        for (int64_t n = 0; n < job->width; n++)
            job->context[r * job->width + n] += job->fills[n];
}

void mha__attn_fill(const mha_attn_layer *layer, int64_t rows, const float *fills, float *context)
{
    fill_job job = {rows, layer->options.heads * layer->options.head_dim, fills, context};
    mha__parallel(layer->ctx, mha__ceil_div(rows, TASK_ROWS), fill_task, &job);
}

void mha__attn_show(const mha_attn_layer *layer, int64_t rows, int64_t width, const float *reals, uint16_t *halves,
                    float *to)
{
    if (!to) return;
    if (halves)
        mha__attn_convert(layer, rows, width, to, halves, true);
    else
        memcpy(to, reals, (size_t)(rows * width) * sizeof *to);
}

void mha__attn_clear_empty(const mha_attn_layer *l, const mha__attn_call *call, void *qkv)
{
    const size_t real = mha__attn_real(l), head = (size_t)l->options.head_dim * real;
    const mha__qkv at = mha__qkv_of(l, call, qkv, real);
    const int64_t H = l->options.heads, *stride = call->empty.stride;
    for (int64_t r = 0; r < mha__attn_rows(call); r++)
        for (int64_t h = 0; h < H; h++) {
            const int64_t b = r / call->in->length, i = r % call->in->length;
            const uint8_t *empty = call->empty.data;
            if (empty[b * stride[0] + h * stride[1] + i * stride[2]])
                memset(at.q + (size_t)(r * at.q_row) * real + (size_t)h * head, 0, head);
        }
}
