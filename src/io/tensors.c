/* tensors.c - a list of named tensors into a safetensors file, and out of any file that holds them.
 *
 * The file is made in memory and written whole, so that a name never stands for half of a layer. The header ends on a
 * multiple of 8 bytes, as the reference writer has it. */
#include "io/tensors.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/handle.h"
#include "io/json.h"
#include <string.h>

/* ---- writing ---- */

mha_status mha__named_bytes(const mha_named_tensor *t, size_t *bytes, mha_error *err)
{
    mha__quoted q = {0};
    if (!t->name) return mha__fail(err, MHA_ERR_ARG, "a list of tensors: a name is NULL");
    const char *name = mha__quote(&q, t->name, strlen(t->name));
    if (t->dtype != MHA_F32 && t->dtype != MHA_F64)
        return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": dtype is %s, not f32 or f64", name,
                         mha_dtype_name(t->dtype));
    if (t->rank < 0 || t->rank > 4)
        return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": rank is %d, not 0..4", name, t->rank);
    if (!mha__bytes(t->shape, t->rank, mha_dtype_size(t->dtype), bytes) || *bytes > INT64_MAX / 2)
        return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": its shape is negative or too large", name);
    if (*bytes && !t->data) return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": data is NULL", name);
    return MHA_OK;
}

/* One entry of the header. Failure shows as NULL. */
static json_t *entry_of(const mha_named_tensor *t, size_t begin, size_t end)
{
    json_t *shape = json_array();
    for (int n = 0; n < t->rank; n++)
        if (json_array_append_new(shape, json_integer(t->shape[n])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype == MHA_F64 ? "F64" : "F32", "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static mha_status describe(const mha_named_tensor *list, int64_t count, json_t **header, size_t *data, mha_error *err)
{
    *data = 0;
    *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (int64_t n = 0; *header && n < count; n++) {
        size_t bytes = 0, end = 0;
        mha__quoted q = {0};
        MHA__TRY(mha__named_bytes(&list[n], &bytes, err));
        if (!mha__add(*data, bytes, &end)) return mha__no_memory(err, SIZE_MAX, "a file of tensors");
        if (json_object_get(*header, list[n].name))
            return mha__fail(err, MHA_ERR_ARG, "tensors to write: the name \"%s\" is taken twice, or reserved",
                             mha__quote(&q, list[n].name, strlen(list[n].name)));
        if (json_object_set_new(*header, list[n].name, entry_of(&list[n], *data, end)) != 0)
            return mha__fail(err, MHA_ERR_MEMORY, "out of memory, or no UTF-8: the name \"%s\" of a tensor",
                             mha__quote(&q, list[n].name, strlen(list[n].name)));
        *data = end;
    }
    return *header ? MHA_OK : mha__no_memory(err, 0, "the header of a file of tensors");
}

/* u64 length | header, padded with blanks | data. */
static mha_status assemble(mha_ctx *ctx, const mha_named_tensor *list, int64_t count, const json_t *header, size_t data,
                           char **file, size_t *bytes, mha_error *err)
{
    const size_t text = json_dumpb(header, NULL, 0, JSON_COMPACT), padded = (text + 7) / 8 * 8;
    if (!text || !mha__add(8 + padded, data, bytes)) return mha__no_memory(err, SIZE_MAX, "a file of tensors");
    *file = mha__alloc(ctx, *bytes);
    if (!*file) return mha__no_memory(err, *bytes, "a file of tensors");
    for (int n = 0; n < 8; n++)
        (*file)[n] = (char)(unsigned char)(padded >> (8 * n));
    memset(*file + 8, ' ', padded);
    json_dumpb(header, *file + 8, text, JSON_COMPACT);
    char *at = *file + 8 + padded;
    for (int64_t n = 0; n < count; n++) {
        size_t size = 0;
        MHA__TRY(mha__named_bytes(&list[n], &size, err));
        if (size) memcpy(at, list[n].data, size);
        at += size;
    }
    return MHA_OK;
}

mha_status mha_tensors_write(mha_ctx *ctx, const char *path, const mha_named_tensor *list, int64_t count, int overwrite,
                             mha_error *err)
{
    json_t *header = NULL;
    char *file = NULL;
    size_t data = 0, bytes = 0;
    if (!path || count < 0 || (count && !list))
        return mha__fail(err, MHA_ERR_ARG, "tensors to write: path or list is NULL, or count is negative");
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha_status status = describe(list, count, &header, &data, err);
    if (status == MHA_OK) status = assemble(ctx, list, count, header, data, &file, &bytes, err);
    if (status == MHA_OK) status = mha_file_write(path, file, bytes, overwrite, err);
    json_decref(header);
    mha__free(ctx, file);
    return status;
}

/* ---- as a tensor of a file ---- */

mha_status mha__named_view(const mha_named_tensor *t, mha_tensor *view, mha_error *err)
{
    size_t bytes = 0;
    MHA__TRY(mha__named_bytes(t, &bytes, err));
    *view = (mha_tensor){.name = t->name,
                         .dtype = t->dtype,
                         .dtype_name = t->dtype == MHA_F64 ? "F64" : "F32",
                         .rank = t->rank,
                         .shape = t->shape,
                         .elements = (int64_t)(bytes / mha_dtype_size(t->dtype)),
                         .data = t->data,
                         .bytes = bytes};
    return MHA_OK;
}

/* ---- reading ---- */

static mha_status find(const mha_file *file, const mha_named_tensor *want, const mha_tensor **found, mha_error *err)
{
    size_t bytes = 0;
    mha__quoted q = {0};
    MHA__TRY(mha__named_bytes(want, &bytes, err));
    const char *name = mha__quote(&q, want->name, strlen(want->name));
    const mha_tensor *t = *found = mha_file_find(file, want->name);
    if (!t) return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\" is missing", name);
    if (t->rank != want->rank)
        return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\" has %d dimensions, want %d", name, t->rank, want->rank);
    for (int n = 0; n < t->rank; n++)
        if (t->shape[n] != want->shape[n])
            return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\": dimension %d is %lld, want %lld", name, n,
                             (long long)t->shape[n], (long long)want->shape[n]);
    return MHA_OK;
}

mha_status mha_tensors_read(const mha_file *file, const mha_named_tensor *list, int64_t count, mha_error *err)
{
    const mha_tensor *t = NULL;
    if (!file || count < 0 || (count && !list))
        return mha__fail(err, MHA_ERR_ARG, "tensors to read: file or list is NULL, or count is negative");
    for (int64_t n = 0; n < count; n++)
        MHA__TRY(find(file, &list[n], &t, err));
    for (int64_t n = 0; n < count; n++) {
        MHA__TRY(find(file, &list[n], &t, err));
        MHA__TRY(mha_tensor_read(t, list[n].dtype, list[n].data, err));
    }
    return MHA_OK;
}
