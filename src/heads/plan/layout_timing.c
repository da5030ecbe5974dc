/* layout_timing.c - measures the time of a head layout: runs one attention layer, built from the public API, with
 * random weights and inputs, since their values do not affect the time. */
#include "base/clock.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/plan/layout_table.h"
#include "mha/layer.h"
#include "mha/rng.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* One layer and the buffers of a pass. Unset pointers are NULL, so that `close` can free a partly created layer. */
typedef struct layer {
    mha_ctx *ctx;
    int64_t E, D, H, Hkv, B, L, width; /* width: total number of elements of q, k and v per token */
    mha_dtype kv_dtype;
    mha_linear *in, *out, *mix; /* mix: E -> E projection after `out`; NULL unless the layer is a mixture of experts */
    float *x, *qkv, *heads, *y; /* rows of E, width, H D and E elements */
    char *cache;                /* k [B, Hkv, L, D], then v */
    size_t cache_bytes;         /* size of k, and of v */
    mha_attn_plan *plan;
    mha_attn_args args;
    void *workspace;
} layer;

static void layer_close(layer *l)
{
    mha_linear_free(l->in);
    mha_linear_free(l->out);
    mha_linear_free(l->mix);
    void *const memory[] = {l->x, l->qkv, l->heads, l->y, l->cache, l->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        mha__free(l->ctx, memory[i]);
    mha_attn_plan_free(l->plan);
}

/* ---- memory and weights ---- */

static mha_status allocate(layer *l, int64_t rows, int64_t width, size_t element, void **memory, mha_error *err)
{
    size_t bytes;
    if (!mha__bytes((const int64_t[]){rows, width}, 2, element, &bytes)) bytes = SIZE_MAX;
    *memory = mha__alloc(l->ctx, bytes);
    return *memory ? MHA_OK : mha__no_memory(err, bytes, "the timing of a head layout");
}

static mha_status numbers(layer *l, int64_t rows, int64_t width, float **x, mha_error *err)
{
    return allocate(l, rows, width, sizeof **x, (void **)x, err);
}

/* Creates the projections. All projections use the same buffer of weights, which is large enough for the largest
 * one. */
static mha_status make_linear(layer *l, const float *weights, bool mixture, mha_error *err)
{
    MHA__TRY(mha_linear_create(l->ctx, l->E, l->width, weights, NULL, &l->in, err));
    MHA__TRY(mha_linear_create(l->ctx, l->H * l->D, l->E, weights, NULL, &l->out, err));
    return mixture ? mha_linear_create(l->ctx, l->E, l->E, weights, NULL, &l->mix, err) : MHA_OK;
}

static mha_status draw_weights(layer *l, bool mixture, mha_error *err)
{
    mha_rng rng;
    float *weights;
    const int64_t rows = mha__max64(l->width, l->E);
    const double bound = 1 / sqrt((double)l->E);
    MHA__TRY(numbers(l, rows, l->E, &weights, err));
    mha_rng_manual_seed(&rng, 1);
    mha_status status = mha_rng_uniform(&rng, -bound, bound, weights, rows * l->E, err);
    if (status == MHA_OK) status = make_linear(l, weights, mixture, err);
    mha__free(l->ctx, weights);
    return status;
}

static mha_status open_rows(layer *l, int64_t rows, mha_error *err)
{
    mha_rng rng;
    MHA__TRY(numbers(l, rows, l->E, &l->x, err));
    MHA__TRY(numbers(l, rows, l->width, &l->qkv, err));
    MHA__TRY(numbers(l, rows, l->H * l->D, &l->heads, err));
    MHA__TRY(numbers(l, rows, l->E, &l->y, err));
    mha_rng_manual_seed(&rng, 2);
    return mha_rng_uniform(&rng, -1, 1, l->x, rows * l->E, err);
}

/* ---- prefill and decode passes ---- */

static mha_status make_plan(layer *l, int64_t q_len, mha_dtype kv_dtype, mha_error *err)
{
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = l->B,
                                .heads = l->H,
                                .kv_heads = l->Hkv,
                                .q_len = q_len,
                                .kv_len = l->L,
                                .head_dim = l->D,
                                .kv_dtype = kv_dtype,
                                .causal = q_len > 1};
    MHA__TRY(mha_attn_plan_create(l->ctx, &desc, &l->plan, err));
    const size_t bytes = mha_attn_plan_workspace(l->plan);
    l->args = (mha_attn_args){.size = sizeof l->args};
    l->args.q = (mha_cview){l->qkv, {q_len * l->width, l->D, l->width, 1}};
    l->args.out = (mha_view){l->heads, {q_len * l->H * l->D, l->D, l->H * l->D, 1}};
    return bytes == 0 ? MHA_OK : allocate(l, 1, (int64_t)bytes, 1, &l->workspace, err);
}

static mha_status open_prefill(layer *l, mha_error *err)
{
    MHA__TRY(open_rows(l, l->B * l->L, err));
    MHA__TRY(make_plan(l, l->L, MHA_F32, err));
    const mha_cview q = l->args.q;
    l->args.k = l->args.v = q;
    l->args.k.data = l->qkv + l->H * l->D;
    l->args.v.data = l->qkv + (l->H + l->Hkv) * l->D;
    return MHA_OK;
}

/* Prepares a decode pass with a filled cache; the byte pattern 0x3C3C is a small value in each of the three types. */
static mha_status open_decode(layer *l, mha_error *err)
{
    const size_t element = mha_dtype_size(l->kv_dtype);
    l->cache_bytes = (size_t)(l->B * l->Hkv * l->L * l->D) * element;
    MHA__TRY(open_rows(l, l->B, err));
    MHA__TRY(allocate(l, 2, (int64_t)l->cache_bytes, 1, (void **)&l->cache, err));
    memset(l->cache, 0x3C, 2 * l->cache_bytes);
    MHA__TRY(make_plan(l, 1, l->kv_dtype, err));
    l->args.k.data = l->cache;
    l->args.v.data = l->cache + l->cache_bytes;
    return MHA_OK;
}

static mha_status pass(const layer *l, int64_t rows, mha_error *err)
{
    MHA__TRY(mha_linear_forward(l->in, l->x, rows, l->qkv, err));
    MHA__TRY(mha_attn_forward(l->plan, &l->args, l->workspace, mha_attn_plan_workspace(l->plan), err));
    MHA__TRY(mha_linear_forward(l->out, l->heads, rows, l->y, err));
    return l->mix ? mha_linear_forward(l->mix, l->y, rows, l->x, err) : MHA_OK;
}

/* ---- timing ---- */

static mha_status time_pass(const layer *l, int64_t rows, clockid_t clock, double *seconds, mha_error *err)
{
    const double start = mha__now(clock);
    MHA__TRY(pass(l, rows, err));
    *seconds = mha__now(clock) - start;
    return MHA_OK;
}

/* Repeats the pass for `seconds` (at least once), after a warm-up pass that touches all memory, and stores the shortest
 * time. */
static mha_status best_pass(const layer *l, int64_t rows, double seconds, double *best, mha_error *err)
{
    double once;
    MHA__TRY(time_pass(l, rows, CLOCK_MONOTONIC, &once, err));
    const clockid_t clock = mha__clock_for(mha__threads(l->ctx), once);
    const double end = mha__now(CLOCK_MONOTONIC) + seconds;
    *best = INFINITY;
    do {
        MHA__TRY(time_pass(l, rows, clock, &once, err));
        *best = fmin(*best, once);
    } while (mha__now(CLOCK_MONOTONIC) < end);
    return MHA_OK;
}

static mha_status measure(layer *l, bool decode, bool mixture, double seconds, double *best, mha_error *err)
{
    MHA__TRY(decode ? open_decode(l, err) : open_prefill(l, err));
    MHA__TRY(draw_weights(l, mixture, err));
    return best_pass(l, decode ? l->B : l->B * l->L, seconds, best, err);
}

mha_status mha_head_layout_measure(mha_ctx *ctx, const mha_head_layout_options *options, mha_head_layout *row,
                                   double seconds, mha_error *err)
{
    mha_head_layout_options model;
    MHA__TRY(mha_head_layout_resolve(options, &model, err));
    if (!row || row->left_out || row->heads < 1 || row->kv_heads < 1 || row->heads % row->kv_heads != 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_layout_measure: row must be a supported layout");
    if (row->refused)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_head_layout_measure: head_dim %lld: %s",
                         (long long)row->head_dim, row->refused);
    if (!(seconds >= 0)) return mha__fail(err, MHA_ERR_ARG, "seconds must be at least 0 (got %g)", seconds);
    MHA__TRY(mha__ctx_find(&ctx, err));
    double best[2];
    for (int decode = 0; decode < 2; decode++) {
        layer l = {.ctx = ctx, .E = model.d_model, .D = row->head_dim, .H = row->heads, .Hkv = row->kv_heads};
        l.B = model.batch, l.L = model.seq, l.kv_dtype = model.dtype;
        l.width = (l.H + 2 * l.Hkv) * l.D;
        const mha_status status =
            measure(&l, decode, row->variant == MHA_HEAD_LAYOUT_MOE, seconds / 2, &best[decode], err);
        layer_close(&l);
        if (status != MHA_OK) return status;
    }
    row->prefill = best[0] * (double)model.layers;
    row->decode = best[1] * (double)model.layers;
    return MHA_OK;
}
