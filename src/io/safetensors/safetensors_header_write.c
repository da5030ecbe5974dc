/* safetensors_header_write.c - writes the header of a safetensors file as JSON. */
#include "io/safetensors/safetensors_header_write.h"

#include "base/ctx.h"
#include "base/utf8.h"
#include "io/input_limits.h"
#include "io/json/json_write.h"
#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"

static mha_status no_memory(mha_error *err)
{
    return mha__no_memory(err, 0, "the header of a safetensors file");
}

static bool is_utf8(const char *text, size_t n)
{
    return mha__utf8_check(text, n) == n;
}

static size_t value_bytes(const mha_metadata *m)
{
    return m->value_bytes ? m->value_bytes : strlen(m->value);
}

/* Returns the length of a valid string in JSON, without quotation marks, escaped as in io/json/json_write.c [bytes]. */
static size_t escaped_bytes(const char *text, size_t n)
{
    size_t bytes = n;
    for (size_t i = 0; i < n; i++)
        if (text[i] && strchr("\"\\\b\f\n\r\t", text[i]))
            bytes += 1;
        else if ((unsigned char)text[i] < 0x20)
            bytes += 5;
    return bytes;
}

/* ---- checks ---- */

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const mha_metadata *const *)a)->key, (*(const mha_metadata *const *)b)->key);
}

static mha_status check_pair(const mha_metadata *m, mha_error *err)
{
    if (!m->key || !m->value) return mha__fail(err, MHA_ERR_ARG, "metadata to write: keys and values must not be NULL");
    mha__quoted q = {0};
    mha__quote(&q, m->key, strlen(m->key));
    if (!is_utf8(m->key, strlen(m->key)) || !is_utf8(m->value, value_bytes(m)))
        return mha__fail(err, MHA_ERR_ARG, "metadata to write: \"%s\": key and value must be UTF-8", q.text);
    const size_t key = escaped_bytes(m->key, strlen(m->key)), value = escaped_bytes(m->value, value_bytes(m));
    if (key <= MHA__STRING_BYTES && value <= MHA__STRING_BYTES) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "metadata to write: \"%s\": key and value must have at most %zu bytes (got %zu)",
                     q.text, MHA__STRING_BYTES, key > value ? key : value);
}

static mha_status check_pairs(const mha_tensors_writer_options *o, const mha_metadata **order, mha_error *err)
{
    const int64_t max = (int64_t)MHA__METADATA - 1; /* one pair is reserved for "format" */
    if (o->metadata_count > max)
        return mha__fail(err, MHA_ERR_ARG, "metadata to write: metadata_count must be at most %lld (got %lld)",
                         (long long)max, (long long)o->metadata_count);
    for (int64_t n = 0; n < o->metadata_count; n++) {
        order[n] = &o->metadata[n];
        MHA__TRY(check_pair(order[n], err));
    }
    qsort(order, (size_t)o->metadata_count, sizeof *order, by_key);
    for (int64_t n = 1; n < o->metadata_count; n++)
        if (by_key(&order[n - 1], &order[n]) == 0)
            return mha__fail(err, MHA_ERR_ARG, "metadata to write: duplicate key \"%s\"",
                             mha__quote(&(mha__quoted){0}, order[n]->key, strlen(order[n]->key)));
    return MHA_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(mha__file_tensor *const *)a)->name, (*(mha__file_tensor *const *)b)->name);
}

static mha_status check_names(mha__file_tensor **slots, int64_t count, mha_error *err)
{
    qsort(slots, (size_t)count, sizeof *slots, by_name);
    for (int64_t n = 0; n < count; n++) {
        mha__quoted q = {0};
        const char *name = slots[n]->name;
        mha__quote(&q, name, strlen(name));
        if (strcmp(name, METADATA) == 0 || (n > 0 && strcmp(slots[n - 1]->name, name) == 0))
            return mha__fail(err, MHA_ERR_ARG, "tensors to write: name \"%s\" must be unique and not reserved", q.text);
        if (!is_utf8(name, strlen(name)))
            return mha__fail(err, MHA_ERR_ARG, "tensors to write: name \"%s\" must be UTF-8", q.text);
    }
    return MHA_OK;
}

mha_status mha__tensors_check(mha_ctx *ctx, mha__file_tensor **slots, int64_t count,
                              const mha_tensors_writer_options *o, mha_error *err)
{
    const mha_metadata **order = mha__calloc(ctx, (size_t)o->metadata_count + 1, sizeof *order);
    if (!order) return no_memory(err);
    const mha_status status = check_pairs(o, order, err);
    mha__free(ctx, order);
    return status == MHA_OK ? check_names(slots, count, err) : status;
}

/* ---- text of the header ---- */

static void write_metadata(mha__json_writer *w, const mha_tensors_writer_options *o)
{
    bool format = false;
    mha__json_open(w, '{');
    for (int64_t n = 0; n < o->metadata_count; n++) {
        const mha_metadata *m = &o->metadata[n];
        format |= strcmp(m->key, "format") == 0;
        mha__json_key(w, m->key);
        mha__json_put_bytes(w, m->value, value_bytes(m));
    }
    if (!format) {
        mha__json_key(w, "format");
        mha__json_put_text(w, "pt");
    }
    mha__json_close(w, '}');
}

static void write_entry(mha__json_writer *w, const mha__file_tensor *s)
{
    mha__json_key(w, s->name);
    mha__json_open(w, '{');
    mha__json_key(w, "dtype");
    mha__json_put_text(w, s->type->name);
    mha__json_key(w, "shape");
    mha__json_open(w, '[');
    for (int n = 0; n < s->tensor->rank; n++)
        mha__json_put_int(w, s->tensor->shape[n]);
    mha__json_close(w, ']');
    mha__json_key(w, "data_offsets");
    mha__json_open(w, '[');
    mha__json_put_int(w, (int64_t)s->begin);
    mha__json_put_int(w, (int64_t)(s->begin + s->bytes));
    mha__json_close(w, ']');
    mha__json_close(w, '}');
}

mha_status mha__tensors_header(mha_ctx *ctx, mha__file_tensor *const *slots, int64_t count,
                               const mha_tensors_writer_options *o, char **text, size_t *n, mha_error *err)
{
    mha__json_writer w = {.ctx = ctx};
    mha__json_open(&w, '{');
    mha__json_key(&w, METADATA);
    write_metadata(&w, o);
    for (int64_t i = 0; i < count; i++)
        write_entry(&w, slots[i]);
    mha__json_close(&w, '}');
    return mha__json_written(&w, "the header of a safetensors file", text, n, err);
}
