/* weight_overlay.c - the weights of a folder, with some tensors replaced by tensors in memory. */
#include "model/weights/weight_overlay.h"

#include "base/ctx.h"
#include "base/error.h"
#include "io/safetensors/named_tensors.h"
#include "io/tensor_file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mha_status mha__shards_open(mha_ctx *ctx, const char *folder, const mha_file_options *options, mha__shards *shards,
                            mha_error *err)
{
    *shards = (mha__shards){.ctx = ctx};
    return mha_checkpoint_open(ctx, folder, options, &shards->file, err);
}

mha_status mha__shards_memory(mha_ctx *ctx, const char *folder, const mha_file *const *files, int64_t count,
                              mha__shards *shards, mha_error *err)
{
    const char *given = count == 1 ? mha_file_path(files[0]) : "";
    const char *name = mha__bare_name(given, strlen(given)) ? given : "(memory)";
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = mha__alloc(ctx, bytes);
    *shards = (mha__shards){.ctx = ctx};
    if (!path) return mha__no_memory(err, bytes, "a file name");
    snprintf(path, bytes, "%s%s%s", folder, *folder ? "/" : "", name);
    mha_status status = mha__file_create(ctx, path, &shards->file, err);
    if (status == MHA_OK && count) status = mha__file_join(shards->file, files, count, err);
    mha__free(ctx, path);
    return status;
}

void mha__shards_close(mha__shards *shards)
{
    mha_file_free(shards->file);
    mha__free(shards->ctx, shards->instead);
    mha__free(shards->ctx, shards->shapes);
    *shards = (mha__shards){.ctx = shards->ctx};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const mha_tensor *)a)->name, ((const mha_tensor *)b)->name);
}

mha_status mha__shards_replace(mha__shards *s, const mha_named_tensor *tensors, int64_t count, mha_error *err)
{
    mha__quoted q = {0};
    if (count < 0 || (count && !tensors))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_options: tensor_count must be the number of entries in tensors (got %lld, %s)",
                         (long long)count, tensors ? "given" : "NULL");
    if (!count) return MHA_OK;
    s->instead = mha__calloc(s->ctx, (size_t)count, sizeof *s->instead);
    s->shapes = mha__calloc(s->ctx, (size_t)count, sizeof *s->shapes);
    if (!s->instead || !s->shapes) return mha__no_memory(err, (size_t)count * sizeof *s->instead, "a list of tensors");
    for (int64_t n = 0; n < count; n++) {
        MHA__TRY(mha__named_view(&tensors[n], &s->instead[n], err));
        memcpy(s->shapes[n], tensors[n].shape, sizeof s->shapes[n]);
        s->instead[n].shape = s->shapes[n];
    }
    qsort(s->instead, (size_t)count, sizeof *s->instead, by_name);
    s->instead_count = count;
    for (int64_t n = 1; n < count; n++)
        if (by_name(&s->instead[n - 1], &s->instead[n]) == 0)
            return mha__fail(err, MHA_ERR_ARG, "mha_model_options: names of tensors must be unique (got \"%s\" twice)",
                             mha__quote(&q, s->instead[n].name, strlen(s->instead[n].name)));
    return MHA_OK;
}

mha_status mha__shards_folder(const mha__shards *shards, char *folder, size_t capacity, mha_error *err)
{
    const char *path = mha_file_path(shards->file);
    const char *slash = strrchr(path, '/');
    const size_t n = shards->file->gguf ? strlen(path) : slash ? (size_t)(slash - path) : 0;
    if (n >= capacity) return mha__fail_errno(err, "cannot read", path, ENAMETOOLONG);
    memcpy(folder, path, n);
    folder[n] = '\0';
    return MHA_OK;
}

const mha_tensor *mha__shards_find(const mha__shards *shards, const char *name)
{
    const mha_tensor key = {.name = name};
    const size_t count = (size_t)shards->instead_count;
    const mha_tensor *instead = count ? bsearch(&key, shards->instead, count, sizeof key, by_name) : NULL;
    return instead ? instead : mha_file_find(shards->file, name);
}

size_t mha__shards_saved_bytes(const mha__shards *shards, const mha_tensor *tensor)
{
    const mha_tensor *hidden = mha_file_find(shards->file, tensor->name);
    const size_t each = mha_dtype_size(hidden ? hidden->dtype : tensor->dtype);
    return (size_t)tensor->elements * (each ? each : sizeof(float)); /* quantized tensors are saved as f32 */
}
