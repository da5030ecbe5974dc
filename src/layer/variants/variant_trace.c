/* variant_trace.c - the intermediate results of a forward call. With a selection, the results cover only the heads that
 * each sample selected, in the order of selection. */
#include "base/ctx.h"
#include "layer/selection/head_count_per_sequence.h"
#include "layer/variants/variant.h"
#include <string.h>

mha_status mha_trace_create(mha_ctx *ctx, mha_trace **trace, mha_error *err)
{
    if (!trace) return mha__fail(err, MHA_ERR_ARG, "trace: the output pointer must not be NULL");
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

/* ---- selected heads ---- */

/* Returns true if samples compute only some heads: selected experts, or heads that are not pruned. */
static bool selects_heads(const mha_variant *v)
{
    const mha_choice of = v->layer.options.choice.of;
    return of == MHA_CHOICE_EXPERTS || of == MHA_CHOICE_HEADS;
}

void mha__place_steps(const mha_variant *v, mha__arena *arena, mha_trace *t)
{
    const mha_attn_layer_options *o = &v->layer.options;
    const size_t real = mha__attn_real(&v->layer), rows = (size_t)(t->B * t->Lq);
    t->chosen = o->choice.keep;
    t->choices = mha__choices(v);
    t->n = selects_heads(v) ? o->choice.keep : mha__attn_max_heads(&v->layer);
    t->width = (selects_heads(v) ? t->n : o->heads) * o->head_dim;
    if (!o->choice.of) return;
    t->logits = mha__take(arena, (size_t)(t->B * t->choices), real);
    t->gate = mha__take(arena, (size_t)(t->B * t->chosen), real);
    t->heads = o->choice.of == MHA_CHOICE_OPTIONS ? mha__take(arena, (size_t)t->B, sizeof *t->heads) : NULL;
    if (!selects_heads(v) || mha__experts_summed(&v->layer)) return;
    t->context = mha__take(arena, rows, (size_t)t->width * real);
    if (t->call.outputs & MHA_ATTN_PROBS) t->weights = mha__take(arena, rows, (size_t)(t->n * t->Lk) * real);
    if (t->call.outputs & MHA_ATTN_SCORES) t->scores = mha__take(arena, rows, (size_t)(t->n * t->Lk) * real);
}

/* Copies the entries of selected choices to `to`. `all` has `rows` rows per sample, each with one entry of `bytes`
 * bytes per choice. */
static void gather(const mha_trace *t, int64_t rows, size_t bytes, const char *all, char *to)
{
    for (int64_t r = 0; to && r < t->B * rows; r++)
        for (int64_t i = 0; i < t->chosen; i++, to += bytes)
            memcpy(to, all + (size_t)(r * t->choices + t->list[r / rows * t->choices + i]) * bytes, bytes);
}

static void show_selection(const mha_variant *v, mha_trace *t)
{
    const mha_attn_layer_options *o = &v->layer.options;
    const mha__chosen *chosen = &t->steps.chosen;
    const size_t real = mha__attn_real(&v->layer);
    if (!o->choice.of) return;
    t->list = chosen->list;
    for (int64_t n = 0; n < t->B * t->choices; n++)
        mha__put(o->dtype, t->logits, n, chosen->score[n]);
    for (int64_t n = 0; n < t->B * t->chosen; n++) {
        const int64_t b = n / t->chosen, at = b * t->choices;
        mha__put(o->dtype, t->gate, n, chosen->gate[at + t->list[at + n % t->chosen]]);
    }
    for (int64_t b = 0; t->heads && b < t->B; b++)
        t->heads[b] = o->choice.options[t->list[b * t->choices]];
    gather(t, t->Lq, (size_t)o->head_dim * real, t->steps.context, t->context);
    gather(t, 1, (size_t)(t->Lq * t->Lk) * real, t->steps.probs, t->weights);
    gather(t, 1, (size_t)(t->Lq * t->Lk) * real, t->steps.scores, t->scores);
}

/* ---- operation counts ---- */

/* Returns the multiply-adds of a projection for `rows` rows; skipped heads are not counted. */
static int64_t products(const mha_variant *v, const mha_trace *t, int dense, int64_t rows)
{
    const mha__variant_projection *d = &v->dense[dense];
    const bool by_head = selects_heads(v) && (dense <= MHA__V || dense == MHA__EXPERT_O);
    return rows * d->in * (by_head ? d->out / t->choices * t->chosen : d->out);
}

static int64_t count_flops(const mha_variant *v, const mha_trace *t)
{
    const int64_t rows = t->B * t->Lq, kv_rows = t->B * t->Ln;
    int64_t count = products(v, t, MHA__Q, rows) + products(v, t, MHA__K, kv_rows) + products(v, t, MHA__V, kv_rows);
    count += products(v, t, MHA__CHOICE, t->B) + products(v, t, MHA__CHOICE_HIDDEN, t->B);
    count += products(v, t, MHA__EXPERT_O, rows) + 2 * rows * t->Lk * t->width;
    if (v->layer.options.choice.of == MHA_CHOICE_HEADS)
        count += rows * t->width * v->layer.out;
    else
        count += products(v, t, MHA__O, rows);
    return 2 * count;
}

/* ---- intermediate results ---- */

/* Returns the view [batch, heads, L, D] of heads stored in rows of `width` elements. */
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

static mha_step_view keys_view(const mha_variant *v, const mha_trace *t, const char *fresh, int64_t row,
                               const char *with_past)
{
    const int64_t H = v->layer.options.kv_heads, D = v->layer.options.head_dim;
    return with_past ? dense_view(with_past, 4, t->B, H, t->Lk, D) : heads_view(fresh, t->B, H, t->Lk, D, row);
}

void mha__show_steps(const mha_variant *v, mha_trace *t)
{
    const mha_attn_layer_options *o = &v->layer.options;
    const mha__attn_trace *s = &t->steps;
    const int64_t B = t->B, Lq = t->Lq;
    const mha__qkv at = mha__qkv_of(&v->layer, &t->call, s->qkv, mha__attn_real(&v->layer));
    const bool slots = o->choice.of == MHA_CHOICE_EXPERTS && v->layer.expert_output == MHA_EXPERT_SLOT;
    show_selection(v, t);
    t->flops = count_flops(v, t);
    t->step[MHA_STEP_Q] = heads_view(at.q, B, o->heads, Lq, o->head_dim, at.q_row);
    t->step[MHA_STEP_K] = keys_view(v, t, at.k, at.kv_row, s->past_k);
    t->step[MHA_STEP_V] = keys_view(v, t, at.v, at.kv_row, s->past_v);
    t->step[MHA_STEP_SCORES] = dense_view(t->scores ? t->scores : s->scores, 4, B, t->n, Lq, t->Lk);
    t->step[MHA_STEP_WEIGHTS] = dense_view(t->weights ? t->weights : s->probs, 4, B, t->n, Lq, t->Lk);
    t->step[MHA_STEP_CONTEXT] = dense_view(t->context ? t->context : s->context, 3, B, Lq, t->width, 0);
    t->step[MHA_STEP_MIXED] = dense_view(slots ? s->context : s->sum, 3, B, Lq, o->hidden, 0);
    t->step[MHA_STEP_LOGITS] = dense_view(t->logits, 2, B, t->choices, 0, 0);
    t->step[MHA_STEP_GATES] = dense_view(t->gate, 2, B, t->chosen, 0, 0);
}

int mha_trace_step(const mha_trace *trace, mha_step step, mha_step_view *view)
{
    if (!trace || !trace->layer || !view || (int)step < 0 || (int)step >= MHA__STEPS) return 0;
    *view = trace->step[step];
    return view->data != NULL;
}

const int32_t *mha_trace_chosen(const mha_trace *trace, int64_t b, int64_t *count)
{
    const bool known = trace && trace->layer && trace->list && b >= 0 && b < trace->B;
    if (count) *count = known ? trace->chosen : 0;
    return known ? trace->list + b * trace->choices : NULL;
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
