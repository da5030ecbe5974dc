/* attn.c - the entry points of mha/attn.h and mha/attn_grads.h: they check the call, then pass it to the plan's
 * engine. */
#include "attn/engine/engine.h"
#include "attn/plan/params.h"
#include "base/error.h"
#include "base/redzone.h"
#include "base/struct_size.h"

mha_status mha_attn_plan_create(mha_ctx *ctx, const mha_attn_desc *desc, mha_attn_plan **out, mha_error *err)
{
    mha_attn_desc resolved;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__ctx_find(&ctx, err));
    MHA__TRY(mha__attn_resolve(desc, &resolved, err));
    mha_attn_plan *plan = mha__calloc(ctx, 1, sizeof *plan);
    if (!plan) return mha__no_memory(err, sizeof *plan, "an attention plan");
    plan->ctx = ctx;
    plan->desc = resolved;
    plan->engine = &mha__cpu_engine; /* no other code selects an engine */
    const mha_status status = plan->engine->plan(plan, err);
    if (status != MHA_OK) {
        mha__free(ctx, plan);
        return status;
    }
    *out = plan;
    return MHA_OK;
}

void mha_attn_plan_free(mha_attn_plan *plan)
{
    if (plan) mha__free(plan->ctx, plan);
}

size_t mha_attn_plan_workspace(const mha_attn_plan *plan)
{
    return plan ? plan->engine->workspace(plan) : 0;
}

mha_dtype mha_attn_plan_weights(const mha_attn_plan *plan)
{
    return plan ? plan->weights : MHA_DTYPE_DEFAULT;
}

size_t mha_attn_plan_describe(const mha_attn_plan *plan, int json, char *to, size_t capacity)
{
    if (plan) return plan->engine->describe(plan, json, to, capacity);
    if (to && capacity > 0) *to = '\0';
    return 0;
}

mha_status mha_attn_forward(const mha_attn_plan *plan, const mha_attn_args *args, void *workspace,
                            size_t workspace_bytes, mha_error *err)
{
    mha__call call;
    if (!plan) return mha__fail(err, MHA_ERR_ARG, "plan must not be NULL");
    MHA__TRY(mha__attn_bind(plan, args, workspace, workspace_bytes, mha_attn_plan_workspace(plan), &call, err));
    const mha_status status = plan->engine->forward(&call, err);
    mha__redzone_clear(workspace, workspace_bytes);
    return status;
}

mha_status mha_attn_backward(const mha_attn_plan *plan, const mha_attn_args *args, const mha_attn_grads *grads,
                             void *workspace, size_t workspace_bytes, mha_error *err)
{
    mha__bwd_call call;
    MHA__TRY(
        mha__attn_bind_grads(plan, args, grads, workspace, workspace_bytes, mha_attn_plan_workspace(plan), &call, err));
    const mha_status status = plan->engine->backward(&call, err);
    mha__redzone_clear(workspace, workspace_bytes);
    return status;
}

/* A plan and a workspace that are used for one call only. */
typedef struct single_call {
    mha_attn_plan *plan;
    void *workspace;
    size_t bytes;
} single_call;

static void free_single(const single_call *call)
{
    if (call->plan) mha__free(call->plan->ctx, call->workspace);
    mha_attn_plan_free(call->plan);
}

static mha_status create_single(mha_ctx *ctx, const mha_attn_desc *desc, const char *what, single_call *call,
                                mha_error *err)
{
    *call = (single_call){0};
    MHA__TRY(mha_attn_plan_create(ctx, desc, &call->plan, err));
    call->bytes = mha_attn_plan_workspace(call->plan);
    call->workspace = mha__alloc(call->plan->ctx, call->bytes);
    return call->bytes > 0 && !call->workspace ? mha__no_memory(err, call->bytes, what) : MHA_OK;
}

mha_status mha_attention(mha_ctx *ctx, const mha_attn_desc *desc, const mha_attn_args *args, mha_error *err)
{
    single_call call;
    mha_status status = create_single(ctx, desc, "the workspace of attention", &call, err);
    if (status == MHA_OK) status = mha_attn_forward(call.plan, args, call.workspace, call.bytes, err);
    free_single(&call);
    return status;
}

mha_status mha_attention_backward(mha_ctx *ctx, const mha_attn_desc *desc, const mha_attn_args *args,
                                  const mha_attn_grads *grads, mha_error *err)
{
    single_call call;
    mha_attn_desc wanted;
    MHA__TRY(mha__options_need(&wanted, sizeof wanted, desc, "mha_attn_desc", err));
    wanted.outputs |= MHA_ATTN_GRADS;
    mha_status status = create_single(ctx, &wanted, "the workspace of the backward pass", &call, err);
    if (status == MHA_OK) status = mha_attn_backward(call.plan, args, grads, call.workspace, call.bytes, err);
    free_single(&call);
    return status;
}
