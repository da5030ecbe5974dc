/* gguf_unigram.c - writes Unigram, the tokenizer of T5, as tokenizer.json. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "text/gguf/gguf_translation.h"
#include "text/normalize/precompiled_charsmap.h"
#include <math.h>
#include <string.h>

/* Writes the replacements of characters, if there are any. */
static mha_status put_charsmap(mha__gguf_translation *t)
{
    const mha__gguf_value *v = mha__gguf_find(t->file, MHA__GGUF_KEY("precompiled_charsmap"));
    size_t bytes;
    if (!v || (v->array && !v->count)) return MHA_OK;
    if (!v->array || (v->type != MHA__GGUF_U8 && v->type != MHA__GGUF_I8))
        return mha__gguf_refuse(t->file, MHA__GGUF_KEY("precompiled_charsmap"), "an array of u8 or i8", t->err);
    bytes = mha__base64_bytes((size_t)v->count);
    char *text = mha__alloc(t->words.ctx, bytes);
    if (!text) return mha__no_memory(t->err, bytes, "precompiled_charsmap");
    mha__base64_write(v->data, (size_t)v->count, text);
    mha__gguf_begin(t, "normalizer", "Precompiled");
    mha__json_key(&t->w, "precompiled_charsmap");
    mha__json_put_bytes(&t->w, text, bytes);
    mha__gguf_end(t);
    mha__free(t->words.ctx, text);
    return MHA_OK;
}

static void put_metaspace(mha__gguf_translation *t, const char *key, bool prefix)
{
    mha__gguf_begin(t, key, "Metaspace");
    mha__gguf_put_text(t, "replacement", MHA__GGUF_MARK);
    mha__gguf_put_text(t, "prepend_scheme", prefix ? "always" : "never");
    mha__gguf_put_bool(t, "split", true);
    mha__gguf_end(t);
}

/* Writes the steps before and after the model: words are split at white space if several spaces count as one. */
static mha_status put_spaces(mha__gguf_translation *t)
{
    bool prefix = false, merges = false; /* the defaults of llama.cpp */
    MHA__TRY(mha__gguf_bool(t->file, MHA__GGUF_KEY("add_space_prefix"), &prefix, t->err));
    MHA__TRY(mha__gguf_bool(t->file, MHA__GGUF_KEY("remove_extra_whitespaces"), &merges, t->err));
    if (!merges) put_metaspace(t, "pre_tokenizer", prefix);
    if (merges) {
        mha__gguf_begin(t, "pre_tokenizer", "Sequence");
        mha__gguf_begin_list(t, "pretokenizers");
        mha__gguf_begin(t, NULL, "WhitespaceSplit");
        mha__gguf_end(t);
        put_metaspace(t, NULL, prefix);
        mha__gguf_end_list(t);
        mha__gguf_end(t);
    }
    put_metaspace(t, "decoder", prefix);
    return MHA_OK;
}

/* Returns the number of tokens without the unused ones at the end. */
static int64_t used_count(const mha__gguf_translation *t)
{
    int64_t count = t->words.count;
    while (count > 1 && t->type[count - 1] == MHA__GGUF_TOKEN_UNUSED)
        count--;
    return count;
}

static mha_status refuse_score(const mha__gguf_translation *t, int64_t id, float score)
{
    const char *path = t->file->path;
    return mha__fail(t->err, MHA_ERR_FORMAT, "%s: " MHA__GGUF_KEY("scores") "[%lld] must be finite (got %g)",
                     mha__quote(&(mha__quoted){0}, path, strlen(path)), (long long)id, (double)score);
}

/* Writes the first `count` tokens in order with their scores. Unused tokens among them match text too, as in
 * llama.cpp. */
static mha_status put_pieces(mha__gguf_translation *t, int64_t count)
{
    const mha__gguf_value *v = NULL;
    MHA__TRY(mha__gguf_array(t->file, MHA__GGUF_KEY("scores"), MHA__GGUF_F32, &v, t->err));
    if (!v) return mha__gguf_refuse(t->file, MHA__GGUF_KEY("scores"), "an array of f32", t->err);
    MHA__TRY(mha__gguf_check_count(t, MHA__GGUF_KEY("scores"), v));
    mha__gguf_begin_list(t, "vocab");
    for (int64_t i = 0; i < count; i++) {
        float score;
        memcpy(&score, v->data + (size_t)i * sizeof score, sizeof score);
        if (!isfinite(score)) return refuse_score(t, i, score);
        mha__json_open(&t->w, '[');
        mha__gguf_put_word(t, i);
        mha__json_put_real(&t->w, score);
        mha__gguf_end_list(t);
    }
    mha__gguf_end_list(t);
    return MHA_OK;
}

mha_status mha__gguf_put_unigram(mha__gguf_translation *t)
{
    const int64_t count = used_count(t);
    int64_t unknown;
    MHA__TRY(mha__gguf_token_id(t, MHA__GGUF_KEY("unknown_token_id"), &unknown));
    if (unknown < 0) unknown = t->words.count > 2 ? 2 : 0; /* the default of llama.cpp */
    if (unknown >= count)
        return mha__gguf_refuse(t->file, MHA__GGUF_KEY("unknown_token_id"), "the id of a token that is used", t->err);
    MHA__TRY(put_charsmap(t));
    MHA__TRY(put_spaces(t));
    mha__gguf_begin(t, "model", "Unigram");
    mha__json_key(&t->w, "unk_id");
    mha__json_put_int(&t->w, unknown);
    mha__gguf_put_bool(t, "byte_fallback", false);
    MHA__TRY(put_pieces(t, count));
    mha__gguf_end(t);
    return MHA_OK;
}
