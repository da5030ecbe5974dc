/* computed_heads.c - computes only the heads that each sequence keeps.
 *
 * A task of the projections is one head of q, k or v for all sequences that need it. The weights of the head stay in
 * the cache while rows stream past, and adjacent sequences that need the head form one product. A task of the output
 * projection is one sequence, where each run of kept heads is a range of the depth. Skipping zeros in a sum does not
 * change the result. */
#include "layer/selection/computed_heads.h"

#include "base/ctx.h"
#include "base/error.h"
#include <string.h>

/* ---- creation ---- */

bool mha__heads_keep_some(const mha_attn_layer_options *o)
{
    return (o->choice.of == MHA_CHOICE_EXPERTS || o->choice.of == MHA_CHOICE_HEADS) && o->choice.keep < o->heads;
}

/* Returns the head count of projection p (0 to 2: q, k, v). */
static int64_t count_of(const mha_attn_layer *l, int p)
{
    return p == 0 ? l->options.heads : p == 1 ? l->k_heads : l->v_heads;
}

static mha_status allocate(mha_attn_layer *l, mha_error *err)
{
    const int64_t parts = l->options.heads + l->k_heads + l->v_heads;
    const size_t bytes = (size_t)parts * sizeof *l->head_part;
    l->head_part = mha__alloc(l->ctx, bytes);
    l->one_head = mha__calloc(l->ctx, 2 * (size_t)l->options.heads, 1);
    if (!l->head_part || !l->one_head) return mha__no_memory(err, bytes, "the heads of an attention layer");
    l->one_head[l->options.heads - 1] = 1;
    return MHA_OK;
}

mha_status mha__heads_pack(mha_attn_layer *l, const mha__matrix qkv[3], mha_error *err)
{
    const size_t real = mha__attn_real(l), head = (size_t)l->options.head_dim * real;
    if (!l->head_part) MHA__TRY(allocate(l, err));
    mha__matrix *part = l->head_part;
    for (int p = 0; p < 3; part += count_of(l, p++)) {
        for (int64_t h = 0; h < count_of(l, p); h++)
            part[h] = (mha__matrix){
                .weight = (const char *)qkv[p].weight + (size_t)h * head * (size_t)l->options.hidden,
                .bias = qkv[p].bias ? (const char *)qkv[p].bias + (size_t)h * head : NULL,
                .transposed = qkv[p].transposed,
                .many_rows = qkv[p].many_rows,
                .out = l->options.head_dim,
            };
        MHA__TRY(
            mha__linear_keep(l->ctx, l->options.dtype, l->options.hidden, part, count_of(l, p), &l->project[p], err));
    }
    return MHA_OK;
}

/* ---- calls that skip heads ---- */

bool mha__heads_skipped(const mha_attn_layer *layer, const mha_layer_input *in)
{
    return mha__heads_keep_some(&layer->options) && !in->probs && !in->on_rows && !in->stats && !in->activations;
}

void mha__heads_describe(const mha_attn_layer *layer, const mha__attn_call *call, mha_attn_desc *desc)
{
    if (!mha__heads_skipped(layer, call->in) || mha__experts_summed(layer)) return;
    desc->inputs |= MHA_ATTN_BLOCK_KEEP;
    desc->block_q = call->in->length;
    desc->block_k = mha__attn_keys(layer, call);
}

/* One head of a projection, and the query heads [first, first + count) that read it. */
typedef struct head_job {
    const mha_attn_layer *layer;
    const mha__attn_call *call;
    const uint8_t *kept; /* [sequences, H] nonzero = computed; NULL = all */
    int p;
    int64_t first, count;
    char *y;     /* first column of the head's outputs */
    int64_t row; /* elements from one row of y to the next */
} head_job;

static head_job head_of(const mha_attn_layer *l, const mha__attn_call *call, const mha__chosen *chosen, int p,
                        int64_t head, void *qkv)
{
    const mha__qkv at = mha__qkv_of(l, call, qkv, mha__attn_real(l));
    const int64_t group = l->options.heads / count_of(l, p);
    return (head_job){
        .layer = l,
        .call = call,
        .kept = mha__heads_skipped(l, call->in) ? chosen->kept : NULL,
        .p = p,
        .first = head * group,
        .count = group,
        .y = p == 0   ? at.q
             : p == 1 ? at.k
                      : at.written_v,
        .row = p ? at.kv_row : at.q_row,
    };
}

static bool needs(const head_job *job, int64_t sequence)
{
    return !job->kept || memchr(job->kept + sequence * job->layer->options.heads + job->first, 1, (size_t)job->count);
}

static int64_t row_of(const head_job *job, int64_t sequence)
{
    return job->p && job->call->kv_length ? sequence * job->call->kv_length
                                          : mha__layer_first_row(job->call->in, sequence);
}

/* A run of adjacent sequences that either all need the head or all skip it. */
typedef struct sequence_run {
    int64_t next; /* first sequence after the run */
    int64_t row, rows;
    bool needed;
} sequence_run;

/* Advances to the run that begins at s->next; returns false after the last run. */
static bool next_run(const head_job *job, sequence_run *s)
{
    const int64_t sequences = mha__layer_sequences(job->call->in), n = s->next;
    if (n == sequences) return false;
    s->needed = needs(job, n);
    while (s->next < sequences && needs(job, s->next) == s->needed)
        s->next++;
    s->row = row_of(job, n);
    s->rows = row_of(job, s->next) - s->row;
    return true;
}

/* ---- projections of q, k and v ---- */

typedef struct project_job {
    const mha_attn_layer *layer;
    const mha__attn_call *call;
    const mha__chosen *chosen;
    const void *const *x;
    void *qkv;
} project_job;

static void project_task(void *arg, int64_t part, int worker)
{
    (void)worker;
    const project_job *all = arg;
    const mha_attn_layer *l = all->layer;
    const size_t real = mha__attn_real(l);
    int p = 0;
    while (part >= count_of(l, p))
        part -= count_of(l, p++);
    const head_job job = head_of(l, all->call, all->chosen, p, part, all->qkv);
    const size_t row = (size_t)job.row * real, head = (size_t)l->options.head_dim * real;
    for (sequence_run s = {0}; next_run(&job, &s);) {
        char *y = job.y + (size_t)s.row * row;
        if (s.needed)
            mha__linear_run(l->project[p], &(mha__linear_call){.x = (const char *)all->x[p] +
                                                                    (size_t)(s.row * l->options.hidden) * real,
                                                               .rows = s.rows,
                                                               .y = y,
                                                               .y_stride = job.row,
                                                               .parts = l->one_head + (count_of(l, 0) - 1 - part)});
        for (int64_t i = 0; !s.needed && !mha__experts_summed(l) && i < s.rows; i++)
            memset(y + (size_t)i * row + (size_t)part * head, 0, head);
    }
}

void mha__heads_project(const mha_attn_layer *layer, const mha__attn_call *call, const mha__chosen *chosen,
                        const void *const x[3], void *qkv)
{
    project_job job = {.layer = layer, .call = call, .chosen = chosen, .x = x, .qkv = qkv};
    mha__parallel(layer->ctx, count_of(layer, 0) + count_of(layer, 1) + count_of(layer, 2), project_task, &job);
}

/* Returns the arguments that compute dx and the weight gradient of head h from its dy in a run. */
static mha__linear_grad grad_of(const head_job *job, const sequence_run *s, const mha__grad_slot *slot, int64_t h)
{
    const mha_attn_layer *l = job->layer;
    const int64_t E = l->options.hidden, D = l->options.head_dim;
    const size_t real = mha__attn_real(l), head = (size_t)(h * D * E) * real;
    mha__linear_grad g = {.slot = *slot,
                          .rows = s->rows,
                          .in = E,
                          .out = D,
                          .dy = job->y + (size_t)(s->row * job->row + h * D) * real,
                          .dy_stride = job->row,
                          .add_dx = true};
    g.slot.weight = (const char *)slot->weight + head;
    if (slot->dweight) g.slot.dweight = (char *)slot->dweight + head;
    if (slot->dbias) g.slot.dbias = (char *)slot->dbias + (size_t)(h * D) * real;
    return g;
}

mha_status mha__heads_project_back(const mha_attn_layer *layer, const mha__attn_call *call, const mha__chosen *chosen,
                                   int p, const mha__grad_slot *slot, const void *x, void *dqkv, void *dx,
                                   mha_error *err)
{
    const size_t row = (size_t)layer->options.hidden * mha__attn_real(layer);
    for (int64_t h = 0; h < count_of(layer, p); h++) {
        const head_job job = head_of(layer, call, chosen, p, h, dqkv);
        for (sequence_run s = {0}; next_run(&job, &s);) {
            mha__linear_grad g = grad_of(&job, &s, slot, h);
            g.x = (const char *)x + (size_t)s.row * row;
            g.dx = dx ? (char *)dx + (size_t)s.row * row : NULL;
            if (s.needed) MHA__TRY(mha__linear_backward(layer->ctx, &g, err));
        }
    }
    return MHA_OK;
}

/* ---- output projection ---- */

bool mha__heads_output_skips(const mha_attn_layer *layer, const mha_layer_input *in)
{
    /* in published variants, experts are summed before the output projection, which then reads all columns */
    if (layer->as_published && layer->options.choice.of == MHA_CHOICE_EXPERTS) return false;
    return layer->head_part && mha__heads_keep_some(&layer->options) && !in->context && !in->fills;
}

typedef struct output_job {
    const mha_attn_layer *layer;
    const mha_layer_input *in;
    const int32_t *list; /* [sequences, H] kept heads, in the order of summation */
    const char *context;
    int64_t first, rows;
    char *y;
} output_job;

static void output_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const output_job *job = arg;
    const mha_attn_layer_options *o = &job->layer->options;
    const size_t real = mha__attn_real(job->layer);
    const int64_t first = mha__max64(job->first, mha__layer_first_row(job->in, n));
    const int64_t end = mha__min64(job->first + job->rows, mha__layer_first_row(job->in, n + 1));
    const int32_t *list = job->list + n * o->heads;
    const char *x = job->context + (size_t)(first * mha__context_width(job->layer)) * real;
    mha__linear_call call = {.x = x,
                             .x_stride = mha__context_width(job->layer),
                             .rows = end - first,
                             .y = job->y + (size_t)((first - job->first) * job->layer->out) * real};
    if (first >= end) return;
    if (!o->choice.keep) mha__linear_run(job->layer->o, &call); /* no head is kept: y is the bias */
    for (int64_t i = 0, next; i < o->choice.keep; i = next) {
        for (next = i + 1; next < o->choice.keep && list[next] == list[next - 1] + 1;)
            next++;
        call.first = list[i] * o->head_dim;
        call.depth = (next - i) * o->head_dim;
        call.x = x + (size_t)call.first * real;
        mha__linear_run(job->layer->o, &call);
        call.accumulate = true;
    }
}

void mha__heads_output(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                       const void *context, int64_t first, int64_t rows, void *y)
{
    output_job job = {
        .layer = layer, .in = in, .list = chosen->list, .context = context, .first = first, .rows = rows, .y = y};
    mha__parallel(layer->ctx, mha__layer_sequences(in), output_task, &job);
}
