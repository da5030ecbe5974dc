/* grads.c - runs the backward pass of a problem and compares its gradients. */
#include "support/attn/grads.h"

#include "support/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double next_normal(void *arg)
{
    return rng_normal(arg);
}

static void make_input(tensor *t, mha_dtype dtype, const int64_t dim[4], const tensor_layout *layout, uint64_t seed,
                       uint64_t stream)
{
    rng r = rng_make(seed, stream);
    tensor_make(t, dtype, dim, layout, TEST_POISON);
    tensor_fill(t, next_normal, &r);
}

void gradients_make(gradients *g, const problem *p, const gradients_layouts *layouts, uint64_t seed)
{
    static const gradients_layouts contiguous;
    const gradients_layouts *at = layouts ? layouts : &contiguous;
    const mha_attn_desc *d = &p->desc;
    const mha_dtype real = p->lse.dtype;
    const int64_t rows = d->max_q_len ? d->max_q_len : d->q_len, keys = d->max_kv_len ? d->max_kv_len : d->kv_len;
    const int64_t head[4] = {d->batch, d->heads, 1, 1}, scores[4] = {d->batch, d->heads, rows, keys};
    const struct {
        const int64_t *dim;
        mha_dtype dtype;
        bool wanted;
    } results[RESULTS] = {{p->q.dim, p->q.dtype, true},
                          {p->k.dim, p->k.dtype, true},
                          {p->v.dim, p->v.dtype, true},
                          {scores, real, d->inputs & MHA_ATTN_BIAS},
                          {head, real, d->inputs & MHA_ATTN_SLOPES},
                          {head, real, d->inputs & MHA_ATTN_SINKS},
                          {head, real, d->inputs & MHA_ATTN_GATES},
                          {p->lse.dim, real, true}};
    *g = (gradients){.args = {.size = sizeof g->args}};
    make_input(&g->dout, p->out.dtype, p->out.dim, &at->dout, seed, 21);
    if (at->with_dlse) make_input(&g->dlse, real, p->lse.dim, &at->dlse, seed, 22);
    for (int n = 0; n < RESULTS; n++)
        if (results[n].wanted)
            tensor_make(&g->result[n], results[n].dtype, results[n].dim, &at->result[n], TEST_CANARY);
    gradients_bind(g, p);
}

void gradients_random(gradients *g, const problem *p, uint64_t seed, uint64_t number)
{
    rng r = rng_make(seed, number ^ UINT64_C(1) << 61);
    gradients_layouts at = {.with_dlse = rng_chance(&r, 0.4)};
    at.dout = tensor_layout_random(&r, true);
    at.dlse = tensor_layout_random(&r, true);
    for (int n = 0; n < RESULTS; n++) {
        tensor_layout *l = &at.result[n];
        *l = tensor_layout_random(&r, false);
        if (n < DBIAS || n == ROW_TAYLOR) continue;
        l->unspecified = false; /* zeros in all strides would mean sums over all axes */
        for (int axis = 0; axis < 4; axis++)
            l->repeat[axis] = rng_chance(&r, 0.3);
    }
    gradients_make(g, p, &at, rng_next(&r));
    for (int n = 0; n < RESULTS; n++)
        if (rng_chance(&r, 0.1)) tensor_free(&g->result[n]);
    gradients_bind(g, p);
}

void gradients_bind(gradients *g, const problem *p)
{
    mha_view *views[RESULTS] = {&g->args.dq,      &g->args.dk,     &g->args.dv,     &g->args.dbias,
                                &g->args.dslopes, &g->args.dsinks, &g->args.dgates, &g->args.row_taylor};
    g->args.dout = tensor_cview(&g->dout);
    g->args.out = tensor_cview(&p->out);
    g->args.lse = tensor_cview(&p->lse);
    g->args.dlse = g->dlse.memory ? tensor_cview(&g->dlse) : (mha_cview){0};
    for (int n = 0; n < RESULTS; n++)
        *views[n] = g->result[n].memory ? tensor_view(&g->result[n]) : (mha_view){0};
}

void gradients_free(gradients *g)
{
    tensor_free(&g->dout);
    tensor_free(&g->dlse);
    for (int n = 0; n < RESULTS; n++)
        tensor_free(&g->result[n]);
}

enum { GUARD = 256 }; /* bytes before and after the workspace; a multiple of 64 */

static bool intact(const uint8_t *memory, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++)
        if (memory[i] != 0xA5 || memory[GUARD + bytes + i] != 0xA5) return false;
    return true;
}

/* Runs the backward pass with a workspace that is filled with NaN (all bits set) and is placed between guards. On
 * failure, returns false with a message in why[capacity]. */
static bool run(const mha_attn_plan *plan, problem *p, gradients *g, char *why, size_t capacity)
{
    mha_error err = {0};
    const size_t bytes = mha_attn_plan_workspace(plan);
    uint8_t *memory = aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    if (!memory) abort();
    memset(memory, 0xA5, bytes + 2 * GUARD);
    memset(memory + GUARD, 0xFF, bytes);
    bool ok = mha_attn_forward(plan, &p->args, memory + GUARD, bytes, &err) == MHA_OK;
    memset(memory + GUARD, 0xFF, bytes);
    ok = ok && mha_attn_backward(plan, &p->args, &g->args, memory + GUARD, bytes, &err) == MHA_OK;
    if (!ok) snprintf(why, capacity, "%s", err.message);
    if (ok && !intact(memory, bytes)) {
        snprintf(why, capacity, "memory outside the workspace must not be written");
        ok = false;
    }
    free(memory);
    return ok;
}

bool gradients_try(mha_ctx *ctx, problem *p, gradients *g, char *why, size_t capacity)
{
    mha_error err = {0};
    mha_attn_plan *plan;
    mha_attn_desc desc = p->desc;
    desc.outputs |= MHA_ATTN_GRADS;
    if (mha_attn_plan_create(ctx, &desc, &plan, &err) != MHA_OK) {
        snprintf(why, capacity, "plan: %s", err.message);
        return false;
    }
    p->short_weights = mha_attn_plan_weights(plan) == MHA_BF16;
    bool ok = run(plan, p, g, why, capacity);
    mha_attn_plan_free(plan);
    for (int n = 0; n < RESULTS && ok; n++) {
        if (!g->result[n].memory || tensor_guards_intact(&g->result[n], TEST_CANARY)) continue;
        snprintf(why, capacity, "memory outside gradient %d must not be written", n);
        ok = false;
    }
    return ok;
}

void gradients_run(mha_ctx *ctx, problem *p, gradients *g)
{
    char why[1200], text[400];
    if (gradients_try(ctx, p, g, why, sizeof why)) return;
    fail_msg("%s: %s: %s", mha_ctx_isa(ctx), problem_text(p, text, sizeof text), why);
}

bool gradients_same_bits(const gradients *x, const gradients *y)
{
    for (int n = 0; n < RESULTS; n++)
        if (x->result[n].memory && y->result[n].memory && !tensor_same_bits(&x->result[n], &y->result[n])) return false;
    return true;
}
