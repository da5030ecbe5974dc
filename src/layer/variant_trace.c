/* variant_trace.c - what a forward call has left behind, for those who want to look. */
#include "base/ctx.h"
#include "layer/variant.h"

mha_status mha_trace_create(mha_ctx *ctx, mha_trace **trace, mha_error *err)
{
    if (!trace) return mha__fail(err, MHA_ERR_ARG, "trace: where to store it is NULL");
    *trace = NULL;
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha_trace *t = mha__calloc(ctx, 1, sizeof *t);
    if (!t) return mha__no_memory(err, sizeof *t, "a trace");
    t->ctx = ctx;
    *trace = t;
    return MHA_OK;
}

void mha_trace_free(mha_trace *trace)
{
    if (!trace) return;
    mha__free(trace->ctx, trace->memory);
    mha__free(trace->ctx, trace);
}

/* ---- steps ---- */

/* [batch, heads, L, D] in rows of `width` numbers. */
static mha_step_view heads_view(const char *data, int64_t B, int64_t heads, int64_t L, int64_t D, int64_t width)
{
    return (mha_step_view){data, 4, {B, heads, L, D}, {L * width, D, width, 1}};
}

static mha_step_view dense_view(const char *data, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    mha_step_view view = {data, rank, {a, b, c, d}, {0}};
    int64_t step = 1;
    for (int n = rank - 1; n >= 0; n--) {
        view.stride[n] = step;
        step *= view.shape[n];
    }
    return view;
}

static mha_step_view keys_view(const mha_trace *t, const char *fresh, const char *with_past)
{
    const mha_variant *v = t->layer;
    const int64_t H = v->kv_heads, D = v->head_dim;
    return with_past ? dense_view(with_past, 4, t->B, H, t->Lk, D) : heads_view(fresh, t->B, H, t->Lk, D, H * D);
}

static mha_step_view view_of(const mha_trace *t, mha_step step)
{
    const mha_variant *v = t->layer;
    switch (step) {
    case MHA_STEP_Q:
        return heads_view(t->query_q, t->B, v->heads, t->Lq, v->head_dim, v->heads * v->head_dim);
    case MHA_STEP_K:
        return keys_view(t, t->key_k, t->past_k);
    case MHA_STEP_V:
        return keys_view(t, t->value_v, t->past_v);
    case MHA_STEP_SCORES:
        return dense_view(t->scores, 4, t->B, t->n, t->Lq, t->Lk);
    case MHA_STEP_WEIGHTS:
        return dense_view(t->weights, 4, t->B, t->n, t->Lq, t->Lk);
    case MHA_STEP_CONTEXT:
        return dense_view(t->context, 3, t->B, t->Lq, t->width, 0);
    case MHA_STEP_MIXED:
        return dense_view(t->mixed, 3, t->B, t->Lq, v->d_in, 0);
    case MHA_STEP_LOGITS:
        return dense_view(t->logits, 2, t->B, v->choices, 0, 0);
    case MHA_STEP_GATES:
        return dense_view(t->gate, 2, t->B, v->chosen, 0, 0);
    }
    return (mha_step_view){0};
}

int mha_trace_step(const mha_trace *trace, mha_step step, mha_step_view *view)
{
    if (!trace || !trace->layer || !view) return 0;
    *view = view_of(trace, step);
    return view->data != NULL;
}

const int32_t *mha_trace_chosen(const mha_trace *trace, int64_t b, int64_t *count)
{
    *count = 0;
    if (!trace || !trace->layer || trace->layer->selector == MHA__SELECT_NONE || b < 0 || b >= trace->B) return NULL;
    *count = trace->layer->chosen;
    return trace->choice + b * trace->layer->chosen;
}

int64_t mha_trace_heads(const mha_trace *trace, int64_t b)
{
    if (!trace || !trace->layer || b < 0 || b >= trace->B) return 0;
    const mha_variant *v = trace->layer;
    return v->selector == MHA__SELECT_OPTION ? v->head_options[trace->choice[b]] : trace->n;
}

int64_t mha_trace_flops(const mha_trace *trace)
{
    return trace && trace->layer ? trace->flops : 0;
}
