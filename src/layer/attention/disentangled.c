/* disentangled.c - the terms of relative positions in the forward pass: their weights, and the bias of a call. */
#include "layer/attention/disentangled.h"

#include "base/ctx.h"
#include "base/error.h"
#include "layer/selection/head_selection.h"
#include <math.h>
#include <string.h>

/* ---- rows of the table ---- */

int64_t mha__distance_row(const mha__distances *d, int64_t distance)
{
    const int64_t exact = d->buckets / 2, far = distance < 0 ? -distance : distance;
    int64_t row = far;
    if (d->buckets && far > exact)
        row = exact + (int64_t)ceil(log((double)far / (double)exact) / log((double)(d->max - 1) / (double)exact) *
                                    (double)(exact - 1));
    row = distance < 0 ? d->span - row : d->span + row;
    return mha__max64(0, mha__min64(row, 2 * d->span - 1));
}

/* ---- weights ---- */

/* Computes the rows of the table projected to each head. */
static mha_status project(const mha_attn_layer *l, const mha_matrix *m, float *projected, mha_error *err)
{
    const mha__disentangled *d = l->relative;
    const int64_t rows = 2 * d->distances.span, E = l->options.hidden, D = l->options.head_dim;
    for (int64_t h = 0; h < l->options.heads; h++) {
        float *head = projected + h * rows * D;
        const mha__matmul job = {.dtype = MHA_F32,
                                 .m = rows,
                                 .n = D,
                                 .k = E,
                                 .a = d->table,
                                 .a_row = E,
                                 .a_col = 1,
                                 .b = m->weight + h * D * E,
                                 .b_row = 1,
                                 .b_col = E,
                                 .c = head,
                                 .c_row = D};
        MHA__TRY(mha__matmul_run(l->ctx, &job, err));
        for (int64_t n = 0; m->bias && n < rows * D; n++)
            head[n] += m->bias[h * D + n % D];
    }
    return MHA_OK;
}

/* Packs the projected rows of all heads for products with q or k. */
static mha_status pack(const mha_attn_layer *l, const float *projected, mha_linear **product, mha_error *err)
{
    const int64_t rows = 2 * l->relative->distances.span, D = l->options.head_dim, H = l->options.heads;
    mha__matrix *part = mha__calloc(l->ctx, (size_t)H, sizeof *part);
    if (!part) return mha__no_memory(err, (size_t)H * sizeof *part, "the relative positions of a layer");
    for (int64_t h = 0; h < H; h++)
        part[h] = (mha__matrix){.weight = projected + h * rows * D, .out = rows};
    const mha_status status = mha__linear_keep(l->ctx, MHA_F32, D, part, H, product, err);
    mha__free(l->ctx, part);
    return status;
}

/* Allocates the struct and its arrays in one piece. */
static mha_status create(mha_attn_layer *l, const mha__disentangled_options *o, mha_error *err)
{
    const int64_t rows = 2 * o->distances.span, H = l->options.heads;
    const size_t all = (size_t)(rows * H * l->options.head_dim);
    mha__arena arena = {0};
    for (int pass = 0; pass < 2; pass++) {
        mha__disentangled *d = mha__take(&arena, 1, sizeof *d);
        float *table = mha__take(&arena, (size_t)rows, (size_t)l->options.hidden * sizeof *table);
        float *keys = o->key.weight ? mha__take(&arena, all, sizeof *keys) : NULL;
        float *queries = o->query.weight ? mha__take(&arena, all, sizeof *queries) : NULL;
        uint8_t *one = mha__take(&arena, (size_t)(2 * H - 1), 1);
        if (d) *d = (mha__disentangled){o->distances, table, {keys, queries}, {NULL, NULL}, o->separate, one};
        if (d) l->relative = d;
        if (pass || arena.overflow) break;
        const size_t bytes = arena.used;
        arena = (mha__arena){.base = mha__calloc(l->ctx, 1, bytes)};
        if (!arena.base) return mha__no_memory(err, bytes, "the relative positions of a layer");
    }
    if (arena.overflow) return mha__no_memory(err, SIZE_MAX, "the relative positions of a layer");
    l->relative->one_head[H - 1] = 1;
    return MHA_OK;
}

mha_status mha__disentangled_set(mha_attn_layer *l, const mha__disentangled_options *o, mha_error *err)
{
    const mha_matrix *const from[] = {&o->key, &o->query};
    if (!l->relative) MHA__TRY(create(l, o, err));
    mha__disentangled *d = l->relative;
    memcpy(d->table, o->table, (size_t)(2 * d->distances.span * l->options.hidden) * sizeof *d->table);
    for (int n = 0; n < 2; n++) {
        if (!d->projected[n]) continue;
        MHA__TRY(project(l, from[n], d->projected[n], err));
        MHA__TRY(pack(l, d->projected[n], &d->product[n], err));
    }
    return MHA_OK;
}

void mha__disentangled_free(mha_attn_layer *l)
{
    if (!l->relative) return;
    mha_linear_free(l->relative->product[0]);
    mha_linear_free(l->relative->product[1]);
    mha__free(l->ctx, l->relative);
}

/* ---- memory ---- */

/* Returns the length of the longest sequence. */
static int64_t longest(const mha_layer_input *in)
{
    int64_t max = in->starts ? 0 : in->length;
    for (int64_t n = 0; in->starts && n < in->sequences; n++)
        max = mha__max64(max, in->starts[n + 1] - in->starts[n]);
    return max;
}

static int64_t sequences_of(const mha_layer_input *in)
{
    return in->starts ? in->sequences : in->batch;
}

static float *take_bias(mha__arena *arena, const mha_attn_layer *l, const mha_layer_input *in)
{
    const size_t M = (size_t)longest(in), H = (size_t)l->options.heads;
    return mha__take(arena, (size_t)sequences_of(in) * M, H * M * sizeof(float));
}

void mha__disentangled_scratch_take(mha__arena *arena, const mha_attn_layer *l, const mha__attn_call *call,
                                    mha__attn_scratch *s)
{
    if (!l->relative) return;
    const size_t row = 2 * (size_t)l->relative->distances.span * sizeof(float);
    for (int n = 0; n < 2; n++)
        s->terms[n] = mha__take(arena, (size_t)mha__attn_rows(call), row);
    s->bias = take_bias(arena, l, call->in);
    s->distance_rows = mha__take(arena, 2 * (size_t)longest(call->in), sizeof *s->distance_rows);
    if (call->outputs & MHA_ATTN_GRADS) s->dbias = take_bias(arena, l, call->in);
}

mha_view mha__disentangled_view(const mha_attn_layer *l, const mha_layer_input *in, float *bias)
{
    const int64_t M = longest(in);
    return (mha_view){bias, {l->options.heads * M * M, M * M, M, 1}};
}

/* ---- the bias of a call ---- */

typedef struct fill_job {
    const mha_attn_layer *layer;
    const mha_layer_input *in;
    const float *const *terms; /* [2] products of q and k with the table's rows; NULL = absent */
    const int32_t *distance_rows;
    int64_t head, longest;
    float scale;
    float *bias;
} fill_job;

mha__token_block mha__token_block_of(const mha_layer_input *in, int64_t longest, int64_t task)
{
    const int64_t blocks = mha__ceil_div(longest, MHA__TOKEN_BLOCK), n = task / blocks;
    mha__token_block b = {.sequence = n, .first_row = mha__layer_first_row(in, n)};
    b.length = mha__layer_first_row(in, n + 1) - b.first_row;
    b.begin = task % blocks * MHA__TOKEN_BLOCK;
    b.end = mha__min64(b.length, b.begin + MHA__TOKEN_BLOCK);
    return b;
}

int64_t mha__token_blocks(const mha_layer_input *in, int64_t longest)
{
    return sequences_of(in) * mha__ceil_div(longest, MHA__TOKEN_BLOCK);
}

/* Computes the biases of one head for a block of queries. */
static void fill_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const fill_job *job = arg;
    const mha__token_block b = mha__token_block_of(job->in, job->longest, task);
    const int64_t M = job->longest, rows = 2 * job->layer->relative->distances.span;
    float *bias = job->bias + (b.sequence * job->layer->options.heads + job->head) * M * M;
    for (int64_t i = b.begin; i < b.end; i++)
        for (int64_t j = 0; j < b.length; j++) {
            const int64_t row = job->distance_rows[M - 1 + i - j];
            const float of_q = job->terms[0] ? job->terms[0][(b.first_row + i) * rows + row] : 0;
            const float of_k = job->terms[1] ? job->terms[1][(b.first_row + j) * rows + row] : 0;
            bias[i * M + j] = job->scale * (of_q + of_k);
        }
}

void mha__disentangled_fill(const mha_attn_layer *l, const mha__attn_call *call, const mha__attn_trace *t,
                            const mha__attn_scratch *s)
{
    const mha__disentangled *d = l->relative;
    const mha__qkv at = mha__qkv_of(l, call, t->qkv, sizeof(float));
    const int64_t rows = 2 * d->distances.span, D = l->options.head_dim, H = l->options.heads;
    const float *const x[] = {(const float *)(const void *)at.q, (const float *)(const void *)at.k};
    const float *const terms[] = {d->product[0] ? s->terms[0] : NULL, d->product[1] ? s->terms[1] : NULL};
    fill_job job = {.layer = l, .in = call->in, .terms = terms, .longest = longest(call->in), .bias = s->bias};
    for (int64_t distance = 1 - job.longest; distance < job.longest; distance++)
        s->distance_rows[job.longest - 1 + distance] = (int32_t)mha__distance_row(&d->distances, distance);
    job.distance_rows = s->distance_rows;
    job.scale = (float)(l->options.scale != 0 ? l->options.scale : 1 / sqrt((double)D));
    for (job.head = 0; job.head < H; job.head++) {
        for (int n = 0; n < 2; n++)
            if (d->product[n])
                mha__linear_run(d->product[n], &(mha__linear_call){.x = x[n] + job.head * D,
                                                                   .x_stride = at.q_row,
                                                                   .rows = at.q_rows,
                                                                   .y = s->terms[n],
                                                                   .y_stride = rows,
                                                                   .y_first = job.head * rows,
                                                                   .parts = d->one_head + H - 1 - job.head});
        mha__parallel(l->ctx, mha__token_blocks(call->in, job.longest), fill_task, &job);
    }
}
