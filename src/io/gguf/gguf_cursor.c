/* gguf_cursor.c - see gguf_cursor.h; and the names and sizes of value types. */
#include "io/gguf/gguf_cursor.h"

#include "base/ctx.h"
#include "base/utf8.h"
#include <stdio.h>
#include <string.h>

/* ---- the cursor ---- */

mha_status mha__gguf_take(mha__gguf_cursor *c, size_t bytes, const char *what, const char **at)
{
    if (bytes > c->size - c->at)
        return MHA__GGUF_FAIL(c, "%s must have %zu bytes (got %zu before the end of the file)", what, bytes,
                              c->size - c->at);
    *at = c->bytes + c->at;
    c->at += bytes;
    return MHA_OK;
}

static uint64_t little_endian(const char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | (unsigned char)p[i];
    return value;
}

mha_status mha__gguf_u32(mha__gguf_cursor *c, const char *what, uint32_t *value)
{
    const char *p = NULL;
    MHA__TRY(mha__gguf_take(c, 4, what, &p));
    *value = (uint32_t)little_endian(p, 4);
    return MHA_OK;
}

mha_status mha__gguf_u64(mha__gguf_cursor *c, const char *what, uint64_t *value)
{
    const char *p = NULL;
    MHA__TRY(mha__gguf_take(c, 8, what, &p));
    *value = little_endian(p, 8);
    return MHA_OK;
}

mha_status mha__gguf_string(mha__gguf_cursor *c, const char *what, const char **text, size_t *bytes)
{
    uint64_t n = 0;
    char length[300];
    snprintf(length, sizeof length, "length of %s", what);
    MHA__TRY(mha__gguf_u64(c, length, &n));
    if (n > c->size - c->at)
        return MHA__GGUF_FAIL(c, "%s must be at most the %zu bytes that follow (got %llu)", length, c->size - c->at,
                              (unsigned long long)n);
    *bytes = (size_t)n;
    return mha__gguf_take(c, (size_t)n, what, text);
}

bool mha__gguf_skip_string(mha__gguf_cursor *c, size_t max)
{
    const size_t left = c->size - c->at;
    if (left < 8) return false;
    const uint64_t n = little_endian(c->bytes + c->at, 8);
    if (n > left - 8 || n > max) return false;
    c->at += 8 + (size_t)n;
    return true;
}

mha_status mha__gguf_name(mha__gguf_cursor *c, const char *what, size_t max, const char **name)
{
    const char *text = NULL;
    size_t n = 0;
    MHA__TRY(mha__gguf_string(c, what, &text, &n));
    if (n == 0 || n > max) return MHA__GGUF_FAIL(c, "length of %s must be from 1 to %zu (got %zu)", what, max, n);
    if (memchr(text, '\0', n) || mha__utf8_check(text, n) < n)
        return MHA__GGUF_FAIL(c, "%s must be UTF-8 without NUL characters (got \"%s\")", what,
                              mha__quote(&(mha__quoted){0}, text, n));
    char *copy = mha__file_memory(c->file, n + 1);
    if (!copy) return mha__no_memory(c->err, n + 1, "a name in a GGUF file");
    memcpy(copy, text, n);
    copy[n] = '\0';
    *name = copy;
    return MHA_OK;
}

/* ---- types of values ---- */

static const struct {
    const char *name;
    size_t bytes;
} value_types[MHA__GGUF_VALUE_TYPES] = {
    [MHA__GGUF_U8] = {"u8", 1},       [MHA__GGUF_I8] = {"i8", 1},     [MHA__GGUF_U16] = {"u16", 2},
    [MHA__GGUF_I16] = {"i16", 2},     [MHA__GGUF_U32] = {"u32", 4},   [MHA__GGUF_I32] = {"i32", 4},
    [MHA__GGUF_F32] = {"f32", 4},     [MHA__GGUF_BOOL] = {"bool", 1}, [MHA__GGUF_STRING] = {"string", 0},
    [MHA__GGUF_ARRAY] = {"array", 0}, [MHA__GGUF_U64] = {"u64", 8},   [MHA__GGUF_I64] = {"i64", 8},
    [MHA__GGUF_F64] = {"f64", 8},
};

size_t mha__gguf_value_size(uint32_t type)
{
    return type < MHA__GGUF_VALUE_TYPES ? value_types[type].bytes : 0;
}

const char *mha__gguf_value_name(uint32_t type)
{
    return type < MHA__GGUF_VALUE_TYPES ? value_types[type].name : "unknown";
}
