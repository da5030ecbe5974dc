/* variant_trace.c - the intermediate results of a forward call. */
#include "base/ctx.h"
#include "layer/variants/variant.h"

mha_status mha_trace_create(mha_ctx *ctx, mha_trace **trace, mha_error *err)
{
    if (!trace) return mha__fail(err, MHA_ERR_ARG, "trace: where to store it must not be NULL");
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

/* [batch, heads, L, D] in rows of `width` elements. */
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

static mha_step_view keys_view(const mha_variant *v, const mha_trace *t, const char *fresh, const char *with_past)
{
    const int64_t H = v->kv_heads, D = v->head_dim;
    return with_past ? dense_view(with_past, 4, t->B, H, t->Lk, D) : heads_view(fresh, t->B, H, t->Lk, D, H * D);
}

void mha__show_steps(const mha_variant *v, mha_trace *t)
{
    const int64_t B = t->B, Lq = t->Lq;
    t->step[MHA_STEP_Q] = heads_view(t->query_q, B, v->heads, Lq, v->head_dim, v->heads * v->head_dim);
    t->step[MHA_STEP_K] = keys_view(v, t, t->key_k, t->past_k);
    t->step[MHA_STEP_V] = keys_view(v, t, t->value_v, t->past_v);
    t->step[MHA_STEP_SCORES] = dense_view(t->scores, 4, B, t->n, Lq, t->Lk);
    t->step[MHA_STEP_WEIGHTS] = dense_view(t->weights, 4, B, t->n, Lq, t->Lk);
    t->step[MHA_STEP_CONTEXT] = dense_view(t->context, 3, B, Lq, t->width, 0);
    t->step[MHA_STEP_MIXED] = dense_view(t->mixed, 3, B, Lq, v->d_in, 0);
    t->step[MHA_STEP_LOGITS] = dense_view(t->logits, 2, B, v->choices, 0, 0);
    t->step[MHA_STEP_GATES] = dense_view(t->gate, 2, B, v->choice.keep, 0, 0);
}

int mha_trace_step(const mha_trace *trace, mha_step step, mha_step_view *view)
{
    if (!trace || !trace->layer || !view || (int)step < 0 || (int)step >= MHA__STEPS) return 0;
    *view = trace->step[step];
    return view->data != NULL;
}

const int32_t *mha_trace_chosen(const mha_trace *trace, int64_t b, int64_t *count)
{
    const bool known = trace && trace->layer && trace->choice && b >= 0 && b < trace->B;
    if (count) *count = known ? trace->chosen : 0;
    return known ? trace->choice + b * trace->chosen : NULL;
}

int64_t mha_trace_heads(const mha_trace *trace, int64_t b)
{
    if (!trace || !trace->layer || b < 0 || b >= trace->B) return 0;
    return trace->heads ? trace->heads[b] : trace->n;
}

int64_t mha_trace_flops(const mha_trace *trace)
{
    return trace && trace->layer ? trace->flops : 0;
}
