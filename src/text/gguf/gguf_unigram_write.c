/* gguf_unigram_write.c - writes the stages of a Unigram tokenizer.json to a GGUF file. */
#include "base/ctx.h"
#include "base/error.h"
#include "text/gguf/gguf_translation.h"
#include "text/normalize/precompiled_charsmap.h"
#include <string.h>

static bool has_type(const mha__json *object, const char *type)
{
    const char *own = mha__json_as_text(mha__json_get(object, "type"));
    return own && strcmp(own, type) == 0;
}

static bool has_text(const mha__json *object, const char *key, const char *text)
{
    const char *own = mha__json_as_text(mha__json_get(object, key));
    return own && strcmp(own, text) == 0;
}

/* Returns true for Metaspace that splits, after a mark before each text or without one. */
static bool is_metaspace(const mha__json *step, bool *prefix)
{
    *prefix = has_text(step, "prepend_scheme", "always");
    return has_type(step, "Metaspace") && has_text(step, "replacement", MHA__GGUF_MARK) &&
           !mha__json_is(mha__json_get(step, "split"), MHA__JSON_FALSE) &&
           (*prefix || has_text(step, "prepend_scheme", "never"));
}

/* Returns the step with the replacements of characters, if the normalizer is one that readers know: that step alone, or
 * followed by steps that remove white space at the end and merge spaces, *merges. */
static const mha__json *find_charsmap(const mha__json *normalizer, bool *merges)
{
    const mha__json *items = mha__json_get(normalizer, "normalizers"), *strip = mha__json_item(items, 1),
                    *replace = mha__json_item(items, 2);
    *merges = false;
    if (has_type(normalizer, "Precompiled")) return normalizer;
    if (mha__json_size(items) != 3 || !has_type(mha__json_item(items, 0), "Precompiled")) return NULL;
    *merges = has_type(strip, "Strip") && mha__json_is(mha__json_get(strip, "strip_right"), MHA__JSON_TRUE) &&
              mha__json_is(mha__json_get(strip, "strip_left"), MHA__JSON_FALSE) && has_type(replace, "Replace") &&
              has_text(mha__json_get(replace, "pattern"), "Regex", " {2,}") &&
              has_text(replace, "content", MHA__GGUF_MARK);
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
    const mha__json *normalizer = mha__json_get(root, "normalizer"), *pre = mha__json_get(root, "pre_tokenizer");
    const mha__json *items = mha__json_get(pre, "pretokenizers");
    const bool plain = !normalizer || mha__json_is(normalizer, MHA__JSON_NULL);
    bool merges = false, prefix = false;
    const mha__json *charsmap = find_charsmap(normalizer, &merges);
    const bool splits = mha__json_size(items) == 2 && has_type(mha__json_item(items, 0), "WhitespaceSplit");
    if (!plain && !charsmap)
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "tokenizer.json: normalizer must be Precompiled in a GGUF file (got %s)",
                         mha__json_show(&(mha__quoted){0}, mha__json_get(normalizer, "type")));
    if (!is_metaspace(splits ? mha__json_item(items, 1) : pre, &prefix))
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "tokenizer.json: pre_tokenizer must be Metaspace, optionally after WhitespaceSplit, in a GGUF "
                         "file (got %s)",
                         mha__json_show(&(mha__quoted){0}, mha__json_get(pre, "type")));
    mha__gguf_key_bool(keys, MHA__GGUF_KEY("add_space_prefix"), prefix);
    mha__gguf_key_bool(keys, MHA__GGUF_KEY("remove_extra_whitespaces"), merges || splits);
    return charsmap ? put_charsmap(ctx, charsmap, keys, err) : MHA_OK;
}
