/* gguf_unused.c - checks that a model reads every tensor of its GGUF file, as llama.cpp requires: an unread tensor,
 * such as a bias that the family lacks, would change the results. */
#include "base/ctx.h"
#include "base/error.h"
#include "io/tensor_file.h"
#include "model/gguf/gguf_parts.h"
#include "model/model_struct.h"
#include <stddef.h>
#include <string.h>

static int64_t index_of(const mha_file *file, const mha_tensor *tensor)
{
    const char *record = (const char *)tensor - offsetof(mha__record, tensor);
    return (record - (const char *)file->records) / (int64_t)sizeof(mha__record);
}

/* Marks the factors of the rotation that the config contains. */
static void mark_factors(const mha_model *m, bool *read)
{
    const mha_file *file = m->shards.file;
    const mha_rope_kind kind = m->config.rope.kind;
    const bool phi = mha__gguf_arch_of(m->config.family->name)->phi;
    const bool scaled = kind == MHA_ROPE_LONGROPE || (kind == MHA_ROPE_LLAMA3 && !phi);
    for (int n = phi ? 1 : 0; scaled && n < (phi ? 3 : 1); n++) {
        const mha_tensor *t = mha_file_find(file, mha__gguf_rope_factors[n]);
        if (t) read[index_of(file, t)] = true;
    }
}

static void mark_read(const mha_model *m, bool *read)
{
    const mha_file *file = m->shards.file;
    for (mha__tensor_step at = {0}; mha__tensor_each(&m->config, &at);) {
        const mha_tensor *t = mha__weights_tensor(&m->outer, at.role, at.layer, at.bias);
        const mha_tensor *stored = t ? mha_file_find(file, t->name) : NULL;
        if (stored) read[index_of(file, stored)] = true;
    }
    mark_factors(m, read);
    if (m->encoder) mark_read(m->encoder, read);
}

/* Fails with the name that the tensor has in the file. */
static mha_status refuse(const mha_model *m, const mha_tensor *t, mha_error *err)
{
    const char *family = m->config.family->name, *path = m->shards.file->path;
    char stored[MHA__TENSOR_NAME];
    mha__quoted name = {0}, file = {0};
    mha__gguf_stored_name(family, t->name, stored, sizeof stored);
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: tensor \"%s\" must be absent in a %s of %lld layers (got one)",
                     mha__quote(&file, path, strlen(path)), mha__quote(&name, stored, strlen(stored)), family,
                     (long long)m->config.layers);
}

mha_status mha__gguf_check_unused(const mha_model *m, mha_error *err)
{
    const mha_file *file = m->shards.file;
    bool *read = mha__calloc(m->ctx, (size_t)file->count + 1, sizeof *read);
    if (!read) return mha__no_memory(err, (size_t)file->count + 1, "the tensors of a GGUF file");
    mark_read(m, read);
    int64_t n = 0;
    while (n < file->count && read[n])
        n++;
    mha__free(m->ctx, read);
    if (n == file->count) return MHA_OK;
    return refuse(m, &file->records[n].tensor, err);
}
