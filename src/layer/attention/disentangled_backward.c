/* disentangled_backward.c - the backward pass of disentangled.c. The gradient of the bias is summed over the pairs of
 * tokens that read a row of the table; the other steps are the backward passes of the products and of the
 * projections. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/disentangled.h"
#include <math.h>
#include <string.h>

typedef struct sum_job {
    const mha_attn_layer *layer;
    const mha_layer_input *in;
    const int32_t *distance_rows;
    int64_t head, longest;
    bool keys; /* sum for the tokens as keys instead of as queries */
    float scale;
    const float *dbias;
    float *sums; /* [rows, 2 span] gradient of the product */
} sum_job;

/* Adds the pairs of query i and the keys of a block to the sums of the keys. */
static void sum_keys(const sum_job *job, const mha__token_block *b, int64_t i, const float *dbias, float *sums)
{
    const int64_t M = job->longest, rows = 2 * job->layer->relative->distances.span;
    for (int64_t j = b->begin; j < b->end; j++)
        sums[j * rows + job->distance_rows[M - 1 + i - j]] += job->scale * dbias[i * M + j];
}

/* Adds the pairs of query i and all keys to the sums of the query, in the order of distances. */
static void sum_query(const sum_job *job, const mha__token_block *b, int64_t i, const float *dbias, float *sums)
{
    const int64_t M = job->longest, rows = 2 * job->layer->relative->distances.span;
    for (int64_t j = b->length - 1; j >= 0; j--)
        sums[i * rows + job->distance_rows[M - 1 + i - j]] += job->scale * dbias[i * M + j];
}

/* Sums the gradient of the bias of one head for each token of a block and row of the table. */
static void sum_task(void *arg, int64_t task, int worker)
{
    (void)worker;
    const sum_job *job = arg;
    const mha__token_block b = mha__token_block_of(job->in, job->longest, task);
    const int64_t M = job->longest, rows = 2 * job->layer->relative->distances.span;
    const float *dbias = job->dbias + (b.sequence * job->layer->options.heads + job->head) * M * M;
    float *sums = job->sums + b.first_row * rows;
    if (b.begin >= b.end) return;
    memset(sums + b.begin * rows, 0, (size_t)((b.end - b.begin) * rows) * sizeof *sums);
    for (int64_t i = job->keys ? 0 : b.begin; i < (job->keys ? b.length : b.end); i++)
        (job->keys ? sum_keys : sum_query)(job, &b, i, dbias, sums);
}

/* Copies the gradient of the projected table [H, rows, D] to rows [rows, H D]. */
static void join_heads(const mha_attn_layer *l, const float *from, float *to)
{
    const int64_t rows = 2 * l->relative->distances.span, D = l->options.head_dim, H = l->options.heads;
    for (int64_t h = 0; h < H; h++)
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + (r * H + h) * D, from + (h * rows + r) * D, (size_t)D * sizeof *to);
}

/* One of the two terms in the backward pass. */
typedef struct term {
    const float *projected, *x; /* PK and q, or PQ and k */
    float *dx, *dprojected;     /* [H, 2 span, D] */
    const mha__grad_slot *slot; /* of the projection of the table */
} term;

/* Backpropagates the product of one head. */
static mha_status product_back(const mha_attn_layer *l, const mha__qkv *at, const term *t, int64_t head,
                               const float *sums, mha_error *err)
{
    const int64_t rows = 2 * l->relative->distances.span, D = l->options.head_dim, first = head * rows * D;
    const mha__linear_grad g = {
        .slot = {.dtype = MHA_F32, .weight = t->projected + first, .dweight = t->dprojected + first},
        .rows = at->q_rows,
        .in = D,
        .out = rows,
        .x = t->x + head * D,
        .x_stride = at->q_row,
        .dy = sums,
        .dx = t->dx + head * D,
        .dx_stride = at->q_row,
        .add_dx = true};
    return mha__linear_backward(l->ctx, &g, err);
}

static mha_status projection_back(const mha_attn_layer *l, const mha__attn_call *call, const term *t, float *joined,
                                  mha_error *err)
{
    const mha__linear_grad g = {.slot = *t->slot,
                                .rows = 2 * l->relative->distances.span,
                                .in = l->options.hidden,
                                .out = l->options.heads * l->options.head_dim,
                                .x = l->relative->table,
                                .dy = joined,
                                .dx = call->also.dtable,
                                .add_dx = true};
    join_heads(l, t->dprojected, joined);
    return mha__linear_backward(l->ctx, &g, err);
}

static mha_status term_back(const mha_attn_layer *l, const mha__attn_call *call, const mha__qkv *at, const term *t,
                            sum_job *job, mha_error *err)
{
    const size_t count = (size_t)(2 * l->relative->distances.span * l->options.heads * l->options.head_dim);
    const int64_t tasks = mha__token_blocks(call->in, job->longest);
    term own = *t;
    own.dprojected = mha__calloc(l->ctx, 2 * count, sizeof(float));
    if (!own.dprojected) return mha__no_memory(err, 2 * count * sizeof(float), "the gradients of relative positions");
    mha_status status = MHA_OK;
    for (job->head = 0; job->head < l->options.heads && status == MHA_OK; job->head++) {
        mha__parallel(l->ctx, tasks, sum_task, job);
        status = product_back(l, at, &own, job->head, job->sums, err);
    }
    if (status == MHA_OK) status = projection_back(l, call, &own, own.dprojected + count, err);
    mha__free(l->ctx, own.dprojected);
    return status;
}

mha_status mha__disentangled_back(const mha_attn_layer *l, const mha__attn_call *call, const mha__attn_slots *slots,
                                  const mha__attn_trace *t, const mha__attn_scratch *s, mha_error *err)
{
    const mha__qkv x = mha__qkv_of(l, call, t->qkv, sizeof(float)), dx = mha__qkv_of(l, call, s->dqkv, sizeof(float));
    const mha_view view = mha__disentangled_view(l, call->in, s->dbias);
    const double scale = l->options.scale != 0 ? l->options.scale : 1 / sqrt((double)l->options.head_dim);
    const term terms[2] = {{l->relative->projected[0], (const float *)(const void *)x.q, (float *)(void *)dx.q, NULL,
                            l->relative->separate ? &slots->pos_key : &slots->k},
                           {l->relative->projected[1], (const float *)(const void *)x.k, (float *)(void *)dx.k, NULL,
                            l->relative->separate ? &slots->pos_query : &slots->q}};
    for (int n = 0; n < 2; n++) {
        sum_job job = {.layer = l,
                       .in = call->in,
                       .distance_rows = s->distance_rows,
                       .longest = view.stride[2],
                       .keys = n == 1,
                       .scale = (float)scale,
                       .dbias = s->dbias,
                       .sums = s->terms[n]};
        if (terms[n].projected) MHA__TRY(term_back(l, call, &x, &terms[n], &job, err));
    }
    return MHA_OK;
}
