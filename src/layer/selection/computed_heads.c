/* computed_heads.c - see computed_heads.h.
 *
 * A task of the projections is one head of q, k or v with all sequences that need it: its weights stay in the cache
 * while rows stream past, and adjacent sequences that both need it form one product. A task of the output is one
 * sequence: each run of kept heads is a range of the depth. Skipping zeros of a sum changes no bit. */
#include "layer/selection/computed_heads.h"
#include "base/ctx.h"
#include "base/error.h"
#include "layer/linear/linear.h"
#include <string.h>

/* ---- creation ---- */

bool mha__heads_keep_some(const mha_attn_layer_options *o)
{
    return (o->choice.of == MHA_CHOICE_EXPERTS || o->choice.of == MHA_CHOICE_HEADS) && o->choice.keep < o->heads;
}

static bool is_plain(const mha_matrix *m)
{
    return !m->transposed && (m->packed == MHA_DTYPE_DEFAULT || m->packed == MHA_F32);
}

/* Lists the heads of q, k and v as matrices of their own. */
static void fill_parts(const mha_attn_layer_options *o, const int64_t counts[3], mha__matrix *part)
{
    const mha_matrix given[] = {o->q, o->k, o->v};
    const int64_t D = o->head_dim;
    for (int64_t p = 0, row = 0; p < 3; row += counts[p++] * D) {
        const mha_matrix *m = o->qkv.weight ? &o->qkv : &given[p];
        const int64_t first = o->qkv.weight ? row : 0;
        for (int64_t at = first; at < first + counts[p] * D; at += D)
            *part++ =
                (mha__matrix){.weight = m->weight + at * o->hidden, .bias = m->bias ? m->bias + at : NULL, .out = D};
    }
}

bool mha__heads_pack(mha_attn_layer *l, const mha_attn_layer_options *o, mha_status *status, mha_error *err)
{
    const int64_t counts[] = {o->heads, o->kv_heads, o->v_heads}, parts = counts[0] + counts[1] + counts[2];
    const bool given = o->qkv.weight ? is_plain(&o->qkv) : is_plain(&o->q) && is_plain(&o->k) && is_plain(&o->v);
    *status = MHA_OK;
    if (!mha__heads_keep_some(o) || o->dtype != MHA_F32 || !given || !is_plain(&o->o)) return false;
    /* mha_linear_create_stack reports the missing matrix */
    if (!o->qkv.weight && (!o->q.weight || !o->k.weight || !o->v.weight)) return false;
    const size_t bytes = (size_t)parts * sizeof *l->head_part;
    l->head_part = mha__alloc(l->ctx, bytes);
    l->one_head = mha__calloc(l->ctx, (size_t)(2 * parts), 1);
    if (!l->head_part || !l->one_head) {
        *status = mha__no_memory(err, bytes, "an attention layer's heads");
        return true;
    }
    l->one_head[parts - 1] = 1;
    fill_parts(o, counts, l->head_part);
    *status = mha__linear_create(l->ctx, MHA_F32, o->hidden, l->head_part, parts, MHA_ACT_NONE, &l->qkv, err);
    return true;
}

void mha__heads_repack(mha_attn_layer *l, const mha_attn_layer_options *o)
{
    fill_parts(o, (const int64_t[]){o->heads, l->k_heads, l->v_heads}, l->head_part);
    mha__linear_pack(l->qkv, l->head_part);
}

/* ---- one call ---- */

bool mha__heads_skipped(const mha_attn_layer *layer, const mha_layer_input *in)
{
    return mha__heads_keep_some(&layer->options) && !in->probs && !in->on_rows && !in->stats && !in->activations;
}

void mha__heads_describe(const mha_attn_layer *layer, const mha_layer_input *in, mha_attn_desc *desc)
{
    if (!mha__heads_skipped(layer, in)) return;
    desc->inputs |= MHA_ATTN_BLOCK_KEEP;
    desc->block_q = desc->block_k = in->length;
}

typedef struct heads_job {
    const mha_attn_layer *layer;
    const mha_layer_input *in;
    const uint8_t *kept; /* [sequences, H] */
    const float *x;      /* input of the projections */
    float *qkv;
    const float *context; /* input of the output projection */
    int64_t first, rows;
    float *y;
} heads_job;

/* ---- the projections ---- */

/* The query heads [first, first + count) that read one head of q, k or v. */
typedef struct readers {
    int64_t first, count;
    int64_t column; /* column of the head in a row of qkv, before key/value heads are repeated */
} readers;

static readers readers_of(const mha_attn_layer *l, int64_t part)
{
    const int64_t counts[] = {l->options.heads, l->k_heads, l->v_heads};
    int64_t p = 0, head = part;
    while (head >= counts[p])
        head -= counts[p++];
    const int64_t group = counts[0] / counts[p];
    return (readers){.first = head * group, .count = group, .column = part * l->options.head_dim};
}

static bool needs(const heads_job *job, const readers *r, int64_t sequence)
{
    return memchr(job->kept + sequence * job->layer->options.heads + r->first, 1, (size_t)r->count) != NULL;
}

static void project_task(void *arg, int64_t part, int worker)
{
    (void)worker;
    const heads_job *job = arg;
    const mha_attn_layer *l = job->layer;
    const mha_attn_layer_options *o = &l->options;
    const int64_t sequences = mha__layer_sequences(job->in), parts = o->heads + l->k_heads + l->v_heads;
    const int64_t row = (o->heads + 2 * o->kv_heads) * o->head_dim;
    const readers r = readers_of(l, part);
    for (int64_t n = 0, next; n < sequences; n = next) {
        const bool needed = needs(job, &r, n);
        for (next = n + 1; next < sequences && needs(job, &r, next) == needed;)
            next++;
        const int64_t first = mha__layer_first_row(job->in, n), end = mha__layer_first_row(job->in, next);
        if (needed)
            mha__linear_run(l->qkv, &(mha__linear_call){.x = job->x + first * o->hidden,
                                                        .rows = end - first,
                                                        .y = job->qkv + first * row,
                                                        .y_stride = row,
                                                        .parts = l->one_head + (parts - 1 - part)});
        for (int64_t i = first; !needed && i < end; i++)
            memset(job->qkv + i * row + r.column, 0, (size_t)o->head_dim * sizeof *job->qkv);
    }
}

void mha__heads_project(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                        const float *x, void *left, float *qkv)
{
    heads_job job = {.layer = layer, .in = in, .kept = chosen->kept, .x = x, .qkv = qkv};
    if (!layer->head_part || !mha__heads_skipped(layer, in)) {
        mha__attn_layer_project(layer, in->batch * in->length, x, left, qkv);
        return;
    }
    mha__parallel(layer->ctx, layer->options.heads + layer->k_heads + layer->v_heads, project_task, &job);
    mha__attn_layer_spread(layer, in->batch * in->length, qkv);
}

/* ---- the output ---- */

bool mha__heads_output_skips(const mha_attn_layer *layer, const mha_layer_input *in)
{
    return layer->head_part && !in->context && !in->fills;
}

static void output_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const heads_job *job = arg;
    const mha_attn_layer_options *o = &job->layer->options;
    const int64_t first = mha__max64(job->first, mha__layer_first_row(job->in, n));
    const int64_t end = mha__min64(job->first + job->rows, mha__layer_first_row(job->in, n + 1));
    const uint8_t *kept = job->kept + n * o->heads;
    bool more = false;
    for (int64_t h = 0, next; first < end && h < o->heads; h = next) {
        for (next = h + 1; next < o->heads && kept[next] == kept[h];)
            next++;
        if (!kept[h]) continue;
        mha__linear_run(job->layer->o, &(mha__linear_call){.x = job->context + (first * o->heads + h) * o->head_dim,
                                                           .x_stride = o->heads * o->head_dim,
                                                           .rows = end - first,
                                                           .y = job->y + (first - job->first) * o->hidden,
                                                           .first = h * o->head_dim,
                                                           .depth = (next - h) * o->head_dim,
                                                           .accumulate = more});
        more = true;
    }
}

void mha__heads_output(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                       const float *context, int64_t first, int64_t rows, float *y)
{
    heads_job job = {
        .layer = layer, .in = in, .kept = chosen->kept, .context = context, .first = first, .rows = rows, .y = y};
    mha__parallel(layer->ctx, mha__layer_sequences(in), output_task, &job);
}
