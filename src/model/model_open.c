/* model_open.c - opens a model from a folder.
 *
 * The config is read first, then the tokenizer and the weights, which are checked against the config. Dense weights are
 * packed layer by layer, so converted tensors exist for only one layer at a time. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "io/derived_tensor.h"
#include "io/files/input_file.h"
#include "mha/seq2seq.h"
#include "model/gguf/gguf_model.h"
#include "model/model_struct.h"
#include "text/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- opening of a model ---- */

/* Opens a GGUF file like a folder: its tensors become the shards, its keys a config and a tokenizer. Unless the options
 * contain a config, sets options->config_json to the config of the file. */
static mha_status open_gguf(mha_model *m, const char *path, mha_model_options *options, mha_error *err)
{
    const mha_file_options file_options = {.size = sizeof file_options, .no_map = options->no_map};
    m->shards.ctx = m->ctx;
    MHA__TRY(mha__gguf_model_open(m->ctx, path, &file_options, &m->shards.file, &m->gguf_config, err));
    if (!options->config_json) options->config_json = m->gguf_config;
    if (options->tokenizer_json || options->no_tokenizer) return MHA_OK;
    return mha__tokenizer_gguf(m->shards.file, &m->tokenizer, err);
}

static mha_status open_shards(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    const mha_file_options file_options = {.size = sizeof file_options, .no_map = options->no_map};
    if (!m->shards.file)
        MHA__TRY(options->memory_only
                     ? mha__shards_memory(m->ctx, folder, options->files, options->file_count, &m->shards, err)
                     : mha__shards_open(m->ctx, folder, &file_options, &m->shards, err));
    MHA__TRY(mha__quantized_tensors(m->shards.file, &m->config, err));
    return mha__shards_replace(&m->shards, options->tensors, options->tensor_count, err);
}

static mha_status open_tokenizer(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    const char *json = options->tokenizer_json;
    if (options->no_tokenizer || m->config.channels || m->tokenizer) return MHA_OK;
    if (json) return mha_tokenizer_open_memory(m->ctx, json, strlen(json), &m->tokenizer, err);
    if (m->gguf_config) return MHA_OK; /* a GGUF file without a tokenizer */
    if (options->memory_only && !mha__source_exists(folder, MHA__TOKENIZER_FILE)) return MHA_OK;
    return mha_tokenizer_open(m->ctx, folder, &m->tokenizer, err);
}

/* Reads everything but the data of the weights. */
static mha_status open_files(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    MHA__TRY(mha__config_read(m->ctx, folder, options->config_json, &m->config, &m->config_text, err));
    if (m->ranks.ranks) MHA__TRY(mha__rank_config_check(&m->config, err));
    MHA__TRY(mha__model_set_up(m, options, err));
    MHA__TRY(open_tokenizer(m, folder, options, err));
    MHA__TRY(open_shards(m, folder, options, err));
    mha__weights_begin(&m->outer);
    return MHA_OK;
}

/* Refuses a checkpoint whose encoder or decoder has word embeddings that differ from the shared ones, which both sides
 * read. Equal copies are common in older files. */
static mha_status check_words(const mha_model *m, mha_error *err)
{
    static const char *const sides[] = {"encoder", "decoder"};
    const char *path = mha_file_path(m->shards.file);
    const mha_tensor *words = mha__weights_tensor(&m->outer, MHA__WORDS, -1, false);
    for (int n = 0; n < 2 && words && m->config.shared_words && !m->outer.check_only; n++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s.embed_tokens.weight", m->outer.prefix, sides[n]);
        const mha_tensor *own = mha__shards_find(&m->shards, name);
        if (own && !mha__tensor_same(own, words, 0, words->bytes))
            return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: tensor \"%s\" must be equal to \"%s\" (got other values)",
                             mha__quote(&(mha__quoted){0}, path, strlen(path)), name, words->name);
    }
    return MHA_OK;
}

/* Opens the encoder of an encoder-decoder. It is a model too, which uses the files and the tokenizer of the decoder. */
static mha_status open_side(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    mha_model *e = m->encoder;
    MHA__TRY(check_words(m, err));
    MHA__TRY(mha__config_read_encoder(m->ctx, folder, options->config_json, &e->config, &e->config_text, err));
    MHA__TRY(mha__model_set_up(e, options, err));
    mha__weights_begin(&e->outer);
    MHA__TRY(mha__model_take_weights(e, err));
    mha__model_fill_info(e);
    const mha_tensor *words = mha__weights_tensor(&m->outer, MHA__WORDS, -1, false);
    const bool shared = words == mha__weights_tensor(&e->outer, MHA__WORDS, -1, false);
    m->info.parameters += e->info.parameters - (shared ? words->elements : 0);
    m->info.bytes += e->info.bytes - (shared ? (int64_t)mha__shards_saved_bytes(&m->shards, words) : 0);
    return MHA_OK;
}

/* Returns true for a model of a GGUF file whose keys define it, so that it must read all tensors. */
static bool has_own_config(const mha_model *m, const mha_model_options *options)
{
    return m->gguf_config && options->config_json == m->gguf_config;
}

static mha_status open_encoder(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    if (!m->config.family->encoder) return MHA_OK;
    m->encoder = mha__calloc(m->ctx, 1, sizeof *m->encoder);
    if (!m->encoder) return mha__no_memory(err, sizeof *m->encoder, "an encoder");
    m->encoder->ctx = m->ctx;
    m->encoder->given = m->given;
    m->encoder->decoder = m;
    m->encoder->shards = m->shards;
    m->encoder->tokenizer = m->tokenizer;
    MHA__TRY(open_side(m, folder, options, err));
    return has_own_config(m, options) ? mha__gguf_check_unused(m, err) : MHA_OK;
}

/* Reads how images become pixels, if the model reads images and has a folder. */
static mha_status read_preprocessor(mha_model *m, const char *folder, mha_error *err)
{
    if (!m->config.channels || !*folder) return MHA_OK;
    return mha__preprocessor_read(m->ctx, folder, m->config.family->pools, &m->preprocessor, err);
}

/* Opens the image tower of a CLIP model. It is a model too, which uses the files of the text tower. */
static mha_status open_vision(mha_model *m, const char *folder, const mha_model_options *options, mha_error *err)
{
    if (!m->config.family->vision) return MHA_OK;
    mha_model *v = m->vision = mha__calloc(m->ctx, 1, sizeof *m->vision);
    if (!v) return mha__no_memory(err, sizeof *v, "an image tower");
    v->ctx = m->ctx;
    v->given = m->given;
    v->text = m;
    v->shards = m->shards;
    MHA__TRY(mha__config_read_vision(m->ctx, folder, options->config_json, &v->config, &v->config_text, err));
    MHA__TRY(mha__model_set_up(v, options, err));
    mha__weights_begin(&v->outer);
    MHA__TRY(mha__model_take_weights(v, err));
    MHA__TRY(read_preprocessor(v, folder, err));
    mha__model_fill_info(v);
    m->info.parameters += v->info.parameters;
    m->info.bytes += v->info.bytes;
    return MHA_OK;
}

static mha_status open_all(mha_model *m, const char *folder, mha_model_options *options, mha_error *err)
{
    if (options->ranks) MHA__TRY(mha__ranks_read(&m->ranks, options->ranks, err));
    const char *path = folder;
    mha_status status = MHA_OK;
    if (!options->memory_only && mha__source_is_file(path)) {
        status = open_gguf(m, path, options, err);
        folder = ""; /* no other file belongs to the model */
    }
    if (status == MHA_OK) status = open_files(m, folder, options, err);
    if (m->gguf_config) status = mha__in_folder(status, path, "config.json", err);
    if (status == MHA_OK && has_own_config(m, options) && !m->config.family->encoder)
        status = mha__gguf_check_unused(m, err);
    MHA__TRY(mha__rank_parts_agree(m, status, err));
    MHA__TRY(mha__rank_parts_same(m, err));
    status = mha__model_take_weights(m, err);
    MHA__TRY(mha__rank_parts_agree(m, status, err));
    mha__model_fill_info(m);
    MHA__TRY(read_preprocessor(m, folder, err));
    if (!options->memory_only) MHA__TRY(mha__sentence_open(m, folder, err));
    MHA__TRY(open_vision(m, folder, options, err));
    return open_encoder(m, folder, options, err);
}

static mha_status check_files(const mha_model_options *o, mha_error *err)
{
    if (o->file_count < 0 || (o->file_count && !o->files))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_options: file_count must be the number of entries in files (got %lld, %s)",
                         (long long)o->file_count, o->files ? "given" : "NULL");
    if (o->file_count && !o->memory_only)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_options: memory_only must be 1 if files are given (got 0)");
    for (int64_t n = 0; n < o->file_count; n++)
        if (!o->files[n])
            return mha__fail(err, MHA_ERR_ARG, "mha_model_options: files[%lld] must not be NULL", (long long)n);
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
    MHA__TRY(check_files(&o, err));
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
    mha_model_free(model->encoder);
    mha_model_free(model->vision);
    for (int64_t i = 0; model->block && i < model->config.layers; i++)
        if (mha__config_owner(&model->config, i) == i) mha_block_free(model->block[i]);
    mha__sentence_free(model);
    mha_linear_free(model->embed_map);
    for (int n = 0; n < 2; n++)
        mha_linear_free(model->convolution[n]);
    mha__free(model->ctx, model->block);
    mha__free(model->ctx, model->heads_per_layer);
    mha__free(model->ctx, model->attention_per_layer);
    mha_linear_free(model->patches);
    mha_linear_free(model->projection);
    mha_linear_free(model->pooler);
    mha_linear_free(model->lm_dense);
    mha_linear_free(model->lm_head);
    mha__weights_release(&model->outer);
    if (!model->decoder && !model->text) mha__shards_close(&model->shards);
    if (!model->decoder) mha_tokenizer_free(model->tokenizer);
    mha__free(model->ctx, model->positions_normed);
    mha__free(model->ctx, model->head_numbers);
    mha__free(model->ctx, model->cross_numbers);
    mha__free(model->ctx, model->relative_columns);
    mha__free(model->ctx, model->slopes);
    mha__config_release(model->ctx, &model->config);
    mha__free(model->ctx, model->config_text);
    mha__free(model->ctx, model->gguf_config);
    mha__free(model->ctx, model->own);
    mha__free(model->ctx, model);
}

mha_ctx *mha_model_ctx(const mha_model *model)
{
    return model ? model->given : NULL;
}

const mha_model_info *mha_model_describe(const mha_model *model)
{
    return model ? &model->info : NULL;
}

const char *mha_model_config_json(const mha_model *model)
{
    return model ? model->config_text : NULL;
}

const mha_tokenizer *mha_model_tokenizer(const mha_model *model)
{
    return model ? model->tokenizer : NULL;
}

const mha_model *mha_model_encoder(const mha_model *model)
{
    return model ? model->encoder : NULL;
}

mha_status mha__model_reads_ids(const mha_model *model, const char *what, mha_error *err)
{
    if (!model->config.channels) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s must be a model of texts (got %s, which reads images)", what,
                     model->info.family);
}

mha_status mha__model_not_seq2seq(const mha_model *model, const char *what, mha_error *err)
{
    if (!model->encoder && !model->decoder) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s must not be an encoder-decoder (got %s)", what, model->info.family);
}
