/* attention_create.c - creates the attention layer of a model: checks its options and packs its weights. */
#include "attn/plan/params.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/attention/disentangled.h"
#include "layer/attention/latent.h"
#include "layer/norm.h"
#include "layer/repack.h"
#include "layer/selection/computed_heads.h"
#include <string.h>

/* Rejects options that cross-attention does not support. */
static mha_status check_cross(const mha_attn_layer_options *o, mha_error *err)
{
    const char *name = o->causal                                 ? "causal"
                       : o->window.on                            ? "window"
                       : o->rope                                 ? "rope"
                       : o->q_norm.weight || o->k_norm.weight    ? "norms of q and k"
                       : o->slopes                               ? "slopes"
                       : o->choice.of                            ? "choice"
                       : o->qkv.weight                           ? "qkv"
                       : o->v_heads && o->v_heads != o->kv_heads ? "v_heads"
                       : o->dtype != MHA_F32                     ? "a 16-bit dtype"
                                                                 : NULL;
    if (!o->cross || !name) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "attention layer: cross must be 0 with %s (got %d)", name, o->cross);
}

/* Checks the options that are passed to the operator. */
static mha_status check_operator(const mha_attn_layer_options *o, mha_error *err)
{
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = 1,
                             .head_dim = o->head_dim,
                             .scale = o->scale,
                             .softcap = o->softcap,
                             .causal = o->causal,
                             .window = o->window};
    mha_attn_desc resolved;
    return mha__attn_resolve(&d, &resolved, err);
}

static mha_status check_options(mha_attn_layer_options *o, mha_error *err)
{
    if (o->hidden < 1 || o->hidden > INT32_MAX)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: hidden must be from 1 to 2^31-1 (got %lld)",
                         (long long)o->hidden);
    if (o->heads < 1 || o->heads > 65536)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: heads must be from 1 to 65536 (got %lld)",
                         (long long)o->heads);
    if (!o->kv_heads) o->kv_heads = o->heads;
    if (!o->v_heads) o->v_heads = o->kv_heads;
    if (o->kv_heads < 1 || o->heads % o->kv_heads)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: kv_heads must divide heads = %lld (got %lld)",
                         (long long)o->heads, (long long)o->kv_heads);
    if (o->v_heads < 1 || o->heads % o->v_heads)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: v_heads must divide heads = %lld (got %lld)",
                         (long long)o->heads, (long long)o->v_heads);
    if (!o->head_dim && o->hidden % o->heads)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: heads must divide hidden = %lld (got %lld)",
                         (long long)o->hidden, (long long)o->heads);
    if (!o->head_dim) o->head_dim = o->hidden / o->heads;
    if (o->head_dim < 1 || o->head_dim > MHA_HEAD_DIM_MAX)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: head_dim must be from 1 to %d (got %lld)",
                         MHA_HEAD_DIM_MAX, (long long)o->head_dim);
    if (o->q_norm.weight) MHA__TRY(mha__norm_check("attention layer: q_norm", &o->q_norm, err));
    if (o->k_norm.weight) MHA__TRY(mha__norm_check("attention layer: k_norm", &o->k_norm, err));
    if ((o->whole_norms || o->head_gains) && o->v_heads != o->kv_heads)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "attention layer: v_heads must be kv_heads = %lld with %s",
                         (long long)o->kv_heads, o->whole_norms ? "whole_norms" : "head_gains");
    if (o->whole_norms && o->head_gains)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: head_gains must be 0 with whole_norms (got %d)",
                         o->head_gains);
    if (o->rope && o->rope->head_dim != o->head_dim)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: head_dim of rope must be %lld (got %lld)",
                         (long long)o->head_dim, (long long)o->rope->head_dim);
    if (o->qkv.weight && (o->q.weight || o->k.weight || o->v.weight))
        return mha__fail(err, MHA_ERR_ARG, "attention layer: qkv must be NULL if q, k or v is set");
    if (!o->dtype) o->dtype = MHA_F32;
    if (o->dtype != MHA_F32 && o->dtype != MHA_BF16 && o->dtype != MHA_F16)
        return mha__fail(err, MHA_ERR_ARG, "attention layer: dtype must be one of f32, bf16, f16 (got %s)",
                         mha__quote_dtype(&(mha__quoted){0}, o->dtype));
    MHA__TRY(check_cross(o, err));
    MHA__TRY(check_operator(o, err));
    return mha__attn_choice_check(o, err);
}

/* ---- options ---- */

/* Copies a norm's weights into the layer. */
static mha_norm keep_norm(const mha_norm *norm, int64_t width, float *copy)
{
    mha_norm own = *norm;
    if (norm->weight) own.weight = memcpy(copy, norm->weight, (size_t)width * sizeof *copy);
    if (norm->weight && norm->bias) own.bias = memcpy(copy + width, norm->bias, (size_t)width * sizeof *copy);
    return own;
}

/* Returns the number of elements in the weights and biases of both norms. */
static int64_t norm_floats(const mha_attn_layer_options *o)
{
    return 2 * (mha__attn_norm_weights(o, o->heads) + mha__attn_norm_weights(o, o->kv_heads));
}

static void keep_norms(mha_attn_layer *l, const mha_attn_layer_options *o)
{
    const int64_t q = mha__attn_norm_weights(o, o->heads), k = mha__attn_norm_weights(o, l->k_heads);
    l->options.q_norm = keep_norm(&o->q_norm, q, l->norms);
    l->options.k_norm = keep_norm(&o->k_norm, k, l->norms + 2 * q);
}

/* Copies the slopes and sinks into the layer. */
static void keep_per_head(mha_attn_layer *l, const mha_attn_layer_options *o)
{
    const size_t bytes = (size_t)o->heads * sizeof(float);
    float *slopes = l->norms + norm_floats(o), *sinks = slopes + (o->slopes ? o->heads : 0);
    if (o->slopes) l->options.slopes = memcpy(slopes, o->slopes, bytes);
    if (o->sinks) l->options.sinks = memcpy(sinks, o->sinks, bytes);
}

static void keep_options(mha_attn_layer *l, const mha_attn_layer_options *o)
{
    l->options = *o;
    l->expert_output = MHA_EXPERT_SLOT;
    l->out = o->hidden;
    l->options.kv_heads = mha__common_multiple(o->kv_heads, o->v_heads);
    l->k_heads = o->kv_heads;
    l->v_heads = o->v_heads;
    l->options.q = l->options.k = l->options.v = l->options.qkv = l->options.o = (mha_matrix){0};
    l->options.choice.score = l->options.choice.hidden = (mha_matrix){0};
    if (o->choice.of == MHA_CHOICE_OPTIONS) l->options.choice.keep = 1;
    keep_norms(l, o);
    keep_per_head(l, o);
    l->options.rope = NULL;
    if (!o->rope) return;
    l->rope = (mha_rope_options){.size = sizeof l->rope,
                                 .head_dim = o->head_dim,
                                 .rotary_dim = o->rope->rotary_dim,
                                 .interleaved = o->rope->interleaved};
    l->options.rope = &l->rope;
}

/* ---- weights ---- */

/* The matrices of q, k, v and the output projection, with their shapes. With `fused`, q, k and v are one matrix,
 * matrix[0]. */
typedef struct weights {
    mha_matrix matrix[3], o;
    bool fused;
} weights;

static weights weights_of(const mha_attn_layer *l, const mha_attn_layer_options *o)
{
    const int64_t D = o->head_dim;
    weights w = {.matrix = {o->q, o->k, o->v}, .o = o->o, .fused = o->qkv.weight != NULL};
    w.matrix[0].out = o->heads * D;
    w.matrix[1].out = l->k_heads * D;
    w.matrix[2].out = l->v_heads * D;
    w.o.out = o->hidden;
    if (!w.fused) return w;
    w.matrix[0] = o->qkv;
    w.matrix[0].out = (o->heads + l->k_heads + l->v_heads) * D;
    return w;
}

static bool is_plain(const mha_matrix *m)
{
    return m->weight && !m->transposed && (m->packed == MHA_DTYPE_DEFAULT || m->packed == MHA_F32);
}

/* Returns true if q, k and v are packed head by head. This requires a layer whose calls skip heads, and f32 weights
 * that are not transposed. */
static bool packs_heads(const mha_attn_layer *l, const weights *w)
{
    bool plain = mha__heads_keep_some(&l->options) && l->options.dtype == MHA_F32 && is_plain(&w->o);
    for (int p = 0; p < (w->fused ? 1 : 3); p++)
        plain = plain && is_plain(&w->matrix[p]);
    return plain;
}

static mha_status pack_heads(mha_attn_layer *l, const weights *w, mha_error *err)
{
    const int64_t counts[] = {l->options.heads, l->k_heads, l->v_heads};
    mha__matrix qkv[3];
    for (int64_t p = 0, row = 0; p < 3; row += counts[p++] * l->options.head_dim) {
        const mha_matrix *m = &w->matrix[w->fused ? 0 : p];
        const int64_t first = w->fused ? row : 0;
        qkv[p] = (mha__matrix){.weight = m->weight + first * l->options.hidden,
                               .bias = m->bias ? m->bias + first : NULL,
                               .many_rows = m->many_rows != 0};
    }
    return mha__heads_pack(l, qkv, err);
}

/* Packs q, k and v: as one linear layer, head by head if calls skip heads, or as three linear layers if k and v read
 * another sequence. */
static mha_status create_qkv(mha_attn_layer *l, const weights *w, mha_error *err)
{
    static const char *const names[] = {"attention layer: q", "attention layer: k", "attention layer: v"};
    const int64_t hidden = l->options.hidden;
    if (packs_heads(l, w)) return pack_heads(l, w, err);
    if (!l->options.cross)
        return mha__linear_create_named(w->fused ? "attention layer: qkv" : "attention layer: q, k and v", l->ctx,
                                        hidden, w->matrix, w->fused ? 1 : 3, MHA_ACT_NONE, &l->project[0], err);
    for (int p = 0; p < 3; p++)
        MHA__TRY(
            mha__linear_create_named(names[p], l->ctx, hidden, &w->matrix[p], 1, MHA_ACT_NONE, &l->project[p], err));
    return MHA_OK;
}

/* Checks that the matrices are set, except those in `without`. */
static mha_status check_weights(const weights *w, unsigned without, mha_error *err)
{
    static const char *const names[] = {"q", "k", "v", "o"};
    const mha_matrix *const all[] = {&w->matrix[0], &w->matrix[1], &w->matrix[2], &w->o};
    for (int n = 0; n < 4; n++) {
        const bool needed = n == 3 ? !(without & MHA__WITHOUT_OUTPUT) : !(without & MHA__WITHOUT_QKV) && !w->fused;
        if (needed && !all[n]->weight)
            return mha__fail(err, MHA_ERR_ARG, "attention layer: %s.weight must not be NULL", names[n]);
    }
    return MHA_OK;
}

/* Packs the projections, except those in `without`. Without an output projection, the output is the context. */
static mha_status create_projections(mha_attn_layer *l, const weights *w, unsigned without, mha_error *err)
{
    MHA__TRY(check_weights(w, without, err));
    if (!(without & MHA__WITHOUT_QKV)) MHA__TRY(create_qkv(l, w, err));
    if (without & MHA__WITHOUT_OUTPUT) return MHA_OK;
    mha_matrix o = w->o;
    o.many_rows = 0; /* removing a head must be bitwise identical to a gate of 0, but moves steps of 32 inputs */
    return mha__linear_create_named("attention layer: o", l->ctx, l->options.heads * l->options.head_dim, &o, 1,
                                    MHA_ACT_NONE, &l->o, err);
}

static mha_status keep_choice(mha_attn_layer *l, const mha_layer_choice *c, mha_error *err)
{
    const mha__matrix score = {.weight = c->score.weight, .bias = c->score.bias};
    const mha__matrix hidden = {.weight = c->hidden.weight, .bias = c->hidden.bias, .out = c->hidden.out};
    return mha__attn_choice_keep(l, &score, &hidden, err);
}

void mha__attn_layer_repack(mha_attn_layer *l, const mha_attn_layer_options *o)
{
    const weights w = weights_of(l, o);
    for (int p = 0; l->options.cross && p < 3; p++)
        mha__linear_repack(l->project[p], &w.matrix[p], 1);
    if (l->head_part)
        (void)pack_heads(l, &w, NULL); /* cannot fail, because repacking allocates no memory */
    else if (!l->latent && !l->options.cross)
        mha__linear_repack(l->project[0], w.matrix, w.fused ? 1 : 3);
    mha__linear_repack(l->o, &w.o, 1);
    keep_norms(l, o);
    keep_per_head(l, o);
    (void)keep_choice(l, &o->choice, NULL);
}

/* ---- creation and release ---- */

mha_status mha__attn_layer_create(mha_ctx *ctx, const mha_attn_layer_options *options, unsigned without,
                                  mha_attn_layer **layer, mha_error *err)
{
    if (!layer) return mha__fail(err, MHA_ERR_ARG, "attention layer: the output pointer must not be NULL");
    *layer = NULL;
    mha_attn_layer_options o;
    mha_rope_options rope;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_attn_layer_options", err));
    MHA__TRY(mha__options_read(&rope, sizeof rope, o.rope, "mha_rope_options", err));
    if (o.rope) o.rope = &rope;
    MHA__TRY(check_options(&o, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    const size_t per_head = (size_t)o.heads * (size_t)((o.slopes != NULL) + (o.sinks != NULL));
    const size_t bytes = sizeof(mha_attn_layer) + ((size_t)norm_floats(&o) + per_head) * sizeof(float);
    mha_attn_layer *l = mha__calloc(ctx, 1, bytes);
    if (!l) return mha__no_memory(err, bytes, "an attention layer");
    l->ctx = ctx;
    l->norms = (float *)(void *)(l + 1);
    keep_options(l, &o);
    const weights w = weights_of(l, &o);
    mha_status status = create_projections(l, &w, without, err);
    if (status == MHA_OK) status = keep_choice(l, &o.choice, err);
    if (status != MHA_OK) {
        mha_attn_layer_free(l);
        return status;
    }
    *layer = l;
    return MHA_OK;
}

mha_status mha_attn_layer_create(mha_ctx *ctx, const mha_attn_layer_options *options, mha_attn_layer **layer,
                                 mha_error *err)
{
    return mha__attn_layer_create(ctx, options, 0, layer, err);
}

void mha__attn_layer_release(mha_attn_layer *layer)
{
    for (int p = 0; p < 3; p++)
        mha_linear_free(layer->project[p]);
    mha_linear_free(layer->o);
    mha_linear_free(layer->expert_o);
    mha__disentangled_free(layer);
    mha__latent_free(layer);
    mha__free(layer->ctx, layer->head_part);
    mha__free(layer->ctx, layer->one_head);
    mha_linear_free(layer->score.linear);
    mha_linear_free(layer->hidden.linear);
    mha__free(layer->ctx, layer->scores);
}

void mha_attn_layer_free(mha_attn_layer *layer)
{
    if (!layer) return;
    mha__attn_layer_release(layer);
    mha__free(layer->ctx, layer);
}
