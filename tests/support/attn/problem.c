/* problem.c - implements problem.h. Creates problems, runs them, and compares their results. */
#include "support/attn/problem.h"

#include "support/attn/functions.h"
#include "support/attn/statistics.h"
#include "support/check.h"
#include "support/reference/half.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const mha_attn_desc problem_valid = {.size = sizeof problem_valid,
                                     .batch = 2,
                                     .heads = 6,
                                     .kv_heads = 2,
                                     .q_len = 5,
                                     .kv_len = 9,
                                     .head_dim = 16,
                                     .v_head_dim = 8};

static double next_normal(void *arg)
{
    return rng_normal(arg);
}

static double next_kept(void *arg)
{
    return rng_chance(arg, 0.6) ? (double)rng_range(arg, 1, 255) : 0;
}

static double next_bias(void *arg)
{
    return rng_chance(arg, 0.1) ? -INFINITY : 2 * rng_normal(arg);
}

/* Returns a random ALiBi slope from 1, 1/2 ... 1/128 or, with probability 0.2, a small negative slope. */
static double next_slope(void *arg)
{
    double slope = ldexp(1, -(int)rng_range(arg, 0, 7));
    return rng_chance(arg, 0.2) ? -slope / 16 : slope;
}

static double next_sink(void *arg)
{
    return rng_chance(arg, 0.1) ? -INFINITY : 3 * rng_normal(arg);
}

static int64_t resolved(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

static void random_lengths(problem *p, rng *r)
{
    for (int64_t b = 0; b < p->desc.batch; b++) {
        p->q_lens[b] = rng_range(r, 0, p->desc.q_len);
        p->kv_lens[b] = rng_chance(r, 0.1) ? 0 : rng_range(r, 0, p->desc.kv_len);
        p->offsets[b] = rng_range(r, -2, p->desc.kv_len + 1);
        p->prefix_lens[b] = rng_chance(r, 0.2) ? 0 : rng_range(r, 0, p->desc.kv_len);
    }
}

/* Creates and fills the tensor of one argument. Each argument has its own random stream, so that the other arguments do
 * not change if one argument is removed. */
static void make_input(tensor *t, mha_dtype dtype, const int64_t dim[4], const tensor_layout *layout, uint64_t seed,
                       uint64_t stream, double (*next)(void *))
{
    rng r = rng_make(seed, stream);
    tensor_make(t, dtype, dim, layout, TEST_POISON);
    tensor_fill(t, next, &r);
}

static void make_per_head(problem *p, const problem_layouts *at, uint64_t seed)
{
    const int64_t dim[4] = {p->desc.batch, p->desc.heads, 1, 1};
    const mha_dtype real = p->desc.dtype == MHA_F64 ? MHA_F64 : MHA_F32;
    if (p->desc.inputs & MHA_ATTN_SLOPES) make_input(&p->slopes, real, dim, &at->slopes, seed, 7, next_slope);
    if (p->desc.inputs & MHA_ATTN_SINKS) make_input(&p->sinks, real, dim, &at->sinks, seed, 8, next_sink);
    if (p->desc.inputs & MHA_ATTN_GATES) make_input(&p->gates, real, dim, &at->gates, seed, 9, next_normal);
}

static int64_t blocks_of(int64_t length, int64_t size)
{
    return (length + size - 1) / size;
}

static mha_dtype stored(mha_dtype given, mha_dtype otherwise)
{
    return given == MHA_DTYPE_DEFAULT ? otherwise : given;
}

/* Returns the number of tensor elements in a row of keys or values; for q8_0 and q4_0, a tensor element is a block. */
static int64_t elements(mha_dtype dtype, int64_t width)
{
    return dtype == MHA_Q8_0 || dtype == MHA_Q4_0 ? blocks_of(width, Q8_ELEMENTS) : width;
}

void problem_make(problem *p, const mha_attn_desc *desc, const problem_layouts *layouts, uint64_t seed)
{
    static const problem_layouts contiguous;
    const problem_layouts *at = layouts ? layouts : &contiguous;
    *p = (problem){.desc = *desc};
    int64_t B = desc->batch, H = desc->heads, Lq = desc->q_len, Lk = desc->kv_len, D = desc->head_dim;
    int64_t Hkv = resolved(desc->kv_heads, H), Dv = resolved(desc->v_head_dim, D);
    mha_dtype real = desc->dtype == MHA_F64 ? MHA_F64 : MHA_F32;
    make_input(&p->q, stored(desc->dtype, MHA_F32), (int64_t[]){B, H, Lq, D}, &at->q, seed, 1, next_normal);
    const mha_dtype kv = stored(desc->kv_dtype, stored(desc->dtype, MHA_F32));
    make_input(&p->k, kv, (int64_t[]){B, Hkv, Lk, elements(kv, D)}, &at->k, seed, 2, next_normal);
    make_input(&p->v, kv, (int64_t[]){B, Hkv, Lk, elements(kv, Dv)}, &at->v, seed, 3, next_normal);
    if (desc->inputs & MHA_ATTN_KEEP)
        make_input(&p->keep, MHA_U8, (int64_t[]){B, H, Lq, resolved(desc->keep_keys, Lk)}, &at->keep, seed, 4,
                   next_kept);
    if (desc->inputs & MHA_ATTN_BIAS)
        make_input(&p->bias, stored(desc->bias_dtype, real), (int64_t[]){B, H, Lq, Lk}, &at->bias, seed, 5, next_bias);
    if (desc->inputs & MHA_ATTN_BLOCK_KEEP)
        make_input(&p->block_keep, MHA_U8,
                   (int64_t[]){B, H, blocks_of(Lq, desc->block_q), blocks_of(Lk, desc->block_k)}, &at->block_keep, seed,
                   10, next_kept);
    if (desc->inputs & MHA_ATTN_DROPOUT_KEEP)
        make_input(&p->dropout_keep, MHA_U8, (int64_t[]){B, H, Lq, Lk}, &at->dropout_keep, seed, 11, next_kept);
    p->dropout_seed = seed * 0x9E3779B97F4A7C15u;
    make_per_head(p, at, seed);
    const int64_t results = desc->inputs & MHA_ATTN_HEAD_LIST ? desc->listed_heads : H;
    tensor_make(&p->out, stored(desc->dtype, MHA_F32), (int64_t[]){B, results, Lq, Dv}, &at->out, TEST_CANARY);
    if (desc->outputs & MHA_ATTN_LSE) tensor_make(&p->lse, real, (int64_t[]){B, results, Lq, 1}, &at->lse, TEST_CANARY);
    if (desc->outputs & MHA_ATTN_PROBS)
        tensor_make(&p->probs, real, (int64_t[]){B, results, Lq, Lk}, &at->probs, TEST_CANARY);
    if (desc->outputs & MHA_ATTN_STATS) statistics_make(p, &at->stats);
    if (desc->outputs & MHA_ATTN_SCORES)
        tensor_make(&p->scores, real, (int64_t[]){B, results, Lq, Lk}, &at->scores, TEST_CANARY);
    rng r = rng_make(seed, 6);
    random_lengths(p, &r);
    for (int64_t n = 0; n < desc->listed_heads; n++)
        p->head_list[n] = (int32_t)rng_range(&r, 0, H - 1);
    problem_bind(p);
}

void problem_bind(problem *p)
{
    mha_attn_desc *d = &p->desc;
    p->args = (mha_attn_args){.size = sizeof p->args};
    p->args.q = tensor_cview(&p->q);
    p->args.k = tensor_cview(&p->k);
    p->args.v = tensor_cview(&p->v);
    p->args.out = tensor_view(&p->out);
    if (d->inputs & MHA_ATTN_KEEP) p->args.keep = tensor_cview(&p->keep);
    if (d->inputs & MHA_ATTN_BIAS) p->args.bias = tensor_cview(&p->bias);
    if (d->inputs & MHA_ATTN_PREFIX_LENS) p->args.prefix_lens = p->prefix_lens;
    if (d->inputs & MHA_ATTN_BLOCK_KEEP) p->args.block_keep = tensor_cview(&p->block_keep);
    if (d->inputs & MHA_ATTN_HEAD_LIST) p->args.head_list = p->head_list;
    if (d->inputs & MHA_ATTN_DROPOUT_KEEP) p->args.dropout_keep = tensor_cview(&p->dropout_keep);
    p->args.dropout_seed = p->dropout_seed;
    if (d->inputs & MHA_ATTN_SLOPES) p->args.slopes = tensor_cview(&p->slopes);
    if (d->inputs & MHA_ATTN_SINKS) p->args.sinks = tensor_cview(&p->sinks);
    if (d->inputs & MHA_ATTN_GATES) p->args.gates = tensor_cview(&p->gates);
    if (d->inputs & MHA_ATTN_Q_LENS) p->args.q_lens = p->q_lens;
    if (d->inputs & MHA_ATTN_KV_LENS) p->args.kv_lens = p->kv_lens;
    if (d->inputs & MHA_ATTN_CU_SEQLENS) p->args.cu_seqlens_q = p->cu_q;
    if ((d->inputs & MHA_ATTN_CU_SEQLENS) && !(d->inputs & MHA_ATTN_BLOCK_TABLE)) p->args.cu_seqlens_k = p->cu_k;
    if (d->align == MHA_ALIGN_OFFSETS) p->args.offsets = p->offsets;
    if (d->inputs & MHA_ATTN_FUNCTIONS) p->args.functions = d->dtype == MHA_F64 ? &functions_f64 : &functions_f32;
    if (d->inputs & MHA_ATTN_BLOCK_TABLE) p->args.block_table = (mha_cview){p->table, {p->table_width, 1, 0, 0}};
    if (d->outputs & MHA_ATTN_LSE) p->args.lse = tensor_view(&p->lse);
    if (d->outputs & MHA_ATTN_PROBS) p->args.probs = tensor_view(&p->probs);
    if (d->outputs & MHA_ATTN_SCORES) p->args.scores = tensor_view(&p->scores);
    if (!(d->outputs & MHA_ATTN_STATS)) return;
    p->stats_views = statistics_views(p);
    p->args.stats = &p->stats_views;
}

void problem_free(problem *p)
{
    tensor *all[] = {&p->q,     &p->k,      &p->v,     &p->out,   &p->keep,       &p->bias,         &p->lse,
                     &p->probs, &p->slopes, &p->sinks, &p->gates, &p->block_keep, &p->dropout_keep, &p->scores};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        tensor_free(all[n]);
    for (int n = 0; n < PROBLEM_STATS; n++)
        tensor_free(&p->stats[n]);
    free(p->table);
    p->table = NULL;
}

static const char *type_text(mha_dtype dtype)
{
    return dtype == MHA_DTYPE_DEFAULT ? "default" : mha_dtype_name(dtype);
}

const char *problem_text(const problem *p, char *text, size_t capacity)
{
    static const char *const align[] = {"unset", "top-left", "bottom-right", "offsets"};
    const mha_attn_desc *d = &p->desc;
    snprintf(text, capacity,
             "%s kv=%s bias=%s B=%lld H=%lld Hkv=%lld Lq=%lld Lk=%lld D=%lld Dv=%lld scale=%g softcap=%g causal=%d "
             "align=%s window=%d,%lld,%lld keep_keys=%lld page_size=%lld inputs=0x%x outputs=0x%x top_keys=%lld",
             type_text(d->dtype), type_text(d->kv_dtype), type_text(d->bias_dtype), (long long)d->batch,
             (long long)d->heads, (long long)d->kv_heads, (long long)d->q_len, (long long)d->kv_len,
             (long long)d->head_dim, (long long)d->v_head_dim, d->scale, d->softcap, d->causal, align[d->align],
             d->window.on, (long long)d->window.left, (long long)d->window.right, (long long)d->keep_keys,
             (long long)d->page_size, d->inputs, d->outputs, (long long)d->top_keys);
    return text;
}

/* ---- forward pass ---- */

enum { WORKSPACE_GUARD = 256 }; /* bytes before and after the workspace; a multiple of 64 */

/* Allocates the workspace of a plan, filled with NaN (all bits set), between guards of 0xA5. */
static uint8_t *guarded_workspace(size_t bytes)
{
    size_t total = bytes + 2 * WORKSPACE_GUARD;
    uint8_t *memory = aligned_alloc(64, (total + 63) / 64 * 64);
    if (!memory) abort();
    memset(memory, 0xA5, total);
    memset(memory + WORKSPACE_GUARD, 0xFF, bytes);
    return memory;
}

static bool workspace_intact(const uint8_t *memory, size_t bytes)
{
    for (size_t i = 0; i < WORKSPACE_GUARD; i++)
        if (memory[i] != 0xA5 || memory[WORKSPACE_GUARD + bytes + i] != 0xA5) return false;
    return true;
}

static bool outputs_intact(const problem *p)
{
    const tensor *outputs[] = {&p->out, &p->lse, &p->probs, &p->scores};
    for (size_t n = 0; n < sizeof outputs / sizeof *outputs; n++)
        if (outputs[n]->memory && !tensor_guards_intact(outputs[n], TEST_CANARY)) return false;
    for (int n = 0; n < PROBLEM_STATS; n++)
        if (p->stats[n].memory && !tensor_guards_intact(&p->stats[n], TEST_CANARY)) return false;
    return true;
}

bool problem_try(mha_ctx *ctx, problem *p, char *why, size_t capacity)
{
    mha_error err = {0};
    mha_attn_plan *plan;
    if (mha_attn_plan_create(ctx, &p->desc, &plan, &err) != MHA_OK) {
        snprintf(why, capacity, "plan: %s", err.message);
        return false;
    }
    p->short_weights = mha_attn_plan_weights(plan) == MHA_BF16;
    size_t bytes = mha_attn_plan_workspace(plan);
    uint8_t *memory = guarded_workspace(bytes);
    mha_status status = mha_attn_forward(plan, &p->args, memory + WORKSPACE_GUARD, bytes, &err);
    bool ok = status == MHA_OK && workspace_intact(memory, bytes) && outputs_intact(p);
    if (status != MHA_OK)
        snprintf(why, capacity, "forward: %s", err.message);
    else if (!ok)
        snprintf(why, capacity, "memory outside the %s must not be written",
                 workspace_intact(memory, bytes) ? "outputs" : "workspace");
    free(memory);
    mha_attn_plan_free(plan);
    return ok;
}

void problem_run(mha_ctx *ctx, problem *p)
{
    char why[1200], text[400];
    if (problem_try(ctx, p, why, sizeof why)) return;
    fail_msg("%s: %s: %s", mha_ctx_isa(ctx), problem_text(p, text, sizeof text), why);
}

/* ---- comparison of results ---- */

static double error_of(double got, double want)
{
    if (got == want || (isnan(got) && isnan(want))) return 0;
    double error = fabs(got - want);
    return isnan(error) ? INFINITY : error;
}

/* One output, its expected values, and the terms of its tolerance (ref.h). */
typedef struct yardstick {
    const char *name;
    const tensor *got;
    const double *truth, *plain, *floor, *more; /* `more` is added to `floor` and may be NULL */
} yardstick;

static bool near(const yardstick *y, double *worst, char *why, size_t capacity)
{
    const int64_t *dim = y->got->dim;
    size_t width = (size_t)dim[3], rows = (size_t)(dim[0] * dim[1] * dim[2]);
    double plain_error = 0;
    for (size_t n = 0; n < rows * width; n++)
        plain_error = fmax(plain_error, error_of(y->plain[n], y->truth[n]));
    for (size_t n = 0; n < rows * width; n++) {
        int64_t row = (int64_t)(n / width), b = row / (dim[1] * dim[2]), h = row / dim[2] % dim[1], i = row % dim[2];
        double got = tensor_get(y->got, b, h, i, (int64_t)(n % width));
        double floor = y->floor[n] + (y->more ? y->more[n] : 0);
        double limit = 2 * plain_error + 2 * floor, error = error_of(got, y->truth[n]);
        if (error > 0) *worst = fmax(*worst, error / limit);
        if (error <= limit) continue;
        snprintf(why, capacity, "%s[%lld,%lld,%lld,%zu] must be %.9g (got %.9g: error %.3g, limit %.3g)", y->name,
                 (long long)b, (long long)h, (long long)i, n % width, y->truth[n], got, error, limit);
        return false;
    }
    return true;
}

bool problem_near(const problem *p, const ref_result *truth, const ref_result *plain, double *worst, char *why,
                  size_t capacity)
{
    const double *more = p->short_weights ? truth->weights_floor : NULL;
    const yardstick all[] = {{"out", &p->out, truth->out, plain->out, truth->out_floor, more},
                             {"lse", &p->lse, truth->lse, plain->lse, truth->lse_floor, NULL},
                             {"probs", &p->probs, truth->probs, plain->probs, truth->probs_floor, NULL},
                             {"scores", &p->scores, truth->scores, plain->scores, truth->scores_floor, NULL}};
    double ignored = 0;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (all[n].got->memory && !near(&all[n], worst ? worst : &ignored, why, capacity)) return false;
    return !(p->desc.outputs & MHA_ATTN_STATS) || !p->probs.memory || statistics_near(p, why, capacity);
}

bool problem_same_bits(const problem *a, const problem *b)
{
    const tensor *pairs[][2] = {
        {&a->out, &b->out}, {&a->lse, &b->lse}, {&a->probs, &b->probs}, {&a->scores, &b->scores}};
    for (size_t n = 0; n < sizeof pairs / sizeof *pairs; n++)
        if (pairs[n][0]->memory && pairs[n][1]->memory && !tensor_same_bits(pairs[n][0], pairs[n][1])) return false;
    for (int n = 0; n < PROBLEM_STATS; n++)
        if (a->stats[n].memory && b->stats[n].memory && !tensor_same_bits(&a->stats[n], &b->stats[n])) return false;
    return true;
}
