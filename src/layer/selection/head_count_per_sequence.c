/* head_count_per_sequence.c - see head_count_per_sequence.h. A head is a range of columns of q, k and v, so the views
 * of one sequence follow from the views of the whole call. */
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
    return mha__fail(
        err, MHA_ERR_UNSUPPORTED,
        "attention layer: %s of single heads must not be requested where the number of heads varies per sequence",
        what);
}

int64_t mha__attn_most_heads(const mha_attn_layer *layer)
{
    const mha_layer_choice *c = &layer->options.choice;
    int64_t most = layer->options.heads;
    for (int64_t n = 0; mha__attn_splits(layer) && n < c->option_count; n++)
        most = mha__max64(most, c->options[n]);
    return most;
}

/* One sequence as a call of the operator. */
typedef struct part {
    int64_t first, length, heads, head_dim;
    int64_t place; /* index of its option in [sequences, S] */
    mha_attn_desc desc;
    mha_attn_args args;
    mha_attn_plan *plan;
    void *workspace;
    size_t bytes;
} part;

/* Bytes per element that the operator reads and writes. */
static size_t size_of(const mha_attn_layer *l, const mha__split *s)
{
    return l->options.dtype == MHA_F32 || s->lse ? sizeof(float) : sizeof(uint16_t);
}

/* Restricts a view of all rows to the rows of one sequence, with the head width of that sequence. */
static void cut(const part *p, size_t size, mha_cview *view)
{
    if (view->data) view->data = (const char *)view->data + (size_t)(p->first * view->stride[2]) * size;
    view->stride[0] = 0;
    view->stride[1] = p->head_dim;
}

static void cut_own(const part *p, size_t size, mha_view *view)
{
    if (view->data) view->data = (char *)view->data + (size_t)(p->first * view->stride[2]) * size;
    view->stride[0] = 0;
    view->stride[1] = p->head_dim;
}

/* Finds the rows of sequence n and the option it selected. */
static void find(const mha_attn_layer *l, const mha_layer_input *in, const mha__chosen *chosen, int64_t n, part *p)
{
    *p = (part){.first = mha__layer_first_row(in, n), .place = n * l->score.out};
    p->length = mha__layer_end_row(in, n) - p->first;
    while (!chosen->kept[p->place])
        p->place++;
    p->heads = l->options.choice.options[p->place - n * l->score.out];
    p->head_dim = l->options.heads * l->options.head_dim / p->heads;
}

/* Derives the call of sequence n from the whole call, all but the plan. */
static mha_status begin(const mha_attn_layer *l, const mha_layer_input *in, const mha__split *s, int64_t n, part *p,
                        mha_error *err)
{
    const mha_attn_args *args = s->args;
    const size_t size = size_of(l, s);
    find(l, in, s->chosen, n, p);
    mha_layer_input alone = {.size = sizeof alone, .batch = 1, .length = p->length, .keep = in->keep};
    if (alone.keep.data) alone.keep.data = (const char *)alone.keep.data + n * alone.keep.stride[0];
    MHA__TRY(mha__attn_layer_describe(l, &alone, &p->desc, err));
    p->desc.heads = p->desc.kv_heads = p->heads;
    p->desc.head_dim = p->head_dim;
    p->args = (mha_attn_args){.size = sizeof p->args,
                              .q = args->q,
                              .k = args->k,
                              .v = args->v,
                              .out = args->out,
                              .keep = alone.keep,
                              .gates.data = s->chosen->gates + p->place,
                              .dropout_seed = mha__splitmix_at(args->dropout_seed, (uint64_t)n)};
    cut(p, size, &p->args.q);
    cut(p, size, &p->args.k);
    cut(p, size, &p->args.v);
    cut_own(p, size, &p->args.out);
    if (!s->lse) return MHA_OK;
    mha__attn_desc_both(&p->desc, s->dropout);
    p->args.lse = (mha_view){s->lse + p->first * mha__attn_most_heads(l), {0, p->length, 1}};
    return MHA_OK;
}

static mha_status back(const part *p, const mha__split *s, mha_error *err)
{
    mha_attn_grads grads = *s->grads;
    cut(p, sizeof(float), &grads.dout);
    cut(p, sizeof(float), &grads.out);
    cut_own(p, sizeof(float), &grads.dq);
    cut_own(p, sizeof(float), &grads.dk);
    cut_own(p, sizeof(float), &grads.dv);
    grads.lse = (mha_cview){p->args.lse.data, {0, p->length, 1}};
    grads.dgates = (mha_view){s->dgates + p->place, {0}};
    return mha_attn_backward(p->plan, &p->args, &grads, p->workspace, p->bytes, err);
}

/* Creates the plan and its workspace and runs the call. */
static mha_status run(const mha_attn_layer *l, part *p, const mha__split *s, mha_error *err)
{
    MHA__TRY(mha_attn_plan_create(l->ctx, &p->desc, &p->plan, err));
    p->bytes = mha_attn_plan_workspace(p->plan);
    p->workspace = p->bytes ? mha__alloc(l->ctx, p->bytes) : NULL;
    if (p->bytes && !p->workspace) return mha__no_memory(err, p->bytes, "the workspace of a sequence's heads");
    return s->grads ? back(p, s, err) : mha_attn_forward(p->plan, &p->args, p->workspace, p->bytes, err);
}

static mha_status run_sequence(const mha_attn_layer *l, const mha_layer_input *in, const mha__split *s, int64_t n,
                               mha_error *err)
{
    part p = {0};
    mha_status status = begin(l, in, s, n, &p, err);
    if (status == MHA_OK) status = run(l, &p, s, err);
    mha_attn_plan_free(p.plan);
    mha__free(l->ctx, p.workspace);
    return status;
}

mha_status mha__attn_split_run(const mha_attn_layer *layer, const mha_layer_input *in, const mha__split *split,
                               mha_error *err)
{
    const size_t sequences = (size_t)mha__layer_sequences(in), rows = (size_t)(in->batch * in->length);
    if (split->grads)
        memset(split->dgates, 0, sequences * (size_t)layer->score.out * sizeof *split->dgates);
    else
        memset(split->args->out.data, 0,
               rows * (size_t)(layer->options.heads * layer->options.head_dim) * size_of(layer, split));
    for (int64_t n = 0; n < (int64_t)sequences; n++)
        if (mha__layer_end_row(in, n) > mha__layer_first_row(in, n)) MHA__TRY(run_sequence(layer, in, split, n, err));
    return MHA_OK;
}
