/* cached_attend.c - implements cached_attend.h. */
#include "support/attn/cached_attend.h"

#include <math.h>
#include <stdlib.h>

/* An attention call. Batch entry e = 0 .. n - 1 is sequence first + e. q and out are [n, H, most, width] or, if packed,
 * [1, H, total, width]. */
typedef struct call {
    const cached_model *m;
    int64_t first, n, heads, group, max, rows[CACHED_B_MAX], cu[CACHED_B_MAX + 1];
    bool packed;
    tensor q, out;
} call;

static double query_element(int64_t place)
{
    return (double)((int64_t)((uint64_t)(place + 1) * 0xD1B54A32D192ED03u >> 58) - 32) /
           256; /* small elements keep the scores small */
}

/* Returns true if the bind must succeed: every sequence has the requested rows, and the cache has all keys to which
 * these rows attend. */
static bool may_bind(const call *c)
{
    const mha_cache_desc *d = &c->m->desc;
    for (int64_t n = 0; n < c->n; n++) {
        const int64_t b = c->first + n, past = c->m->length[b] - c->rows[n];
        if (c->rows[n] == 0 || c->m->length[b] == 0) continue;
        if (past < 0 || !cached_seen(c->m, b, past)) return false;
        if (past < d->keep_first && c->rows[n] > d->window) return false; /* mha_cache_bind rejects these rows */
    }
    return true;
}

static double score(const call *c, int64_t n, int64_t h, int64_t i, int64_t j)
{
    const cached_model *m = c->m;
    double sum = 0;
    for (int64_t d = 0; d < m->desc.head_dim; d++)
        sum += tensor_get(&c->q, c->packed ? 0 : n, h, (c->packed ? c->cu[n] : 0) + i, d) *
               cached_element(&m->desc, m->id[c->first + n][j], h / c->group, d, false);
    return sum / sqrt((double)m->desc.head_dim);
}

static bool sees(const mha_cache_desc *d, int64_t position, int64_t j)
{
    return j <= position && (d->window == 0 || j < d->keep_first || j > position - d->window);
}

/* Returns true if row i of entry n agrees with the expected values, which are at most 127 in magnitude. */
static bool row_is_near(const call *c, int64_t n, int64_t h, int64_t i)
{
    const cached_model *m = c->m;
    const int64_t b = c->first + n, length = m->length[b], position = length - c->rows[n] + i;
    double weights[CACHED_MAX], sum = 0;
    for (int64_t j = 0; j < length; j++)
        sum += weights[j] = sees(&m->desc, position, j) ? exp(score(c, n, h, i, j)) : 0;
    for (int64_t d = 0; d < m->desc.v_head_dim; d++) {
        double truth = 0;
        for (int64_t j = 0; j < length; j++)
            if (weights[j] > 0)
                truth += weights[j] / sum * cached_element(&m->desc, m->id[b][j], h / c->group, d, true);
        const double got = tensor_get(&c->out, c->packed ? 0 : n, h, (c->packed ? c->cu[n] : 0) + i, d);
        if (!(fabs(got - truth) < 2e-3)) return false;
    }
    return true;
}

static bool all_near(const call *c)
{
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t i = 0; i < c->rows[n]; i++)
                if (!row_is_near(c, n, h, i)) return false;
    return true;
}

static void make_rows(call *c, cached_rows way, const int64_t *rows)
{
    for (int64_t n = 0; n < c->n; n++) {
        c->rows[n] = rows[way == CACHED_ROWS_ALIKE ? 0 : n];
        c->cu[n + 1] = c->cu[n] + c->rows[n];
        if (c->rows[n] > c->max) c->max = c->rows[n];
    }
    c->packed = way == CACHED_ROWS_PACKED;
    if (c->packed) c->max = c->cu[c->n];
}

static void make_tensors(call *c)
{
    static const tensor_layout contiguous = {0};
    const mha_cache_desc *d = &c->m->desc;
    const mha_dtype type = d->dtype == MHA_F64 ? MHA_F64 : MHA_F32;
    const int64_t entries = c->packed ? 1 : c->n;
    tensor_make(&c->q, type, (const int64_t[]){entries, c->heads, c->max, d->head_dim}, &contiguous, NAN);
    tensor_make(&c->out, type, (const int64_t[]){entries, c->heads, c->max, d->v_head_dim}, &contiguous, -1e9);
    for (size_t at = 0; at < c->q.count; at++)
        if (c->q.inside[at]) tensor_set(&c->q, 0, 0, 0, (int64_t)(at - c->q.start), query_element((int64_t)at));
}

static const char *run(mha_ctx *ctx, mha_cache *cache, const call *c, cached_rows way, mha_status *status)
{
    mha_error err = {0};
    mha_attn_desc d = {.size = sizeof d, .heads = c->heads, .q_len = c->max, .dtype = c->q.dtype, .causal = 1};
    mha_attn_args a = {.size = sizeof a, .q = tensor_cview(&c->q), .out = tensor_view(&c->out)};
    if (c->packed) {
        d.inputs = MHA_ATTN_CU_SEQLENS;
        a.cu_seqlens_q = c->cu;
    }
    const int64_t sequence = c->n == c->m->desc.batch ? MHA_CACHE_ALL : c->first;
    *status = mha_cache_bind(cache, sequence, way == CACHED_ROWS_BY_LENGTHS ? c->rows : NULL, &d, &a, &err);
    if ((*status == MHA_OK) != may_bind(c))
        return "a bind must fail if and only if a key to which a row attends is missing";
    if (*status != MHA_OK) return *status == MHA_ERR_ARG ? NULL : "a failed bind must return MHA_ERR_ARG";
    *status = mha_attention(ctx, &d, &a, &err);
    if (*status == MHA_ERR_MEMORY) return NULL;
    if (*status != MHA_OK) return "mha_attention must accept the arguments that a bind has set";
    return all_near(c) ? NULL : "attention over the cache must equal attention over its tokens";
}

const char *cached_attend(mha_ctx *ctx, mha_cache *cache, const cached_model *m, int64_t sequence, cached_rows way,
                          const int64_t *rows, int64_t group, mha_status *status)
{
    const bool all = sequence == MHA_CACHE_ALL;
    call c = {.m = m, .first = all ? 0 : sequence, .n = all ? m->desc.batch : 1, .group = group};
    c.heads = group * m->desc.kv_heads;
    make_rows(&c, way, rows);
    make_tensors(&c);
    const char *law = run(ctx, cache, &c, way, status);
    tensor_free(&c.q);
    tensor_free(&c.out);
    return law;
}
