/* verify_problem.c - see verify_problem.h. */
#include "verify/verify_problem.h"

#include <math.h>

/* ---- random data ---- */

/* Returns an approximately normal random number: the sum of twelve uniform numbers from SplitMix64, minus 6. */
static double next_number(uint64_t *state)
{
    double sum = -6;
    for (int n = 0; n < 12; n++) {
        uint64_t z = *state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        sum += (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
    }
    return sum;
}

/* Allocates *narrow (f32) and *wide (f64) with the same random values. Returns false if memory is exhausted. */
static bool make_numbers(verify_problem *p, int64_t count, uint64_t *state, float **narrow, double **wide)
{
    *narrow = verify_alloc(&p->memory, count, sizeof **narrow, &p->entry);
    *wide = verify_alloc(&p->memory, count, sizeof **wide, &p->entry);
    for (int64_t n = 0; *narrow && *wide && n < count; n++)
        (*wide)[n] = (double)((*narrow)[n] = (float)next_number(state));
    return *narrow && *wide;
}

static double *make_reals(verify_problem *p, int64_t count)
{
    return verify_alloc(&p->memory, count, sizeof(double), &p->entry);
}

static void make_masks(verify_problem *p, uint64_t *state)
{
    int64_t scores = p->rows * p->desc.kv_len;
    if (p->desc.inputs & MHA_ATTN_KEEP) {
        p->keep = verify_alloc(&p->memory, scores, 1, &p->entry);
        for (int64_t n = 0; p->keep && n < scores; n++)
            p->keep[n] = next_number(state) < 0.3;
    }
    if (p->desc.inputs & MHA_ATTN_KV_LENS) {
        p->kv_lens = verify_alloc(&p->memory, p->desc.batch, sizeof *p->kv_lens, &p->entry);
        for (int64_t b = 0; p->kv_lens && b < p->desc.batch; b++)
            p->kv_lens[b] = b % 2 ? p->desc.kv_len / 2 + b : p->desc.kv_len;
    }
}

bool verify_problem_make(verify_problem *p, const mha_attn_desc *desc, const char *name, mha_error *error)
{
    *p = (verify_problem){.desc = *desc, .entry = {NULL, name, error}};
    mha_attn_desc *d = &p->desc;
    uint64_t state = 20261121;
    d->size = sizeof *d;
    p->Hkv = d->kv_heads ? d->kv_heads : d->heads;
    p->Dv = d->v_head_dim ? d->v_head_dim : d->head_dim;
    p->rows = d->batch * d->heads * d->q_len;
    bool ok = make_numbers(p, p->rows * d->head_dim, &state, &p->q, &p->q64) &&
              make_numbers(p, d->batch * p->Hkv * d->kv_len * d->head_dim, &state, &p->k, &p->k64) &&
              make_numbers(p, d->batch * p->Hkv * d->kv_len * p->Dv, &state, &p->v, &p->v64) &&
              make_numbers(p, p->rows * p->Dv, &state, &p->out, &p->out64) &&
              make_numbers(p, p->rows, &state, &p->lse, &p->lse64);
    if (ok && (d->inputs & MHA_ATTN_BIAS)) ok = make_numbers(p, p->rows * d->kv_len, &state, &p->bias, &p->bias64);
    make_masks(p, &state);
    p->probs64 = make_reals(p, p->rows * d->kv_len);
    p->plain_out = make_reals(p, p->rows * p->Dv);
    p->plain_lse = make_reals(p, p->rows);
    return error->status == MHA_OK;
}

/* ---- computation by the operator and by naive loops ---- */

static mha_attn_args arguments(const verify_problem *p, bool wide)
{
    mha_attn_args a = {.size = sizeof a, .kv_lens = p->kv_lens};
    int64_t Lk = p->desc.kv_len, Lq = p->desc.q_len, H = p->desc.heads;
    a.q.data = wide ? (const void *)p->q64 : p->q;
    a.k.data = wide ? (const void *)p->k64 : p->k;
    a.v.data = wide ? (const void *)p->v64 : p->v;
    a.out.data = wide ? (void *)p->out64 : p->out;
    a.lse.data = wide ? (void *)p->lse64 : p->lse;
    a.probs.data = wide ? p->probs64 : NULL;
    a.keep = (mha_cview){p->keep, {H * Lq * Lk, Lq * Lk, Lk, 1}};
    a.bias = (mha_cview){wide ? (const void *)p->bias64 : p->bias, {H * Lq * Lk, Lq * Lk, Lk, 1}};
    return a;
}

mha_status verify_run_wide(mha_ctx *scalar, const verify_problem *p, mha_error *error)
{
    mha_attn_desc d = p->desc;
    mha_attn_args a = arguments(p, true);
    d.dtype = MHA_F64;
    d.outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS;
    return mha_attention(scalar, &d, &a, error);
}

mha_status verify_run_narrow(mha_ctx *ctx, const verify_problem *p, mha_error *error)
{
    mha_attn_desc d = p->desc;
    mha_attn_args a = arguments(p, false);
    d.outputs = MHA_ATTN_LSE;
    return mha_attention(ctx, &d, &a, error);
}

static float plain_score(const verify_problem *p, const float *q, const float *k, int64_t index)
{
    float dot = 0;
    for (int64_t d = 0; d < p->desc.head_dim; d++)
        dot += q[d] * k[d];
    float scale = p->desc.scale != 0 ? (float)p->desc.scale : 1 / sqrtf((float)p->desc.head_dim);
    float cap = (float)p->desc.softcap, s = dot * scale;
    if (cap > 0) s = cap * tanhf(s / cap);
    return p->bias ? s + p->bias[index] : s;
}

/* Computes one row with naive f32 loops. A key is masked if its probability in double precision is 0. */
static void plain_row(verify_problem *p, int64_t row, float *s)
{
    int64_t Lk = p->desc.kv_len, D = p->desc.head_dim, h = row / p->desc.q_len;
    int64_t b = h / p->desc.heads, g = h % p->desc.heads / (p->desc.heads / p->Hkv), kv = (b * p->Hkv + g) * Lk;
    const double *seen = p->probs64 + row * Lk;
    float max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < Lk; j++) {
        if (!(seen[j] > 0)) continue;
        s[j] = plain_score(p, p->q + row * D, p->k + (kv + j) * D, row * Lk + j);
        max = fmaxf(max, s[j]);
    }
    for (int64_t j = 0; j < Lk; j++)
        if (seen[j] > 0) sum += s[j] = expf(s[j] - max);
    p->plain_lse[row] = sum > 0 ? (double)(max + logf(sum)) : -INFINITY;
    for (int64_t d = 0; d < p->Dv; d++) {
        float out = 0;
        for (int64_t j = 0; j < Lk; j++)
            if (seen[j] > 0) out += s[j] / sum * p->v[(kv + j) * p->Dv + d];
        p->plain_out[row * p->Dv + d] = (double)out;
    }
}

mha_status verify_run_plain(verify_problem *p)
{
    float *s = verify_alloc(&p->memory, p->desc.kv_len, sizeof *s, &p->entry);
    for (int64_t row = 0; s && row < p->rows; row++)
        plain_row(p, row, s);
    return p->entry.error->status;
}
