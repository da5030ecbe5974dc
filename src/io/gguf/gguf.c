/* gguf.c - opens a GGUF file: validates its header and its values. gguf_tensors.c validates the tensors.
 *
 * The rules are those of llama.cpp's reader. Counts and lengths are compared with the bytes that follow before they are
 * used, so memory and time depend on the size of the file, never on a number in it. */
#include "base/ctx.h"
#include "base/size.h"
#include "io/gguf/gguf_cursor.h"
#include "io/input_limits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 3, KEY_MIN = 8 + 1 + 4 + 1, TENSOR_MIN = 8 + 1 + 4 + 4 + 8 };

/* ---- values ---- */

/* Fails with the rule that string `n` of a value, at which the cursor is, does not follow. */
static mha_status refuse_string(mha__gguf_cursor *c, const mha__gguf_value *v, uint64_t n)
{
    char what[280];
    const char *text = NULL;
    size_t bytes = 0;
    mha__quoted q = {0};
    mha__quote(&q, v->key, strlen(v->key));
    if (v->array)
        snprintf(what, sizeof what, "%s[%llu]", q.text, (unsigned long long)n);
    else
        snprintf(what, sizeof what, "%s", q.text);
    MHA__TRY(mha__gguf_string(c, what, &text, &bytes));
    return MHA__GGUF_FAIL(c, "length of %s must be at most %zu (got %zu)", what, MHA__STRING_BYTES, bytes);
}

/* Skips the strings of a value. Files have several 100,000 of them, so a message is formatted only for an error. */
static mha_status read_strings(mha__gguf_cursor *c, const mha__gguf_value *v)
{
    if (v->count > (c->size - c->at) / 8)
        return MHA__GGUF_FAIL(
            c, "count of %s must be at most %zu, since each string has a length of 8 bytes (got %llu)",
            mha__quote(&(mha__quoted){0}, v->key, strlen(v->key)), (c->size - c->at) / 8, (unsigned long long)v->count);
    for (uint64_t n = 0; n < v->count; n++)
        if (!mha__gguf_skip_string(c, MHA__STRING_BYTES)) return refuse_string(c, v, n);
    return MHA_OK;
}

static mha_status read_elements(mha__gguf_cursor *c, const mha__gguf_value *v)
{
    const size_t each = mha__gguf_value_size(v->type);
    const char *data = NULL;
    mha__quoted q = {0};
    mha__quote(&q, v->key, strlen(v->key));
    if (v->count > (c->size - c->at) / each)
        return MHA__GGUF_FAIL(c, "count of %s must be at most the %zu elements of type %s that follow (got %llu)",
                              q.text, (c->size - c->at) / each, mha__gguf_value_name(v->type),
                              (unsigned long long)v->count);
    MHA__TRY(mha__gguf_take(c, (size_t)v->count * each, q.text, &data));
    for (uint64_t n = 0; v->type == MHA__GGUF_BOOL && n < v->count; n++)
        if ((unsigned char)data[n] > 1)
            return MHA__GGUF_FAIL(c, "%s must be a bool, 0 or 1 (got %d)", q.text, (unsigned char)data[n]);
    return MHA_OK;
}

/* Reads the type of a value or, for an array, of its elements. */
static mha_status read_type(mha__gguf_cursor *c, const char *key, bool element, uint32_t *type)
{
    char what[260];
    mha__quoted q = {0};
    snprintf(what, sizeof what, "type of %s%s", element ? "the elements of " : "", mha__quote(&q, key, strlen(key)));
    MHA__TRY(mha__gguf_u32(c, what, type));
    if (element && *type == MHA__GGUF_ARRAY) return MHA__GGUF_FAIL(c, "%s must not be an array (got %u)", what, *type);
    if (*type >= MHA__GGUF_VALUE_TYPES)
        return MHA__GGUF_FAIL(c, "%s must be from 0 to %d (got %u)", what, MHA__GGUF_VALUE_TYPES - 1, *type);
    return MHA_OK;
}

static mha_status read_value(mha__gguf_cursor *c, mha__gguf_value *v)
{
    uint32_t type = 0;
    char what[260];
    v->count = 1;
    MHA__TRY(read_type(c, v->key, false, &type));
    v->array = type == MHA__GGUF_ARRAY;
    if (v->array) {
        MHA__TRY(read_type(c, v->key, true, &type));
        snprintf(what, sizeof what, "count of %s", mha__quote(&(mha__quoted){0}, v->key, strlen(v->key)));
        MHA__TRY(mha__gguf_u64(c, what, &v->count));
    }
    v->type = (mha__gguf_type)type;
    v->data = c->bytes + c->at;
    return v->type == MHA__GGUF_STRING ? read_strings(c, v) : read_elements(c, v);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const mha__gguf_value *)a)->key, ((const mha__gguf_value *)b)->key);
}

/* Checks that a key consists of printable ASCII characters, as the format requires. */
static mha_status check_key(const mha__gguf_cursor *c, const char *key)
{
    for (const char *p = key; *p; p++)
        if (*p <= ' ' || *p > '~')
            return MHA__GGUF_FAIL(c, "keys must consist of ASCII characters (got \"%s\")",
                                  mha__quote(&(mha__quoted){0}, key, strlen(key)));
    return MHA_OK;
}

static mha_status read_values(mha__gguf_cursor *c, uint64_t count)
{
    mha__gguf *g = c->file->gguf;
    for (uint64_t n = 0; n < count; n++) {
        char what[40];
        snprintf(what, sizeof what, "key %llu", (unsigned long long)n);
        mha__gguf_value *v = &g->values[g->count];
        MHA__TRY(mha__gguf_name(c, what, MHA__GGUF_KEY, &v->key));
        MHA__TRY(check_key(c, v->key));
        MHA__TRY(read_value(c, v));
        g->count++;
    }
    qsort(g->values, (size_t)g->count, sizeof *g->values, by_key);
    for (int64_t n = 1; n < g->count; n++)
        if (by_key(&g->values[n - 1], &g->values[n]) == 0)
            return MHA__GGUF_FAIL(c, "key %s must be unique (got two)",
                                  mha__quote(&(mha__quoted){0}, g->values[n].key, strlen(g->values[n].key)));
    return MHA_OK;
}

/* ---- the file ---- */

/* Checks a count of the header, before anything is allocated from it. */
static mha_status check_count(const mha__gguf_cursor *c, const char *what, uint64_t count, size_t limit, size_t min)
{
    const size_t max = (c->size - c->at) / min < limit ? (c->size - c->at) / min : limit;
    if (count <= max) return MHA_OK;
    return MHA__GGUF_FAIL(c, "%s must be at most %zu (got %llu in a file of %zu bytes)", what, max,
                          (unsigned long long)count, c->size);
}

static mha_status read_header(mha__gguf_cursor *c, uint64_t *tensors, uint64_t *values)
{
    uint32_t version = 0;
    c->at = 4;
    MHA__TRY(mha__gguf_u32(c, "version", &version));
    if (version != VERSION)
        return MHA__GGUF_FAIL(c, "version of GGUF must be %d (got %u)", (int)VERSION, (unsigned)version);
    MHA__TRY(mha__gguf_u64(c, "tensor count", tensors));
    MHA__TRY(mha__gguf_u64(c, "key count", values));
    MHA__TRY(check_count(c, "tensor count", *tensors, MHA__INDEX_TENSORS, TENSOR_MIN));
    return check_count(c, "key count", *values, MHA__METADATA, KEY_MIN);
}

static mha_status allocate(mha__gguf_cursor *c, uint64_t tensors, uint64_t values)
{
    mha_file *f = c->file;
    f->gguf->values = mha__calloc(f->ctx, (size_t)values + 1, sizeof *f->gguf->values);
    f->records = mha__calloc(f->ctx, (size_t)tensors + 1, sizeof *f->records);
    f->shapes = mha__calloc(f->ctx, MHA__GGUF_RANK * (size_t)tensors + 1, sizeof *f->shapes);
    if (f->gguf->values && f->records && f->shapes) return MHA_OK;
    return mha__no_memory(c->err, (size_t)values * sizeof *f->gguf->values + (size_t)tensors * sizeof *f->records,
                          "the tables of a GGUF file");
}

static mha_status read_alignment(const mha__gguf_cursor *c, size_t *alignment)
{
    int64_t value = MHA__GGUF_ALIGNMENT;
    MHA__TRY(mha__gguf_int(c->file, "general.alignment", 1, (int64_t)1 << 30, &value, c->err));
    *alignment = (size_t)value;
    if (mha__is_power_of_two(value) && value % 8 == 0) return MHA_OK;
    return mha__gguf_refuse(c->file, "general.alignment", "a power of two from 8 to 2^30", c->err);
}

static mha_status read_all(mha__gguf_cursor *c)
{
    uint64_t tensors = 0, values = 0;
    size_t alignment = 0;
    MHA__TRY(read_header(c, &tensors, &values));
    MHA__TRY(allocate(c, tensors, values));
    MHA__TRY(read_values(c, values));
    MHA__TRY(read_alignment(c, &alignment));
    return mha__gguf_tensors(c, tensors, alignment);
}

mha_status mha__gguf_open(mha_file *file, const mha__source *source, mha_error *err)
{
    mha__gguf_cursor c = {.file = file, .size = source->size, .err = err};
    file->format = "gguf";
    file->gguf = mha__calloc(file->ctx, 1, sizeof *file->gguf);
    if (!file->gguf) return mha__no_memory(err, sizeof *file->gguf, "a GGUF file");
    MHA__TRY(mha__data_load(file, source, 0, source->size, &c.bytes, err));
    return read_all(&c);
}

void mha__gguf_free(mha_file *file)
{
    if (file->gguf) mha__free(file->ctx, file->gguf->values);
    mha__free(file->ctx, file->gguf);
}
