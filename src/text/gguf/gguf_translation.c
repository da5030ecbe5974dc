/* gguf_translation.c - see gguf_translation.h. */
#include "text/gguf/gguf_translation.h"

#include "base/ctx.h"
#include "base/utf8.h"
#include "io/input_limits.h"
#include <stdio.h>
#include <string.h>

/* ---- reading of the lists ---- */

mha_status mha__gguf_check_count(const mha__gguf_translation *t, const char *key, const mha__gguf_value *v)
{
    char rule[80];
    if (v->count == (uint64_t)t->words.count) return MHA_OK;
    snprintf(rule, sizeof rule, "an array of %lld elements, one per token", (long long)t->words.count);
    return mha__gguf_refuse(t->file, key, rule, t->err);
}

mha_status mha__gguf_read_words(mha__gguf_translation *t)
{
    const mha__gguf_value *v = NULL;
    char rule[80];
    MHA__TRY(mha__gguf_array(t->file, MHA__GGUF_KEY("tokens"), MHA__GGUF_STRING, &v, t->err));
    snprintf(rule, sizeof rule, "an array of 1 to %zu strings", MHA__JSON_NODES);
    if (!v || !v->count || v->count > MHA__JSON_NODES)
        return mha__gguf_refuse(t->file, MHA__GGUF_KEY("tokens"), rule, t->err);
    mha__gguf_words *w = &t->words;
    w->text = mha__calloc(w->ctx, (size_t)v->count, sizeof *w->text);
    w->bytes = mha__calloc(w->ctx, (size_t)v->count, sizeof *w->bytes);
    t->type = mha__calloc(w->ctx, (size_t)v->count, sizeof *t->type);
    if (!w->text || !w->bytes || !t->type) return mha__no_memory(t->err, (size_t)v->count * 20, "the tokens");
    const char *at = v->data;
    for (uint64_t i = 0; i < v->count; i++) {
        w->text[i] = mha__gguf_next_text(&at, &w->bytes[i]);
        if (mha__utf8_check(w->text[i], w->bytes[i]) < w->bytes[i])
            return mha__fail(t->err, MHA_ERR_FORMAT, "%s: " MHA__GGUF_KEY("tokens") "[%llu] must be UTF-8 (got \"%s\")",
                             mha__quote(&(mha__quoted){0}, t->file->path, strlen(t->file->path)), (unsigned long long)i,
                             mha__quote(&(mha__quoted){0}, w->text[i], w->bytes[i]));
    }
    w->count = (int64_t)v->count;
    return MHA_OK;
}

mha_status mha__gguf_read_types(mha__gguf_translation *t)
{
    const mha__gguf_value *v = NULL;
    MHA__TRY(mha__gguf_array(t->file, MHA__GGUF_KEY("token_type"), MHA__GGUF_I32, &v, t->err));
    if (v) MHA__TRY(mha__gguf_check_count(t, MHA__GGUF_KEY("token_type"), v));
    for (int64_t i = 0; i < t->words.count; i++) {
        int64_t type = MHA__GGUF_TOKEN_NORMAL;
        if (v) mha__gguf_element(v, (uint64_t)i, &type);
        if (type < 0 || type > MHA__GGUF_TOKEN_BYTE)
            return mha__fail(t->err, MHA_ERR_FORMAT,
                             "%s: " MHA__GGUF_KEY("token_type") "[%lld] must be from 0 to %d (got %lld)",
                             mha__quote(&(mha__quoted){0}, t->file->path, strlen(t->file->path)), (long long)i,
                             (int)MHA__GGUF_TOKEN_BYTE, (long long)type);
        t->type[i] = (int32_t)type;
    }
    return MHA_OK;
}

/* Reads the id of a token that must be in the vocabulary; -1 if the file has none. */
mha_status mha__gguf_token_id(const mha__gguf_translation *t, const char *key, int64_t *id)
{
    *id = -1;
    return mha__gguf_int(t->file, key, 0, t->words.count - 1, id, t->err);
}

/* ---- writing of JSON ---- */

void mha__gguf_put_text(mha__gguf_translation *t, const char *key, const char *value)
{
    mha__json_key(&t->w, key);
    mha__json_put_text(&t->w, value);
}

void mha__gguf_put_bool(mha__gguf_translation *t, const char *key, bool value)
{
    mha__json_key(&t->w, key);
    mha__json_put_bool(&t->w, value);
}

/* Begins an object with a type. */
void mha__gguf_begin(mha__gguf_translation *t, const char *key, const char *type)
{
    if (key) mha__json_key(&t->w, key);
    mha__json_open(&t->w, '{');
    mha__gguf_put_text(t, "type", type);
}

void mha__gguf_end(mha__gguf_translation *t)
{
    mha__json_close(&t->w, '}');
}

void mha__gguf_begin_list(mha__gguf_translation *t, const char *key)
{
    mha__json_key(&t->w, key);
    mha__json_open(&t->w, '[');
}

void mha__gguf_end_list(mha__gguf_translation *t)
{
    mha__json_close(&t->w, ']');
}

void mha__gguf_put_word(mha__gguf_translation *t, int64_t id)
{
    mha__json_put_bytes(&t->w, t->words.text[id], t->words.bytes[id]);
}

void mha__gguf_put_byte_level(mha__gguf_translation *t, const char *key, bool regex)
{
    mha__gguf_begin(t, key, "ByteLevel");
    mha__gguf_put_bool(t, "add_prefix_space", false);
    mha__gguf_put_bool(t, "trim_offsets", key && strcmp(key, "post_processor") != 0);
    mha__gguf_put_bool(t, "use_regex", regex);
    mha__gguf_end(t);
}

void mha__gguf_put_vocab(mha__gguf_translation *t)
{
    mha__json_key(&t->w, "vocab");
    mha__json_open(&t->w, '{');
    for (int64_t i = 0; i < t->words.count; i++) {
        if (t->type[i] == MHA__GGUF_TOKEN_UNUSED) continue;
        mha__json_key_bytes(&t->w, t->words.text[i], t->words.bytes[i]);
        mha__json_put_int(&t->w, i);
    }
    mha__gguf_end(t);
}
