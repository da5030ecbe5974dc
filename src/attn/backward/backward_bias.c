/* backward_bias.c - computes dbias. Axes of stride 0 (batch, heads, rows or keys) are summed; the remaining axes are
 * divided into tasks. Each task owns a block of dbias and adds all terms of the block in a fixed order. Scores and dO
 * V^T are recomputed for dbias, so only the block itself is stored, in double. A dbias by distance has one element per
 * diagonal; its tasks own all diagonals of a head, and add the diagonals of one block after another. */
#include "attn/backward/backward.h"
#include <string.h>

/* The part of dbias that a task computes: ranges [first, end) of the axes batch, heads, tiles of rows, and blocks of
 * keys. */
typedef struct ranges {
    int64_t first[4], end[4];
} ranges;

/* The strides of rows and keys are opposite, so that all pairs of one distance share an element. */
static bool is_by_distance(const mha__bwd_call *call)
{
    const int64_t *stride = call->grads.dbias.stride;
    return stride[2] != 0 && stride[2] == -stride[3];
}

/* Returns true if a task adds all elements along the axis. */
static bool is_whole(const mha__bwd_call *call, int axis)
{
    return call->grads.dbias.stride[axis] == 0 || (axis >= 2 && is_by_distance(call));
}

/* Counts the units (sequences, heads, tiles of rows, blocks of keys) and the tasks along each axis. */
static void count_tasks(const mha__bwd_call *call, int64_t units[4], int64_t tasks[4])
{
    const mha_attn_desc *d = &call->call.plan->desc;
    units[0] = d->batch;
    units[1] = d->heads;
    units[2] = mha__ceil_div(d->max_q_len, MHA__TILE_Q);
    units[3] = mha__ceil_div(d->max_kv_len, MHA__KEY_BLOCK);
    for (int n = 0; n < 4; n++)
        tasks[n] = is_whole(call, n) ? mha__min64(units[n], 1) : units[n];
}

int64_t mha__bwd_bias_tasks(const mha__bwd_call *call)
{
    int64_t units[4], tasks[4];
    count_tasks(call, units, tasks);
    return tasks[0] * tasks[1] * tasks[2] * tasks[3];
}

static ranges ranges_of(const mha__bwd_call *call, int64_t item)
{
    int64_t units[4], tasks[4];
    ranges r;
    count_tasks(call, units, tasks);
    for (int n = 3; n >= 0; n--) {
        const bool whole = is_whole(call, n);
        r.first[n] = whole ? 0 : item % tasks[n];
        r.end[n] = whole ? units[n] : r.first[n] + 1;
        item /= tasks[n];
    }
    return r;
}

/* Adds the terms of one tile and one block, panel by panel. */
static void add_block(mha__bwd_tile *t, int64_t start)
{
    int64_t first, end;
    if (!mha__mask_block(t->t.call, &t->t.rows, &t->t.span, start, &first, &end)) return;
    const mha__bwd_block block = mha__bwd_load(t, start);
    for (int64_t row = 0; row < t->t.rows.count; row += t->t.k->nr) {
        const mha__panel *p = mha__tile_panel(&t->t, row);
        if (!mha__mask_block(t->t.call, &p->rows, &p->span, start, &first, &end)) continue;
        mha__bwd_panel(t, p, &block, first, end);
        t->t.k->add_wide(end - first, p->rows.count, mha__tile_at(&t->t, t->x.ds, (first - start) * MHA__SPREAD + row),
                         MHA__SPREAD, t->x.dbias + (first - start) * MHA__TILE_Q + row, MHA__TILE_Q);
    }
}

/* Adds the diagonals of a block of rows from `first` and keys from `start` on to the sums per distance, and clears the
 * block. */
static void add_distances(mha__bwd_tile *t, int64_t first, int64_t start)
{
    const mha_attn_desc *d = &t->call->call.plan->desc;
    const int64_t rows = mha__min64(MHA__TILE_Q, d->max_q_len - first);
    const int64_t keys = mha__min64(MHA__KEY_BLOCK, d->max_kv_len - start);
    for (int64_t j = 0; j < keys; j++) {
        const double *from = t->x.dbias + j * MHA__TILE_Q;
        double *to = t->x.distances + d->max_q_len - 1 + start + j - first;
        for (int64_t i = 0; i < rows; i++)
            to[-i] += from[i];
    }
    memset(t->x.dbias, 0, sizeof *t->x.dbias * MHA__KEY_BLOCK * MHA__TILE_Q);
}

/* Adds all tiles and blocks of the task for one head, which has index `result` in the outputs. */
static void add_head(mha__bwd_tile *t, const ranges *r, int64_t b, int64_t h, int64_t result)
{
    const bool by_distance = is_by_distance(t->call);
    for (int64_t tile = r->first[2]; tile < r->end[2]; tile++)
        if (mha__bwd_open(t, b, h, result, tile * MHA__TILE_Q))
            for (int64_t block = r->first[3]; block < r->end[3]; block++) {
                add_block(t, block * MHA__KEY_BLOCK);
                if (by_distance) add_distances(t, tile * MHA__TILE_Q, block * MHA__KEY_BLOCK);
            }
}

/* Adds the terms of all heads of sequence b. */
static void add_sequence(mha__bwd_tile *t, const ranges *r, int64_t b)
{
    const int32_t *list = t->call->call.args.head_list;
    const int64_t listed = t->call->call.plan->desc.listed_heads;
    for (int64_t h = r->first[1]; h < r->end[1]; h++)
        for (int64_t n = list ? 0 : h; n < (list ? listed : h + 1); n++)
            if (!list || list[n] == h) add_head(t, r, b, h, n);
}

/* Sums all rows, or all keys, of the block into its first row or key. */
static void fold(double *sums, bool rows, bool keys)
{
    for (int64_t key = 0; key < MHA__KEY_BLOCK && rows; key++)
        for (int64_t i = 1; i < MHA__TILE_Q; i++)
            sums[key * MHA__TILE_Q] += sums[key * MHA__TILE_Q + i];
    for (int64_t key = 1; key < MHA__KEY_BLOCK && keys; key++)
        for (int64_t i = 0; i < (rows ? 1 : MHA__TILE_Q); i++)
            sums[i] += sums[key * MHA__TILE_Q + i];
}

static void write(const mha__bwd_call *call, const ranges *r, const double *sums)
{
    const mha_attn_desc *d = &call->call.plan->desc;
    const mha_view *view = &call->grads.dbias;
    const size_t size = call->call.plan->kernels->real_size;
    const int64_t first = r->first[2] * MHA__TILE_Q, start = r->first[3] * MHA__KEY_BLOCK;
    const int64_t rows = view->stride[2] ? mha__min64(MHA__TILE_Q, d->max_q_len - first) : 1;
    const int64_t keys = view->stride[3] ? mha__min64(MHA__KEY_BLOCK, d->max_kv_len - start) : 1;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < keys; j++)
            mha__put_real(mha__at_out(view, size, r->first[0], r->first[1], first + i, start + j), 0, size,
                          sums[j * MHA__TILE_Q + i]);
}

static void write_distances(const mha__bwd_call *call, const ranges *r, const double *sums)
{
    const mha_attn_desc *d = &call->call.plan->desc;
    const size_t size = call->call.plan->kernels->real_size;
    for (int64_t n = 1 - d->max_q_len; n < d->max_kv_len; n++) {
        void *to = mha__at_out(&call->grads.dbias, size, r->first[0], r->first[1], mha__max64(-n, 0), mha__max64(n, 0));
        mha__put_real(to, 0, size, sums[d->max_q_len - 1 + n]);
    }
}

void mha__bwd_bias(void *arg, int64_t item, int worker)
{
    const mha__bwd_call *call = arg;
    const mha_attn_desc *d = &call->call.plan->desc;
    const int64_t *stride = call->grads.dbias.stride;
    const ranges r = ranges_of(call, item);
    mha__bwd_call own;
    mha__bwd_tile t = {.call = call};
    mha__bwd_begin(&t, worker);
    memset(t.x.dbias, 0, sizeof *t.x.dbias * MHA__KEY_BLOCK * MHA__TILE_Q);
    memset(t.x.distances, 0, sizeof *t.x.distances * (size_t)(d->max_q_len + d->max_kv_len - 1));
    for (int64_t b = r.first[0]; b < r.end[0]; b++) {
        t.call = mha__bwd_sequence_call(call, b, &own);
        add_sequence(&t, &r, b);
    }
    mha__tile_close(&t.t);
    if (is_by_distance(call)) {
        write_distances(call, &r, t.x.distances);
        return;
    }
    fold(t.x.dbias, stride[2] == 0, stride[3] == 0);
    write(call, &r, t.x.dbias);
}
