/* named_tensors.c - writes a list of named tensors to a safetensors file, or reads the list from any tensor file. */
#include "io/safetensors/named_tensors.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "io/safetensors/stored_types.h"
#include "io/tensor_file.h"
#include <string.h>

mha_status mha__named_bytes(const mha_named_tensor *t, size_t *bytes, mha_error *err)
{
    mha__quoted q = {0};
    if (!t->name) return mha__fail(err, MHA_ERR_ARG, "list of tensors: names must not be NULL");
    const char *name = mha__quote(&q, t->name, strlen(t->name));
    if (!mha__stored_as(t->dtype))
        return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": dtype must be supported by safetensors (got %s)", name,
                         mha__quote_dtype(&(mha__quoted){0}, t->dtype));
    if (t->rank < 0 || t->rank > 4)
        return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": rank must be from 0 to 4 (got %d)", name, t->rank);
    if (!mha__bytes(t->shape, t->rank, mha_dtype_size(t->dtype), bytes) || (uint64_t)*bytes > INT64_MAX / 2)
        return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": shape must not be negative or too large", name);
    if (*bytes && !t->data) return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": data must not be NULL", name);
    return MHA_OK;
}

mha_status mha__named_view(const mha_named_tensor *t, mha_tensor *view, mha_error *err)
{
    size_t bytes = 0;
    MHA__TRY(mha__named_bytes(t, &bytes, err));
    *view = (mha_tensor){.name = t->name,
                         .dtype = t->dtype,
                         .dtype_name = mha__stored_as(t->dtype)->name,
                         .rank = t->rank,
                         .shape = t->shape,
                         .elements = (int64_t)(bytes / mha_dtype_size(t->dtype)),
                         .data = t->data,
                         .bytes = bytes};
    return MHA_OK;
}

/* ---- writing ---- */

static mha_status put_all(mha_tensors_writer *writer, const mha_tensor *views, int64_t count, mha_error *err)
{
    for (int64_t n = 0; n < count; n++)
        MHA__TRY(mha_tensors_writer_put(writer, n, views[n].data, views[n].bytes, err));
    return mha_tensors_writer_finish(writer, err);
}

mha_status mha_tensors_write(mha_ctx *ctx, const char *path, const mha_named_tensor *list, int64_t count, int overwrite,
                             mha_error *err)
{
    const mha_tensors_writer_options o = {.size = sizeof o, .overwrite = overwrite};
    mha_tensors_writer *writer = NULL;
    if (count < 0)
        return mha__fail(err, MHA_ERR_ARG, "tensors to write: count must be at least 0 (got %lld)", (long long)count);
    if (!path || (count && !list))
        return mha__fail(err, MHA_ERR_ARG, "tensors to write: path and list must not be NULL");
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha_tensor *views = mha__calloc(ctx, (size_t)count + 1, sizeof *views);
    if (!views) return mha__no_memory(err, (size_t)count * sizeof *views, "a list of tensors");
    mha_status status = MHA_OK;
    for (int64_t n = 0; status == MHA_OK && n < count; n++)
        status = mha__named_view(&list[n], &views[n], err);
    if (status == MHA_OK) status = mha_tensors_writer_create(ctx, path, views, count, &o, &writer, err);
    if (status == MHA_OK) status = put_all(writer, views, count, err);
    mha_tensors_writer_free(writer);
    mha__free(ctx, views);
    return status;
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
        return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\" must have %d dimensions (got %d)", name, want->rank,
                         t->rank);
    for (int n = 0; n < t->rank; n++)
        if (t->shape[n] != want->shape[n])
            return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\": dimension %d must be %lld (got %lld)", name, n,
                             (long long)want->shape[n], (long long)t->shape[n]);
    return MHA_OK;
}

static mha_tensor part_of(const mha_tensor *t, mha__element_range range)
{
    const size_t size = mha_dtype_size(t->dtype);
    mha_tensor part = *t;
    part.data = (const char *)t->data + (size_t)range.first * size;
    part.elements = range.count;
    part.bytes = (size_t)range.count * size;
    return part;
}

static mha_status read_list(const mha_file *file, const mha_named_tensor *list, const mha__element_range *ranges,
                            int64_t count, mha_error *err)
{
    const mha_tensor *t = NULL;
    for (int64_t n = 0; n < count; n++)
        MHA__TRY(find(file, &list[n], &t, err));
    for (int64_t n = 0; n < count; n++) {
        MHA__TRY(find(file, &list[n], &t, err));
        const mha_tensor part = ranges ? part_of(t, ranges[n]) : *t;
        MHA__TRY(mha_tensor_read(&part, list[n].dtype, list[n].data, err));
    }
    return MHA_OK;
}

mha_status mha__tensors_read_ranges(const mha_file *file, const mha_named_tensor *list,
                                    const mha__element_range *ranges, int64_t count, mha_error *err)
{
    mha_error why = {0};
    if (count < 0)
        return mha__fail(err, MHA_ERR_ARG, "tensors to read: count must be at least 0 (got %lld)", (long long)count);
    if (!file || (count && !list))
        return mha__fail(err, MHA_ERR_ARG, "tensors to read: file and list must not be NULL");
    const char *path = mha_file_path(file);
    const mha_status status = read_list(file, list, ranges, count, &why);
    if (status == MHA_OK) return MHA_OK;
    if (status == MHA_ERR_ARG) return mha__fail(err, status, "%s", why.message); /* the list is invalid, not the file */
    return mha__fail(err, status, "%s: %s", mha__quote(&(mha__quoted){0}, path, strlen(path)), why.message);
}

mha_status mha_tensors_read(const mha_file *file, const mha_named_tensor *list, int64_t count, mha_error *err)
{
    return mha__tensors_read_ranges(file, list, NULL, count, err);
}
