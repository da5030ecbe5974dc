/* open.c - from a folder to a model.
 *
 * Config first, then tokenizer and weights: each is checked against the config before anything is built from it. Dense
 * weights are packed layer by layer, so that only one layer's converted tensors exist at a time.
 */
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "io/source.h"
#include "model/model_struct.h"
#include <stdio.h>
#include <string.h>

#define WEIGHTS_NAME "model.safetensors"

/* ---- weights ---- */

static mha_status create_block(mha_model *m, int64_t layer, mha_error *err)
{
    const mha__config *c = &m->config;
    mha_matrix part[MHA__ROLES];
    mha__weights weights = m->outer; /* same file and prefix, its own converted tensors */
    weights.converted_count = 0;
    mha_status status = MHA_OK;
    for (int role = MHA__FIRST_OF_LAYER; role < MHA__ROLES && status == MHA_OK; role++)
        status = mha__weights_part(&weights, role, layer, &part[role], err);
    if (status == MHA_OK && !weights.check_only) {
        const mha_block_options options = {
            .size = sizeof options,
            .attn = {.size = sizeof options.attn,
                     .hidden = c->hidden,
                     .heads = m->info.heads_per_layer[layer],
                     .kv_heads = c->kv_heads,
                     .head_dim = c->head_dim,
                     .q = part[MHA__QUERY],
                     .k = part[MHA__KEY],
                     .v = part[MHA__VALUE],
                     .o = part[MHA__ATTN_OUT],
                     .causal = c->family->causal},
            .pre_norm = c->family->pre_norm,
            .eps = c->eps,
            .attn_norm = {part[MHA__ATTN_NORM].weight, part[MHA__ATTN_NORM].bias},
            .mlp_norm = {part[MHA__MLP_NORM].weight, part[MHA__MLP_NORM].bias},
            .intermediate = c->intermediate,
            .up = part[MHA__UP],
            .down = part[MHA__DOWN],
            .activation = c->activation,
        };
        status = mha_block_create(m->ctx, &options, &m->block[layer], err);
    }
    mha__weights_release(&weights);
    m->outer.parameters = weights.parameters;
    m->outer.bytes = weights.bytes;
    return status;
}

static mha_status take_outer(mha_model *m, mha_error *err)
{
    mha_matrix pooler = {0};
    MHA__TRY(mha__weights_part(&m->outer, MHA__WORDS, -1, &m->words, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__POSITIONS, -1, &m->positions, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__TYPES, -1, &m->types, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__EMBED_NORM, -1, &m->embed_norm, err));
    MHA__TRY(mha__weights_part(&m->outer, MHA__POOLER, -1, &pooler, err));
    if (!pooler.weight) return MHA_OK;
    return mha_linear_create_stack(m->ctx, m->config.hidden, &pooler, 1, MHA_ACT_TANH, &m->pooler, err);
}

/* What the user should read when there is no single weight file. */
static mha_status explain_missing(const char *folder, mha_status status, mha_error *err)
{
    mha__source index;
    if (mha__source_open(&index, folder, WEIGHTS_NAME ".index.json", NULL) != MHA_OK) return status;
    mha__source_close(&index);
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "%s: the weights are in several files (" WEIGHTS_NAME ".index.json); only a "
                     "single " WEIGHTS_NAME " is built",
                     mha__quote(&(mha__quoted){0}, folder, strlen(folder)));
}

static mha_status open_weights(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    const size_t bytes = strlen(folder) + sizeof "/" WEIGHTS_NAME;
    const mha_file_options file_options = {.size = sizeof file_options, .no_map = options->no_map};
    char *path = mha__alloc(m->ctx, bytes);
    if (!path) return mha__no_memory(err, bytes, "a file name");
    snprintf(path, bytes, "%s/" WEIGHTS_NAME, folder);
    mha_status status = mha_file_open(m->ctx, path, &file_options, &m->file, err);
    if (status == MHA_ERR_IO) status = explain_missing(folder, status, err);
    m->outer = (mha__weights){
        .ctx = m->ctx, .config = &m->config, .path = path, .file = m->file, .check_only = options->no_weights};
    if (status == MHA_OK) {
        mha__weights_begin(&m->outer);
        status = take_outer(m, err);
    }
    for (int64_t layer = 0; layer < m->config.layers && status == MHA_OK; layer++)
        status = create_block(m, layer, err);
    m->outer.path = NULL;
    mha__free(m->ctx, path);
    m->packed = status == MHA_OK && !options->no_weights;
    return status;
}

/* ---- model ---- */

static mha_status fill_info(mha_model *m, mha_error *err)
{
    const mha__config *c = &m->config;
    int64_t *heads = mha__alloc(m->ctx, (size_t)c->layers * sizeof *heads);
    m->info.heads_per_layer = heads;
    m->block = mha__calloc(m->ctx, (size_t)c->layers, sizeof(mha_block *));
    if (!heads || !m->block) return mha__no_memory(err, (size_t)c->layers * sizeof *heads, "the list of layers");
    for (int64_t i = 0; i < c->layers; i++)
        heads[i] = c->heads;
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
        .kv_bytes_per_token = c->family->causal ? c->layers * 2 * c->kv_width * (int64_t)sizeof(float) : 0,
        .heads_per_layer = heads,
        .causal = c->family->causal,
    };
    return MHA_OK;
}

static mha_status open_all(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    MHA__TRY(mha__config_read(m->ctx, folder, &m->config, &m->config_text, err));
    MHA__TRY(fill_info(m, err));
    if (!options->no_tokenizer) MHA__TRY(mha_tokenizer_open(m->ctx, folder, &m->tokenizer, err));
    MHA__TRY(open_weights(m, folder, options, err));
    m->info.parameters = m->outer.parameters;
    m->info.bytes = m->outer.bytes;
    m->info.dtype = m->outer.dtype; /* words come first */
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
    mha__free(model->ctx, (void *)model->info.heads_per_layer);
    mha_linear_free(model->pooler);
    mha__weights_release(&model->outer);
    mha_file_free(model->file);
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
