/* golden_gradients.c - compares the gradients of a golden case of the attention operator. */
#include "conformance/golden_attention.h"
#include <string.h>

/* Recorded gradients, and the computed gradients to compare with them. Gradients of q, k and v have the dtype of the
 * case; all other gradients are float. */
enum { DQ, DK, DV, DBIAS, DSLOPES, DSINKS, RESULTS };
static const char *const names[RESULTS] = {"dq", "dk", "dv", "dbias", "dslopes", "dsinks"};

static mha_view *view_of(mha_attn_grads *g, int result)
{
    mha_view *views[RESULTS] = {&g->dq, &g->dk, &g->dv, &g->dbias, &g->dslopes, &g->dsinks};
    return views[result];
}

static bool any_recorded(const attention_case *c)
{
    for (int n = 0; n < RESULTS; n++)
        if (verify_records(&c->entry, names[n])) return true;
    return false;
}

void verify_describe_gradients(attention_case *c)
{
    if (any_recorded(c)) c->desc.outputs |= MHA_ATTN_LSE | MHA_ATTN_GRADS;
}

/* Binds a gradient with the shape of q, k or v. */
static void bind_operand(attention_case *c, int result, int64_t heads, int64_t length, int64_t width)
{
    mha_view *view = view_of(&c->grads, result);
    const mha_tensor *tensor = verify_operand(c, names[result], heads, length, width, view->stride);
    if (tensor) view->data = verify_alloc(&c->memory, tensor->elements, mha_dtype_size(c->desc.dtype), &c->entry);
}

/* Binds a gradient with the shape and strides of its input; broadcast dimensions are summed. */
static void bind_like(attention_case *c, int result, const char *input, const mha_cview *like)
{
    mha_view *view = view_of(&c->grads, result);
    const mha_tensor *tensor = mha_file_find(c->file, input);
    if (!verify_records(&c->entry, names[result]) || !tensor) return;
    memcpy(view->stride, like->stride, sizeof view->stride);
    view->data = verify_alloc(&c->memory, tensor->elements, sizeof(float), &c->entry);
}

mha_status verify_bind_gradients(attention_case *c)
{
    mha_attn_grads *g = &c->grads;
    if (!(c->desc.outputs & MHA_ATTN_GRADS)) return MHA_OK;
    *g = (mha_attn_grads){.size = sizeof *g};
    g->dout = verify_typed(c, "dout", c->H, c->Lq, c->Dv);
    g->out = (mha_cview){c->out, {0}};
    memcpy(g->out.stride, c->args.out.stride, sizeof g->out.stride);
    g->lse.data = c->lse;
    if (mha_file_find(c->file, "dlse")) {
        int64_t shape[3] = {c->B, c->H, c->Lq};
        g->dlse.data = verify_raw(&c->memory, &c->entry, verify_tensor(&c->entry, c->file, "dlse", 3, shape));
    }
    bind_operand(c, DQ, c->H, c->Lq, c->D);
    bind_operand(c, DK, c->Hkv, c->Lk, c->D);
    bind_operand(c, DV, c->Hkv, c->Lk, c->Dv);
    bind_like(c, DBIAS, "bias", &c->args.bias);
    bind_like(c, DSLOPES, "slopes", &c->args.slopes);
    bind_like(c, DSINKS, "sinks", &c->args.sinks);
    return c->entry.error->status;
}

void verify_compare_gradients(attention_case *c, const mha_attn_plan *plan, verify_case *outcome)
{
    if (!(c->desc.outputs & MHA_ATTN_GRADS)) return;
    if (mha_attn_plan_weights(plan) == MHA_BF16)
        c->roundings = 2; /* dq, dk and dv are sums of values that are already rounded once */
    for (int n = 0; n < RESULTS; n++) {
        const void *got = view_of(&c->grads, n)->data;
        if (!verify_records(&c->entry, names[n])) continue;
        if (n <= DV)
            verify_typed_result(c, outcome, names[n], got);
        else
            verify_float_result(c, outcome, names[n], got);
    }
}
