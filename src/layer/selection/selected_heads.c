/* selected_heads.c - heads chosen for each sequence, and what an attention layer computes when it is not all of them.
 *
 * qkv is then packed head by head, so that a product may leave heads out. A task of the projections is one unit and all
 * sequences that keep it: its weights stay at hand while rows stream past, and neighbours that both keep it are one
 * product. A task of the output is one sequence: runs of kept heads, each a part of the depth. Zeros that are left out
 * of a chain of sums change no bit of it.
 */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "layer/linear/linear.h"
#include "layer/selection/head_selection.h"
#include "layer/selection/selection_gates.h"
#include "math/linalg.h"
#include <math.h>
#include <string.h>

/* ---- creation ---- */

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

int64_t mha__attn_layer_units(const mha_attn_layer_options *o, int64_t k_heads, int64_t v_heads)
{
    return common_divisor(o->heads, common_divisor(k_heads, v_heads));
}

static int64_t units_of(const mha_attn_layer *l)
{
    return mha__attn_layer_units(&l->options, l->k_heads, l->v_heads);
}

/* Rows of a matrix that is stored [in, out], as [out, in]. */
static void turn(const mha_matrix *m, int64_t in, float *to)
{
    for (int64_t k = 0; k < in; k++)
        for (int64_t r = 0; r < m->out; r++)
            to[r * in + k] = m->weight[k * m->out + r];
}

/* Heads of one matrix, [out, in] by now, as so many parts. */
static mha__matrix *cut(const float *weight, const float *bias, int64_t count, const mha_attn_layer_options *o,
                        mha__matrix *part)
{
    const int64_t D = o->head_dim;
    for (int64_t h = 0; h < count; h++)
        *part++ = (mha__matrix){.weight = weight + h * D * o->hidden, .bias = bias ? bias + h * D : NULL, .out = D};
    return part;
}

/* Which parts of q | k | v belong to each unit. */
static void list_units(const mha_attn_layer_options *o, int64_t units, uint8_t *parts)
{
    const int64_t counts[] = {o->heads, o->kv_heads, o->v_heads}, all = counts[0] + counts[1] + counts[2];
    for (int64_t p = 0, first = 0; p < 3; first += counts[p++])
        for (int64_t h = 0; h < counts[p]; h++)
            parts[h / (counts[p] / units) * all + first + h] = 1;
}

static mha_status pack(mha_attn_layer *l, const mha_attn_layer_options *o, mha__matrix *part, float *turned,
                       mha_error *err)
{
    const int64_t counts[] = {o->heads, o->kv_heads, o->v_heads}, D = o->head_dim, E = o->hidden;
    const mha_matrix given[] = {o->q, o->k, o->v};
    mha__matrix *next = part;
    for (int64_t p = 0, row = 0; p < 3; row += counts[p++] * D) {
        mha_matrix m = o->qkv.weight ? o->qkv : given[p];
        m.out = o->qkv.weight ? (counts[0] + counts[1] + counts[2]) * D : counts[p] * D;
        if (m.transposed && (p == 0 || !o->qkv.weight)) turn(&m, E, turned + (o->qkv.weight ? 0 : row * E));
        const int64_t first = o->qkv.weight ? row : 0;
        const float *weight = m.transposed ? turned + row * E : m.weight + first * E;
        next = cut(weight, m.bias ? m.bias + first : NULL, counts[p], o, next);
    }
    return mha__linear_create(l->ctx, MHA_F32, E, part, next - part, MHA_ACT_NONE, &l->qkv, err);
}

mha_status mha__attn_route_pack(mha_attn_layer *l, const mha_attn_layer_options *o, mha_error *err)
{
    const int64_t all = o->heads + o->kv_heads + o->v_heads;
    const int64_t units = mha__attn_layer_units(o, o->kv_heads, o->v_heads);
    const mha_matrix *q = o->qkv.weight ? &o->qkv : &o->q;
    const bool turns = q->transposed || o->k.transposed || o->v.transposed;
    size_t bytes = 0;
    if (o->dtype != MHA_F32 || (q->packed && q->packed != MHA_F32))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "attention layer: by_head in %s; only f32 is built",
                         mha_dtype_name(o->dtype != MHA_F32 ? o->dtype : q->packed));
    if (!mha__bytes((int64_t[]){all, o->head_dim, o->hidden}, 3, sizeof(float), &bytes))
        return mha__no_memory(err, SIZE_MAX, "an attention layer's heads");
    l->unit_parts = mha__calloc(l->ctx, (size_t)(units * all), 1);
    mha__matrix *part = mha__calloc(l->ctx, (size_t)all, sizeof *part);
    float *turned = turns ? mha__alloc(l->ctx, bytes) : NULL;
    mha_status status = MHA_OK;
    if (!l->unit_parts || !part || (turns && !turned))
        status = mha__no_memory(err, bytes, "an attention layer's heads");
    if (status == MHA_OK) {
        list_units(o, units, l->unit_parts);
        status = pack(l, o, part, turned, err);
    }
    mha__free(l->ctx, turned);
    mha__free(l->ctx, part);
    return status;
}

/* ---- one call ---- */

mha_status mha__attn_route_check(const mha_attn_layer *layer, const mha_layer_input *in, mha_error *err)
{
    const mha_layer_route *r = in->route;
    if (!layer->unit_parts)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: a route, but the layer was created without by_head");
    if (in->rows) return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_layer_input: statistics of some rows with a route");
    if (!r->weight || !r->bias || !r->kept)
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_route: %s is NULL",
                         !r->weight ? "weight"
                         : !r->bias ? "bias"
                                    : "kept");
    if (r->keep < 1 || r->keep > units_of(layer))
        return mha__fail(err, MHA_ERR_ARG, "mha_layer_route: keep is %lld, not 1..%lld", (long long)r->keep,
                         (long long)units_of(layer));
    return MHA_OK;
}

typedef struct route_job {
    const mha_attn_layer *layer;
    const mha_layer_input *in;
    const float *x;
    double *memory;
    float *qkv;
    const float *context;
    int64_t first, rows; /* of y */
    float *y;
} route_job;

/* ---- the decision ---- */

size_t mha__attn_route_doubles(const mha_attn_layer *layer)
{
    return (size_t)mha__threads(layer->ctx) * (size_t)(layer->options.hidden + units_of(layer));
}

static void decide_task(void *arg, int64_t n, int worker)
{
    const route_job *job = arg;
    const mha_layer_route *r = job->in->route;
    const int64_t E = job->layer->options.hidden, H = job->layer->options.heads, units = units_of(job->layer);
    double *m = job->memory + worker * (E + units), *score = m + E;
    if (r->decided && r->decided[n]) return;
    mha__attn_mean(job->layer, job->in, job->x, n, m);
    for (int64_t u = 0; u < units; u++) {
        const double s = r->bias[u] + mha__dot(E, r->weight + u * E, m);
        score[u] = isnan(s) ? -INFINITY : s;
    }
    for (int64_t u = 0; u < units; u++)
        memset(r->kept + n * H + u * (H / units), mha__score_rank(units, score, u) < r->keep, (size_t)(H / units));
}

void mha__attn_route_decide(const mha_attn_layer *layer, const mha_layer_input *in, const float *x, double *memory)
{
    route_job job = {.layer = layer, .in = in, .x = x, .memory = memory};
    mha__parallel(layer->ctx, mha__layer_sequences(in), decide_task, &job);
}

/* ---- the projections ---- */

/* Zeros for the heads of a unit in rows [first, end). */
static void clear(const route_job *job, int64_t unit, int64_t first, int64_t end)
{
    const mha_attn_layer *l = job->layer;
    const int64_t units = units_of(l), D = l->options.head_dim, H = l->options.heads;
    const int64_t counts[] = {H, l->k_heads, l->v_heads}, row = (H + 2 * l->options.kv_heads) * D;
    for (int64_t p = 0, at = 0; p < 3; at += counts[p++] * D) {
        const int64_t width = counts[p] / units * D;
        for (int64_t r = first; r < end; r++)
            memset(job->qkv + r * row + at + unit * width, 0, (size_t)width * sizeof *job->qkv);
    }
}

static void project_task(void *arg, int64_t unit, int worker)
{
    (void)worker;
    const route_job *job = arg;
    const mha_attn_layer *l = job->layer;
    const mha_attn_layer_options *o = &l->options;
    const int64_t sequences = mha__layer_sequences(job->in), parts = o->heads + l->k_heads + l->v_heads;
    const int64_t row = (o->heads + 2 * o->kv_heads) * o->head_dim;
    const uint8_t *kept = job->in->route->kept + unit * (o->heads / units_of(l));
    for (int64_t n = 0, next; n < sequences; n = next) {
        for (next = n + 1; next < sequences && kept[next * o->heads] == kept[n * o->heads];)
            next++;
        const int64_t first = mha__layer_first_row(job->in, n), end = mha__layer_first_row(job->in, next);
        if (kept[n * o->heads])
            mha__linear_run(l->qkv, &(mha__linear_call){.x = job->x + first * o->hidden,
                                                        .rows = end - first,
                                                        .y = job->qkv + first * row,
                                                        .y_stride = row,
                                                        .parts = l->unit_parts + unit * parts});
        else
            clear(job, unit, first, end);
    }
}

void mha__attn_route_project(const mha_attn_layer *layer, const mha_layer_input *in, const float *x, float *qkv)
{
    route_job job = {.layer = layer, .in = in, .x = x, .qkv = qkv};
    mha__parallel(layer->ctx, units_of(layer), project_task, &job);
    mha__attn_layer_spread(layer, in->batch * in->length, qkv);
}

/* ---- the output ---- */

static void output_task(void *arg, int64_t n, int worker)
{
    (void)worker;
    const route_job *job = arg;
    const mha_attn_layer_options *o = &job->layer->options;
    const int64_t first = mha__max64(job->first, mha__layer_first_row(job->in, n));
    const int64_t end = mha__min64(job->first + job->rows, mha__layer_first_row(job->in, n + 1));
    const uint8_t *kept = job->in->route->kept + n * o->heads;
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

void mha__attn_route_output(const mha_attn_layer *layer, const mha_layer_input *in, const float *context, int64_t first,
                            int64_t rows, float *y)
{
    route_job job = {.layer = layer, .in = in, .context = context, .first = first, .rows = rows, .y = y};
    mha__parallel(layer->ctx, mha__layer_sequences(in), output_task, &job);
}
