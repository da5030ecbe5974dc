/* head_selection_create.c - checks the weights that score heads and copies them as double. */
#include "base/ctx.h"
#include "base/error.h"
#include "layer/selection/head_selection.h"

static mha_status refuse(const char *why, mha_error *err)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "attention layer: choice must not be combined with %s", why);
}

/* Checks the options of a layer whose head count varies per sequence. Options that refer to single heads are
 * rejected. */
static mha_status check_split(const mha_attn_layer_options *o, mha_error *err)
{
    const mha_layer_choice *c = &o->choice;
    if (c->option_count < 1 || c->option_count > MHA_HEAD_OPTIONS)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: choice.option_count must be from 1 to %d (got %lld)",
                         MHA_HEAD_OPTIONS, (long long)c->option_count);
    for (int64_t n = 0; n < c->option_count; n++)
        if (c->options[n] < 1 || o->heads * o->head_dim % c->options[n] ||
            o->heads * o->head_dim / c->options[n] > MHA_HEAD_DIM_MAX)
            return mha__fail(
                err, MHA_ERR_ARG,
                "attention layer: choice.options[%lld] must divide %lld columns into heads of width 1 to %d (got %lld)",
                (long long)n, (long long)(o->heads * o->head_dim), MHA_HEAD_DIM_MAX, (long long)c->options[n]);
    if (!c->hidden.weight || !c->hidden.bias || c->hidden.transposed || c->hidden.out < 1 || c->hidden.out > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG,
                         "attention layer: choice.hidden must have a weight [out, hidden] and a bias");
    if (o->kv_heads != o->heads || o->v_heads != o->heads) return refuse("shared keys or values", err);
    if (o->rope || o->q_norm.weight || o->k_norm.weight) return refuse("rotation or norms of heads", err);
    if (o->sinks) return refuse("attention sinks", err);
    return o->slopes ? refuse("ALiBi slopes", err) : MHA_OK;
}

mha_status mha__attn_choice_check(const mha_attn_layer_options *o, mha_error *err)
{
    const mha_layer_choice *c = &o->choice;
    if ((int)c->of < MHA_CHOICE_NONE || c->of > MHA_CHOICE_OPTIONS)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: choice.of must be a value of mha_choice (got %d)",
                         (int)c->of);
    if (!c->of) return MHA_OK;
    if (c->of != MHA_CHOICE_EXPERTS &&
        ((int)c->selection < MHA_SELECTION_HARD || c->selection > MHA_SELECTION_STRAIGHT_THROUGH))
        return mha__fail(err, MHA_ERR_ARG,
                         "attention layer: choice.selection must be a value of mha_selection (got %d)",
                         (int)c->selection);
    if (!c->score.weight || !c->score.bias || c->score.transposed)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: choice.score must have a weight and a bias");
    if (o->causal) return refuse("causal attention, because the mean over all tokens would leak later tokens", err);
    if (c->of == MHA_CHOICE_OPTIONS) return check_split(o, err);
    if (c->keep < 1 || c->keep > o->heads)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: choice.keep must be from 1 to heads = %lld (got %lld)",
                         (long long)o->heads, (long long)c->keep);
    return MHA_OK;
}

static double *set_out(mha__scorer *s, int64_t in, int64_t out, double *room)
{
    *s = (mha__scorer){.in = in, .out = out, .weight = room, .bias = room + out * in};
    return room + out * (in + 1);
}

static mha_status allocate(mha_attn_layer *l, int64_t predictor, mha_error *err)
{
    const mha_attn_layer_options *o = &l->options;
    const bool split = o->choice.of == MHA_CHOICE_OPTIONS;
    const int64_t P = split ? predictor : 0, S = split ? o->choice.option_count : o->heads, in = split ? P : o->hidden;
    const size_t count = (size_t)(S * (in + 1) + P * (o->hidden + 1));
    l->scores = mha__calloc(l->ctx, count, sizeof *l->scores);
    if (!l->scores) return mha__no_memory(err, count * sizeof *l->scores, "the scores of an attention layer's heads");
    double *room = set_out(&l->score, in, S, l->scores);
    if (split) set_out(&l->hidden, o->hidden, P, room);
    return MHA_OK;
}

static mha_status keep(const mha_attn_layer *l, mha__scorer *s, const mha__matrix *given, mha_error *err)
{
    const mha_dtype dtype = l->options.dtype;
    for (int64_t n = 0; n < s->out * s->in; n++)
        s->weight[n] = mha__get(dtype, given->weight, n);
    for (int64_t n = 0; n < s->out; n++)
        s->bias[n] = mha__get(dtype, given->bias, n);
    if (!l->as_published || !s->out) return MHA_OK;
    return mha__linear_keep(l->ctx, dtype, s->in, given, 1, &s->linear, err);
}

mha_status mha__attn_choice_keep(mha_attn_layer *l, const mha__matrix *score, const mha__matrix *hidden, mha_error *err)
{
    if (!l->options.choice.of) return MHA_OK;
    if (!l->scores) MHA__TRY(allocate(l, hidden->out, err));
    MHA__TRY(keep(l, &l->score, score, err));
    return keep(l, &l->hidden, hidden, err);
}
