/* safetensors.c - the safetensors format:  u64 length N | N bytes of JSON | tensor bytes.
 *
 *     {"__metadata__": {"format": "pt"}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 *
 * The rules are those of the reference reader, and where that reader is laxer than the text of the format, the text:
 * the first byte is '{', a name or a field appears once. Two fields describe the size of every tensor, its shape and
 * its offsets; they are compared, and all tensors together must tile the data without hole or overlap. So once a file
 * is accepted, every pointer into it is sound.
 *
 * Two passes over the JSON tree: the first counts, the second fills tables of exactly that size.
 */
#include "base/ctx.h"
#include "base/size.h"
#include "io/handle.h"
#include "io/json.h"
#include "io/stored.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char METADATA[] = "__metadata__";

/* The state of one opening. */
typedef struct reader {
    mha_file *file;
    const char *path;
    size_t data_bytes; /* behind the header */
    int64_t *shape;    /* free room in file->shapes */
    char *string;      /* free room in file->strings */
    mha_error *err;
} reader;

/* "PATH: tensor "NAME": what", or without the tensor for NULL. */
static mha_status __attribute__((format(printf, 3, 4)))
refuse(const reader *r, const char *tensor, const char *what, ...)
{
    char text[512];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    mha__quoted path, name;
    mha__quote(&path, r->path, strlen(r->path));
    if (!tensor) return mha__fail(r->err, MHA_ERR_FORMAT, "%s: %s", path.text, text);
    return mha__fail(r->err, MHA_ERR_FORMAT, "%s: tensor \"%s\": %s", path.text,
                     mha__quote(&name, tensor, strlen(tensor)), text);
}

/* ---- the header's bytes ---- */

static mha_status check_length(const reader *r, const mha__source *source, size_t *length)
{
    unsigned char head[9] = {0}; /* the length and the first byte of the JSON */
    if (source->size < 8)
        return refuse(r, NULL, "%zu bytes: neither safetensors (8 bytes at least) nor .npy", source->size);
    size_t rest = source->size - 8;
    MHA__TRY(mha__source_read(source, 0, head, rest > 0 ? 9 : 8, r->err));
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | head[i];
    if (n == 0) return refuse(r, NULL, "header length 0");
    if (n > rest && rest > 0 && head[8] != '{')
        return refuse(
            r, NULL,
            "neither safetensors nor .npy (of safetensors, the first 8 bytes would be the length of the header, "
            "%llu, but %zu bytes follow)",
            (unsigned long long)n, rest);
    if (n > rest)
        return refuse(r, NULL, "header length %llu, but only %zu bytes follow it", (unsigned long long)n, rest);
    if (n > MHA__HEADER_BYTES)
        return refuse(r, NULL, "header length %llu, the limit is %zu", (unsigned long long)n, MHA__HEADER_BYTES);
    if (head[8] != '{') return refuse(r, NULL, "the header begins with byte 0x%02X, not with {", head[8]);
    *length = (size_t)n;
    return MHA_OK;
}

static mha_status read_header(const reader *r, const mha__source *source, size_t length, json_t **root)
{
    char *text = mha__alloc(r->file->ctx, length);
    if (!text) return mha__no_memory(r->err, length, "a safetensors header");
    mha_status status = mha__source_read(source, 8, text, length, r->err);
    if (status == MHA_OK) status = mha__json_parse(r->path, text, length, MHA__JSON_HEADER, root, r->err);
    mha__free(r->file->ctx, text);
    return status;
}

/* ---- first pass: how much room ---- */

typedef struct room {
    size_t tensors, metadata, extents, string_bytes;
} room;

static mha_status count_metadata(const reader *r, const json_t *object, room *need)
{
    mha__quoted q1, q2;
    if (json_is_null(object)) return MHA_OK;
    if (!json_is_object(object))
        return refuse(r, NULL, "%s: want an object of strings, got %s", METADATA, mha__json_show(&q1, object));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (!json_is_string(value))
            return refuse(r, NULL, "%s: \"%s\": want a string, got %s", METADATA, mha__quote(&q1, key, strlen(key)),
                          mha__json_show(&q2, value));
        need->metadata++;
        need->string_bytes += strlen(key) + json_string_length(value) + 2;
    }
    return MHA_OK;
}

/* The sums cannot overflow: each is less than the header that was read. */
static mha_status count_room(const reader *r, const json_t *root, room *need)
{
    const char *name;
    json_t *entry;
    mha__quoted q;
    json_object_foreach((json_t *)root, name, entry)
    {
        if (strcmp(name, METADATA) == 0) {
            MHA__TRY(count_metadata(r, entry, need));
            continue;
        }
        if (!json_is_object(entry))
            return refuse(r, name, "want an object with dtype, shape and data_offsets, got %s",
                          mha__json_show(&q, entry));
        if (strlen(name) > MHA__NAME_BYTES)
            return refuse(r, name, "a name of %zu bytes, the limit is %zu", strlen(name), MHA__NAME_BYTES);
        need->tensors++;
        need->extents += json_array_size(json_object_get(entry, "shape"));
        need->string_bytes += strlen(name) + 1;
    }
    if (need->tensors > MHA__TENSORS)
        return refuse(r, NULL, "%zu tensors, the limit is %zu", need->tensors, MHA__TENSORS);
    return MHA_OK;
}

/* One entry more than needed in each table, so that none is empty and a scalar has a shape to point to. */
static mha_status make_room(reader *r, const room *need)
{
    mha_file *file = r->file;
    file->records = mha__calloc(file->ctx, need->tensors + 1, sizeof *file->records);
    file->metadata = mha__calloc(file->ctx, need->metadata + 1, sizeof *file->metadata);
    file->shapes = mha__calloc(file->ctx, need->extents + 1, sizeof *file->shapes);
    file->strings = mha__calloc(file->ctx, need->string_bytes + 1, 1);
    if (!file->records || !file->metadata || !file->shapes || !file->strings)
        return mha__no_memory(r->err, need->tensors * sizeof *file->records, "the tables of a safetensors file");
    r->shape = file->shapes;
    r->string = file->strings;
    return MHA_OK;
}

/* ---- second pass: what the entries say ---- */

static const char *keep_string(reader *r, const char *text, size_t n)
{
    char *kept = r->string;
    memcpy(kept, text, n);
    kept[n] = '\0';
    r->string += n + 1;
    return kept;
}

static mha_status read_dtype(const reader *r, const json_t *value, mha_tensor *t, size_t *bits)
{
    mha__quoted q;
    const char *text = json_string_value(value);
    const mha__stored *type = text ? mha__stored_named(text, json_string_length(value)) : NULL;
    if (!type) return refuse(r, t->name, "dtype %s is not known", mha__json_show(&q, value));
    t->dtype = type->dtype;
    t->dtype_name = type->name;
    *bits = type->bits;
    return MHA_OK;
}

static mha_status read_shape(reader *r, const json_t *value, mha_tensor *t)
{
    mha__quoted q;
    if (!json_is_array(value)) return refuse(r, t->name, "shape: want an array, got %s", mha__json_show(&q, value));
    size_t rank = json_array_size(value);
    if (rank > MHA__RANK) return refuse(r, t->name, "shape has %zu dimensions, the limit is %d", rank, MHA__RANK);
    for (size_t i = 0; i < rank; i++) {
        const json_t *extent = json_array_get(value, i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return refuse(r, t->name, "shape[%zu]: want an integer >= 0, got %s", i, mha__json_show(&q, extent));
        r->shape[i] = json_integer_value(extent);
    }
    t->rank = (int)rank;
    t->shape = r->shape;
    r->shape += rank;
    return MHA_OK;
}

/* Elements and bytes from shape and type. The product is formed from the left, as the reference reader does it: [0,
 * 2^40, 2^40] is empty, [2^40, 2^40, 0] overflows. */
static mha_status count_bytes(const reader *r, mha_tensor *t, size_t bits_each)
{
    size_t elements, bits;
    if (!mha__bytes(t->shape, t->rank, 1, &elements) || !mha__mul(elements, bits_each, &bits))
        return refuse(r, t->name, "shape: its size in %s overflows 64 bits", t->dtype_name);
    if (bits % 8 != 0)
        return refuse(r, t->name, "shape: %zu elements of %s do not fill whole bytes", elements, t->dtype_name);
    t->elements = (int64_t)elements; /* fits: a product below 2^64 bits has less than 2^62 elements */
    t->bytes = bits / 8;
    return MHA_OK;
}

static mha_status read_offsets(const reader *r, const json_t *value, mha__record *record)
{
    mha__quoted q;
    const mha_tensor *t = &record->tensor;
    if (!json_is_array(value) || json_array_size(value) != 2)
        return refuse(r, t->name, "data_offsets: want [begin, end], got %s%s", mha__json_show(&q, value),
                      json_is_array(value) ? " of another length" : "");
    uint64_t at[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *offset = json_array_get(value, i);
        if (!json_is_integer(offset) || json_integer_value(offset) < 0)
            return refuse(r, t->name, "data_offsets[%zu]: want an integer >= 0, got %s", i, mha__json_show(&q, offset));
        at[i] = (uint64_t)json_integer_value(offset);
    }
    const unsigned long long begin = at[0], end = at[1];
    if (begin > end) return refuse(r, t->name, "data_offsets [%llu, %llu] run backwards", begin, end);
    if (end > r->data_bytes)
        return refuse(r, t->name, "data_offsets [%llu, %llu] end behind the %zu bytes of data", begin, end,
                      r->data_bytes);
    if (end - begin != t->bytes)
        return refuse(r, t->name, "%lld elements of %s are %zu bytes, but data_offsets [%llu, %llu] hold %llu",
                      (long long)t->elements, t->dtype_name, t->bytes, begin, end, end - begin);
    record->begin = (size_t)begin;
    return MHA_OK;
}

static mha_status read_entry(reader *r, const char *name, const json_t *entry, mha__record *record)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    mha_tensor *t = &record->tensor;
    size_t bits = 0;
    t->name = keep_string(r, name, strlen(name));
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!json_object_get(entry, fields[i])) return refuse(r, name, "%s is missing", fields[i]);
    MHA__TRY(read_dtype(r, json_object_get(entry, "dtype"), t, &bits));
    MHA__TRY(read_shape(r, json_object_get(entry, "shape"), t));
    MHA__TRY(count_bytes(r, t, bits));
    return read_offsets(r, json_object_get(entry, "data_offsets"), record);
}

static void read_metadata(reader *r, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        mha__metadata *m = &r->file->metadata[r->file->metadata_count++];
        m->key = keep_string(r, key, strlen(key));
        m->value = keep_string(r, json_string_value(value), json_string_length(value));
        m->value_bytes = json_string_length(value);
    }
}

static mha_status read_entries(reader *r, const json_t *root)
{
    room need = {0};
    MHA__TRY(count_room(r, root, &need));
    MHA__TRY(make_room(r, &need));
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)root, name, entry)
    {
        if (strcmp(name, METADATA) == 0)
            read_metadata(r, entry);
        else
            MHA__TRY(read_entry(r, name, entry, &r->file->records[r->file->count++]));
    }
    return MHA_OK;
}

/* ---- all tensors together ---- */

static int by_place(const void *a, const void *b)
{
    const mha__record *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->tensor.bytes > y->tensor.bytes) - (x->tensor.bytes < y->tensor.bytes);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const mha__record *)a)->tensor.name, ((const mha__record *)b)->tensor.name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const mha__metadata *)a)->key, ((const mha__metadata *)b)->key);
}

/* In the order of their places each tensor begins where the one before ends, and the last ends with the file. */
static mha_status check_tiling(const reader *r)
{
    mha_file *file = r->file;
    if (file->count > 1) qsort(file->records, (size_t)file->count, sizeof *file->records, by_place);
    size_t end = 0;
    for (int64_t i = 0; i < file->count; i++) {
        const mha__record *record = &file->records[i];
        if (record->begin != end)
            return refuse(r, record->tensor.name, "begins at %zu, %s at %zu: %s", record->begin,
                          i ? "the tensor before it ends" : "the data begin", end,
                          record->begin < end ? "bytes used twice" : "bytes that no tensor uses");
        end += record->tensor.bytes; /* at most data_bytes: read_offsets saw to it */
    }
    if (end != r->data_bytes)
        return refuse(r, NULL, "%zu bytes of data, but the tensors end at %zu", r->data_bytes, end);
    return MHA_OK;
}

static mha_status place_tensors(reader *r, const mha__source *source)
{
    mha_file *file = r->file;
    const char *data = NULL;
    MHA__TRY(mha__data_load(file, source, source->size - r->data_bytes, r->data_bytes, &data, r->err));
    for (int64_t i = 0; i < file->count; i++)
        file->records[i].tensor.data = data + file->records[i].begin;
    return MHA_OK;
}

mha_status mha__safetensors_open(mha_file *file, const mha__source *source, mha_error *err)
{
    reader r = {.file = file, .path = source->name, .err = err};
    size_t length = 0;
    json_t *root = NULL;
    MHA__TRY(check_length(&r, source, &length));
    MHA__TRY(read_header(&r, source, length, &root));
    r.data_bytes = source->size - 8 - length;
    mha_status status = read_entries(&r, root);
    json_decref(root);
    MHA__TRY(status);
    MHA__TRY(check_tiling(&r));
    if (file->count > 1) qsort(file->records, (size_t)file->count, sizeof *file->records, by_name);
    if (file->metadata_count > 1) qsort(file->metadata, (size_t)file->metadata_count, sizeof *file->metadata, by_key);
    file->format = "safetensors";
    return place_tensors(&r, source);
}
