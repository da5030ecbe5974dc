/* model_save.c - saves a model to a folder: config, weights, tokenizer. The folder is opened as a check before it is
 * renamed to its final name. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "io/block_types.h"
#include "io/derived_tensor.h"
#include "io/json/json.h"
#include "io/json/json_write.h"
#include "io/safetensors/named_tensors.h"
#include "io/safetensors/safetensors_stream.h"
#include "model/gguf/gguf_parts.h"
#include "model/model_struct.h"
#include "model/weights/checkpoint_folder.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"
#include <string.h>

#define WEIGHTS "model.safetensors"

/* The files that a checkpoint may contain; a folder with only such files may be replaced. The first COMPANIONS files
 * accompany config and weights, and are copied with them. */
enum { COMPANIONS = 12 };
const char *const mha__model_files[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.txt",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        "preprocessor_config.json",
                                        "processor_config.json",
                                        "config.json",
                                        "*.safetensors",
                                        "model.safetensors.index.json",
                                        "training.*",
                                        NULL};

typedef struct saving {
    const mha_model *m;
    mha_model_save_options o;
    mha__folder folder;
    mha__outgoing *list; /* [count] */
    int64_t count;
    mha_metadata *meta; /* [meta_count] */
    int64_t meta_count;
} saving;

/* ---- config.json ---- */

static const char *config_name(mha_dtype dtype)
{
    return dtype == MHA_F32 ? "float32" : dtype == MHA_BF16 ? "bfloat16" : "float16";
}

/* Sets the storage type in the text of config.json: changes the key, under either of its names, or adds it; and removes
 * quantization_config, since dequantized weights are written. Other keys keep their order and values. */
static mha_status change_storage(mha_ctx *ctx, const char *text, mha_dtype dtype, char **changed, mha_error *err)
{
    static const char *const keys[] = {"torch_dtype", "dtype"}, *const removed[] = {"quantization_config", NULL};
    const mha__json *root = NULL;
    mha__json_writer changes = {.ctx = ctx};
    bool named = false;
    MHA__TRY(mha__json_parse(ctx, "config.json", text, strlen(text), MHA__JSON_BOM, &root, err));
    mha__json_open(&changes, '{');
    for (int n = 0; n < 2; n++) {
        if (!mha__json_get(root, keys[n]) && !(n == 1 && !named)) continue;
        mha__json_key(&changes, keys[n]);
        mha__json_put_text(&changes, config_name(dtype));
        named = true;
    }
    mha__json_close(&changes, '}');
    mha__json_free(root);
    return mha__json_changed("config.json", text, removed, &changes, 2, changed, err);
}

static mha_status write_config(const saving *s, mha_error *err)
{
    const char *text = s->o.config_json ? s->o.config_json : s->m->config_text;
    char *changed = NULL;
    /* dequantized weights are written as f32 by default, to which readers then convert all tensors without loss */
    const mha_dtype dtype = !s->o.dtype && s->m->config.quantization ? MHA_F32 : s->o.dtype;
    if (dtype != MHA_DTYPE_DEFAULT) MHA__TRY(change_storage(s->m->ctx, text, dtype, &changed, err));
    if (changed) text = changed;
    const mha_status status = mha__folder_put(&s->folder, "config.json", text, strlen(text), err);
    mha__free(s->m->ctx, changed);
    return status;
}

/* ---- weights ---- */

static bool is_real(mha_dtype dtype)
{
    return dtype == MHA_F32 || dtype == MHA_F64 || dtype == MHA_F16 || dtype == MHA_BF16;
}

static const mha_named_tensor *replacement(const saving *s, const char *name)
{
    for (int64_t n = 0; n < s->o.count; n++)
        if (strcmp(s->o.tensors[n].name, name) == 0) return &s->o.tensors[n];
    return NULL;
}

/* Describes a checked tensor in memory, to be stored as `dtype`. */
static mha__outgoing outgoing(const mha_named_tensor *t, mha_dtype dtype)
{
    mha__outgoing out = {.dtype = dtype == MHA_F32 ? MHA_DTYPE_DEFAULT : dtype};
    mha__named_view(t, &out.from, NULL);
    return out;
}

/* Describes a tensor of the model, in its stored type or as `dtype`; a quantized tensor is stored as f32 by default. */
static mha__outgoing stored(const mha_tensor *t, mha_dtype dtype)
{
    if (mha__tensor_quantized(t)) return (mha__outgoing){.from = *t, .dtype = is_real(dtype) ? dtype : MHA_F32};
    return (mha__outgoing){.from = *t, .dtype = is_real(t->dtype) && t->dtype != dtype ? dtype : MHA_DTYPE_DEFAULT};
}

static void add_file(saving *s, const mha_file *file)
{
    for (int64_t n = 0; n < mha_file_count(file); n++) {
        const mha_tensor *in_file = mha_file_tensor(file, n);
        if (file->gguf && mha__gguf_is_rope_factors(in_file->name)) continue; /* the config contains them */
        const mha_named_tensor *other = replacement(s, in_file->name);
        const mha_dtype dtype = s->o.dtype != MHA_DTYPE_DEFAULT ? s->o.dtype : mha__tensor_dtype(in_file);
        if (other)
            s->list[s->count++] = outgoing(other, is_real(dtype) && dtype != MHA_F64 ? dtype : MHA_F32);
        else
            s->list[s->count++] = stored(mha__shards_find(&s->m->shards, in_file->name), dtype);
    }
    for (int64_t n = 0; n < s->meta_count; n++) {
        mha_metadata *m = &s->meta[n];
        mha_file_metadata(file, n, &m->key, &m->value, &m->value_bytes);
    }
}

/* Adds tensors in memory, from the model or the caller, that the files do not contain. */
static void add_new(saving *s)
{
    const mha__shards *shards = &s->m->shards;
    for (int64_t n = 0; n < shards->instead_count; n++) {
        const mha_tensor *t = &shards->instead[n];
        if (!mha_file_find(shards->file, t->name) && !replacement(s, t->name))
            s->list[s->count++] = stored(t, s->o.dtype == MHA_DTYPE_DEFAULT ? MHA_F32 : s->o.dtype);
    }
    for (int64_t n = 0; n < s->o.count; n++)
        if (!mha_file_find(shards->file, s->o.tensors[n].name))
            s->list[s->count++] = outgoing(&s->o.tensors[n], s->o.dtype == MHA_DTYPE_DEFAULT ? MHA_F32 : s->o.dtype);
}

static mha_status list_tensors(saving *s, mha_error *err)
{
    const mha__shards *shards = &s->m->shards;
    const size_t tensors = (size_t)(s->o.count + shards->instead_count + mha_file_count(shards->file));
    s->meta_count = mha_file_metadata_count(shards->file);
    s->list = mha__calloc(s->m->ctx, tensors, sizeof *s->list);
    s->meta = mha__calloc(s->m->ctx, (size_t)s->meta_count + 1, sizeof *s->meta);
    if (!s->list || !s->meta) return mha__no_memory(err, tensors * sizeof *s->list, "the list of tensors");
    add_file(s, shards->file);
    add_new(s);
    return MHA_OK;
}

/* ---- tokenizer files ---- */

/* Fails because the tokenizer files of the model are missing, so that the model would be saved without a tokenizer. */
static mha_status tokenizer_gone(const char *folder, mha_error *err)
{
    return mha__fail(err, MHA_ERR_IO, "%s/" MHA__TOKENIZER_FILE ": must exist, since the model has a tokenizer",
                     mha__quote(&(mha__quoted){0}, folder, strlen(folder)));
}

/* Writes the tokenizer of a GGUF file, whether or not the model was opened with it. */
static mha_status put_gguf_tokenizer(const saving *s, mha_error *err)
{
    char *json = NULL;
    size_t n = 0;
    MHA__TRY(mha__gguf_tokenizer(s->m->shards.file, &json, &n, err));
    const mha_status status = json ? mha__folder_put(&s->folder, MHA__TOKENIZER_FILE, json, n, err) : MHA_OK;
    mha__free(s->m->ctx, json);
    return status;
}

static mha_status copy_companions(const saving *s, mha_error *err)
{
    char from[PATH_MAX];
    if (s->m->gguf_config) return put_gguf_tokenizer(s, err); /* no other file belongs to a GGUF file */
    MHA__TRY(mha__shards_folder(&s->m->shards, from, sizeof from, err));
    if (s->m->tokenizer && !mha__source_exists(from, MHA__TOKENIZER_FILE)) return tokenizer_gone(from, err);
    for (int n = 0; n < COMPANIONS; n++) {
        char *bytes = NULL;
        size_t size = 0;
        if (!mha__source_exists(from, mha__model_files[n])) continue;
        mha_status status = mha__read_whole(s->m->ctx, from, mha__model_files[n], MHA__JSON_BYTES, &bytes, &size, err);
        if (status != MHA_OK) return mha__in_folder(status, from, mha__model_files[n], err);
        status = mha__folder_put(&s->folder, mha__model_files[n], bytes, size, err);
        mha__free(s->m->ctx, bytes);
        MHA__TRY(status);
    }
    return MHA_OK;
}

/* ---- writing of the folder ---- */

/* Checks that the written folder opens as a model, without running it. */
static mha_status check(const saving *s, mha_error *err)
{
    const mha_model_options o = {.size = sizeof o, .no_weights = 1, .no_tokenizer = 1};
    mha_model *model = NULL;
    const mha_status status = mha_model_open(s->m->ctx, s->folder.place, &o, &model, err);
    mha_model_free(model);
    return status;
}

static mha_status write_all(saving *s, mha__save_more more, const void *user, mha_error *err)
{
    MHA__TRY(write_config(s, err));
    MHA__TRY(copy_companions(s, err));
    MHA__TRY(list_tensors(s, err));
    const mha_tensors_writer_options o = {.size = sizeof o, .metadata = s->meta, .metadata_count = s->meta_count};
    MHA__TRY(mha__stream_tensors(s->m->ctx, &s->folder, WEIGHTS, s->list, s->count, &o, err));
    if (more) MHA__TRY(more(user, &s->folder, err));
    return check(s, err);
}

static mha_status check_options(const mha_model_save_options *o, mha_error *err)
{
    if (o->dtype != MHA_DTYPE_DEFAULT && o->dtype != MHA_F32 && o->dtype != MHA_BF16 && o->dtype != MHA_F16)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_save_options: dtype must be one of f32, bf16, f16 (got %s)",
                         mha__quote_dtype(&(mha__quoted){0}, o->dtype));
    if (o->count < 0 || (o->count && !o->tensors))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_save_options: count must be the number of entries in tensors (got %lld, %s)",
                         (long long)o->count, o->tensors ? "given" : "NULL");
    for (int64_t n = 0; n < o->count; n++) {
        size_t bytes = 0;
        MHA__TRY(mha__named_bytes(&o->tensors[n], &bytes, err));
        if (o->tensors[n].dtype != MHA_F32)
            return mha__fail(err, MHA_ERR_ARG, "mha_model_save_options: tensors[%lld] must be f32", (long long)n);
    }
    return MHA_OK;
}

mha_status mha__model_save_with(const mha_model *model, const char *folder, const mha_model_save_options *options,
                                mha__save_more more, const void *user, mha_error *err)
{
    saving s = {.m = model};
    if (!model || !folder)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_save: %s must not be NULL", model ? "folder" : "model");
    MHA__TRY(mha__options_read(&s.o, sizeof s.o, options, "mha_model_save_options", err));
    MHA__TRY(check_options(&s.o, err));
    MHA__TRY(mha__folder_begin(&s.folder, folder, s.o.overwrite != 0, mha__model_files, err));
    const mha_status status = write_all(&s, more, user, err);
    mha__free(model->ctx, s.list);
    mha__free(model->ctx, s.meta);
    if (status == MHA_OK) return mha__folder_commit(&s.folder, mha__model_files, err);
    return mha__folder_abort(&s.folder, status, err);
}

mha_status mha_model_save(const mha_model *model, const char *folder, const mha_model_save_options *options,
                          mha_error *err)
{
    return mha__model_save_with(model, folder, options, NULL, NULL, err);
}

mha_status mha_model_save_check(const char *folder, int overwrite, mha_error *err)
{
    if (!folder) return mha__fail(err, MHA_ERR_ARG, "mha_model_save_check: folder must not be NULL");
    return mha__folder_check(folder, overwrite != 0, mha__model_files, err);
}
