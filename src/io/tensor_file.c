/* tensor_file.c - detects a file's format by its content and opens it, and implements the queries on open files
 * (tensor_file.h, mha/io.h). */
#include "io/tensor_file.h"

#include "base/ctx.h"
#include "base/size.h"
#include "base/struct_size.h"
#include <stdio.h>
#include <string.h>

/* Selects the reader by the first bytes of the file. A safetensors file whose header length happens to look like a
 * pickle is recognized by its '{'. */
static mha_status open_by_content(mha_file *file, const mha__source *source, mha_error *err)
{
    char head[16] = {0};
    size_t n = source->size < sizeof head ? source->size : sizeof head;
    MHA__TRY(mha__source_read(source, 0, head, n, err));
    if (n >= 6 && memcmp(head, "\x93NUMPY", 6) == 0) return mha__npy_open(file, source, err);
    if (n >= 4 && memcmp(head, "GGUF", 4) == 0 && head[8] != '{') return mha__gguf_open(file, source, err);
    const char *foreign = n > 8 && head[8] == '{' ? NULL : mha__foreign(head, n);
    if (!foreign) return mha__safetensors_open(file, source, err);
    mha__quoted q;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s", mha__quote(&q, source->name, strlen(source->name)), foreign);
}

int64_t mha__shape_elements(int rank, const int64_t *shape)
{
    int64_t count = 1;
    for (int n = 0; n < rank; n++)
        count *= shape[n];
    return count;
}

mha_status mha__file_create(mha_ctx *ctx, const char *path, mha_file **file, mha_error *err)
{
    const size_t bytes = strlen(path) + 1;
    mha_file *f = *file = mha__calloc(ctx, 1, sizeof *f);
    if (!f) return mha__no_memory(err, sizeof *f, "an open file");
    f->ctx = ctx;
    f->path = mha__alloc(ctx, bytes);
    if (!f->path) return mha__no_memory(err, bytes, "a file name");
    memcpy(f->path, path, bytes);
    return MHA_OK;
}

/* Opens `path` and passes the file to `reader`. */
typedef mha_status file_reader(mha_file *file, const mha__source *source, mha_error *err);

static mha_status read_source(mha_ctx *ctx, const mha__source *source, bool no_map, file_reader *reader, mha_file **out,
                              mha_error *err)
{
    mha_file *file = NULL;
    mha_status status = mha__file_create(ctx, source->name, &file, err);
    if (status == MHA_OK) {
        file->no_map = no_map;
        status = reader(file, source, err);
    }
    if (status != MHA_OK) {
        mha_file_free(file);
        return status;
    }
    *out = file;
    return MHA_OK;
}

static mha_status open_with(mha_ctx *ctx, const char *path, bool no_map, file_reader *reader, mha_file **out,
                            mha_error *err)
{
    mha__source source;
    MHA__TRY(mha__source_open(&source, NULL, path, err));
    const mha_status status = read_source(ctx, &source, no_map, reader, out, err);
    mha__source_close(&source);
    return status;
}

mha_status mha_file_open(mha_ctx *ctx, const char *path, const mha_file_options *options, mha_file **out,
                         mha_error *err)
{
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_file_open: out must not be NULL");
    *out = NULL;
    if (!path) return mha__fail(err, MHA_ERR_ARG, "mha_file_open: path must not be NULL");
    mha_file_options own;
    MHA__TRY(mha__options_read(&own, sizeof own, options, "mha_file_options", err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    return open_with(ctx, path, own.no_map != 0, open_by_content, out, err);
}

mha_status mha_file_open_memory(mha_ctx *ctx, const char *name, const void *data, size_t bytes, mha_file **out,
                                mha_error *err)
{
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_file_open_memory: out must not be NULL");
    *out = NULL;
    if (!name || !data)
        return mha__fail(err, MHA_ERR_ARG, "mha_file_open_memory: %s must not be NULL", name ? "data" : "name");
    MHA__TRY(mha__ctx_find(&ctx, err));
    const mha__source source = {.name = name, .fd = -1, .memory = data, .size = bytes};
    return read_source(ctx, &source, false, open_by_content, out, err);
}

static mha_status load_all(mha_file *file, const mha__source *source, mha_error *err)
{
    file->bytes = source->size;
    return mha__data_load(file, source, 0, source->size, &file->data, err);
}

mha_status mha__file_open_bytes(mha_ctx *ctx, const char *path, bool no_map, mha_file **out, const char **data,
                                size_t *bytes, mha_error *err)
{
    MHA__TRY(open_with(ctx, path, no_map, load_all, out, err));
    *data = (*out)->data;
    *bytes = (*out)->bytes;
    return MHA_OK;
}

void mha_file_free(mha_file *file)
{
    if (!file) return;
    for (int64_t n = 0; n < file->shard_count; n++)
        mha_file_free(file->shard[n]);
    mha__free(file->ctx, file->shard);
    mha__gguf_free(file);
    mha__file_memory_free(file);
    mha__free(file->ctx, file->path);
    mha__data_drop(file);
    mha__free(file->ctx, file->records);
    mha__free(file->ctx, file->metadata);
    mha__free(file->ctx, file->shapes);
    mha__free(file->ctx, file->strings);
    mha__free(file->ctx, file);
}

const char *mha_file_path(const mha_file *file)
{
    return file ? file->path : NULL;
}

const char *mha_file_format(const mha_file *file)
{
    return file ? file->format : NULL;
}

int64_t mha_file_count(const mha_file *file)
{
    return file ? file->count : 0;
}

const mha_tensor *mha_file_tensor(const mha_file *file, int64_t index)
{
    return file && index >= 0 && index < file->count ? &file->records[index].tensor : NULL;
}

const mha_tensor *mha_file_find(const mha_file *file, const char *name)
{
    int64_t low = 0, high = file && name ? file->count : 0;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(file->records[middle].tensor.name, name);
        if (order == 0) return &file->records[middle].tensor;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int64_t mha_file_metadata_count(const mha_file *file)
{
    return file ? file->metadata_count : 0;
}

mha_status mha_file_metadata(const mha_file *file, int64_t index, const char **key, const char **value,
                             size_t *value_bytes)
{
    if (!file || !key || !value || index < 0 || index >= file->metadata_count) return MHA_ERR_ARG;
    const mha__metadata *m = &file->metadata[index];
    *key = m->key;
    *value = m->value;
    if (value_bytes) *value_bytes = m->value_bytes;
    return MHA_OK;
}

const char *mha__quote_shape(mha__quoted *q, int rank, const int64_t *shape)
{
    char *text = q->text;
    size_t used = (size_t)snprintf(text, sizeof q->text, "[");
    for (int i = 0; i < rank && used < sizeof q->text; i++)
        used += (size_t)snprintf(text + used, sizeof q->text - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (used < sizeof q->text) snprintf(text + used, sizeof q->text - used, "]");
    return text;
}

const char *mha__metadata_find(const mha_file *file, const char *key, size_t *bytes)
{
    for (int64_t n = 0; n < file->metadata_count; n++) {
        const mha__metadata *m = &file->metadata[n];
        if (strcmp(m->key, key) != 0) continue;
        if (bytes) *bytes = m->value_bytes;
        return m->value;
    }
    return NULL;
}
