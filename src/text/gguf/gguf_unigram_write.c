/* gguf_unigram_write.c - writes the stages of a Unigram tokenizer.json to a GGUF file. */
#include "base/ctx.h"
#include "base/error.h"
#include "text/gguf/gguf_translation.h"
#include "text/normalize/precompiled_charsmap.h"
#include <string.h>

/* ---- spaces ---- */

static mha_status refuse(const char *where, const char *key, const char *rule, const mha__json *value, mha_error *err)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "tokenizer.json: %s%s must be %s in a GGUF file (got %s)", where, key,
                     rule, mha__json_show(&(mha__quoted){0}, value));
}

/* Reads Metaspace, which must split. Without prepend_scheme it writes a mark before each text. */
static mha_status read_metaspace(const mha__json *step, const char *where, bool *prefix, mha_error *err)
{
    const mha__json *scheme = mha__json_get(step, "prepend_scheme"), *split = mha__json_get(step, "split");
    *prefix = !scheme || mha__json_has_text(step, "prepend_scheme", "always");
    if (!mha__json_has_text(step, "replacement", MHA__GGUF_MARK))
        return refuse(where, ".replacement", "\"" MHA__GGUF_MARK "\"", mha__json_get(step, "replacement"), err);
    if (mha__json_is(split, MHA__JSON_FALSE)) return refuse(where, ".split", "true", split, err);
    if (*prefix || mha__json_has_text(step, "prepend_scheme", "never")) return MHA_OK;
    return refuse(where, ".prepend_scheme", "\"always\" or \"never\"", scheme, err);
}

/* Reads the pre-tokenizer, Metaspace, optionally after WhitespaceSplit. */
static mha_status read_spaces(const mha__json *pre, bool *prefix, bool *splits, mha_error *err)
{
    const mha__json *items = mha__json_get(pre, "pretokenizers"), *second = mha__json_item(items, 1);
    *splits = mha__json_size(items) == 2 && mha__gguf_has_type(mha__json_item(items, 0), "WhitespaceSplit");
    if (!mha__gguf_has_type(*splits ? second : pre, "Metaspace"))
        return refuse("pre_tokenizer", "", "Metaspace, optionally after WhitespaceSplit,",
                      mha__json_get(*splits ? second : pre, "type"), err);
    return read_metaspace(*splits ? second : pre, *splits ? "pre_tokenizer.pretokenizers[1]" : "pre_tokenizer", prefix,
                          err);
}

/* ---- characters ---- */

/* Returns the step with the replacements of characters, if readers support the normalizer: this step alone, or
 * followed by steps that remove white space at the end and merge spaces, *merges. */
static const mha__json *find_charsmap(const mha__json *normalizer, bool *merges)
{
    const mha__json *items = mha__json_get(normalizer, "normalizers"), *strip = mha__json_item(items, 1),
                    *replace = mha__json_item(items, 2);
    *merges = false;
    if (mha__gguf_has_type(normalizer, "Precompiled")) return normalizer;
    if (mha__json_size(items) != 3 || !mha__gguf_has_type(mha__json_item(items, 0), "Precompiled")) return NULL;
    *merges = mha__gguf_has_type(strip, "Strip") && mha__json_is(mha__json_get(strip, "strip_right"), MHA__JSON_TRUE) &&
              mha__json_is(mha__json_get(strip, "strip_left"), MHA__JSON_FALSE) &&
              mha__gguf_has_type(replace, "Replace") &&
              mha__json_has_text(mha__json_get(replace, "pattern"), "Regex", " {2,}") &&
              mha__json_has_text(replace, "content", MHA__GGUF_MARK);
    return *merges ? mha__json_item(items, 0) : NULL;
}

static mha_status put_charsmap(mha_ctx *ctx, const mha__json *step, mha__gguf_keys *keys, mha_error *err)
{
    const mha__json *value = mha__json_get(step, "precompiled_charsmap");
    const size_t n = mha__json_bytes(value);
    size_t bytes = 0;
    unsigned char *blob = mha__alloc(ctx, n + 1);
    if (!blob) return mha__no_memory(err, n, "precompiled_charsmap");
    const bool valid = mha__json_as_text(value) && mha__base64_read(mha__json_as_text(value), n, blob, &bytes);
    if (valid && bytes) {
        mha__gguf_key_array(keys, MHA__GGUF_KEY("precompiled_charsmap"), MHA__GGUF_U8, bytes);
        mha__gguf_put(keys, blob, bytes);
    }
    mha__free(ctx, blob);
    return valid ? MHA_OK
                 : mha__fail(err, MHA_ERR_FORMAT, "tokenizer.json: normalizer.precompiled_charsmap must be base64");
}

mha_status mha__gguf_unigram_stages(mha_ctx *ctx, const mha__json *root, mha__gguf_keys *keys, mha_error *err)
{
    const mha__json *normalizer = mha__json_get(root, "normalizer");
    const bool plain = !normalizer || mha__json_is(normalizer, MHA__JSON_NULL);
    bool merges = false, splits = false, prefix = false;
    const mha__json *charsmap = find_charsmap(normalizer, &merges);
    if (!plain && !charsmap)
        return refuse("normalizer", "",
                      "Precompiled, optionally with Strip and Replace of \" {2,}\" after it in a Sequence,",
                      mha__json_get(normalizer, "type"), err);
    MHA__TRY(read_spaces(mha__json_get(root, "pre_tokenizer"), &prefix, &splits, err));
    mha__gguf_key_bool(keys, MHA__GGUF_KEY("add_space_prefix"), prefix);
    mha__gguf_key_bool(keys, MHA__GGUF_KEY("remove_extra_whitespaces"), merges || splits);
    return charsmap ? put_charsmap(ctx, charsmap, keys, err) : MHA_OK;
}
