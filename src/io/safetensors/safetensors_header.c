/* safetensors_header.c - parses the entries of a safetensors header (safetensors.c) from a stream of tokens.
 *
 * The same code reads the text twice: the first pass validates and counts, the second pass fills tables of exactly that
 * size. A header is therefore rejected at its first invalid value, before tables are allocated. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/files/file_fail.h"
#include "io/json/json.h"
#include "io/safetensors/stored_types.h"
#include "io/tensor_file.h"
#include <string.h>

#define METADATA "__metadata__"

typedef struct reader {
    mha_file *file;
    const char *path, *text;
    size_t data_bytes;
    mha__json_scan scan;
    size_t tensors, metadata, dimensions, string_bytes; /* number of table elements required so far */
    bool fill;                                          /* true in the second pass */
    bool described;                                     /* true if METADATA has been read */
    char name[256];                                     /* beginning of the current tensor's name, for messages */
    mha_error *err;
} reader;

/* One entry of the header. */
typedef struct entry {
    mha_tensor tensor;
    int64_t shape[MHA__RANK];
    uint64_t at[2]; /* data_offsets */
    size_t bits;    /* bits per element */
    unsigned seen;  /* one bit per field that has been read */
    bool ignores;   /* true if the entry has unknown fields, which are ignored */
} entry;

/* Fail with "PATH: tensor "NAME": what" and "PATH: what". */
#define REFUSE_ENTRY(r, ...) mha__file_fail((r)->err, (r)->path, (r)->name, __VA_ARGS__)
#define REFUSE(r, ...) mha__file_fail((r)->err, (r)->path, NULL, __VA_ARGS__)

static mha_status duplicate(const reader *r, const mha__json_token *key)
{
    mha__quoted q;
    return mha__json_scan_fail(&r->scan, key->at, "duplicate object key %s", mha__json_show_token(&q, key));
}

/* In the first pass, reserves space for a string and returns NULL; in the second pass, copies the string. */
static const char *keep_string(reader *r, const mha__json_token *t)
{
    char *kept = r->fill ? r->file->strings + r->string_bytes : NULL;
    r->string_bytes += t->bytes + 1;
    if (!kept) return NULL;
    mha__json_decode(t, kept, t->bytes);
    kept[t->bytes] = '\0';
    return kept;
}

/* ---- fields ---- */

static mha_status read_dtype(reader *r, const mha__json_token *t, entry *e)
{
    mha__quoted q;
    char name[16];
    const mha__stored_type *type = NULL;
    if (t->kind == MHA__JSON_STRING && t->bytes <= sizeof name) {
        mha__json_decode(t, name, sizeof name);
        type = mha__stored_named(name, t->bytes);
    }
    if (!type) return REFUSE_ENTRY(r, "unknown dtype %s", mha__json_show_token(&q, t));
    e->tensor.dtype = type->dtype;
    e->tensor.dtype_name = type->name;
    e->bits = type->bits;
    return MHA_OK;
}

/* Reads the next item of an array of sizes, or sets *end at its end. */
static mha_status read_size(reader *r, const char *field, size_t index, uint64_t *size, bool *end)
{
    mha__quoted q;
    mha__json_token t;
    MHA__TRY(mha__json_next(&r->scan, &t));
    *end = t.kind == MHA__JSON_END;
    *size = (uint64_t)t.integer;
    if (*end || (t.kind == MHA__JSON_INTEGER && t.integer >= 0)) return MHA_OK;
    return REFUSE_ENTRY(r, "%s[%zu] must be an integer >= 0 (got %s)", field, index, mha__json_show_token(&q, &t));
}

static mha_status read_shape(reader *r, const mha__json_token *t, entry *e)
{
    mha__quoted q;
    uint64_t size;
    if (t->kind != MHA__JSON_ARRAY)
        return REFUSE_ENTRY(r, "shape must be an array (got %s)", mha__json_show_token(&q, t));
    for (size_t rank = 0;; rank++) {
        bool end;
        MHA__TRY(read_size(r, "shape", rank, &size, &end));
        e->tensor.rank = (int)rank;
        if (end) return MHA_OK;
        if (rank == MHA__RANK) return REFUSE_ENTRY(r, "shape must have at most %d dimensions", MHA__RANK);
        e->shape[rank] = (int64_t)size;
    }
}

static mha_status read_offsets(reader *r, const mha__json_token *t, entry *e)
{
    mha__quoted q;
    bool end = false;
    if (t->kind != MHA__JSON_ARRAY)
        return REFUSE_ENTRY(r, "data_offsets must be [begin, end] (got %s)", mha__json_show_token(&q, t));
    for (size_t i = 0; i < 3; i++) {
        uint64_t size;
        MHA__TRY(read_size(r, "data_offsets", i, &size, &end));
        if (end != (i == 2))
            return REFUSE_ENTRY(r, "data_offsets must be [begin, end] (got an array of another length)");
        if (!end) e->at[i] = size;
    }
    return MHA_OK;
}

static const struct field {
    const char *name;
    mha_status (*read)(reader *r, const mha__json_token *t, entry *e);
} fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};

enum { FIELDS = sizeof fields / sizeof fields[0] };

static mha_status read_field(reader *r, const mha__json_token *key, entry *e)
{
    mha__json_token t;
    for (unsigned i = 0; i < FIELDS; i++) {
        if (!mha__json_token_is(key, fields[i].name)) continue;
        if (e->seen & 1u << i) return duplicate(r, key);
        e->seen |= 1u << i;
        MHA__TRY(mha__json_next(&r->scan, &t));
        return fields[i].read(r, &t, e);
    }
    e->ignores = true;
    return mha__json_skip(&r->scan, key);
}

/* ---- entries ---- */

/* Checks an entry with unknown fields, which are ignored. Their content is arbitrary, except that duplicate keys, which
 * parsing as a tree detects, are rejected. A size limit bounds the memory. */
static mha_status check_ignored(const reader *r, size_t begin)
{
    const mha__json *root = NULL;
    mha_error why = {0};
    const size_t n = r->scan.at - begin;
    if (n > MHA__IGNORED_BYTES)
        return REFUSE_ENTRY(r, "entry with unknown fields must be at most %zu bytes (got %zu)", MHA__IGNORED_BYTES, n);
    const mha_status status = mha__json_parse(r->file->ctx, "its entry", r->text + begin, n, 0, &root, &why);
    mha__json_free(root);
    if (status == MHA_ERR_FORMAT) return REFUSE_ENTRY(r, "%s", why.message);
    return status == MHA_OK ? MHA_OK : mha__fail(r->err, status, "%s", why.message);
}

/* Computes elements and bytes from shape and type. Multiplies from left to right, as the reference reader does: [0,
 * 2^40, 2^40] is empty, [2^40, 2^40, 0] overflows. */
static mha_status count_bytes(const reader *r, entry *e)
{
    size_t elements, bits;
    mha_tensor *t = &e->tensor;
    if (!mha__bytes(e->shape, t->rank, 1, &elements) || !mha__mul(elements, e->bits, &bits))
        return REFUSE_ENTRY(r, "shape: size in %s must fit in %d bits", t->dtype_name, 8 * (int)sizeof bits);
    if (bits % 8 != 0)
        return REFUSE_ENTRY(r, "shape must fill whole bytes (got %zu elements of %s)", elements, t->dtype_name);
    t->elements = (int64_t)elements; /* fits, because a tensor below 2^64 bits has fewer than 2^62 elements */
    t->bytes = bits / 8;
    return MHA_OK;
}

static mha_status check_offsets(const reader *r, const entry *e)
{
    const mha_tensor *t = &e->tensor;
    const unsigned long long begin = e->at[0], end = e->at[1];
    if (begin > end) return REFUSE_ENTRY(r, "data_offsets [%llu, %llu] must be in ascending order", begin, end);
    if (end > r->data_bytes)
        return REFUSE_ENTRY(r, "data_offsets [%llu, %llu] must be within the %zu bytes of data", begin, end,
                            r->data_bytes);
    if (end - begin != t->bytes)
        return REFUSE_ENTRY(r, "data_offsets must span %zu bytes, the size of %lld elements of %s (got [%llu, %llu])",
                            t->bytes, (long long)t->elements, t->dtype_name, begin, end);
    return MHA_OK;
}

/* In the second pass, stores the entry as a record. */
static void keep_entry(reader *r, const mha__json_token *name, entry *e)
{
    mha_file *file = r->file;
    const size_t at = r->dimensions;
    e->tensor.name = keep_string(r, name);
    r->dimensions += (size_t)e->tensor.rank;
    r->tensors++;
    if (!r->fill) return;
    e->tensor.shape = memcpy(file->shapes + at, e->shape, (size_t)e->tensor.rank * sizeof *e->shape);
    file->records[file->count++] = (mha__record){.tensor = e->tensor, .begin = (size_t)e->at[0]};
}

static mha_status read_entry(reader *r, const mha__json_token *name)
{
    mha__quoted q;
    mha__json_token t;
    entry e = {.seen = 0};
    MHA__TRY(mha__json_next(&r->scan, &t));
    if (t.kind != MHA__JSON_OBJECT)
        return REFUSE_ENTRY(r, "entry must be an object with dtype, shape and data_offsets (got %s)",
                            mha__json_show_token(&q, &t));
    if (name->bytes > MHA__NAME_BYTES)
        return REFUSE_ENTRY(r, "name must be at most %zu bytes (got %zu)", MHA__NAME_BYTES, name->bytes);
    const size_t begin = t.at;
    for (;;) {
        MHA__TRY(mha__json_next(&r->scan, &t));
        if (t.kind == MHA__JSON_END) break;
        MHA__TRY(read_field(r, &t, &e));
    }
    if (e.ignores && !r->fill) MHA__TRY(check_ignored(r, begin));
    for (unsigned i = 0; i < FIELDS; i++)
        if (!(e.seen & 1u << i)) return REFUSE_ENTRY(r, "%s is missing", fields[i].name);
    MHA__TRY(count_bytes(r, &e));
    MHA__TRY(check_offsets(r, &e));
    keep_entry(r, name, &e);
    return MHA_OK;
}

static mha_status read_pair(reader *r, const mha__json_token *key)
{
    mha__quoted q1, q2;
    mha__json_token t;
    MHA__TRY(mha__json_next(&r->scan, &t));
    if (t.kind != MHA__JSON_STRING)
        return REFUSE(r, METADATA ": %s must be a string (got %s)", mha__json_show_token(&q1, key),
                      mha__json_show_token(&q2, &t));
    const mha__metadata pair = {.key = keep_string(r, key), .value = keep_string(r, &t), .value_bytes = t.bytes};
    r->metadata++;
    if (r->metadata > MHA__METADATA) return REFUSE(r, METADATA " must have at most %zu pairs", MHA__METADATA);
    if (r->fill) r->file->metadata[r->file->metadata_count++] = pair;
    return MHA_OK;
}

static mha_status read_metadata(reader *r, const mha__json_token *key)
{
    mha__quoted q;
    mha__json_token t;
    if (r->described) return duplicate(r, key);
    r->described = true;
    MHA__TRY(mha__json_next(&r->scan, &t));
    if (t.kind == MHA__JSON_NULL) return MHA_OK;
    if (t.kind != MHA__JSON_OBJECT)
        return REFUSE(r, METADATA " must be an object of strings (got %s)", mha__json_show_token(&q, &t));
    for (;;) {
        MHA__TRY(mha__json_next(&r->scan, &t));
        if (t.kind == MHA__JSON_END) return MHA_OK;
        MHA__TRY(read_pair(r, &t));
    }
}

/* ---- both passes over the header ---- */

static mha_status walk(reader *r, size_t n)
{
    mha__json_token t;
    r->tensors = r->metadata = r->dimensions = r->string_bytes = 0;
    r->described = false;
    MHA__TRY(mha__json_scan_begin(&r->scan, r->path, r->text, n, MHA__JSON_HEADER, r->err));
    MHA__TRY(mha__json_next(&r->scan, &t));
    for (;;) {
        MHA__TRY(mha__json_next(&r->scan, &t));
        if (t.kind == MHA__JSON_END) return mha__json_next(&r->scan, &t); /* no token may follow the root object */
        const size_t shown = t.bytes < sizeof r->name - 1 ? t.bytes : sizeof r->name - 1;
        mha__json_decode(&t, r->name, shown);
        r->name[shown] = '\0';
        MHA__TRY(mha__json_token_is(&t, METADATA) ? read_metadata(r, &t) : read_entry(r, &t));
        if (r->tensors > MHA__TENSORS) return REFUSE(r, "file must have at most %zu tensors", MHA__TENSORS);
        if (r->dimensions > MHA__DIMENSIONS)
            return REFUSE(r, "all tensors together must have at most %zu dimensions", MHA__DIMENSIONS);
    }
}

/* Allocates the tables with one extra entry each, so that no table is empty and a scalar can point to a shape. */
static mha_status make_room(const reader *r)
{
    mha_file *file = r->file;
    file->records = mha__calloc(file->ctx, r->tensors + 1, sizeof *file->records);
    file->metadata = mha__calloc(file->ctx, r->metadata + 1, sizeof *file->metadata);
    file->shapes = mha__calloc(file->ctx, r->dimensions + 1, sizeof *file->shapes);
    file->strings = mha__calloc(file->ctx, r->string_bytes + 1, 1);
    if (file->records && file->metadata && file->shapes && file->strings) return MHA_OK;
    return mha__no_memory(r->err, r->tensors * sizeof *file->records, "the tables of a safetensors file");
}

mha_status mha__safetensors_header(mha_file *file, const char *path, const char *text, size_t n, size_t data_bytes,
                                   mha_error *err)
{
    reader r = {.file = file, .path = path, .text = text, .data_bytes = data_bytes, .err = err};
    MHA__TRY(walk(&r, n));
    MHA__TRY(make_room(&r));
    r.fill = true;
    return walk(&r, n);
}
