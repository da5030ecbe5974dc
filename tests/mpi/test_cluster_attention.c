/* test_cluster_attention.c - tests attention over a sequence that is distributed over ranks. Every rank also computes
 * the whole problem alone. In modes tree and ordered, the rows and gradients of a rank must be bitwise identical to
 * those of the whole problem; in mode ring they must agree within rounding, and two runs must be bitwise identical.
 * Some ranks have no chunk of some sequences. */
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mha/cluster.h"
#include "support/rng.h"

static mha_cluster *cluster;
static mha_ctx *ctx;
static const mha_cluster_info *me;
static mha_error err;
static const char *way;

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            printf("FAIL: rank %d: %s: line %d: %s (%s)\n", me->rank, way, __LINE__, #condition, err.message); \
            fflush(stdout);                                                                                    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                      \
        }                                                                                                      \
    } while (0)

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

/* ---- layout, and rejected arguments ---- */

static void check_layout(void)
{
    way = "layout";
    for (int cp = 1; cp <= 7; cp++)
        for (int64_t length = 0; length < 40000; length = length * 3 + 1) {
            int64_t all = 0, next = 0;
            for (int chunk = 0; chunk < 2 * cp; chunk++) {
                const int rank = chunk < cp ? chunk : 2 * cp - 1 - chunk;
                const mha_cluster_part p = mha_cluster_part_of(length, cp, rank);
                const int n = chunk >= cp;
                CHECK(p.start[n] == next && (p.length[n] % MHA_ATTN_CHUNK == 0 || p.start[n] + p.length[n] == length));
                next += p.length[n];
                all += p.length[n];
            }
            CHECK(all == length);
        }
    const mha_cluster_part none = mha_cluster_part_of(10, 2, 2);
    CHECK(none.length[0] == 0 && none.length[1] == 0 && mha_cluster_part_of(-1, 1, 0).length[0] == 0);
}

/* Given 4,096 positions of which the first 3,072 are one sequence, the most expensive of four chunks is the third, and
 * the cheapest is the last. */
static void check_packed_layout(void)
{
    const int64_t cu[] = {0, 3072, 3328, 3584, 4096}, one[] = {0, 16384}, wrong[] = {0, 9, 8, 8, 8};
    const mha_attn_desc d = {.size = sizeof d, .batch = 4, .causal = 1},
                        single = {.size = sizeof d, .batch = 1, .causal = 1};
    mha_cluster_part parts[4];
    way = "packed layout";
    CHECK(mha_cluster_packed_parts(&d, cu, 2, parts, &err) == MHA_OK);
    const mha_cluster_part want[2] = {{{2048, 3072}, {1024, 1024}}, {{0, 1024}, {1024, 1024}}};
    CHECK(memcmp(parts, want, sizeof want) == 0);
    CHECK(mha_cluster_packed_parts(&single, one, 4, parts, &err) == MHA_OK);
    for (int rank = 0; rank < 4; rank++) {
        const mha_cluster_part zigzag = mha_cluster_part_of(one[1], 4, rank);
        CHECK(memcmp(&parts[rank], &zigzag, sizeof zigzag) == 0);
    }
    CHECK(mha_cluster_packed_parts(&d, wrong, 2, parts, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "cu_seqlens must ascend from 0 (got 9 to 8)"));
    CHECK(mha_cluster_packed_parts(&d, cu, 0, parts, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "cp must be at least 1 (got 0)"));
    CHECK(mha_cluster_packed_parts(&(mha_attn_desc){.batch = -1}, cu, 2, parts, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "batch must be at least 0 (got -1)"));
    CHECK(mha_cluster_packed_parts(&d, NULL, 2, parts, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "cu_seqlens must not be NULL"));
}

static void check_packed_refusals(void)
{
    float x[16] = {0};
    const int64_t cu[] = {0, 1}, longer[] = {0, 2};
    mha_attn_desc d = {.size = sizeof d,
                       .batch = 1,
                       .heads = 1,
                       .q_len = 1,
                       .kv_len = 1,
                       .head_dim = 4,
                       .inputs = MHA_ATTN_CU_SEQLENS};
    mha_attn_args a = {
        .size = sizeof a, .q.data = x, .k.data = x + 4, .v.data = x + 8, .out.data = x + 12, .cu_seqlens_q = cu};
    way = "packed refusals";
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "cu_seqlens_k must not be NULL"));
    a.cu_seqlens_k = longer;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message,
                 "cu_seqlens_k must begin with 0, and sequence 0 must have from 0 to 1 positions (got 0 to 2)"));
    a.cu_seqlens_k = cu;
    d.inputs |= MHA_ATTN_KEEP;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "for packed sequences distributed over ranks (got 0x11)"));
}

static void check_refusals(void)
{
    float x[16] = {0};
    int64_t lens[1] = {9};
    way = "refusals";
    mha_attn_desc d = {.size = sizeof d, .batch = 1, .heads = 1, .q_len = 1, .kv_len = 1, .head_dim = 4};
    mha_attn_args a = {.size = sizeof a, .q.data = x, .k.data = x + 4, .v.data = x + 8, .out.data = x + 12};
    mha_attn_grads g = {.size = sizeof g, .dout.data = x, .out.data = x, .lse.data = x, .dsinks.data = x};
    CHECK(mha_cluster_attention(NULL, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_attention(cluster, ctx, (mha_cluster_mode)9, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "mode must be one of ring, tree, ordered (got 9)"));
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d, &a, NULL, &err) == MHA_ERR_ARG);
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d, &a, &g, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "outputs must have MHA_ATTN_GRADS (got 0x0)"));
    d.outputs = MHA_ATTN_GRADS;
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d, &a, &g, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "dslopes, dsinks, dgates and row_taylor must be NULL"));
    d.outputs = MHA_ATTN_STATS;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_UNSUPPORTED);
    d.outputs = 0;
    d.inputs = MHA_ATTN_KV_LENS;
    a.kv_lens = lens;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    CHECK(strstr(err.message, "kv_lens[0] must be from 0 to 1 (got 9)"));
    d.inputs = 0;
    d.head_dim = 0;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_RING, &d, &a, &err) == MHA_ERR_ARG);
    char begins[96];
    snprintf(begins, sizeof begins, "rank %d (%s): head_dim", me->rank, mha_cluster_host(cluster, me->rank));
    CHECK(strncmp(err.message, begins, strlen(begins)) == 0);
}

/* Structs of newer headers must be accepted if their additional fields are zero, and rejected otherwise. */
static void check_newer_structs(void)
{
    float x[5][4] = {{1, 2, 3, 4}, {1, 1, 1, 1}, {2, 3, 5, 7}}, lse = 0;
    const int rows = me->rank == 0;
    way = "newer structs";
    struct {
        mha_attn_desc known;
        int64_t later;
    } d = {.known = {sizeof d, .batch = 1, .heads = 1, .q_len = 1, .kv_len = 1, .head_dim = 4}};
    struct {
        mha_attn_args known;
        int64_t later;
    } a = {.known = {sizeof a, .q.data = x[0], .k.data = x[1], .v.data = x[2], .out.data = x[3], .lse.data = &lse}};
    struct {
        mha_attn_grads known;
        int64_t later;
    } g = {.known = {sizeof g, .dout.data = x[0], .out.data = x[3], .lse.data = &lse, .dv.data = x[4]}};
    d.known.outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_TREE, &d.known, &a.known, &err) == MHA_OK);
    CHECK(!rows || memcmp(x[3], x[2], sizeof x[2]) == 0);
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d.known, &a.known, &g.known, &err) == MHA_OK);
    CHECK(!rows || memcmp(x[4], x[0], sizeof x[0]) == 0);
    g.later = 1;
    CHECK(mha_cluster_attention_backward(cluster, ctx, &d.known, &a.known, &g.known, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "mha_attn_grads.size must be at most "));
    a.later = 1;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_TREE, &d.known, &a.known, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "mha_attn_args.size must be at most "));
    d.later = 1;
    CHECK(mha_cluster_attention(cluster, ctx, MHA_CLUSTER_TREE, &d.known, &a.known, &err) == MHA_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "mha_attn_desc.size must be at most "));
}

int main(void)
{
    int provided, ranks;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const mha_cluster_options options = {.size = sizeof options, .cp = ranks, .timeout = 120, .message_bytes = 100000};
    if (mha_cluster_open(&options, &cluster, &err) != MHA_OK) return printf("%s\n", err.message), 1;
    me = mha_cluster_describe(cluster);
    way = "context";
    CHECK(mha_cluster_ctx_create(cluster, NULL, 0, &ctx, &err) == MHA_OK);
    check_layout();
    check_packed_layout();
    check_refusals();
    check_packed_refusals();
    check_newer_structs();
    check_settings();
    mha_ctx_free(ctx);
    mha_cluster_free(cluster);
    MPI_Finalize();
    return 0;
}
