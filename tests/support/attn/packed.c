/* packed.c - packs the sequences of a problem and compares the results with those of the padded problem. */
#include "support/attn/packed.h"

#include "support/check.h"
#include <stdio.h>

static const tensor_layout plain;

static int64_t rows_of(const problem *p, int64_t b)
{
    return p->cu_q[b + 1] - p->cu_q[b];
}

static int64_t keys_of(const problem *p, int64_t b)
{
    return p->desc.inputs & MHA_ATTN_BLOCK_TABLE ? p->desc.kv_len : p->cu_k[b + 1] - p->cu_k[b];
}

/* ---- packing a problem ---- */

/* Computes cu, the boundaries of the packed sequences, from their lengths. Without the input `flag`, all sequences have
 * the length `longest`; with this input, the length of sequence b is lens[b] or, at random, a value from lens[b] to
 * `longest`. */
static void cut(problem *p, uint32_t flag, const int64_t *lens, int64_t longest, int64_t *cu, rng *r)
{
    const bool given = p->desc.inputs & flag, exact = rng_chance(r, 0.5);
    if (exact) p->desc.inputs &= ~flag;
    cu[0] = 0;
    for (int64_t b = 0; b < p->desc.batch; b++)
        cu[b + 1] = cu[b] + (!given ? longest : exact ? lens[b] : rng_range(r, lens[b], longest));
}

/* Converts `t` from padded [B, heads, L, width] to packed [1, heads, total length, width]. */
static void pack(tensor *t, const int64_t *cu, double guard)
{
    tensor all;
    const int64_t B = t->dim[0];
    if (!t->memory) return;
    tensor_make(&all, t->dtype, (int64_t[]){1, t->dim[1], cu[B], t->dim[3]}, &plain, guard);
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < t->dim[1]; h++)
            for (int64_t l = 0; l < cu[b + 1] - cu[b]; l++)
                for (int64_t d = 0; d < t->dim[3]; d++)
                    tensor_set(&all, 0, h, cu[b] + l, d, tensor_get(t, b, h, l, d));
    tensor_free(t);
    *t = all;
}

void packed_make(problem *p, uint64_t seed)
{
    rng r = rng_make(seed, 21);
    mha_attn_desc *d = &p->desc;
    const bool paged = d->inputs & MHA_ATTN_BLOCK_TABLE;
    cut(p, MHA_ATTN_Q_LENS, p->q_lens, d->q_len, p->cu_q, &r);
    if (!paged) cut(p, MHA_ATTN_KV_LENS, p->kv_lens, d->kv_len, p->cu_k, &r);
    d->inputs |= MHA_ATTN_CU_SEQLENS;
    d->max_q_len = d->q_len;
    d->max_kv_len = paged ? 0 : d->kv_len;
    d->q_len = p->cu_q[d->batch];
    pack(&p->q, p->cu_q, TEST_POISON);
    pack(&p->out, p->cu_q, TEST_CANARY);
    pack(&p->lse, p->cu_q, TEST_CANARY);
    for (int n = 0; n < PROBLEM_STATS; n++)
        if (n != RECEIVED) pack(&p->stats[n], p->cu_q, TEST_CANARY);
    if (!paged) {
        d->kv_len = p->cu_k[d->batch];
        pack(&p->k, p->cu_k, TEST_POISON);
        pack(&p->v, p->cu_k, TEST_POISON);
        pack(&p->stats[RECEIVED], p->cu_k, TEST_CANARY);
    }
    problem_bind(p);
}

/* ---- comparison of results ---- */

typedef struct place {
    const char *name;
    const tensor *packed, *padded;
    const int64_t *cu; /* first row of each sequence; NULL if not packed */
} place;

static bool same(double a, double b)
{
    return a == b ? signbit(a) == signbit(b) : isnan(a) && isnan(b);
}

/* Compares row `l` of sequence b: the first `width` elements must equal those of the padded problem, and all other
 * elements must be unwritten. */
static bool same_row(const place *at, int64_t b, int64_t l, int64_t width, char *why, size_t capacity)
{
    for (int64_t h = 0; h < at->packed->dim[1]; h++)
        for (int64_t d = 0; d < at->packed->dim[3]; d++) {
            const double got = tensor_get(at->packed, at->cu ? 0 : b, h, l + (at->cu ? at->cu[b] : 0), d);
            const double want = d < width ? tensor_get(at->padded, b, h, l, d) : TEST_CANARY;
            if (same(got, want)) continue;
            snprintf(why, capacity, "packed: %s[%lld,%lld,%lld,%lld] must be %.9g (got %.9g)", at->name, (long long)b,
                     (long long)h, (long long)l, (long long)d, want, got);
            return false;
        }
    return true;
}

/* Compares probs or scores, which are [B, heads, max rows, max keys] in both problems. */
static bool same_map(const problem *p, const place *at, char *why, size_t capacity)
{
    for (int64_t b = 0; b < p->desc.batch && at->packed->memory; b++)
        for (int64_t l = 0; l < at->packed->dim[2]; l++)
            if (!same_row(at, b, l, l < rows_of(p, b) ? keys_of(p, b) : 0, why, capacity)) return false;
    return true;
}

static bool same_sequences(const problem *p, const place *at, char *why, size_t capacity)
{
    for (int64_t b = 0; b < p->desc.batch && at->packed->memory; b++) {
        const int64_t length = at->cu ? at->cu[b + 1] - at->cu[b] : at->packed->dim[2];
        for (int64_t l = 0; l < length; l++)
            if (!same_row(at, b, l, at->packed->dim[3], why, capacity)) return false;
    }
    return true;
}

bool packed_same(const problem *packed, const problem *padded, char *why, size_t capacity)
{
    static const char *const names[PROBLEM_STATS] = {"row_entropy", "row_max",  "row_argmax", "row_distance",
                                                     "received",    "top_prob", "top_key"};
    const bool paged = packed->desc.inputs & MHA_ATTN_BLOCK_TABLE;
    const place out = {"out", &packed->out, &padded->out, packed->cu_q};
    const place lse = {"lse", &packed->lse, &padded->lse, packed->cu_q};
    const place probs = {"probs", &packed->probs, &padded->probs, NULL};
    const place scores = {"scores", &packed->scores, &padded->scores, NULL};
    if (!same_sequences(packed, &out, why, capacity) || !same_sequences(packed, &lse, why, capacity) ||
        !same_map(packed, &probs, why, capacity) || !same_map(packed, &scores, why, capacity))
        return false;
    for (int n = 0; n < PROBLEM_STATS; n++) {
        const int64_t *cu = n != RECEIVED ? packed->cu_q : paged ? NULL : packed->cu_k;
        const place at = {names[n], &packed->stats[n], &padded->stats[n], cu};
        if (n == RECEIVED && packed->desc.q_len == 0) continue; /* not written if there are no rows */
        if (!same_sequences(packed, &at, why, capacity)) return false;
    }
    return true;
}
