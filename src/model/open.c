/* open.c - from a folder to a model.
 *
 * Config first, then tokenizer and weights: each is checked against the config before anything is built from it. Dense
 * weights are packed layer by layer, so that only one layer's converted tensors exist at a time.
 */
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "model/model_struct.h"
#include <math.h>
#include <string.h>

/* ---- layers ---- */

/* 0 = 1 / sqrt(head_dim). */
static double scale_of(const mha__config *c, int64_t layer)
{
    const double width = c->query_scalar != 0 ? c->query_scalar : (double)c->head_dim;
    if (c->query_scalar == 0 && c->scaled && !c->inverse_layer_scale) return 0;
    return (c->scaled ? 1 / sqrt(width) : 1) / (c->inverse_layer_scale ? (double)(layer + 1) : 1);
}

static mha_norm norm_of(const mha__config *c, mha__role role, const mha_matrix *part)
{
    const mha__part_kind kind = c->family->parts[role].kind;
    return (mha_norm){.weight = part->weight,
                      .bias = part->bias,
                      .eps = c->eps,
                      .kind = kind == MHA__PART_NORM ? MHA_NORM_LAYER : MHA_NORM_RMS};
}

static mha_attn_layer_options attn_of(const mha_model *m, int64_t layer, const mha_matrix *part)
{
    const mha__config *c = &m->config;
    return (mha_attn_layer_options){
        .size = sizeof(mha_attn_layer_options),
        .hidden = c->hidden,
        .heads = c->layer_heads[layer],
        .kv_heads = c->layer_k_heads[layer],
        .head_dim = c->head_dim,
        .q = part[MHA__QUERY],
        .k = part[MHA__KEY],
        .v = part[MHA__VALUE],
        .qkv = part[MHA__QKV],
        .o = part[MHA__ATTN_OUT],
        .q_norm = norm_of(c, MHA__QUERY_NORM, &part[MHA__QUERY_NORM]),
        .k_norm = norm_of(c, MHA__KEY_NORM, &part[MHA__KEY_NORM]),
        .rope = c->rope.head_dim ? &c->rope : NULL,
        .scale = scale_of(c, layer),
        .softcap = c->softcap,
        .causal = c->family->causal,
        .window = {c->slides[layer], c->window - 1, 0},
        .v_heads = c->layer_v_heads[layer],
        .dtype = m->outer.packed == MHA_BF16 ? MHA_BF16 : MHA_F32,
    };
}

static mha_block_options block_of(const mha_model *m, int64_t layer, const mha_matrix *part)
{
    const mha__config *c = &m->config;
    return (mha_block_options){
        .size = sizeof(mha_block_options),
        .attn = attn_of(m, layer, part),
        .pre_norm = c->family->pre_norm,
        .attn_norm = norm_of(c, MHA__ATTN_NORM, &part[MHA__ATTN_NORM]),
        .mlp_norm = norm_of(c, MHA__MLP_NORM, &part[MHA__MLP_NORM]),
        .attn_out_norm = norm_of(c, MHA__ATTN_OUT_NORM, &part[MHA__ATTN_OUT_NORM]),
        .mlp_out_norm = norm_of(c, MHA__MLP_OUT_NORM, &part[MHA__MLP_OUT_NORM]),
        .intermediate = c->intermediate,
        .up = part[MHA__UP],
        .down = part[MHA__DOWN],
        .gate = part[MHA__GATE],
        .activation = c->activation,
    };
}

/* Where no list says which heads were kept, the tensors may have fewer of them: whole groups, so that both counts
 * shrink alike. Anything else is left to the check of shapes. */
static void find_heads(mha__config *c, const mha__weights *w, int64_t layer)
{
    const bool fused = c->family->parts[MHA__QKV].kind != MHA__PART_ABSENT;
    const int64_t group = c->heads / c->kv_heads, q = mha__weights_rows(w, fused ? MHA__QKV : MHA__QUERY, layer);
    const int64_t heads_wide = fused ? (group + 2) * c->head_dim : group * c->head_dim; /* of one group */
    if (c->heads_listed || q < heads_wide || q % heads_wide || q / heads_wide >= c->kv_heads) return;
    if (!fused && mha__weights_rows(w, MHA__KEY, layer) != q / group) return;
    c->layer_kv_heads[layer] = (int32_t)(q / heads_wide);
    c->layer_k_heads[layer] = c->layer_v_heads[layer] = c->layer_kv_heads[layer];
    c->layer_heads[layer] = (int32_t)(group * c->layer_kv_heads[layer]);
}

static mha_status create_block(mha_model *m, int64_t layer, mha_error *err)
{
    mha_matrix part[MHA__ROLES] = {0};
    find_heads(&m->config, &m->outer, layer);
    mha__config_layer(&m->config, layer);
    mha__weights weights = m->outer; /* same file and prefix, its own converted tensors */
    weights.converted_count = 0;
    mha_status status = MHA_OK;
    for (int role = MHA__FIRST_OF_LAYER; role < MHA__ROLES && status == MHA_OK; role++)
        status = mha__weights_part(&weights, role, layer, &part[role], err);
    if (status == MHA_OK && !weights.check_only) {
        const mha_block_options options = block_of(m, layer, part);
        status = mha_block_create(m->ctx, &options, &m->block[layer], err);
    }
    mha__weights_release(&weights);
    for (int role = MHA__FIRST_OF_LAYER; role < MHA__ROLES; role++)
        mha__weights_rest(&weights, (mha__role)role, layer);
    m->outer.parameters = weights.parameters;
    m->outer.bytes = weights.bytes;
    return status;
}

mha_status mha__model_repack(mha_model *m, int64_t layer, mha_error *err)
{
    const int64_t parameters = m->outer.parameters, bytes = m->outer.bytes;
    mha_block *before = m->block[layer];
    m->block[layer] = NULL;
    const mha_status status = create_block(m, layer, err);
    m->outer.parameters = parameters;
    m->outer.bytes = bytes;
    if (status == MHA_OK)
        mha_block_free(before);
    else
        m->block[layer] = before;
    return status;
}

/* ---- what exists once ---- */

static mha_status take_norm(mha_model *m, mha__role role, mha_norm *norm, mha_error *err)
{
    mha_matrix part = {0};
    MHA__TRY(mha__weights_part(&m->outer, role, -1, &part, err));
    *norm = norm_of(&m->config, role, &part);
    return MHA_OK;
}

static mha_status take_linear(mha_model *m, mha__role role, mha_activation activation, mha_linear **linear,
                              mha_error *err)
{
    mha_matrix part = {0};
    MHA__TRY(mha__weights_part(&m->outer, role, -1, &part, err));
    if (!part.weight) return MHA_OK;
    return mha_linear_create_stack(m->ctx, m->config.hidden, &part, 1, activation, linear, err);
}

/* transformers does not tie where the file holds a matrix of another content. */
static void find_tied(mha_model *m)
{
    const mha_tensor *words = mha__weights_tensor(&m->outer, MHA__WORDS, -1, false);
    const mha_tensor *head = mha__weights_tensor(&m->outer, MHA__LM_HEAD, -1, false);
    if (!m->config.tied || !head || head == words) return;
    m->config.tied =
        head->dtype == words->dtype && head->bytes == words->bytes && memcmp(head->data, words->data, head->bytes) == 0;
}

static bool is_stored(const mha_model *m, mha__role role)
{
    return mha__weights_tensor(&m->outer, role, -1, false) != NULL;
}

/* What an encoder has between its last layer and the matrix of logits: all of it, once it has the first part. The bias
 * is the decoder's own where that is stored, and transformers takes the other name for it only where weights are
 * tied. */
static mha_status take_transform(mha_model *m, mha_matrix *bias, mha_error *err)
{
    if (m->config.tied && !is_stored(m, MHA__LM_BIAS)) m->lm_bias = MHA__LM_TIED_BIAS;
    if (!is_stored(m, MHA__LM_NORM)) return mha__weights_missing(&m->outer, MHA__LM_NORM, err);
    if (!is_stored(m, m->lm_bias)) return mha__weights_missing(&m->outer, m->lm_bias, err);
    MHA__TRY(take_norm(m, MHA__LM_NORM, &m->lm_norm, err));
    MHA__TRY(take_linear(m, MHA__LM_DENSE, m->config.activation, &m->lm_dense, err));
    return mha__weights_part(&m->outer, m->lm_bias, -1, bias, err);
}

/* Logits come from the table of words, or from a matrix of their own. An encoder has them only with the parts before
 * them; a decoder that was saved without its head, as transformers saves LlamaModel, has none. */
static mha_status take_head(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    mha_matrix head = m->words, bias = {0};
    m->lm_bias = MHA__LM_BIAS;
    if (!c->family->causal && !is_stored(m, MHA__LM_DENSE)) return MHA_OK;
    if (!c->family->causal) MHA__TRY(take_transform(m, &bias, err));
    find_tied(m);
    if (!c->tied) MHA__TRY(mha__weights_part(&m->outer, MHA__LM_HEAD, -1, &head, err));
    if (!c->tied && !head.out && !*m->outer.prefix) return MHA_OK;
    if (!c->tied && !head.out) return mha__weights_missing(&m->outer, MHA__LM_HEAD, err);
    if (m->outer.check_only) return MHA_OK;
    head.bias = bias.weight;
    return mha_linear_create_stack(m->ctx, c->hidden, &head, 1, MHA_ACT_NONE, &m->lm_head, err);
}

static mha_status take_outer(mha_model *m, mha_error *err)
{
    MHA__TRY(mha__weights_part(&m->outer, MHA__WORDS, -1, &m->words, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__POSITIONS, -1, &m->positions, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__TYPES, -1, &m->types, err));
    MHA__TRY(take_norm(m, MHA__EMBED_NORM, &m->embed_norm, err));
    MHA__TRY(take_norm(m, MHA__FINAL_NORM, &m->final_norm, err));
    MHA__TRY(take_linear(m, MHA__POOLER, MHA_ACT_TANH, &m->pooler, err));
    return take_head(m, err);
}

static mha_status open_weights(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    const mha_file_options file_options = {.size = sizeof file_options, .no_map = options->no_map};
    MHA__TRY(mha__shards_open(m->ctx, folder, &file_options, &m->shards, err));
    MHA__TRY(mha__shards_replace(&m->shards, options->tensors, options->tensor_count, err));
    m->outer = (mha__weights){.ctx = m->ctx,
                              .config = &m->config,
                              .shards = &m->shards,
                              .packed = options->dtype ? options->dtype : MHA_F32,
                              .check_only = options->no_weights};
    mha__weights_begin(&m->outer);
    MHA__TRY(take_outer(m, err));
    for (int64_t layer = 0; layer < m->config.layers; layer++)
        MHA__TRY(create_block(m, layer, err));
    m->packed = !options->no_weights;
    return MHA_OK;
}

/* ---- model ---- */

static mha_status fill_info(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    m->heads_per_layer = mha__calloc(m->ctx, 3 * (size_t)c->layers, sizeof *m->heads_per_layer);
    m->block = mha__calloc(m->ctx, (size_t)c->layers, sizeof(mha_block *));
    if (!m->heads_per_layer || !m->block)
        return mha__no_memory(err, 3 * (size_t)c->layers * sizeof *m->heads_per_layer, "the list of layers");
    m->key_heads_per_layer = m->heads_per_layer + c->layers;
    m->value_heads_per_layer = m->key_heads_per_layer + c->layers;
    m->info = (mha_model_info){
        .family = c->family->name,
        .layers = c->layers,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .hidden = c->hidden,
        .intermediate = c->intermediate,
        .vocab = c->vocab,
        .max_positions = c->max_positions,
        .type_vocab = c->type_vocab,
        .heads_per_layer = m->heads_per_layer,
        .key_heads_per_layer = m->key_heads_per_layer,
        .value_heads_per_layer = m->value_heads_per_layer,
        .causal = c->family->causal,
    };
    return MHA_OK;
}

/* Known once the tensors are. */
static void count_heads(mha_model *m)
{
    const mha__config *c = &m->config;
    int64_t kv_heads = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        m->heads_per_layer[i] = c->layer_heads[i];
        m->key_heads_per_layer[i] = c->layer_k_heads[i];
        m->value_heads_per_layer[i] = c->layer_v_heads[i];
        kv_heads += c->layer_kv_heads[i];
    }
    m->info.kv_bytes_per_token = c->family->causal ? 2 * kv_heads * c->head_dim * (int64_t)sizeof(float) : 0;
}

static mha_status open_all(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    MHA__TRY(mha__config_read(m->ctx, folder, options->config_json, &m->config, &m->config_text, err));
    MHA__TRY(fill_info(m, err));
    if (!options->no_tokenizer) MHA__TRY(mha_tokenizer_open(m->ctx, folder, &m->tokenizer, err));
    MHA__TRY(open_weights(m, folder, options, err));
    count_heads(m);
    m->info.parameters = m->outer.parameters;
    m->info.bytes = m->outer.bytes;
    m->info.dtype = m->outer.dtype; /* words come first */
    m->info.logits = m->lm_head != NULL;
    return MHA_OK;
}

mha_status mha_model_open(mha_ctx *ctx, const char *folder, const mha_model_options *options, mha_model **out,
                          mha_error *err)
{
    mha_ctx *given = ctx;
    mha_model_options o;
    if (!out || !folder) return mha__fail(err, MHA_ERR_ARG, "mha_model_open: %s is NULL", out ? "folder" : "out");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_model_options", err));
    if (o.dtype && o.dtype != MHA_F32 && o.dtype != MHA_BF16 && o.dtype != MHA_F16 && o.dtype != MHA_Q8_0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_options: dtype is %s, not f32, bf16, f16 or q8_0",
                         mha_dtype_name(o.dtype));
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha_model *m = mha__calloc(ctx, 1, sizeof *m);
    if (!m) return mha__no_memory(err, sizeof *m, "a model");
    m->ctx = ctx;
    m->given = given;
    const mha_status status = open_all(m, folder, &o, err);
    if (status != MHA_OK) {
        mha_model_free(m);
        return status;
    }
    *out = m;
    return MHA_OK;
}

void mha_model_free(mha_model *model)
{
    if (!model) return;
    for (int64_t i = 0; model->block && i < model->config.layers; i++)
        mha_block_free(model->block[i]);
    mha__free(model->ctx, model->block);
    mha__free(model->ctx, model->heads_per_layer);
    mha_linear_free(model->pooler);
    mha_linear_free(model->lm_dense);
    mha_linear_free(model->lm_head);
    mha__weights_release(&model->outer);
    mha__shards_close(&model->shards);
    mha_tokenizer_free(model->tokenizer);
    mha__free(model->ctx, model->config_text);
    mha__free(model->ctx, model);
}

mha_ctx *mha_model_ctx(const mha_model *model)
{
    return model->given;
}

const mha_model_info *mha_model_describe(const mha_model *model)
{
    return &model->info;
}

const char *mha_model_config_json(const mha_model *model)
{
    return model->config_text;
}

const mha_tokenizer *mha_model_tokenizer(const mha_model *model)
{
    return model->tokenizer;
}
