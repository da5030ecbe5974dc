/* host_model.c - reads the shape of a model for host planning from config.json or from a planned model. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/plan/host_cost.h"
#include "heads/plan/option_range.h"
#include "model/model_struct.h"

#define WEIGHTS_MAX (INT64_C(1) << 60)

mha_status mha__host_model_check(const mha_host_model *given, mha_host_model *model, mha_error *err)
{
    const int64_t wide = INT64_C(1) << 20, max = WEIGHTS_MAX;
    mha_host_model m;
    MHA__TRY(mha__options_need(&m, sizeof m, given, "mha_host_model", err));
    MHA__TRY(mha__option_within("layers", m.layers, 1, 65536, err));
    MHA__TRY(mha__option_within("hidden", m.hidden, 1, wide, err));
    MHA__TRY(mha__option_within("heads", m.heads, 1, wide, err));
    if (m.kv_heads == 0) m.kv_heads = m.heads;
    MHA__TRY(mha__option_within("kv_heads", m.kv_heads, 1, m.heads, err));
    if (m.heads % m.kv_heads != 0)
        return mha__fail(err, MHA_ERR_ARG, "kv_heads must divide heads = %lld (got %lld)", (long long)m.heads,
                         (long long)m.kv_heads);
    MHA__TRY(mha__option_within("head_dim", m.head_dim, 1, wide, err));
    if (m.feed_forward == 0) m.feed_forward = 4 * m.hidden;
    MHA__TRY(mha__option_within("feed_forward", m.feed_forward, 1, INT64_C(1) << 31, err));
    MHA__TRY(mha__option_within("layer_weights", m.layer_weights, 1, max, err));
    MHA__TRY(mha__option_within("output_weights", m.output_weights, 0, max, err));
    MHA__TRY(mha__option_within("word_weights", m.word_weights, 0, max, err));
    MHA__TRY(mha__option_within("other_weights", m.other_weights, 0, max, err));
    MHA__TRY(mha__option_within("cached_width", m.cached_width, 0, INT64_C(1) << 21, err));
    *model = m;
    return MHA_OK;
}

/* ---- shape from config.json ---- */

/* Returns the count that a tensor belongs to. */
static int64_t *count_of(const mha__tensor_step *at, const mha_named_tensor *t, mha_host_model *m)
{
    if (at->role == MHA__LM_HEAD) return &m->output_weights;
    if (at->layer >= 0 && t->rank == 2) return &m->layer_weights;
    return at->role == MHA__WORDS ? &m->word_weights : &m->other_weights;
}

/* Adds the elements of a tensor to *count; returns false if *count exceeds WEIGHTS_MAX. */
static bool add_tensor(const mha_named_tensor *t, int64_t *count)
{
    size_t elements;
    if (!mha__bytes(t->shape, t->rank, 1, &elements) || (uint64_t)elements > WEIGHTS_MAX) return false;
    *count += (int64_t)elements;
    return *count <= WEIGHTS_MAX;
}

/* Returns false for tensors that only some checkpoints have, and for the second name of a tensor: the output bias of
 * an encoder has another name if the output matrix is tied. */
static bool is_counted(const mha__config *c, mha__role role)
{
    if (role == MHA__POOLER) return false;
    if (role == MHA__LM_HEAD) return !c->tied;
    if (role == MHA__LM_BIAS) return !c->tied || c->family->causal;
    return role != MHA__LM_TIED_BIAS || c->tied;
}

static mha_status count_weights(const mha__config *c, mha_host_model *m, mha_error *err)
{
    char name[MHA__TENSOR_NAME];
    mha_named_tensor t;
    for (mha__tensor_step at = {0}; mha__tensor_each(c, &at);) {
        if (!is_counted(c, at.role)) continue;
        if (!mha__weights_expected(c, at.role, at.layer, at.bias, name, &t)) continue;
        if (!add_tensor(&t, count_of(&at, &t, m)))
            return mha__fail(err, MHA_ERR_UNSUPPORTED,
                             "config.json: the model must have at most 2^60 parameters (exceeded at tensor \"%s\")",
                             name);
        if (at.role == MHA__GATE || at.role == MHA__GATE_UP) m->gated = 1;
    }
    if (c->tied) m->output_weights = m->word_weights;
    return MHA_OK;
}

static mha_host_model shape_of(const mha__config *c)
{
    return (mha_host_model){.size = sizeof(mha_host_model),
                            .layers = c->layers,
                            .hidden = c->hidden,
                            .heads = c->heads,
                            .kv_heads = c->kv_heads,
                            .head_dim = c->head_dim,
                            .feed_forward = c->intermediate,
                            .bidirectional = !c->family->causal,
                            .tied = c->tied,
                            .undivided = mha__rank_config_check(c, NULL) != MHA_OK,
                            .cached_width = mha__config_latent_width(c)};
}

mha_status mha_host_model_of_config(mha_ctx *ctx, const char *config_json, mha_host_model *model, mha_error *err)
{
    char *text = NULL;
    mha_host_model m;
    if (!config_json || !model)
        return mha__fail(err, MHA_ERR_ARG, "mha_host_model_of_config: %s must not be NULL",
                         model ? "config_json" : "model");
    MHA__TRY(mha__options_need(&m, sizeof m, model, "mha_host_model", err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha__config *c = mha__alloc(ctx, sizeof *c); /* on the heap, because the struct is too large for some stacks */
    if (!c) return mha__no_memory(err, sizeof *c, "a config");
    mha_status status = mha__config_read(ctx, "", config_json, c, &text, err);
    if (status == MHA_OK && c->family->one_side)
        status =
            mha__fail(err, MHA_ERR_UNSUPPORTED, "the model must not be an encoder-decoder (got %s)", c->family->name);
    if (status == MHA_OK && (c->channels || c->family->vision))
        status = mha__fail(err, MHA_ERR_UNSUPPORTED, "the model must be a model of texts (got %s, which reads images)",
                           c->family->name);
    if (status == MHA_OK) {
        m = shape_of(c);
        status = count_weights(c, &m, err);
    }
    if (status == MHA_OK) mha__options_write(model, &m, sizeof m);
    mha__config_release(ctx, c);
    mha__free(ctx, c);
    mha__free(ctx, text);
    return status;
}

/* ---- shape of a planned model ---- */

static mha_host_model shape_of_layout(const mha_head_layout_options *p, int64_t kv_heads)
{
    const int64_t E = p->d_model, D = E / p->heads;
    return (mha_host_model){.size = sizeof(mha_host_model),
                            .layers = p->layers,
                            .hidden = E,
                            .heads = p->heads,
                            .kv_heads = kv_heads,
                            .head_dim = D,
                            .layer_weights = p->layers * (10 * E * E + 2 * E * kv_heads * D),
                            .output_weights = p->vocab * E,
                            .word_weights = p->vocab * E,
                            .tied = 1};
}

mha_status mha_host_model_of_layout(const mha_head_layout_options *options, int64_t kv_heads, mha_host_model *model,
                                    mha_error *err)
{
    mha_head_layout_options given, p;
    mha_host_model m;
    MHA__TRY(mha__options_need(&m, sizeof m, model, "mha_host_model", err));
    MHA__TRY(mha__options_need(&given, sizeof given, options, "mha_head_layout_options", err));
    MHA__TRY(mha_head_layout_resolve(&given, &p, err));
    if (kv_heads == 0) kv_heads = p.heads;
    MHA__TRY(mha__option_within("kv_heads", kv_heads, 1, p.heads, err));
    m = shape_of_layout(&p, kv_heads);
    if (given.parameters > 0) m.layer_weights = given.parameters - m.word_weights;
    if (m.layer_weights < 1)
        return mha__fail(err, MHA_ERR_ARG, "parameters must be above vocab * d_model = %lld (got %lld)",
                         (long long)m.word_weights, (long long)given.parameters);
    MHA__TRY(mha__host_model_check(&m, &m, err));
    mha__options_write(model, &m, sizeof m);
    return MHA_OK;
}
