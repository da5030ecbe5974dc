/* digests.c - see digests.h. */
#include "heads/digests.h"
#include "base/ctx.h"
#include "base/error.h"
#include "io/handle.h"
#include "io/sha256.h"
#include <string.h>

static mha_status digest(mha_ctx *ctx, const mha_file *file, json_t *from, mha_error *err)
{
    char hex[MHA__SHA256_HEX];
    const char *path = mha_file_path(file), *slash = strrchr(path, '/');
    MHA__TRY(mha__sha256_file(ctx, path, hex, err));
    if (json_object_set_new(from, slash ? slash + 1 : path, json_string(hex)) == 0) return MHA_OK;
    return mha__no_memory(err, 0, "the digests of weights");
}

mha_status mha__model_digests(const mha_model *model, json_t *from, mha_error *err)
{
    const mha_file *file = model->shards.file;
    for (int64_t n = 0; n < file->shard_count; n++)
        MHA__TRY(digest(model->ctx, file->shard[n], from, err));
    const bool in_memory = mha_file_count(file) == 0; /* nothing on disk that a digest could name */
    return file->shard_count || in_memory ? MHA_OK : digest(model->ctx, file, from, err);
}
