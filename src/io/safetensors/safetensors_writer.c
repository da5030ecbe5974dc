/* safetensors_writer.c - writes a safetensors file in pieces (mha/io.h). All tensor offsets are known when the file is
 * created, so pieces can be written in any order.
 *
 * The header (safetensors_header_write.c) is checked by the rules of the reader, so the reader can open every file
 * written here. */
#include "io/safetensors/safetensors_writer.h"

#include "base/ctx.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "io/input_limits.h"
#include "io/safetensors/safetensors_header_write.h"
#include <stdlib.h>
#include <string.h>

struct mha_tensors_writer {
    mha_ctx *ctx;
    mha__outfile file;
    bool open;
    size_t data; /* offset of the data in the file */
    int64_t count;
    char *names; /* names of all tensors, concatenated */
    mha__file_tensor slots[];
};

/* ---- layout ---- */

static mha_status check_tensor(const mha_tensor *t, mha__file_tensor *s, mha_error *err)
{
    mha__quoted q = {0};
    size_t bits = 0;
    if (!t->name) return mha__fail(err, MHA_ERR_ARG, "tensors to write: names must not be NULL");
    const char *name = mha__quote(&q, t->name, strlen(t->name));
    *s = (mha__file_tensor){.name = t->name, .tensor = t};
    if (strlen(t->name) > MHA__NAME_BYTES)
        return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": name must be at most %zu bytes (got %zu)", name,
                         MHA__NAME_BYTES, strlen(t->name));
    s->type = t->dtype != MHA_DTYPE_OTHER ? mha__stored_as(t->dtype)
              : t->dtype_name             ? mha__stored_named(t->dtype_name, strlen(t->dtype_name))
                                          : NULL;
    if (!s->type)
        return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": dtype must be supported by safetensors (got %s)", name,
                         mha__quote_dtype(&(mha__quoted){0}, t->dtype));
    if (t->rank < 0 || t->rank > MHA__RANK || (t->rank && !t->shape))
        return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": rank must be from 0 to %d, and 0 if shape is NULL (got %d)",
                         name, MHA__RANK, t->rank);
    if (!mha__bytes(t->shape, t->rank, s->type->bits, &bits) || bits % 8 || (uint64_t)bits / 8 > INT64_MAX / 2)
        return mha__fail(err, MHA_ERR_ARG,
                         "tensor \"%s\": shape must not be negative or too large, and must fill whole bytes", name);
    s->bytes = bits / 8;
    return MHA_OK;
}

/* Orders tensors as in the file: by descending element size, then by name. */
static int by_size_and_name(const void *a, const void *b)
{
    const mha__file_tensor *x = *(mha__file_tensor *const *)a, *y = *(mha__file_tensor *const *)b;
    if (x->type->bits != y->type->bits) return x->type->bits < y->type->bits ? 1 : -1;
    return strcmp(x->name, y->name);
}

static mha_status list_slots(mha_tensors_writer *w, const mha_tensor *list, mha__file_tensor **slots, mha_error *err)
{
    size_t dimensions = 0;
    for (int64_t n = 0; n < w->count; n++) {
        MHA__TRY(check_tensor(&list[n], &w->slots[n], err));
        dimensions += (size_t)list[n].rank;
        slots[n] = &w->slots[n];
    }
    if (dimensions <= MHA__DIMENSIONS) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "tensors to write: all tensors together must have at most %zu dimensions (got %zu)",
                     MHA__DIMENSIONS, dimensions);
}

/* Assigns an offset to every tensor; order[0 .. count) is then in file order. */
static mha_status place(mha__file_tensor **order, int64_t count, mha_error *err)
{
    size_t at = 0;
    qsort(order, (size_t)count, sizeof *order, by_size_and_name);
    for (int64_t n = 0; n < count; n++) {
        order[n]->begin = at;
        if (!mha__add(at, order[n]->bytes, &at) || (uint64_t)at > INT64_MAX / 2)
            return mha__fail(err, MHA_ERR_ARG, "tensors to write: total size must be at most 2^62 - 1 bytes");
    }
    return MHA_OK;
}

/* ---- the header ---- */

/* Writes u64 length | text, padded with blanks to a multiple of 8. */
static mha_status put_header(mha_tensors_writer *w, const char *header, size_t n, mha_error *err)
{
    const size_t padded = (n + 7) / 8 * 8;
    char bytes[8], blanks[8] = "       ";
    if (padded > MHA__HEADER_BYTES)
        return mha__fail(err, MHA_ERR_ARG, "tensors to write: header must be at most %zu bytes (got %zu)",
                         MHA__HEADER_BYTES, padded);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(unsigned char)(padded >> (8 * i));
    w->data = 8 + padded;
    MHA__TRY(mha__outfile_put(&w->file, 0, bytes, sizeof bytes, err));
    MHA__TRY(mha__outfile_put(&w->file, 8, header, n, err));
    return mha__outfile_put(&w->file, 8 + n, blanks, padded - n, err);
}

/* Copies the names for messages, because the caller's list may be freed before the writer. */
static mha_status keep_names(mha_tensors_writer *w, mha_error *err)
{
    size_t bytes = 1;
    for (int64_t n = 0; n < w->count; n++)
        bytes += strlen(w->slots[n].name) + 1;
    char *at = w->names = mha__alloc(w->ctx, bytes);
    if (!at) return mha__no_memory(err, bytes, "tensor names");
    for (int64_t n = 0; n < w->count; n++) {
        const size_t length = strlen(w->slots[n].name) + 1;
        w->slots[n].name = memcpy(at, w->slots[n].name, length);
        w->slots[n].tensor = NULL;
        at += length;
    }
    return MHA_OK;
}

/* ---- creating and freeing a writer ---- */

/* The path to which the file is written. */
typedef struct destination {
    const char *path;
    const mha__folder *folder; /* NULL, or the folder that contains the file; `path` is then a file name in this
                                * folder */
    bool overwrite;
} destination;

static mha_status begin_file(mha_tensors_writer *w, const destination *to, const char *header, size_t n, mha_error *err)
{
    MHA__TRY(to->folder ? mha__folder_file(to->folder, to->path, &w->file, err)
                        : mha__outfile_begin(&w->file, to->path, to->overwrite, err));
    w->open = true;
    MHA__TRY(put_header(w, header, n, err));
    return keep_names(w, err);
}

static mha_status begin(mha_tensors_writer *w, const destination *to, const mha_tensor *list,
                        const mha_tensors_writer_options *o, mha_error *err)
{
    mha__file_tensor **order = mha__calloc(w->ctx, (size_t)w->count + 1, sizeof *order);
    char *header = NULL;
    size_t n = 0;
    if (!order) return mha__no_memory(err, (size_t)w->count * sizeof *order, "the header of a safetensors file");
    mha_status status = list_slots(w, list, order, err);
    if (status == MHA_OK) status = mha__tensors_check(w->ctx, order, w->count, o, err);
    if (status == MHA_OK) status = place(order, w->count, err);
    if (status == MHA_OK) status = mha__tensors_header(w->ctx, order, w->count, o, &header, &n, err);
    if (status == MHA_OK) status = begin_file(w, to, header, n, err);
    mha__free(w->ctx, header);
    mha__free(w->ctx, order);
    return status;
}

static mha_status create(mha_ctx *ctx, const destination *to, const mha_tensor *list, int64_t count,
                         const mha_tensors_writer_options *o, mha_tensors_writer **out, mha_error *err)
{
    const size_t bytes = sizeof(mha_tensors_writer) + (size_t)count * sizeof(mha__file_tensor);
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha_tensors_writer *w = mha__calloc(ctx, 1, bytes);
    if (!w) return mha__no_memory(err, bytes, "a tensor writer");
    w->ctx = ctx;
    w->count = count;
    const mha_status status = begin(w, to, list, o, err);
    if (status == MHA_OK)
        *out = w;
    else
        mha_tensors_writer_free(w);
    return status;
}

/* Checks the arguments for both functions that create a writer. */
static mha_status check_call(const void *path, const mha_tensor *list, int64_t count,
                             const mha_tensors_writer_options *given, mha_tensors_writer_options *o, mha_error *err)
{
    if (count < 0 || count > (int64_t)MHA__TENSORS)
        return mha__fail(err, MHA_ERR_ARG, "tensors to write: count must be from 0 to %zu (got %lld)", MHA__TENSORS,
                         (long long)count);
    if (!path || (count && !list))
        return mha__fail(err, MHA_ERR_ARG, "tensors to write: path and list must not be NULL");
    MHA__TRY(mha__options_read(o, sizeof *o, given, "mha_tensors_writer_options", err));
    if (o->metadata_count < 0 || (o->metadata_count && !o->metadata))
        return mha__fail(
            err, MHA_ERR_ARG,
            "mha_tensors_writer_options: metadata_count must be at least 0, and 0 if metadata is NULL (got %lld)",
            (long long)o->metadata_count);
    return MHA_OK;
}

mha_status mha_tensors_writer_create(mha_ctx *ctx, const char *path, const mha_tensor *list, int64_t count,
                                     const mha_tensors_writer_options *options, mha_tensors_writer **out,
                                     mha_error *err)
{
    mha_tensors_writer_options o;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_tensors_writer_create: out must not be NULL");
    *out = NULL;
    MHA__TRY(check_call(path, list, count, options, &o, err));
    const destination to = {.path = path, .overwrite = o.overwrite != 0};
    return create(ctx, &to, list, count, &o, out, err);
}

mha_status mha__tensors_writer_in(mha_ctx *ctx, const mha__folder *folder, const char *name, const mha_tensor *list,
                                  int64_t count, const mha_tensors_writer_options *options, mha_tensors_writer **out,
                                  mha_error *err)
{
    mha_tensors_writer_options o;
    *out = NULL;
    MHA__TRY(check_call(name, list, count, options, &o, err));
    const destination to = {.path = name, .folder = folder};
    return create(ctx, &to, list, count, &o, out, err);
}

static mha_status not_open(mha_error *err)
{
    return mha__fail(err, MHA_ERR_ARG, "tensors to write: writer must not be finished or abandoned");
}

mha_status mha_tensors_writer_put(mha_tensors_writer *writer, int64_t index, const void *data, size_t bytes,
                                  mha_error *err)
{
    mha__quoted q = {0};
    if (!writer || (!data && bytes))
        return mha__fail(err, MHA_ERR_ARG, "mha_tensors_writer_put: %s must not be NULL", writer ? "data" : "writer");
    if (!writer->open) return not_open(err);
    if (index < 0 || index >= writer->count)
        return mha__fail(err, MHA_ERR_ARG, "mha_tensors_writer_put: index must be at least 0 and below %lld (got %lld)",
                         (long long)writer->count, (long long)index);
    mha__file_tensor *s = &writer->slots[index];
    if (bytes > s->bytes - s->written)
        return mha__fail(err, MHA_ERR_ARG,
                         "tensor \"%s\": data must be at most %zu bytes (got %zu after the first %zu)",
                         mha__quote(&q, s->name, strlen(s->name)), s->bytes, bytes, s->written);
    MHA__TRY(mha__outfile_put(&writer->file, writer->data + s->begin + s->written, data, bytes, err));
    s->written += bytes;
    return MHA_OK;
}

mha_status mha_tensors_writer_finish(mha_tensors_writer *writer, mha_error *err)
{
    mha__quoted q = {0};
    if (!writer) return mha__fail(err, MHA_ERR_ARG, "mha_tensors_writer_finish: writer must not be NULL");
    if (!writer->open) return not_open(err);
    for (int64_t n = 0; n < writer->count; n++) {
        const mha__file_tensor *s = &writer->slots[n];
        if (s->written < s->bytes)
            return mha__fail(err, MHA_ERR_ARG, "tensor \"%s\": data must have %zu bytes (got %zu)",
                             mha__quote(&q, s->name, strlen(s->name)), s->bytes, s->written);
    }
    writer->open = false;
    return mha__outfile_end(&writer->file, MHA_OK, err);
}

void mha_tensors_writer_free(mha_tensors_writer *writer)
{
    if (!writer) return;
    if (writer->open) mha__outfile_end(&writer->file, MHA_ERR_CANCELED, NULL);
    mha__free(writer->ctx, writer->names);
    mha__free(writer->ctx, writer);
}
