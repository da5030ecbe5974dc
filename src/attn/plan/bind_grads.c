/* bind_grads.c - checks the gradients of a call and sets their strides. */
#include "attn/plan/params.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include <string.h>

enum { READ = MHA__GRAD_INPUT_ROWS, WRITTEN = MHA__GRAD_ROWS };

/* An operand of the backward pass and its element size in bytes. The pointer is NULL if the call omits the operand.
 */
typedef struct entry {
    mha__operand operand;
    size_t size;
} entry;

static mha_status bind_read(const mha_attn_plan *plan, mha_attn_grads *g, entry read[READ], mha_error *err)
{
    for (int n = 0; n < READ; n++) {
        const mha__operand_row *row = &mha__grad_input_rows[n];
        entry *e = &read[n];
        *e = (entry){mha__operand_at(plan, row, g), mha__element_bytes(plan, row->element)};
        if (!e->operand.view.data && (row->facts & MHA__IS_OPTIONAL)) continue;
        MHA__TRY(mha__operand_bind(&e->operand, err));
        MHA__TRY(mha__operand_check_addresses(&e->operand, e->size, err));
        memcpy((char *)g + row->field, &e->operand.view, sizeof e->operand.view);
    }
    return MHA_OK;
}

/* Checks a gradient and sets its strides. A gradient that may be broadcast is summed over each axis of stride 0,
 * so this axis has one element. Other gradients have one element per index. */
static mha_status bind_gradient(const mha_attn_plan *plan, const mha__operand_row *row, mha_attn_grads *g, entry *e,
                                mha_error *err)
{
    mha__result r = mha__result_at(plan, row, g);
    *e = (entry){mha__operand_of(r.name, r.view, r.shape), r.size};
    MHA__TRY(mha__operand_check_flag(plan, row, g, err));
    if (!r.view->data) return MHA_OK;
    if (!(row->facts & MHA__BROADCASTS)) MHA__TRY(mha__bind_output(r.name, r.view, r.shape, r.dims, r.size, err));
    for (int i = 0; i < 4; i++) {
        e->operand.view.stride[i] = i < r.dims ? r.view->stride[i] : 0;
        if ((row->facts & MHA__BROADCASTS) && r.view->stride[i] == 0)
            e->operand.shape[i] = mha__min64(e->operand.shape[i], 1);
    }
    return mha__operand_check_addresses(&e->operand, e->size, err);
}

static mha_status bind_written(const mha_attn_plan *plan, mha_attn_grads *g, entry written[WRITTEN], mha_error *err)
{
    for (int n = 0; n < WRITTEN; n++)
        MHA__TRY(bind_gradient(plan, &mha__grad_rows[n], g, &written[n], err));
    return MHA_OK;
}

static mha_status overlaps(const mha__operand *x, const mha__operand *y, mha_error *err)
{
    return mha__fail(err, MHA_ERR_ARG, "%s must not overlap %s", x->name, y->name);
}

/* Checks that no gradient overlaps another operand. */
static mha_status check_overlaps(const mha_attn_plan *plan, const mha_attn_args *args, const entry read[READ],
                                 const entry written[WRITTEN], mha_error *err)
{
    mha__input inputs[MHA__INPUTS];
    const int count = mha__attn_inputs(plan, args, inputs);
    for (int n = 0; n < WRITTEN; n++) {
        const mha__operand *w = &written[n].operand;
        if (!w->view.data) continue;
        for (int i = 0; i < count; i++)
            if (mha__operand_overlaps(w, written[n].size, &inputs[i].operand, inputs[i].size))
                return overlaps(w, &inputs[i].operand, err);
        for (int i = 0; i < READ; i++)
            if (read[i].operand.view.data && mha__operand_overlaps(w, written[n].size, &read[i].operand, read[i].size))
                return overlaps(w, &read[i].operand, err);
        for (int i = 0; i < n; i++)
            if (written[i].operand.view.data &&
                mha__operand_overlaps(w, written[n].size, &written[i].operand, written[i].size))
                return overlaps(w, &written[i].operand, err);
    }
    if (mha__operand_overlaps(&read[1].operand, plan->q.size, &inputs[0].operand, inputs[0].size))
        return mha__fail(err, MHA_ERR_ARG, "grads.out must not overlap q, because the forward pass overwrites it");
    return MHA_OK;
}

mha_status mha__attn_bind_grads(const mha_attn_plan *plan, const mha_attn_args *args, const mha_attn_grads *grads,
                                void *workspace, size_t workspace_bytes, size_t need, mha__bwd_call *call,
                                mha_error *err)
{
    entry read[READ], written[WRITTEN];
    if (!plan) return mha__fail(err, MHA_ERR_ARG, "plan must not be NULL");
    if (!(plan->desc.outputs & MHA_ATTN_GRADS))
        return mha__fail(err, MHA_ERR_ARG, "outputs of the plan must contain MHA_ATTN_GRADS (got 0x%x)",
                         (unsigned)plan->desc.outputs);
    MHA__TRY(mha__options_need(&call->grads, sizeof call->grads, grads, "mha_attn_grads", err));
    MHA__TRY(mha__attn_check_workspace(workspace, workspace_bytes, need, err));
    MHA__TRY(mha__attn_bind_inputs(plan, args, &call->call, err));
    const mha_attn_functions *f = &call->call.functions;
    if (f->score && !f->score_back && !f->score_added)
        return mha__fail(err, MHA_ERR_ARG,
                         "functions.score_back must be set in the backward pass unless score_added is 1 (got NULL)");
    call->call.workspace = workspace;
    MHA__TRY(bind_read(plan, &call->grads, read, err));
    MHA__TRY(bind_written(plan, &call->grads, written, err));
    return check_overlaps(plan, &call->call.args, read, written, err);
}
