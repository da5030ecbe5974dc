/* model_open.c - opens a model from a folder.
 *
 * The config is read first, then the tokenizer and the weights, which are checked against the config. Dense weights are
 * packed layer by layer, so converted tensors exist for only one layer at a time. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "io/files/input_file.h"
#include "model/model_struct.h"
#include "text/tokenizer.h"
#include <math.h>
#include <string.h>

static mha_status find_weights(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    const mha_file_options file_options = {.size = sizeof file_options, .no_map = options->no_map};
    MHA__TRY(options->memory_only ? mha__shards_none(m->ctx, folder, &m->shards, err)
                                  : mha__shards_open(m->ctx, folder, &file_options, &m->shards, err));
    MHA__TRY(mha__shards_replace(&m->shards, options->tensors, options->tensor_count, err));
    m->outer = (mha__weights){.ctx = m->ctx,
                              .config = &m->config,
                              .shards = &m->shards,
                              .packed = options->dtype ? options->dtype : MHA_F32,
                              .check_only = options->no_weights};
    mha__weights_begin(&m->outer);
    return MHA_OK;
}

static mha_status take_weights(mha_model *m, const mha_model_options *options, mha_error *err)
{
    MHA__TRY(mha__model_take_outer(m, err));
    for (int64_t layer = 0; layer < m->config.layers; layer++)
        MHA__TRY(mha__model_create_block(m, layer, err));
    m->packed = !options->no_weights;
    return MHA_OK;
}

/* ---- opening of a model ---- */

static mha_status fill_info(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    m->heads_per_layer = mha__calloc(m->ctx, 4 * (size_t)c->layers, sizeof *m->heads_per_layer);
    m->attention_per_layer = mha__calloc(m->ctx, (size_t)c->layers, sizeof *m->attention_per_layer);
    m->block = mha__calloc(m->ctx, (size_t)c->layers, sizeof(mha_block *));
    if (!m->heads_per_layer || !m->attention_per_layer || !m->block)
        return mha__no_memory(err, 4 * (size_t)c->layers * sizeof *m->heads_per_layer, "the list of layers");
    m->key_heads_per_layer = m->heads_per_layer + c->layers;
    m->value_heads_per_layer = m->key_heads_per_layer + c->layers;
    m->feed_forward_per_layer = m->value_heads_per_layer + c->layers;
    m->info = (mha_model_info){
        .family = c->family->name,
        .layers = c->layers,
        .heads = c->heads,
        .original_heads = c->original_heads,
        .rotation_by_length = c->rope.kind == MHA_ROPE_DYNAMIC || c->rope.kind == MHA_ROPE_LONGROPE,
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
        .feed_forward_per_layer = m->feed_forward_per_layer,
        .attention_per_layer = m->attention_per_layer,
        .causal = c->family->causal,
    };
    return MHA_OK;
}

static mha_model_attention attention_of(const mha__config *c, int64_t layer)
{
    const mha__layer_attention *a = &c->attention[layer];
    const bool split = a->choice.of == MHA_CHOICE_OPTIONS;
    return (mha_model_attention){.window = a->window,
                                 .rotary = a->turned,
                                 .qk_norm = a->normed,
                                 .alibi = a->alibi,
                                 .scale = a->scale != 0 || split ? a->scale : 1 / sqrt((double)c->head_dim),
                                 .softcap = a->softcap,
                                 .choice = a->choice.of,
                                 .selection = a->choice.selection,
                                 .heads_per_text = mha__config_kept(c, layer),
                                 .head_options = a->choice.options,
                                 .head_option_count = a->choice.option_count};
}

/* Returns the columns of feed-forward that each token uses. */
static int64_t feed_forward_of(const mha__config *c, int64_t layer)
{
    const int64_t expert = c->expert_width ? c->expert_width : c->intermediate;
    if (c->attention_only[layer]) return 0;
    return c->sparse[layer] ? c->experts_chosen * expert + c->shared_width : c->intermediate;
}

/* Sets the information per layer, after the tensors have been read. */
static void fill_layers(mha_model *m)
{
    const mha__config *c = &m->config;
    int64_t kv_heads = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        m->heads_per_layer[i] = c->layer_heads[i];
        m->key_heads_per_layer[i] = c->layer_k_heads[i];
        m->value_heads_per_layer[i] = c->layer_v_heads[i];
        m->feed_forward_per_layer[i] = feed_forward_of(c, i);
        m->attention_per_layer[i] = attention_of(c, i);
        kv_heads += mha__model_kv_heads(m, i);
    }
    m->info.kv_bytes_per_token = c->family->causal ? 2 * kv_heads * c->head_dim * (int64_t)sizeof(float) : 0;
}

/* Reads everything but the data of the weights. */
static mha_status open_files(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    MHA__TRY(mha__config_read(m->ctx, folder, options->config_json, &m->config, &m->config_text, err));
    if (m->ranks.ranks) MHA__TRY(mha__rank_config_check(&m->config, err));
    MHA__TRY(fill_info(m, err));
    MHA__TRY(mha__model_number_heads(m, err));
    MHA__TRY(mha__model_slopes(m, err));
    if (!options->no_tokenizer && (!options->memory_only || mha__source_exists(folder, MHA__TOKENIZER_FILE)))
        MHA__TRY(mha_tokenizer_open(m->ctx, folder, &m->tokenizer, err));
    return find_weights(m, folder, options, err);
}

static mha_status open_all(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    if (options->ranks) MHA__TRY(mha__ranks_read(&m->ranks, options->ranks, err));
    mha_status status = open_files(m, folder, options, err);
    MHA__TRY(mha__rank_parts_agree(m, status, err));
    MHA__TRY(mha__rank_parts_same(m, err));
    status = take_weights(m, options, err);
    MHA__TRY(mha__rank_parts_agree(m, status, err));
    fill_layers(m);
    m->info.parameters = m->outer.parameters;
    m->info.bytes = m->outer.bytes;
    m->info.dtype = m->outer.dtype; /* type of the word embeddings, which are read first */
    m->info.logits = m->lm_head != NULL;
    return MHA_OK;
}

mha_status mha_model_open(mha_ctx *ctx, const char *folder, const mha_model_options *options, mha_model **out,
                          mha_error *err)
{
    mha_ctx *given = ctx;
    mha_model_options o;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_model_open: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_model_options", err));
    if (!folder && !(o.memory_only && o.config_json))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_open: folder%s must not be NULL",
                         o.memory_only ? " or config_json" : "");
    if (!folder) folder = "";
    if (o.dtype && o.dtype != MHA_F32 && o.dtype != MHA_BF16 && o.dtype != MHA_F16 && o.dtype != MHA_Q8_0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_options: dtype must be one of f32, bf16, f16, q8_0 (got %s)",
                         mha__quote_dtype(&(mha__quoted){0}, o.dtype));
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
        if (mha__config_owner(&model->config, i) == i) mha_block_free(model->block[i]);
    mha_linear_free(model->embed_map);
    mha__free(model->ctx, model->block);
    mha__free(model->ctx, model->heads_per_layer);
    mha__free(model->ctx, model->attention_per_layer);
    mha_linear_free(model->pooler);
    mha_linear_free(model->lm_dense);
    mha_linear_free(model->lm_head);
    mha__weights_release(&model->outer);
    mha__shards_close(&model->shards);
    mha_tokenizer_free(model->tokenizer);
    mha__free(model->ctx, model->positions_normed);
    mha__free(model->ctx, model->head_numbers);
    mha__free(model->ctx, model->slopes);
    mha__free(model->ctx, model->config_text);
    mha__free(model->ctx, model->own);
    mha__free(model->ctx, model);
}

mha_ctx *mha_model_ctx(const mha_model *model)
{
    return model ? model->given : NULL;
}

const mha_model_info *mha_model_describe(const mha_model *model)
{
    return &model->info;
}

const char *mha_model_config_json(const mha_model *model)
{
    return model ? model->config_text : NULL;
}

const mha_tokenizer *mha_model_tokenizer(const mha_model *model)
{
    return model ? model->tokenizer : NULL;
}
