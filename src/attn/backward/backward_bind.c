/* backward_bind.c - checks the gradients of one call and fills in their strides. */
#include "attn/backward/backward.h"

#include "attn/plan/params.h"
#include "base/error.h"

enum { READ = 4, WRITTEN = 8 };

/* An operand, where its view is, and what it needs. */
typedef struct entry {
    mha__operand operand;
    mha_cview *in; /* of what is read */
    mha_view *out; /* of what is written */
    int dims;      /* axes that count: the stride of the fourth is not used with three */
    size_t size;
    uint32_t input; /* flag without which there is no such gradient; 0: none is needed */
    const char *flag;
} entry;

#define SHAPE(...)                      \
    {                                   \
        NULL, {0}, {__VA_ARGS__}, false \
    }

static void list_read(const mha_attn_plan *plan, mha_attn_grads *g, entry e[READ])
{
    const mha_attn_desc *d = &plan->desc;
    const size_t real = plan->kernels->real_size;
    const int64_t B = plan->packed ? 1 : d->batch, H = d->listed_heads, Lq = d->q_len, Dv = d->v_head_dim;
    const entry all[READ] = {{SHAPE(B, H, Lq, Dv), &g->dout, NULL, 4, plan->q.size, 0, NULL},
                             {SHAPE(B, H, Lq, Dv), &g->out, NULL, 4, plan->q.size, 0, NULL},
                             {SHAPE(B, H, Lq, 1), &g->lse, NULL, 3, real, 0, NULL},
                             {SHAPE(B, H, Lq, 1), &g->dlse, NULL, 3, real, 0, NULL}};
    static const char *const names[READ] = {"grads.dout", "grads.out", "grads.lse", "grads.dlse"};
    for (int n = 0; n < READ; n++) {
        e[n] = all[n];
        e[n].operand.name = names[n];
        e[n].operand.view = *all[n].in;
    }
}

static void list_written(const mha_attn_plan *plan, mha_attn_grads *g, entry e[WRITTEN])
{
    const mha_attn_desc *d = &plan->desc;
    const size_t real = plan->kernels->real_size;
    const int64_t B = d->batch, H = d->heads, Hkv = d->kv_heads, Lq = d->q_len, Lk = d->kv_len;
    const int64_t one = plan->packed ? 1 : B;
    const entry all[WRITTEN] = {
        {SHAPE(one, H, Lq, d->head_dim), NULL, &g->dq, 4, plan->q.size, 0, NULL},
        {SHAPE(one, Hkv, Lk, d->head_dim), NULL, &g->dk, 4, plan->kv.size, 0, NULL},
        {SHAPE(one, Hkv, Lk, d->v_head_dim), NULL, &g->dv, 4, plan->kv.size, 0, NULL},
        {SHAPE(B, H, d->max_q_len, d->max_kv_len), NULL, &g->dbias, 4, real, MHA_ATTN_BIAS, "MHA_ATTN_BIAS"},
        {SHAPE(B, H, 1, 1), NULL, &g->dslopes, 2, real, MHA_ATTN_SLOPES, "MHA_ATTN_SLOPES"},
        {SHAPE(B, H, 1, 1), NULL, &g->dsinks, 2, real, MHA_ATTN_SINKS, "MHA_ATTN_SINKS"},
        {SHAPE(B, H, 1, 1), NULL, &g->dgates, 2, real, MHA_ATTN_GATES, "MHA_ATTN_GATES"},
        {SHAPE(one, d->listed_heads, Lq, 1), NULL, &g->row_taylor, 3, real, 0, NULL}};
    static const char *const names[WRITTEN] = {"grads.dq",      "grads.dk",     "grads.dv",     "grads.dbias",
                                               "grads.dslopes", "grads.dsinks", "grads.dgates", "grads.row_taylor"};
    for (int n = 0; n < WRITTEN; n++) {
        e[n] = all[n];
        e[n].operand.name = names[n];
        e[n].operand.broadcasts = all[n].input != 0;
    }
}

static mha_status bind_read(entry e[READ], mha_error *err)
{
    for (int n = 0; n < READ; n++) {
        if (n == READ - 1 && !e[n].in->data) continue; /* dlse */
        MHA__TRY(mha__bind_input(e[n].operand.name, e[n].in, e[n].operand.extent, e[n].size, err));
        e[n].operand.view = *e[n].in;
    }
    return MHA_OK;
}

/* Gradients of q, k and v and numbers of rows have a place for every number; in the others an axis of stride 0 is one
 * place. */
static mha_status bind_written(const mha_attn_desc *d, entry e[WRITTEN], mha_error *err)
{
    for (int n = 0; n < WRITTEN; n++) {
        mha__operand *o = &e[n].operand;
        if (!e[n].out->data) continue;
        if (e[n].input && !(d->inputs & e[n].input))
            return mha__fail(err, MHA_ERR_ARG, "%s = %p, but inputs lacks %s", o->name, e[n].out->data, e[n].flag);
        for (int i = 0; i < 4 && o->broadcasts; i++)
            if (e[n].out->stride[i] == 0) o->extent[i] = mha__min64(o->extent[i], 1);
        if (!o->broadcasts) {
            MHA__TRY(mha__bind_output(o->name, e[n].out, o->extent, e[n].dims, e[n].size, err));
        }
        o->view.data = e[n].out->data;
        for (int i = 0; i < 4; i++)
            o->view.stride[i] = i < e[n].dims ? e[n].out->stride[i] : 0;
        MHA__TRY(mha__operand_place(o, e[n].size, err));
    }
    return MHA_OK;
}

static mha_status overlaps(const mha__operand *x, const mha__operand *y, mha_error *err)
{
    return mha__fail(err, MHA_ERR_ARG, "%s overlaps %s", x->name, y->name);
}

/* Nothing that is written may overlap anything else. */
static mha_status check_overlaps(const mha_attn_plan *plan, const mha_attn_args *args, const entry read[READ],
                                 const entry written[WRITTEN], mha_error *err)
{
    mha__input inputs[MHA__INPUTS];
    const int count = mha__attn_inputs(plan, args, inputs);
    for (int n = 0; n < WRITTEN; n++) {
        const mha__operand *w = &written[n].operand;
        if (!written[n].out->data) continue;
        for (int i = 0; i < count; i++)
            if (mha__operand_meet(w, written[n].size, &inputs[i].operand, inputs[i].size))
                return overlaps(w, &inputs[i].operand, err);
        for (int i = 0; i < READ; i++)
            if (read[i].in->data && mha__operand_meet(w, written[n].size, &read[i].operand, read[i].size))
                return overlaps(w, &read[i].operand, err);
        for (int i = 0; i < n; i++)
            if (written[i].out->data && mha__operand_meet(w, written[n].size, &written[i].operand, written[i].size))
                return overlaps(w, &written[i].operand, err);
    }
    if (mha__operand_meet(&read[1].operand, plan->q.size, &inputs[0].operand, inputs[0].size))
        return mha__fail(err, MHA_ERR_ARG, "grads.out overlaps q: forward has overwritten q there");
    return MHA_OK;
}

mha_status mha__bwd_bind(const mha_attn_plan *plan, const mha_attn_args *args, const mha_attn_grads *grads,
                         void *workspace, size_t workspace_bytes, mha__bwd_call *call, mha_error *err)
{
    entry read[READ], written[WRITTEN];
    if (!plan) return mha__fail(err, MHA_ERR_ARG, "plan is NULL");
    if (!(plan->desc.outputs & MHA_ATTN_GRADS))
        return mha__fail(err, MHA_ERR_ARG, "the plan was made without MHA_ATTN_GRADS in outputs = 0x%x",
                         (unsigned)plan->desc.outputs);
    if (!grads) return mha__fail(err, MHA_ERR_ARG, "grads is NULL");
    if (grads->size != sizeof *grads)
        return mha__fail(err, MHA_ERR_ARG, "grads.size = %zu: must be sizeof(mha_attn_grads) = %zu", grads->size,
                         sizeof *grads);
    MHA__TRY(mha__attn_check_workspace(workspace, workspace_bytes, mha_attn_plan_workspace(plan), err));
    MHA__TRY(mha__attn_bind_inputs(plan, args, &call->call, err));
    call->call.workspace = workspace;
    call->grads = *grads;
    list_read(plan, &call->grads, read);
    MHA__TRY(bind_read(read, err));
    list_written(plan, &call->grads, written);
    MHA__TRY(bind_written(&plan->desc, written, err));
    if (!(plan->desc.inputs & MHA_ATTN_HEAD_LIST)) call->call.args.head_list = NULL;
    return check_overlaps(plan, &call->call.args, read, written, err);
}
