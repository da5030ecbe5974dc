/* test_cluster_attention.c - tests attention over a sequence that is distributed over ranks. Every rank also computes
 * the whole problem alone. In modes tree and ordered, the rows and gradients of a rank must be bitwise identical to
 * those of the whole problem; in mode ring they must agree within rounding, and two runs must be bitwise identical.
 * Some ranks have no chunk of some sequences. */
#include "mpi/cluster_case.h"
#include "support/rng.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors [B, H, L, W], contiguous ---- */

typedef struct tensor {
    int64_t shape[4];
    mha_dtype dtype;
    char *data;
} tensor;

static size_t bytes_of(const tensor *t)
{
    return (size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]) * mha_dtype_size(t->dtype);
}

static tensor make(int64_t B, int64_t H, int64_t L, int64_t W, mha_dtype dtype)
{
    tensor t = {{B, H, L, W}, dtype, NULL};
    t.data = calloc(1, bytes_of(&t) + 1);
    CHECK(t.data);
    return t;
}

static void put(tensor *t, int64_t n, double x)
{
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (t->dtype == MHA_F32) ((float *)t->data)[n] = f;
    if (t->dtype == MHA_F64) ((double *)t->data)[n] = x;
    if (t->dtype == MHA_BF16) ((uint16_t *)t->data)[n] = (uint16_t)(bits >> 16);
}

static double get(const tensor *t, int64_t n)
{
    if (t->dtype == MHA_F64) return ((const double *)t->data)[n];
    if (t->dtype == MHA_F32) return (double)((const float *)t->data)[n];
    const uint32_t bits = (uint32_t)((const uint16_t *)t->data)[n] << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static tensor draw(rng *r, int64_t B, int64_t H, int64_t L, int64_t W, mha_dtype dtype)
{
    tensor t = make(B, H, L, W, dtype);
    for (int64_t n = 0; n < B * H * L * W; n++)
        put(&t, n, rng_normal(r));
    return t;
}

/* The call whose tensors are being divided, with its packed sequences. Rows and keys of a test have different total
 * lengths, or the same sequences. */
static const mha_attn_desc *divided;
static const int64_t *packed_rows, *packed_keys; /* NULL unless the sequences are packed */

static mha_cluster_part own_part(int64_t length)
{
    mha_cluster_part parts[16];
    if (!packed_rows || length == 0) return mha_cluster_part_of(length, me->cp, me->cp_rank);
    const int64_t *cu = length == divided->q_len ? packed_rows : packed_keys;
    CHECK(me->cp <= 16 && mha_cluster_packed_parts(divided, cu, me->cp, parts, &err) == MHA_OK);
    return parts[me->cp_rank];
}

/* Returns a copy of this rank's slice of `whole`, which is distributed over ranks along the third axis. */
static tensor part_of(const tensor *whole)
{
    const mha_cluster_part part = own_part(whole->shape[2]);
    const size_t row = (size_t)whole->shape[3] * mha_dtype_size(whole->dtype);
    tensor t = make(whole->shape[0], whole->shape[1], part.length[0] + part.length[1], whole->shape[3], whole->dtype);
    char *to = t.data;
    for (int64_t plane = 0; plane < whole->shape[0] * whole->shape[1]; plane++)
        for (int n = 0; n < 2; n++) {
            const size_t size = (size_t)part.length[n] * row;
            memcpy(to, whole->data + (size_t)(plane * whole->shape[2] + part.start[n]) * row, size);
            to += size;
        }
    return t;
}

static void compare(const char *mode, const char *name, const tensor *part, const tensor *whole, double tolerance)
{
    tensor want = part_of(whole);
    if (tolerance == 0 && memcmp(part->data, want.data, bytes_of(&want)) != 0) {
        snprintf(err.message, sizeof err.message, "%s: %s must be bitwise identical to the result of one process", mode,
                 name);
        CHECK(!"bits");
    }
    const int64_t count = want.shape[0] * want.shape[1] * want.shape[2] * want.shape[3];
    for (int64_t n = 0; tolerance > 0 && n < count; n++) {
        const double a = get(part, n), b = get(&want, n);
        if (isinf(b) ? a == b : fabs(a - b) <= tolerance * (1 + fabs(b))) continue;
        snprintf(err.message, sizeof err.message, "%s: %s[%lld] must be %g (got %g)", mode, name, (long long)n, b, a);
        CHECK(!"value");
    }
    free(want.data);
}

/* ---- test problems ---- */

typedef struct problem {
    mha_attn_desc desc;
    mha_attn_args args; /* the arguments that `desc` requires */
    int64_t lens[3][4], offsets[2];
    tensor q, k, v, out, lse, keep, bias, slopes, sinks, gates; /* keep and bias have one row if `broadcast` is set */
    tensor dout, dlse, dq, dk, dv, dbias;
    mha_attn_grads grads;
} problem;

typedef struct setting {
    const char *name;
    mha_attn_desc desc;
    bool broadcast; /* if set, keep and bias have one row */
    bool backward;
    int64_t rows[5], keys[5]; /* cu_seqlens_q and cu_seqlens_k of packed sequences */
} setting;

#define SIZES(H, G) \
    .size = sizeof(mha_attn_desc), .heads = H, .kv_heads = G, .head_dim = 8, .v_head_dim = 12, .outputs = MHA_ATTN_LSE
static const setting settings[] = {
    {"causal, grouped-query", {SIZES(2, 1), .batch = 1, .q_len = 4700, .kv_len = 4700, .causal = 1}, .backward = true},
    {"window, slopes, sinks, gates, lengths",
     {SIZES(2, 2), .batch = 2, .q_len = 2100, .kv_len = 2100, .window = {1, 900, 30}, .align = MHA_ALIGN_TOP_LEFT,
      .inputs = MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES | MHA_ATTN_KV_LENS | MHA_ATTN_Q_LENS},
     .backward = true},
    {"bf16, padding, bias",
     {SIZES(4, 2), .batch = 1, .q_len = 1100, .kv_len = 2100, .dtype = MHA_BF16,
      .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS},
     .broadcast = true,
     .backward = true},
    {"f64, prefix, dropout, bottom right",
     {SIZES(2, 1), .batch = 1, .q_len = 1100, .kv_len = 2200, .dtype = MHA_F64, .causal = 1,
      .align = MHA_ALIGN_BOTTOM_RIGHT, .dropout = 0.3, .softcap = 20, .inputs = MHA_ATTN_PREFIX_LENS},
     .backward = true},
    {"offsets, a mask and a bias per row",
     {SIZES(4, 2), .batch = 1, .q_len = 1050, .kv_len = 2100, .causal = 1, .align = MHA_ALIGN_OFFSETS,
      .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS},
     .backward = false},
    {"packed, causal, grouped-query",
     {SIZES(2, 1), .batch = 4, .q_len = 4700, .kv_len = 4700, .causal = 1,
      .inputs = MHA_ATTN_CU_SEQLENS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS | MHA_ATTN_GATES},
     .backward = true,
     .rows = {0, 300, 2900, 2900, 4700},
     .keys = {0, 300, 2900, 2900, 4700}},
    {"packed, window, bottom right, prefix, dropout",
     {SIZES(4, 2), .batch = 3, .q_len = 2500, .kv_len = 4100, .window = {1, 600, 10}, .align = MHA_ALIGN_BOTTOM_RIGHT,
      .dropout = 0.2, .inputs = MHA_ATTN_CU_SEQLENS | MHA_ATTN_PREFIX_LENS},
     .backward = true,
     .rows = {0, 1100, 1300, 2500},
     .keys = {0, 2300, 2600, 4100}},
    {"shorter than a chunk", {SIZES(4, 2), .batch = 2, .q_len = 300, .kv_len = 300, .causal = 1}, .backward = true},
    {"no keys", {SIZES(4, 2), .batch = 1, .q_len = 1100, .kv_len = 0}, .backward = false},
    {"no rows", {SIZES(4, 2), .batch = 1, .q_len = 0, .kv_len = 1100}, .backward = false},
};

static void draw_masks(problem *p, rng *r, bool broadcast)
{
    const mha_attn_desc *d = &p->desc;
    const bool none = !(d->inputs & (MHA_ATTN_KEEP | MHA_ATTN_BIAS));
    const int64_t rows = none ? 0 : broadcast ? 1 : d->q_len;
    p->keep = make(d->batch, 1, rows, d->kv_len, MHA_U8);
    for (int64_t n = 0; n < d->batch * rows * d->kv_len; n++)
        p->keep.data[n] = rng_range(r, 0, 9) > 2;
    p->bias = draw(r, 1, d->heads, rows, d->kv_len, MHA_F32);
}

/* Returns a view with stride 0 for axes of size 1, so that these axes are broadcast. */
static mha_cview broadcast_view(const tensor *t)
{
    const int64_t *s = t->shape;
    return (mha_cview){t->data,
                       {s[0] > 1 ? s[1] * s[2] * s[3] : 0, s[1] > 1 ? s[2] * s[3] : 0, s[2] > 1 ? s[3] : 0, 1}};
}

static void make_problem(problem *p, const setting *s)
{
    const mha_attn_desc *d = &s->desc;
    const mha_dtype type = d->dtype ? d->dtype : MHA_F32, real = type == MHA_F64 ? MHA_F64 : MHA_F32;
    const int64_t B = d->inputs & MHA_ATTN_CU_SEQLENS ? 1 : d->batch, H = d->heads, G = d->kv_heads, Lq = d->q_len,
                  Lk = d->kv_len, D = d->head_dim, Dv = d->v_head_dim;
    rng r = rng_make(31, 1);
    *p = (problem){
        .desc = *d, .lens = {{Lq, Lq - Lq / 3}, {Lk - Lk / 4, Lk}, {Lk / 2, Lk, Lk / 4}}, .offsets = {17, 17}};
    divided = &s->desc;
    packed_rows = d->inputs & MHA_ATTN_CU_SEQLENS ? s->rows : NULL;
    packed_keys = packed_rows ? s->keys : NULL;
    if (s->backward) p->desc.outputs |= MHA_ATTN_GRADS;
    p->q = draw(&r, B, H, Lq, D, type), p->k = draw(&r, B, G, Lk, D, type), p->v = draw(&r, B, G, Lk, Dv, type);
    p->out = make(B, H, Lq, Dv, type), p->lse = make(B, H, Lq, 1, real);
    p->slopes = draw(&r, 1, H, 1, 1, real), p->sinks = draw(&r, 1, H, 1, 1, real),
    p->gates = draw(&r, 1, H, 1, 1, real);
    for (int64_t h = 0; h < H; h++)
        put(&p->slopes, h, 0.01 * fabs(get(&p->slopes, h)));
    p->dout = draw(&r, B, H, Lq, Dv, type), p->dlse = draw(&r, B, H, Lq, 1, real);
    p->dq = make(B, H, Lq, D, type), p->dk = make(B, G, Lk, D, type), p->dv = make(B, G, Lk, Dv, type);
    draw_masks(p, &r, s->broadcast);
    p->dbias = make(B, H, d->inputs & MHA_ATTN_BIAS ? Lq : 0, Lk, MHA_F32);
    const int64_t head[4] = {0, 1, 0, 0};
    mha_attn_args *a = &p->args;
    *a = (mha_attn_args){.size = sizeof *a,
                         .q.data = p->q.data,
                         .k.data = p->k.data,
                         .v.data = p->v.data,
                         .out.data = p->out.data,
                         .lse.data = p->lse.data,
                         .dropout_seed = 5};
    a->cu_seqlens_q = packed_rows, a->cu_seqlens_k = packed_keys;
    if (d->align == MHA_ALIGN_OFFSETS) a->offsets = p->offsets;
    if (d->inputs & MHA_ATTN_Q_LENS) a->q_lens = p->lens[0];
    if (d->inputs & MHA_ATTN_KV_LENS) a->kv_lens = p->lens[1];
    if (d->inputs & MHA_ATTN_PREFIX_LENS) a->prefix_lens = p->lens[2];
    if (d->inputs & MHA_ATTN_KEEP) a->keep = broadcast_view(&p->keep);
    if (d->inputs & MHA_ATTN_BIAS) a->bias = broadcast_view(&p->bias);
    if (d->inputs & MHA_ATTN_SLOPES) a->slopes.data = p->slopes.data, memcpy(a->slopes.stride, head, sizeof head);
    if (d->inputs & MHA_ATTN_SINKS) a->sinks.data = p->sinks.data, memcpy(a->sinks.stride, head, sizeof head);
    if (d->inputs & MHA_ATTN_GATES) a->gates.data = p->gates.data, memcpy(a->gates.stride, head, sizeof head);
}

static void free_problem(problem *p)
{
    tensor *all[] = {&p->q,     &p->k,     &p->v,    &p->out,  &p->lse, &p->keep, &p->bias, &p->slopes,
                     &p->sinks, &p->gates, &p->dout, &p->dlse, &p->dq,  &p->dk,   &p->dv,   &p->dbias};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        free(all[n]->data);
}

/* Sets *p to this rank's slice of the problem `whole`. */
static void make_part(problem *p, const problem *whole)
{
    *p = *whole;
    p->q = part_of(&whole->q), p->k = part_of(&whole->k), p->v = part_of(&whole->v);
    p->out = part_of(&whole->out), p->lse = part_of(&whole->lse), p->dout = part_of(&whole->dout);
    p->dlse = part_of(&whole->dlse);
    p->dq = part_of(&whole->dq), p->dk = part_of(&whole->dk), p->dv = part_of(&whole->dv);
    p->dbias = part_of(&whole->dbias);
    tensor *const masks[] = {&p->keep, &p->bias};
    const tensor *const of[] = {&whole->keep, &whole->bias};
    for (int n = 0; n < 2; n++) {
        *masks[n] = of[n]->shape[2] > 1 ? part_of(of[n])
                                        : make(of[n]->shape[0], of[n]->shape[1], 1, of[n]->shape[3], of[n]->dtype);
        if (of[n]->shape[2] <= 1) memcpy(masks[n]->data, of[n]->data, bytes_of(of[n]));
    }
    mha_attn_args *a = &p->args;
    a->q.data = p->q.data, a->k.data = p->k.data, a->v.data = p->v.data, a->out.data = p->out.data,
    a->lse.data = p->lse.data;
    if (a->keep.data) a->keep = broadcast_view(&p->keep);
    if (a->bias.data) a->bias = broadcast_view(&p->bias);
    /* per-head arguments have no sequence axis, so the slice uses the arrays of the whole problem and owns none */
    p->slopes = p->sinks = p->gates = (tensor){{0}, MHA_F32, NULL};
}

/* ---- runs in each mode ---- */

static void clear(tensor *t)
{
    memset(t->data, 0x5a, bytes_of(t));
}

static void check_forward(problem *whole, problem *part)
{
    static const char *const names[] = {"ring", "tree", "ordered"};
    static const double rounding[] = {[MHA_F32] = 2e-5, [MHA_BF16] = 2e-2, [MHA_F64] = 1e-13};
    const double near = rounding[part->q.dtype];
    CHECK(mha_attention(ctx, &whole->desc, &whole->args, &err) == MHA_OK);
    for (int mode = MHA_CLUSTER_RING; mode <= MHA_CLUSTER_ORDERED; mode++) {
        clear(&part->out), clear(&part->lse);
        CHECK(mha_cluster_attention(cluster, ctx, (mha_cluster_mode)mode, &part->desc, &part->args, &err) == MHA_OK);
        compare(names[mode], "out", &part->out, &whole->out, mode == MHA_CLUSTER_RING ? near : 0);
        compare(names[mode], "lse", &part->lse, &whole->lse, mode == MHA_CLUSTER_RING ? near : 0);
        if (mode != MHA_CLUSTER_RING) continue;
        tensor first = part->out;
        part->out = make(first.shape[0], first.shape[1], first.shape[2], first.shape[3], first.dtype);
        part->args.out.data = part->out.data;
        CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &part->desc, &part->args, &err) == MHA_OK);
        CHECK(memcmp(part->out.data, first.data, bytes_of(&first)) == 0);
        free(first.data);
    }
}

static mha_attn_grads grads_of(const problem *p)
{
    return (mha_attn_grads){.size = sizeof(mha_attn_grads),
                            .dout.data = p->dout.data,
                            .out.data = p->out.data,
                            .lse.data = p->lse.data,
                            .dlse.data = p->dlse.data,
                            .dq.data = p->dq.data,
                            .dk.data = p->dk.data,
                            .dv.data = p->dv.data};
}

static void check_backward(problem *whole, problem *part)
{
    mha_attn_grads all = grads_of(whole), some = grads_of(part);
    const bool bias = whole->desc.inputs & MHA_ATTN_BIAS;
    if (bias) {
        const int64_t H = whole->desc.heads, Lk = whole->desc.kv_len, L = whole->desc.q_len, l = part->q.shape[2];
        all.dbias = (mha_view){whole->dbias.data, {H * L * Lk, L * Lk, Lk, 1}};
        some.dbias = (mha_view){part->dbias.data, {H * l * Lk, l * Lk, Lk, 1}};
    }
    CHECK(mha_attention_backward(ctx, &whole->desc, &whole->args, &all, &err) == MHA_OK);
    clear(&part->dq), clear(&part->dk), clear(&part->dv), clear(&part->dbias);
    CHECK(mha_cluster_attention_backward(cluster, ctx, &part->desc, &part->args, &some, &err) == MHA_OK);
    compare("backward", "dq", &part->dq, &whole->dq, 0);
    compare("backward", "dk", &part->dk, &whole->dk, 0);
    compare("backward", "dv", &part->dv, &whole->dv, 0);
    if (bias) compare("backward", "dbias", &part->dbias, &whole->dbias, 0);
}

static void check_settings(void)
{
    for (size_t n = 0; n < sizeof settings / sizeof *settings; n++) {
        problem whole, part;
        way = settings[n].name;
        make_problem(&whole, &settings[n]);
        make_part(&part, &whole);
        check_forward(&whole, &part);
        if (settings[n].backward) check_backward(&whole, &part);
        free_problem(&part), free_problem(&whole);
    }
}

int main(void)
{
    int provided, ranks;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    cluster_begin(&(mha_cluster_options){
        .size = sizeof(mha_cluster_options), .cp = ranks, .timeout = 120, .message_bytes = 100000});
    check_settings();
    cluster_end();
    MPI_Finalize();
    return 0;
}
