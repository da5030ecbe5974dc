/* head_count_per_sequence.c - calls the operator for each sequence. A head is a range of columns of q, k and v, so the
 * views of one sequence follow from the views of the whole call. */
#include "layer/selection/head_count_per_sequence.h"

#include "base/ctx.h"
#include "base/error.h"
#include "math/rng_draws.h"
#include <string.h>

mha_status mha__attn_split_check(const mha_layer_input *in, mha_error *err)
{
    const char *what = in->gates.data                        ? "gates"
                       : in->probs || in->on_rows            ? "maps"
                       : in->stats                           ? "statistics"
                       : in->keep.data && in->keep.stride[1] ? "masks"
                                                             : NULL;
    if (!what) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "attention layer: per-head %s must not be set if the head count varies per sequence", what);
}

int64_t mha__attn_max_heads(const mha_attn_layer *layer)
{
    const mha_layer_choice *c = &layer->options.choice;
    int64_t max = mha__experts_summed(layer) ? c->keep : layer->options.heads;
    for (int64_t n = 0; c->of == MHA_CHOICE_OPTIONS && n < c->option_count; n++)
        max = mha__max64(max, c->options[n]);
    return max;
}

/* The call for all sequences. */
typedef struct whole {
    const mha_attn_layer *layer;
    const mha__attn_call *call;
    const mha__attn_trace *trace;
    const mha_attn_args *args;
    const mha_attn_grads *grads; /* NULL in the forward pass */
    char *dgates;
    size_t size; /* bytes per element of q, k, v and the context */
} whole;

/* The operator call of one sequence. */
typedef struct part {
    int64_t first, length, heads, head_dim;
    int64_t first_key; /* first row of k and v */
    int64_t place;     /* index of the selected option, or of the first expert, in [sequences, S] */
    mha_attn_desc desc;
    mha_attn_args args;
    mha_attn_plan *plan;
    void *workspace;
    size_t bytes;
} part;

/* Restricts a view of all rows to one sequence, whose rows begin at `first`, with the head width of that sequence. */
static mha_cview cut(const part *p, size_t size, int64_t first, mha_cview view)
{
    if (view.data) view.data = (const char *)view.data + (size_t)(first * view.stride[2]) * size;
    view.stride[0] = 0;
    view.stride[1] = p->head_dim;
    return view;
}

static mha_view cut_own(const part *p, size_t size, int64_t first, mha_view view)
{
    if (view.data) view.data = (char *)view.data + (size_t)(first * view.stride[2]) * size;
    view.stride[0] = 0;
    view.stride[1] = p->head_dim;
    return view;
}

/* Returns the view of a mask that starts at sequence n. */
static mha_cview from(mha_cview mask, int64_t n, size_t size)
{
    if (mask.data) mask.data = (const char *)mask.data + (size_t)(n * mask.stride[0]) * size;
    return mask;
}

/* Finds the rows and the heads of sequence n. */
static void find(const whole *w, int64_t n, part *p)
{
    const mha_layer_input *in = w->call->in;
    const mha_attn_layer *l = w->layer;
    *p = (part){.first = mha__layer_first_row(in, n), .place = n * l->score.out};
    p->first_key = w->call->kv_length ? n * w->call->kv_length : p->first;
    p->length = mha__layer_end_row(in, n) - p->first;
    p->heads = l->options.heads;
    p->head_dim = l->options.head_dim;
    if (mha__experts_summed(l)) return;
    while (!w->trace->chosen.kept[p->place])
        p->place++;
    p->heads = l->options.choice.options[p->place - n * l->score.out];
    p->head_dim = l->options.heads * l->options.head_dim / p->heads;
}

/* Returns the view [heads, rows, columns] of one sequence in memory laid out for the greatest head count. */
static mha_view result(const whole *w, const part *p, void *all, int64_t columns)
{
    const int64_t at = p->first * mha__attn_max_heads(w->layer) * columns;
    return (mha_view){all ? (char *)all + (size_t)at * mha__attn_real(w->layer) : NULL, {0}};
}

static void bind(const whole *w, int64_t n, part *p)
{
    const mha_attn_args *all = w->args;
    const int64_t keys = p->desc.kv_len;
    p->args = (mha_attn_args){
        .size = sizeof p->args,
        .q = cut(p, w->size, p->first, all->q),
        .k = cut(p, w->size, p->first_key, all->k),
        .v = cut(p, w->size, p->first_key, all->v),
        .out = cut_own(p, w->size, p->first, all->out),
        .keep = from(all->keep, n, 1),
        .bias = from(all->bias, n, w->size),
        .gates.data = (char *)w->trace->chosen.gates + (size_t)p->place * mha__attn_real(w->layer),
        .dropout_seed = mha__splitmix_at(all->dropout_seed, (uint64_t)n),
        .lse = result(w, p, w->trace->lse, 1),
        .probs = result(w, p, w->trace->probs, keys),
        .scores = result(w, p, w->trace->scores, keys),
    };
    p->args.lse.stride[1] = p->length;
    p->args.lse.stride[2] = 1;
}

/* Derives the call of sequence n, except its plan, from the whole call. */
static mha_status begin(const whole *w, int64_t n, part *p, mha_error *err)
{
    find(w, n, p);
    const mha_layer_input in = {.size = sizeof in, .batch = 1, .length = p->length, .keep = w->call->in->keep};
    mha__attn_call call = *w->call;
    call.in = &in;
    MHA__TRY(mha__attn_describe(w->layer, &call, &p->desc, err));
    p->desc.heads = p->desc.kv_heads = p->heads;
    p->desc.head_dim = p->head_dim;
    bind(w, n, p);
    if (!mha__experts_summed(w->layer)) return MHA_OK;
    p->desc.inputs |= MHA_ATTN_HEAD_LIST;
    p->desc.listed_heads = w->layer->options.choice.keep;
    p->args.head_list = w->trace->chosen.list + p->place;
    p->args.gates.stride[1] = 1;
    return MHA_OK;
}

static mha_status back(const whole *w, const part *p, mha_error *err)
{
    mha_attn_grads grads = *w->grads;
    grads.dout = cut(p, w->size, p->first, grads.dout);
    grads.out = cut(p, w->size, p->first, grads.out);
    grads.dq = cut_own(p, w->size, p->first, grads.dq);
    grads.dk = cut_own(p, w->size, p->first_key, grads.dk);
    grads.dv = cut_own(p, w->size, p->first_key, grads.dv);
    grads.lse = (mha_cview){p->args.lse.data, {0, p->length, 1}};
    grads.dgates = (mha_view){w->dgates + (size_t)p->place * w->size, {0, p->args.gates.stride[1]}};
    return mha_attn_backward(p->plan, &p->args, &grads, p->workspace, p->bytes, err);
}

/* Creates the plan and the workspace of a sequence and runs its call. */
static mha_status run(const whole *w, part *p, mha_error *err)
{
    mha_ctx *ctx = w->layer->ctx;
    MHA__TRY(mha_attn_plan_create(ctx, &p->desc, &p->plan, err));
    p->bytes = mha_attn_plan_workspace(p->plan);
    p->workspace = p->bytes ? mha__alloc(ctx, p->bytes) : NULL;
    if (p->bytes && !p->workspace) return mha__no_memory(err, p->bytes, "the workspace of a sequence's heads");
    return w->grads ? back(w, p, err) : mha_attn_forward(p->plan, &p->args, p->workspace, p->bytes, err);
}

static mha_status run_sequence(const whole *w, int64_t n, mha_error *err)
{
    part p = {0};
    mha_status status = begin(w, n, &p, err);
    if (status == MHA_OK) status = run(w, &p, err);
    mha_attn_plan_free(p.plan);
    mha__free(w->layer->ctx, p.workspace);
    return status;
}

mha_status mha__attn_split_run(const mha_attn_layer *layer, const mha__attn_call *call, const mha__attn_trace *trace,
                               const mha_attn_args *args, const mha_attn_grads *grads, void *dgates, mha_error *err)
{
    if (grads && grads->dbias.data) /* each sequence would overwrite the sums of the others */
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "heads must not be selected per sequence with dbias");
    const bool half = mha__attn_is_half(layer) && !mha__attn_records(call);
    const size_t size = half ? sizeof(uint16_t) : mha__attn_real(layer);
    const size_t sequences = (size_t)mha__layer_sequences(call->in), scores = (size_t)layer->score.out;
    const size_t rows = (size_t)(call->in->batch * call->in->length);
    const whole w = {layer, call, trace, args, grads, dgates, size};
    if (grads)
        memset(dgates, 0, sequences * scores * size);
    else
        memset(args->out.data, 0, rows * (size_t)mha__context_width(layer) * size);
    for (int64_t n = 0; n < (int64_t)sequences; n++)
        if (mha__layer_end_row(call->in, n) > mha__layer_first_row(call->in, n)) MHA__TRY(run_sequence(&w, n, err));
    return MHA_OK;
}
