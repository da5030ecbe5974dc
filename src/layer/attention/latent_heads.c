/* latent_heads.c - the absorbed form of latent attention per head: the cache that it reads, and the products of kv_b
 * with queries and outputs. A task computes a head of up to ROWS rows, so that a single row runs on all threads. */
#include "attn/cache/kv_cache.h"
#include "base/ctx.h"
#include "base/error.h"
#include "layer/attention/latent.h"
#include "layer/repack.h"
#include <string.h>

enum { ROWS = 64 };

bool mha__latent_absorbs(const mha_attn_layer *l, const mha_layer_input *in)
{
    return l->latent && in->cache && in->cache->desc.v_from_k;
}

mha_status mha__latent_check_cache(const mha_attn_layer *l, const mha_layer_input *in, mha_error *err)
{
    if (!in->cache || !in->cache->desc.v_from_k) return MHA_OK;
    if (!l->latent)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: v_from_k of the cache must be 0 (got %d)",
                         in->cache->desc.v_from_k);
    const mha__latent_options *o = &l->latent->options;
    const mha_cache_desc *d = &in->cache->desc;
    if (d->kv_heads == 1 && d->head_dim == o->kv_rank + o->rope && d->v_head_dim == o->kv_rank) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "mha_layer_input: kv_heads, head_dim and v_head_dim of the cache must be 1, %lld, %lld (got %lld, "
                     "%lld, %lld)",
                     (long long)(o->kv_rank + o->rope), (long long)o->kv_rank, (long long)d->kv_heads,
                     (long long)d->head_dim, (long long)d->v_head_dim);
}

/* ---- weights ---- */

mha_status mha__latent_keep(const mha_attn_layer *l, int64_t in, const mha_matrix *m, mha_linear **linear,
                            mha_error *err)
{
    if (!*linear) return mha_linear_create_stack(l->ctx, in, m, 1, MHA_ACT_NONE, linear, err);
    mha__linear_repack(*linear, m, 1);
    return MHA_OK;
}

mha_status mha__latent_pack_heads(mha_attn_layer *l, const mha_matrix *kv_b, mha_error *err)
{
    mha__latent *t = l->latent;
    const mha__latent_options *o = &t->options;
    const int64_t H = l->options.heads;
    if (!t->head) t->head = mha__calloc(l->ctx, 2 * (size_t)H, sizeof(mha_linear *));
    if (!t->head) return mha__no_memory(err, 2 * (size_t)H * sizeof(mha_linear *), "a latent attention layer");
    for (int64_t h = 0; h < H; h++) {
        const float *key = kv_b->weight + h * (o->nope + o->value) * o->kv_rank;
        const mha_matrix up = {.weight = key, .transposed = 1, .out = o->kv_rank, .packed = kv_b->packed};
        const mha_matrix down = {.weight = key + o->nope * o->kv_rank, .out = o->value, .packed = kv_b->packed};
        MHA__TRY(mha__latent_keep(l, o->nope, &up, &t->head[h], err));
        MHA__TRY(mha__latent_keep(l, o->kv_rank, &down, &t->head[H + h], err));
    }
    return MHA_OK;
}

/* ---- memory ---- */

/* Returns the bytes for the rounded input of a task. */
static size_t left_bytes(const mha_attn_layer *l)
{
    mha_linear *const *head = l->latent->head;
    const mha_linear *const both[] = {head[0], head[l->options.heads]};
    return (size_t)mha__round_up((int64_t)mha__linear_max_left(both, 2, ROWS), 64);
}

void mha__latent_absorbed_take(mha__arena *arena, const mha_attn_layer *l, const mha__attn_call *call,
                               mha__attn_scratch *s)
{
    const mha__latent_options *o = &l->latent->options;
    const size_t rows = (size_t)mha__attn_rows(call), H = (size_t)l->options.heads;
    s->absorbed = mha__take(arena, rows * H, (size_t)(o->kv_rank + o->rope) * sizeof(float));
    s->latent_keys = mha__take(arena, rows, (size_t)(o->kv_rank + o->rope) * sizeof(float));
    s->latent_out = mha__take(arena, rows * H, (size_t)o->kv_rank * sizeof(float));
    s->head_left = mha__take(arena, (size_t)mha__threads(l->ctx), left_bytes(l));
}

/* ---- products per head ---- */

typedef struct head_job {
    const mha_attn_layer *layer;
    const mha__attn_scratch *scratch;
    int64_t rows;
    float *context; /* NULL = compute queries, else the context */
    size_t left;
} head_job;

static void queries_of(const head_job *job, int64_t h, int64_t first, int64_t rows, void *left)
{
    const mha_attn_layer *l = job->layer;
    const mha__latent_options *o = &l->latent->options;
    const int64_t H = l->options.heads, from_width = o->nope + o->rope, width = o->kv_rank + o->rope;
    const float *from = job->scratch->expanded + (first * H + h) * from_width;
    float *to = job->scratch->absorbed + (first * H + h) * width;
    mha__linear_run(
        l->latent->head[h],
        &(mha__linear_call){
            .x = from, .x_stride = H * from_width, .rows = rows, .y = to, .y_stride = H * width, .left = left});
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * H * width + o->kv_rank, from + r * H * from_width + o->nope, (size_t)o->rope * sizeof *to);
}

/* Computes the values of a head, padded with zeros to the width of the context. */
static void values_of(const head_job *job, int64_t h, int64_t first, int64_t rows, void *left)
{
    const mha_attn_layer *l = job->layer;
    const mha__latent_options *o = &l->latent->options;
    const int64_t H = l->options.heads, D = l->options.head_dim;
    float *to = job->context + (first * H + h) * D;
    mha__linear_run(l->latent->head[H + h],
                    &(mha__linear_call){.x = job->scratch->latent_out + (first * H + h) * o->kv_rank,
                                        .x_stride = H * o->kv_rank,
                                        .rows = rows,
                                        .y = to,
                                        .y_stride = H * D,
                                        .left = left});
    for (int64_t r = 0; r < rows; r++)
        memset(to + r * H * D + o->value, 0, (size_t)(D - o->value) * sizeof *to);
}

static void head_task(void *arg, int64_t i, int worker)
{
    const head_job *job = arg;
    const int64_t H = job->layer->options.heads, h = i % H, first = i / H * ROWS;
    void *left = job->left ? (char *)job->scratch->head_left + (size_t)worker * job->left : NULL;
    (job->context ? values_of : queries_of)(job, h, first, mha__min64(ROWS, job->rows - first), left);
}

void mha__latent_multiply(const mha_attn_layer *l, const mha__attn_scratch *s, int64_t rows, float *context)
{
    head_job job = {.layer = l, .scratch = s, .rows = rows, .context = context, .left = left_bytes(l)};
    mha__parallel(l->ctx, l->options.heads * mha__ceil_div(rows, ROWS), head_task, &job);
}
