/* stream.c - header first, then every tensor in pieces, converted where that is wanted. */
#include "io/stream.h"
#include "base/ctx.h"
#include "base/f16.h"
#include "base/size.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((int64_t)1 << 20) /* numbers converted at a time: 6 MiB of memory */

typedef struct stream {
    mha_ctx *ctx;
    mha__folder_file file;
    float *wide;      /* [PIECE] */
    uint16_t *narrow; /* [PIECE] */
    int64_t done, total;
} stream;

/* ---- the header ---- */

static mha_dtype stored_dtype(const mha__outgoing *t)
{
    return t->dtype == MHA_DTYPE_DEFAULT ? t->from.dtype : t->dtype;
}

static size_t bytes_of(const mha__outgoing *t)
{
    return t->dtype == MHA_DTYPE_DEFAULT ? t->from.bytes : (size_t)t->from.elements * mha_dtype_size(t->dtype);
}

static const char *dtype_of(const mha__outgoing *t)
{
    if (t->dtype == MHA_DTYPE_DEFAULT) return t->from.dtype_name;
    return t->dtype == MHA_F32 ? "F32" : t->dtype == MHA_BF16 ? "BF16" : "F16";
}

static int by_size_and_name(const void *a, const void *b)
{
    const mha__outgoing *x = a, *y = b;
    const size_t i = mha_dtype_size(stored_dtype(x)), j = mha_dtype_size(stored_dtype(y));
    return i != j ? (i < j) - (i > j) : strcmp(x->from.name, y->from.name);
}

static json_t *entry_of(const mha__outgoing *t, size_t begin, size_t end)
{
    json_t *shape = json_array();
    for (int n = 0; n < t->from.rank; n++)
        if (json_array_append_new(shape, json_integer(t->from.shape[n])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_of(t), "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)end);
}

static mha_status fill_header(json_t *header, const mha__outgoing *list, int64_t count, const mha__meta_pair *meta,
                              int64_t meta_count, mha_error *err)
{
    size_t at = 0;
    json_t *pairs = json_object();
    if (!header || json_object_set_new(header, "__metadata__", pairs) != 0)
        return mha__no_memory(err, 0, "the header of a file of tensors");
    for (int64_t n = 0; n < meta_count; n++)
        if (json_object_set_new(pairs, meta[n].key, json_stringn(meta[n].value, meta[n].value_bytes)) != 0)
            return mha__no_memory(err, 0, "the metadata of a file of tensors");
    for (int64_t n = 0; n < count; n++) {
        const char *name = list[n].from.name;
        size_t end = 0;
        mha__quoted q = {0};
        if (json_object_get(header, name))
            return mha__fail(err, MHA_ERR_ARG, "tensors to write: the name \"%s\" is taken twice, or reserved",
                             mha__quote(&q, name, strlen(name)));
        if (!mha__add(at, bytes_of(&list[n]), &end) || end > INT64_MAX / 2)
            return mha__no_memory(err, SIZE_MAX, "a file of tensors");
        if (json_object_set_new(header, name, entry_of(&list[n], at, end)) != 0)
            return mha__fail(err, MHA_ERR_MEMORY, "out of memory, or no UTF-8: the name \"%s\" of a tensor",
                             mha__quote(&q, name, strlen(name)));
        at = end;
    }
    return MHA_OK;
}

/* u64 length | text, padded with blanks to a multiple of 8. */
static mha_status write_header(stream *s, const json_t *header, mha_error *err)
{
    const size_t text = json_dumpb(header, NULL, 0, JSON_COMPACT), padded = (text + 7) / 8 * 8;
    char *bytes = text ? mha__alloc(s->ctx, 8 + padded) : NULL;
    if (!bytes) return mha__no_memory(err, 8 + padded, "the header of a file of tensors");
    for (int n = 0; n < 8; n++)
        bytes[n] = (char)(unsigned char)(padded >> (8 * n));
    memset(bytes + 8, ' ', padded);
    json_dumpb(header, bytes + 8, text, JSON_COMPACT);
    const mha_status status = mha__folder_write(&s->file, bytes, 8 + padded, err);
    mha__free(s->ctx, bytes);
    return status;
}

/* ---- the numbers ---- */

/* Elements [first, first + count) of a tensor, converted. */
static mha_status write_piece(stream *s, const mha__outgoing *t, int64_t first, int64_t count, mha_error *err)
{
    mha_tensor part = t->from;
    part.data = (const char *)part.data + (size_t)first * mha_dtype_size(part.dtype);
    part.elements = count;
    part.bytes = (size_t)count * mha_dtype_size(part.dtype);
    MHA__TRY(mha_tensor_read(&part, MHA_F32, s->wide, err));
    if (t->dtype == MHA_F32) return mha__folder_write(&s->file, s->wide, (size_t)count * sizeof *s->wide, err);
    for (int64_t i = 0; i < count; i++)
        s->narrow[i] = t->dtype == MHA_BF16 ? mha__f32_to_bf16(s->wide[i]) : mha__f32_to_f16(s->wide[i]);
    return mha__folder_write(&s->file, s->narrow, (size_t)count * sizeof *s->narrow, err);
}

static mha_status write_tensor(stream *s, const mha__outgoing *t, mha_error *err)
{
    const int64_t size = t->dtype == MHA_DTYPE_DEFAULT ? 1 : (int64_t)mha_dtype_size(t->dtype);
    const int64_t total = t->dtype == MHA_DTYPE_DEFAULT ? (int64_t)t->from.bytes : t->from.elements;
    const int64_t most = PIECE * (t->dtype == MHA_DTYPE_DEFAULT ? 8 : 1);
    for (int64_t first = 0; first < total; first += most) {
        const int64_t count = mha__min64(most, total - first);
        MHA__TRY(t->dtype == MHA_DTYPE_DEFAULT
                     ? mha__folder_write(&s->file, (const char *)t->from.data + first, (size_t)count, err)
                     : write_piece(s, t, first, count, err));
        s->done += count * size;
        MHA__TRY(mha__progress(s->ctx, "save", s->done, s->total, err));
    }
    return MHA_OK;
}

static mha_status write_all(stream *s, const json_t *header, const mha__outgoing *list, int64_t count, mha_error *err)
{
    MHA__TRY(write_header(s, header, err));
    for (int64_t n = 0; n < count; n++)
        MHA__TRY(write_tensor(s, &list[n], err));
    return MHA_OK;
}

/* Memory for conversions, the file, and everything into it. */
static mha_status write_file(stream *s, const mha__folder *folder, const char *name, const json_t *header,
                             const mha__outgoing *list, int64_t count, mha_error *err)
{
    const size_t bytes = (size_t)PIECE * (sizeof *s->wide + sizeof *s->narrow);
    s->wide = mha__alloc(s->ctx, bytes);
    if (!s->wide) return mha__no_memory(err, bytes, "a piece of a file of tensors");
    s->narrow = (uint16_t *)(s->wide + PIECE);
    mha_status status = mha__folder_create(folder, name, &s->file, err);
    if (status == MHA_OK) status = mha__folder_close(&s->file, write_all(s, header, list, count, err), err);
    mha__free(s->ctx, s->wide);
    return status;
}

mha_status mha__stream_tensors(mha_ctx *ctx, const mha__folder *folder, const char *name, mha__outgoing *list,
                               int64_t count, const mha__meta_pair *meta, int64_t meta_count, mha_error *err)
{
    stream s = {.ctx = ctx};
    json_t *header = json_object();
    qsort(list, (size_t)count, sizeof *list, by_size_and_name);
    mha_status status = fill_header(header, list, count, meta, meta_count, err);
    for (int64_t n = 0; status == MHA_OK && n < count; n++)
        s.total += (int64_t)bytes_of(&list[n]);
    if (status == MHA_OK) status = write_file(&s, folder, name, header, list, count, err);
    json_decref(header);
    return status;
}
