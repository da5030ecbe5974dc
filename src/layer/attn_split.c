/* attn_split.c - see attn_split.h. A head is a cut through the columns of q, k and v, so the views of one sequence
 * follow from those of the whole call. */
#include "layer/attn_split.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/rng.h"
#include <string.h>

mha_status mha__attn_split_check(const mha_layer_input *in, mha_error *err)
{
    const char *what = in->gates.data                        ? "gates"
                       : in->probs                           ? "probs"
                       : in->stats                           ? "stats"
                       : in->on_rows                         ? "on_rows"
                       : in->keep.data && in->keep.stride[1] ? "a mask for each head"
                                                             : NULL;
    if (!what) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "mha_layer_input: %s, but the layer has another number of heads for each sequence", what);
}

int64_t mha__attn_most_heads(const mha_attn_layer *layer)
{
    const mha_layer_choice *c = &layer->options.choice;
    int64_t most = layer->options.heads;
    for (int64_t n = 0; mha__attn_splits(layer) && n < c->option_count; n++)
        most = mha__max64(most, c->options[n]);
    return most;
}

/* One sequence as the operator sees it. */
typedef struct part {
    int64_t first, length, heads, head_dim;
    int64_t place; /* of its option in [sequences, S] */
    mha_attn_desc desc;
    mha_attn_args args;
    mha_attn_plan *plan;
    void *workspace;
    size_t bytes;
} part;

static size_t size_of(const mha_attn_layer *l)
{
    return l->options.dtype == MHA_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Heads of rows [first, ..) of a view over all rows, whose columns are cut anew. */
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

/* Rows of sequence n, and what it has chosen. */
static void find(const mha_attn_layer *l, const mha_layer_input *in, const mha__chosen *chosen, int64_t n, part *p)
{
    *p = (part){.first = mha__layer_first_row(in, n), .place = n * l->score.out};
    p->length = mha__layer_end_row(in, n) - p->first;
    while (!chosen->kept[p->place])
        p->place++;
    p->heads = l->options.choice.options[p->place - n * l->score.out];
    p->head_dim = l->options.heads * l->options.head_dim / p->heads;
}

/* Sequence n as a call of its own, from the whole; all but the plan. */
static mha_status begin(const mha_attn_layer *l, const mha_layer_input *in, const mha__chosen *chosen,
                        const mha_attn_args *args, int64_t n, size_t size, part *p, mha_error *err)
{
    find(l, in, chosen, n, p);
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
                              .gates.data = chosen->gates + p->place,
                              .dropout_seed = mha__splitmix_at(args->dropout_seed, (uint64_t)n)};
    cut(p, size, &p->args.q);
    cut(p, size, &p->args.k);
    cut(p, size, &p->args.v);
    cut_own(p, size, &p->args.out);
    return MHA_OK;
}

/* The plan of what p->desc says by now, and memory for it. */
static mha_status find_plan(const mha_attn_layer *l, part *p, mha_error *err)
{
    MHA__TRY(mha_attn_plan_create(l->ctx, &p->desc, &p->plan, err));
    p->bytes = mha_attn_plan_workspace(p->plan);
    p->workspace = mha__alloc(l->ctx, p->bytes);
    return p->workspace ? MHA_OK : mha__no_memory(err, p->bytes, "the workspace of a sequence's heads");
}

static void end(const mha_attn_layer *l, part *p)
{
    mha_attn_plan_free(p->plan);
    mha__free(l->ctx, p->workspace);
}

static void clear(const mha_attn_layer *l, const mha_layer_input *in, const mha_view *out, size_t size)
{
    memset(out->data, 0, (size_t)(in->batch * in->length * l->options.heads * l->options.head_dim) * size);
}

mha_status mha__attn_split_forward(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                                   const mha_attn_args *args, mha_error *err)
{
    mha_status status = MHA_OK;
    clear(layer, in, &args->out, size_of(layer));
    for (int64_t n = 0; status == MHA_OK && n < mha__layer_sequences(in); n++) {
        part p;
        if (mha__layer_end_row(in, n) == mha__layer_first_row(in, n)) continue;
        status = begin(layer, in, chosen, args, n, size_of(layer), &p, err);
        if (status == MHA_OK) status = find_plan(layer, &p, err);
        if (status == MHA_OK) status = mha_attn_forward(p.plan, &p.args, p.workspace, p.bytes, err);
        end(layer, &p);
    }
    return status;
}

/* ---- with gradients ---- */

/* The same of both directions. */
static mha_status begin_both(const mha_attn_layer *l, const mha_layer_input *in, const mha__chosen *chosen,
                             const mha__split_both *both, int64_t n, part *p, mha_error *err)
{
    MHA__TRY(begin(l, in, chosen, both->args, n, sizeof(float), p, err));
    mha__attn_desc_both(&p->desc, both->dropout);
    p->args.lse = (mha_view){both->lse + p->first * mha__attn_most_heads(l), {0, p->length, 1}};
    return find_plan(l, p, err);
}

mha_status mha__attn_split_keep(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                                const mha__split_both *both, mha_error *err)
{
    mha_status status = MHA_OK;
    clear(layer, in, &both->args->out, sizeof(float));
    for (int64_t n = 0; status == MHA_OK && n < mha__layer_sequences(in); n++) {
        part p;
        if (mha__layer_end_row(in, n) == mha__layer_first_row(in, n)) continue;
        status = begin_both(layer, in, chosen, both, n, &p, err);
        if (status == MHA_OK) status = mha_attn_forward(p.plan, &p.args, p.workspace, p.bytes, err);
        end(layer, &p);
    }
    return status;
}

static mha_status back(part *p, const mha_attn_grads *whole, float *dgates, mha_error *err)
{
    mha_attn_grads grads = *whole;
    cut(p, sizeof(float), &grads.dout);
    cut(p, sizeof(float), &grads.out);
    cut_own(p, sizeof(float), &grads.dq);
    cut_own(p, sizeof(float), &grads.dk);
    cut_own(p, sizeof(float), &grads.dv);
    grads.lse = (mha_cview){p->args.lse.data, {0, p->length, 1}};
    grads.dgates = (mha_view){dgates + p->place, {0}};
    return mha_attn_backward(p->plan, &p->args, &grads, p->workspace, p->bytes, err);
}

mha_status mha__attn_split_back(const mha_attn_layer *layer, const mha_layer_input *in, const mha__chosen *chosen,
                                const mha__split_both *both, const mha_attn_grads *grads, float *dgates, mha_error *err)
{
    mha_status status = MHA_OK;
    for (int64_t n = 0; status == MHA_OK && n < mha__layer_sequences(in); n++) {
        part p;
        if (mha__layer_end_row(in, n) == mha__layer_first_row(in, n)) {
            memset(dgates + n * layer->score.out, 0, (size_t)layer->score.out * sizeof *dgates);
            continue;
        }
        status = begin_both(layer, in, chosen, both, n, &p, err);
        if (status == MHA_OK) status = back(&p, grads, dgates, err);
        end(layer, &p);
    }
    return status;
}
