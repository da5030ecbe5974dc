/* latent.c - the projections of multi-head latent attention in the forward pass. */
#include "layer/attention/latent.h"

#include "base/ctx.h"
#include "base/error.h"
#include "layer/norm.h"
#include <string.h>

enum { ROWS_PER_TASK = 16 };

/* ---- weights ---- */

static mha_status create(mha_attn_layer *l, const mha__latent_options *o, mha_error *err)
{
    const size_t bytes = sizeof(mha__latent) + (size_t)(o->q_rank + o->kv_rank) * sizeof(float);
    l->latent = mha__calloc(l->ctx, 1, bytes);
    if (!l->latent) return mha__no_memory(err, bytes, "a latent attention layer");
    mha__latent_options *own = &l->latent->options;
    *own = *o;
    own->q_a = own->q_b = own->kv_a = own->kv_b = (mha_matrix){0};
    own->q_norm.weight = o->q_rank ? l->latent->norms : NULL;
    own->kv_norm.weight = l->latent->norms + o->q_rank;
    return MHA_OK;
}

/* Returns the matrix with its number of rows. */
static mha_matrix rows_of(const mha_matrix *given, int64_t out)
{
    mha_matrix m = *given;
    m.out = out;
    return m;
}

mha_status mha__latent_set(mha_attn_layer *l, const mha__latent_options *o, mha_error *err)
{
    const int64_t E = l->options.hidden, H = l->options.heads;
    if (!l->latent) MHA__TRY(create(l, o, err));
    mha__latent *t = l->latent;
    if (o->q_rank) memcpy(t->norms, o->q_norm.weight, (size_t)o->q_rank * sizeof *t->norms);
    memcpy(t->norms + o->q_rank, o->kv_norm.weight, (size_t)o->kv_rank * sizeof *t->norms);
    const mha_matrix q_a = rows_of(&o->q_a, o->q_rank), q_b = rows_of(&o->q_b, H * (o->nope + o->rope));
    const mha_matrix kv_a = rows_of(&o->kv_a, o->kv_rank + o->rope);
    const mha_matrix kv_b = rows_of(&o->kv_b, H * (o->nope + o->value));
    if (o->q_rank) MHA__TRY(mha__latent_keep(l, E, &q_a, &t->q_a, err));
    MHA__TRY(mha__latent_keep(l, o->q_rank ? o->q_rank : E, &q_b, &t->q_b, err));
    MHA__TRY(mha__latent_keep(l, E, &kv_a, &t->kv_a, err));
    MHA__TRY(mha__latent_keep(l, o->kv_rank, &kv_b, &t->kv_b, err));
    return mha__latent_pack_heads(l, &o->kv_b, err);
}

void mha__latent_free(mha_attn_layer *l)
{
    if (!l->latent) return;
    mha_linear_free(l->latent->q_a);
    mha_linear_free(l->latent->q_b);
    mha_linear_free(l->latent->kv_a);
    mha_linear_free(l->latent->kv_b);
    for (int64_t n = 0; l->latent->head && n < 2 * l->options.heads; n++)
        mha_linear_free(l->latent->head[n]);
    mha__free(l->ctx, l->latent->head);
    mha__free(l->ctx, l->latent);
}

/* ---- memory ---- */

void mha__latent_trace_take(mha__arena *arena, const mha_attn_layer *l, const mha__attn_call *call, mha__attn_trace *t)
{
    if (!l->latent) return;
    const mha__latent_options *o = &l->latent->options;
    const size_t rows = (size_t)mha__attn_rows(call);
    if (o->q_rank) t->q_latent = mha__take(arena, rows, (size_t)o->q_rank * sizeof(float));
    t->kv_latent = mha__take(arena, rows, (size_t)(o->kv_rank + o->rope) * sizeof(float));
}

void mha__latent_scratch_take(mha__arena *arena, const mha_attn_layer *l, const mha__attn_call *call,
                              mha__attn_scratch *s)
{
    if (!l->latent) return;
    const mha__latent_options *o = &l->latent->options;
    const int64_t widest = mha__max64(mha__max64(o->q_rank, o->kv_rank + o->rope), l->options.hidden);
    const size_t rows = (size_t)mha__attn_rows(call);
    const mha_linear *const all[] = {l->latent->q_a, l->latent->q_b, l->latent->kv_a, l->latent->kv_b};
    s->expanded =
        mha__take(arena, rows, (size_t)(l->options.heads * (o->nope + mha__max64(o->rope, o->value))) * sizeof(float));
    s->normed = mha__take(arena, rows, (size_t)widest * sizeof(float));
    if (call->outputs & MHA_ATTN_GRADS) s->dlatent = mha__take(arena, rows, (size_t)widest * sizeof(float));
    s->latent_left = mha__take(arena, 1, mha__linear_max_left(all, 4, mha__attn_rows(call)));
    if (mha__latent_absorbs(l, call->in)) mha__latent_absorbed_take(arena, l, call, s);
}

/* ---- heads ---- */

typedef struct split_job {
    const mha_attn_layer *layer;
    int64_t rows;
    const float *expanded, *shared; /* output of q_b or kv_b; [rows, kv_rank + rope] with the shared key, NULL for q */
    mha__qkv at;
} split_job;

/* Writes a head of q or k: the rotated columns, the other columns, and zeros. */
static void put_head(const mha__latent_options *o, int64_t D, const float *rope, const float *nope, float *to)
{
    memcpy(to, rope, (size_t)o->rope * sizeof *to);
    memcpy(to + o->rope, nope, (size_t)o->nope * sizeof *to);
    memset(to + o->rope + o->nope, 0, (size_t)(D - o->rope - o->nope) * sizeof *to);
}

static void split_row(const split_job *job, int64_t r)
{
    const mha_attn_layer *l = job->layer;
    const mha__latent_options *o = &l->latent->options;
    const int64_t D = l->options.head_dim, H = l->options.heads, row = job->at.q_row;
    const int64_t width = o->nope + (job->shared ? o->value : o->rope);
    for (int64_t h = 0; h < H; h++) {
        const float *from = job->expanded + (r * H + h) * width;
        if (!job->shared) {
            put_head(o, D, from + o->nope, from, (float *)(void *)job->at.q + r * row + h * D);
            continue;
        }
        float *v = (float *)(void *)job->at.v + r * row + h * D;
        put_head(o, D, job->shared + r * (o->kv_rank + o->rope) + o->kv_rank, from,
                 (float *)(void *)job->at.k + r * row + h * D);
        memcpy(v, from + o->nope, (size_t)o->value * sizeof *v);
        memset(v + o->value, 0, (size_t)(D - o->value) * sizeof *v);
    }
}

static void split_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const split_job *job = arg;
    const int64_t end = mha__min64(job->rows, (i + 1) * ROWS_PER_TASK);
    for (int64_t r = i * ROWS_PER_TASK; r < end; r++)
        split_row(job, r);
}

static void run(const mha_linear *linear, const float *x, int64_t rows, float *y, void *left)
{
    mha__linear_run(linear, &(mha__linear_call){.x = x, .rows = rows, .y = y, .left = left});
}

/* Copies the columns of the vectors that the norm covers to `normed`, and normalizes them. */
static void norm_latent(const mha_attn_layer *l, const mha_norm *norm, int64_t rows, int64_t width, int64_t stride,
                        const float *from, float *normed)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(normed + r * width, from + r * stride, (size_t)width * sizeof *normed);
    mha__norm_rows(l->ctx, norm, rows, width, normed, NULL, normed, NULL);
}

void mha__latent_queries(const mha_attn_layer *l, const mha__attn_call *call, const float *x, const mha__attn_trace *t,
                         const mha__attn_scratch *s)
{
    const mha__latent *p = l->latent;
    const mha__latent_options *o = &p->options;
    const int64_t rows = mha__attn_rows(call);
    if (o->q_rank) {
        run(p->q_a, x, rows, t->q_latent, s->latent_left);
        norm_latent(l, &o->q_norm, rows, o->q_rank, o->q_rank, t->q_latent, s->normed);
    }
    run(p->q_b, o->q_rank ? s->normed : x, rows, s->expanded, s->latent_left);
}

void mha__latent_vectors(const mha_attn_layer *l, const mha__attn_call *call, const float *x, const mha__attn_trace *t,
                         const mha__attn_scratch *s)
{
    const mha__latent_options *o = &l->latent->options;
    const int64_t rows = mha__attn_rows(call);
    run(l->latent->kv_a, x, rows, t->kv_latent, s->latent_left);
    norm_latent(l, &o->kv_norm, rows, o->kv_rank, o->kv_rank + o->rope, t->kv_latent, s->normed);
}

void mha__latent_project(const mha_attn_layer *l, const mha__attn_call *call, const float *x, const mha__attn_trace *t,
                         const mha__attn_scratch *s)
{
    const int64_t rows = mha__attn_rows(call), tasks = mha__ceil_div(rows, ROWS_PER_TASK);
    split_job job = {.layer = l, .rows = rows, .expanded = s->expanded, .at = mha__qkv_of(l, call, t->qkv, sizeof *x)};
    mha__latent_queries(l, call, x, t, s);
    mha__parallel(l->ctx, tasks, split_task, &job);
    mha__latent_vectors(l, call, x, t, s);
    run(l->latent->kv_b, s->normed, rows, s->expanded, s->latent_left);
    job.shared = t->kv_latent;
    mha__parallel(l->ctx, tasks, split_task, &job);
}
