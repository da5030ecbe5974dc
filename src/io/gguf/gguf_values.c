/* gguf_values.c - reads the values of an open GGUF file by key. */
#include "base/utf8.h"
#include "io/gguf/gguf.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_key(const void *key, const void *value)
{
    return strcmp(key, ((const mha__gguf_value *)value)->key);
}

const mha__gguf_value *mha__gguf_find(const mha_file *file, const char *key)
{
    const mha__gguf *g = file->gguf;
    return g && g->count ? bsearch(key, g->values, (size_t)g->count, sizeof *g->values, compare_key) : NULL;
}

bool mha__gguf_element(const mha__gguf_value *v, uint64_t index, int64_t *element)
{
    const size_t each = mha__gguf_value_size(v->type);
    const bool is_signed =
        v->type == MHA__GGUF_I8 || v->type == MHA__GGUF_I16 || v->type == MHA__GGUF_I32 || v->type == MHA__GGUF_I64;
    uint64_t bits = 0;
    if (v->type == MHA__GGUF_F32 || v->type == MHA__GGUF_F64 || v->type == MHA__GGUF_STRING) return false;
    memcpy(&bits, v->data + index * each, each);
    if (is_signed && each < 8 && bits >> (8 * each - 1)) bits |= ~(uint64_t)0 << 8 * each;
    if (!is_signed && bits > INT64_MAX) return false;
    memcpy(element, &bits, sizeof bits);
    return true;
}

static double real_of(const mha__gguf_value *v)
{
    float f32;
    double f64;
    if (v->type == MHA__GGUF_F64) {
        memcpy(&f64, v->data, sizeof f64);
        return f64;
    }
    memcpy(&f32, v->data, sizeof f32);
    return f32;
}

/* Formats a value for messages. */
static const char *show(const mha__gguf_value *v, mha__quoted *q)
{
    int64_t element;
    size_t bytes;
    const char *at = v->data;
    if (v->array)
        snprintf(q->text, sizeof q->text, "an array of %llu %s", (unsigned long long)v->count,
                 mha__gguf_value_name(v->type));
    else if (v->type == MHA__GGUF_STRING) {
        const char *text = mha__gguf_next_text(&at, &bytes);
        mha__quote(q, text, bytes);
    } else if (mha__gguf_element(v, 0, &element))
        snprintf(q->text, sizeof q->text, "%s %lld", mha__gguf_value_name(v->type), (long long)element);
    else if (v->type == MHA__GGUF_U64)
        snprintf(q->text, sizeof q->text, "u64 of at least 2^63");
    else
        snprintf(q->text, sizeof q->text, "%s %g", mha__gguf_value_name(v->type), real_of(v));
    return q->text;
}

mha_status mha__gguf_refuse(const mha_file *file, const char *key, const char *rule, mha_error *err)
{
    const mha__gguf_value *v = mha__gguf_find(file, key);
    mha__quoted path = {0}, got = {0};
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s must be %s (got %s)",
                     mha__quote(&path, file->path, strlen(file->path)), key, rule, v ? show(v, &got) : "nothing");
}

mha_status mha__gguf_unsupported(const mha_file *file, const char *key, const char *rule, mha_error *err)
{
    mha__gguf_refuse(file, key, rule, err);
    if (err) err->status = MHA_ERR_UNSUPPORTED;
    return MHA_ERR_UNSUPPORTED;
}

mha_status mha__gguf_int(const mha_file *file, const char *key, int64_t min, int64_t max, int64_t *value,
                         mha_error *err)
{
    const mha__gguf_value *v = mha__gguf_find(file, key);
    int64_t got;
    char rule[80];
    if (!v) return MHA_OK;
    snprintf(rule, sizeof rule, "an integer from %lld to %lld", (long long)min, (long long)max);
    if (v->array || v->type == MHA__GGUF_BOOL || !mha__gguf_element(v, 0, &got) || got < min || got > max)
        return mha__gguf_refuse(file, key, rule, err);
    *value = got;
    return MHA_OK;
}

mha_status mha__gguf_real(const mha_file *file, const char *key, double *value, mha_error *err)
{
    const mha__gguf_value *v = mha__gguf_find(file, key);
    if (!v) return MHA_OK;
    if (v->array || (v->type != MHA__GGUF_F32 && v->type != MHA__GGUF_F64) || !isfinite(real_of(v)))
        return mha__gguf_refuse(file, key, "a finite f32 or f64", err);
    *value = real_of(v);
    return MHA_OK;
}

mha_status mha__gguf_bool(const mha_file *file, const char *key, bool *value, mha_error *err)
{
    const mha__gguf_value *v = mha__gguf_find(file, key);
    if (!v) return MHA_OK;
    if (v->array || v->type != MHA__GGUF_BOOL) return mha__gguf_refuse(file, key, "a bool", err);
    *value = *v->data != 0;
    return MHA_OK;
}

mha_status mha__gguf_text(const mha_file *file, const char *key, const char **value, size_t *bytes, mha_error *err)
{
    const mha__gguf_value *v = mha__gguf_find(file, key);
    if (!v) return MHA_OK;
    if (v->array || v->type != MHA__GGUF_STRING) return mha__gguf_refuse(file, key, "a string", err);
    const char *at = v->data, *text = mha__gguf_next_text(&at, bytes);
    if (memchr(text, '\0', *bytes) || mha__utf8_check(text, *bytes) < *bytes)
        return mha__gguf_refuse(file, key, "UTF-8 without NUL characters", err);
    *value = text;
    return MHA_OK;
}

mha_status mha__gguf_array(const mha_file *file, const char *key, mha__gguf_type type, const mha__gguf_value **value,
                           mha_error *err)
{
    const mha__gguf_value *v = *value = mha__gguf_find(file, key);
    char rule[40];
    if (!v || (v->array && v->type == type)) return MHA_OK;
    snprintf(rule, sizeof rule, "an array of %s", mha__gguf_value_name(type));
    return mha__gguf_refuse(file, key, rule, err);
}

const char *mha__gguf_next_text(const char **at, size_t *bytes)
{
    const char *text = *at + 8;
    uint64_t n;
    memcpy(&n, *at, sizeof n);
    *bytes = (size_t)n;
    *at = text + n;
    return text;
}
