/* model_digests.c - writes the SHA-256 of each file of a model. */
#include "heads/data/model_digests.h"

#include "base/error.h"
#include "io/files/sha256.h"
#include "io/tensor_file.h"
#include <string.h>

static mha_status digest(mha_ctx *ctx, const mha_file *file, mha__json_writer *w, mha_error *err)
{
    char hex[MHA__SHA256_HEX];
    const char *path = mha_file_path(file), *slash = strrchr(path, '/');
    MHA__TRY(mha__sha256_file(ctx, path, hex, err));
    mha__json_key(w, slash ? slash + 1 : path);
    mha__json_put_text(w, hex);
    return MHA_OK;
}

mha_status mha__model_digests(const mha_model *model, mha__json_writer *w, mha_error *err)
{
    const mha_file *file = model->shards.file;
    const bool in_memory = mha_file_count(file) == 0; /* no file on disk to identify */
    mha__json_open(w, '{');
    for (int64_t n = 0; n < file->shard_count; n++)
        MHA__TRY(digest(model->ctx, file->shard[n], w, err));
    if (!file->shard_count && !in_memory) MHA__TRY(digest(model->ctx, file, w, err));
    mha__json_close(w, '}');
    return MHA_OK;
}
