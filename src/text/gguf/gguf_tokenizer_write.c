/* gguf_tokenizer_write.c - writes the tokenizer of a checkpoint to a GGUF file.
 *
 * Only tokenizers whose stages are exactly those that gguf_tokenizer_json.c reads from a GGUF file are written, so the
 * file has the same tokens. */
#include "base/ctx.h"
#include "io/json/json.h"
#include "text/gguf/gguf_writing.h"
#include <string.h>

static bool is_on(const mha__json *object, const char *key)
{
    return mha__json_is(mha__json_get(object, key), MHA__JSON_TRUE);
}

/* Returns the only item of a Sequence, or the object itself. */
static const mha__json *alone(const mha__json *object, const char *list)
{
    const mha__json *items = mha__json_get(object, list);
    return mha__gguf_has_type(object, "Sequence") && mha__json_size(items) == 1 ? mha__json_item(items, 0) : object;
}

/* Returns true if the pre-tokenizer is ByteLevel, after a split by a pattern or of digits if there is one. */
static bool reads_bytes(const mha__json *items, const mha__json *bytes, bool digits)
{
    const mha__json *split = mha__json_item(items, 0);
    const bool own = !mha__json_is(mha__json_get(bytes, "use_regex"), MHA__JSON_FALSE);
    if (!mha__gguf_has_type(bytes, "ByteLevel") || is_on(bytes, "add_prefix_space") || mha__json_size(items) > 2)
        return false;
    if (!items || digits) return own && (!digits || is_on(split, "individual_digits"));
    return !own && mha__gguf_has_type(split, "Split") && mha__json_has_text(split, "behavior", "Isolated") &&
           !is_on(split, "invert");
}

static const mha__gguf_pre *find_pre(const mha__gguf_writing *w)
{
    const mha__json *pre = alone(mha__json_get(w->root.json, "pre_tokenizer"), "pretokenizers");
    const mha__json *items = mha__json_get(pre, "pretokenizers"), *split = mha__json_item(items, 0);
    const bool nfc = mha__gguf_has_type(mha__json_get(w->root.json, "normalizer"), "NFC"),
               digits = mha__gguf_has_type(split, "Digits");
    const char *pattern = mha__json_as_text(mha__json_get(mha__json_get(split, "pattern"), "Regex"));
    if (!reads_bytes(items, items ? mha__json_item(items, 1) : pre, digits)) return NULL;
    for (const mha__gguf_pre *p = mha__gguf_pres; p->name; p++)
        if ((p->pattern ? pattern && strcmp(p->pattern, pattern) == 0 : !items || digits) && p->nfc == nfc &&
            p->digits == digits && p->whole_words == is_on(w->model.json, "ignore_merges"))
            return p;
    return NULL;
}

/* ---- models ---- */

static mha_status put_byte_level(mha__gguf_writing *w)
{
    const mha__gguf_pre *pre = find_pre(w);
    const mha__json *merges = mha__json_get(w->model.json, "merges");
    if (!pre)
        return mha__gguf_refuse_json(w, "pre_tokenizer", "that of GPT-2, LLaMA-3, Qwen2, gpt-oss or StarCoder",
                                     mha__json_get(mha__json_get(w->root.json, "pre_tokenizer"), "type"));
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("model"), "gpt2");
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("pre"), pre->name);
    mha__gguf_put_tokens(w);
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("merges"), MHA__GGUF_STRING, mha__json_size(merges));
    for (mha__json_step i = {0}; mha__json_each(merges, &i);) {
        const mha__json *a = mha__json_item(i.value, 0), *b = mha__json_item(i.value, 1);
        const uint64_t n = mha__json_bytes(a) + 1 + mha__json_bytes(b);
        if (mha__json_is(i.value, MHA__JSON_STRING)) {
            mha__gguf_put_string(w->keys, mha__json_as_text(i.value), mha__json_bytes(i.value));
            continue;
        }
        mha__gguf_put(w->keys, &n, sizeof n);
        mha__gguf_put(w->keys, mha__json_as_text(a), mha__json_bytes(a));
        mha__gguf_put(w->keys, " ", 1);
        mha__gguf_put(w->keys, mha__json_as_text(b), mha__json_bytes(b));
    }
    return mha__gguf_put_template(w, false);
}

static bool replaces_spaces(const mha__json *step)
{
    return mha__gguf_has_type(step, "Replace") && mha__json_has_text(mha__json_get(step, "pattern"), "String", " ") &&
           mha__json_has_text(step, "content", MHA__GGUF_MARK);
}

/* Reads the normalizer: spaces become U+2581, and one may be added before the text. */
static bool read_spaces(const mha__gguf_writing *w, bool *prefix)
{
    const mha__json *normalizer = alone(mha__json_get(w->root.json, "normalizer"), "normalizers");
    const mha__json *items = mha__json_get(normalizer, "normalizers"), *first = mha__json_item(items, 0);
    const mha__json *pre = mha__json_get(w->root.json, "pre_tokenizer");
    const bool splits =
        mha__gguf_has_type(pre, "Split") && mha__json_has_text(mha__json_get(pre, "pattern"), "String", " ");
    *prefix = mha__gguf_has_type(first, "Prepend") && mha__json_has_text(first, "prepend", MHA__GGUF_MARK);
    if (!mha__gguf_is_absent(pre) && !splits) return false; /* after the normalizer, no text contains a space */
    return items ? mha__json_size(items) == 2 && *prefix && replaces_spaces(mha__json_item(items, 1))
                 : replaces_spaces(normalizer);
}

static void put_unknown(mha__gguf_writing *w)
{
    const mha__json *unknown = mha__json_get(w->model.json, "unk_token");
    const mha__json *id = mha__json_get(mha__json_get(w->model.json, "vocab"),
                                        mha__json_as_text(unknown) ? mha__json_as_text(unknown) : "");
    if (mha__json_is(id, MHA__JSON_INTEGER))
        mha__gguf_key_u32(w->keys, MHA__GGUF_KEY("unknown_token_id"), (uint32_t)mha__json_as_int(id));
}

static mha_status put_sentencepiece(mha__gguf_writing *w)
{
    bool prefix = false;
    if (!read_spaces(w, &prefix))
        return mha__gguf_refuse_json(w, "normalizer", "Replace of \" \" by U+2581, optionally after Prepend",
                                     mha__json_get(mha__json_get(w->root.json, "normalizer"), "type"));
    MHA__TRY(mha__gguf_scores(&w->words, mha__json_get(w->model.json, "merges"), w->score, w->err));
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("model"), "llama");
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("pre"), "default");
    mha__gguf_put_tokens(w);
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("scores"), MHA__GGUF_F32, (uint64_t)w->words.count);
    mha__gguf_put(w->keys, w->score, (size_t)w->words.count * sizeof *w->score);
    mha__gguf_key_bool(w->keys, MHA__GGUF_KEY("add_space_prefix"), prefix);
    put_unknown(w);
    return mha__gguf_put_template(w, false);
}

/* Writes the keys of BertNormalizer that differ from the defaults of readers: lower case, and no accents if lower
 * case. */
static void put_case(mha__gguf_writing *w, const mha__json *normalizer)
{
    const bool lower = is_on(normalizer, "lowercase");
    const mha__json *strip = mha__json_get(normalizer, "strip_accents");
    if (!lower) mha__gguf_key_bool(w->keys, MHA__GGUF_KEY("normalizer.lowercase"), false);
    if (!mha__gguf_is_absent(strip) && mha__json_is(strip, MHA__JSON_TRUE) != lower)
        mha__gguf_key_bool(w->keys, MHA__GGUF_KEY("normalizer.strip_accents"), !lower);
}

static mha_status put_wordpiece(mha__gguf_writing *w)
{
    const mha__json *normalizer = mha__json_get(w->root.json, "normalizer");
    if (!mha__gguf_has_type(normalizer, "BertNormalizer") || !is_on(normalizer, "clean_text") ||
        !is_on(normalizer, "handle_chinese_chars"))
        return mha__gguf_refuse_json(w, "normalizer", "BertNormalizer with clean_text and handle_chinese_chars",
                                     mha__json_get(normalizer, "type"));
    if (!mha__json_has_text(w->model.json, "continuing_subword_prefix", "##"))
        return mha__gguf_refuse_json(w, "model.continuing_subword_prefix", "\"##\"",
                                     mha__json_get(w->model.json, "continuing_subword_prefix"));
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("model"), "bert");
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("pre"), "default");
    mha__gguf_put_pieces(w);
    put_unknown(w);
    put_case(w, normalizer);
    return mha__gguf_put_template(w, true);
}

static mha_status put_unigram(mha__gguf_writing *w)
{
    if (is_on(w->model.json, "byte_fallback"))
        return mha__gguf_refuse_json(w, "model.byte_fallback", "false", mha__json_get(w->model.json, "byte_fallback"));
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("model"), "t5");
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("pre"), "default");
    mha__gguf_put_tokens(w);
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("scores"), MHA__GGUF_F32, (uint64_t)w->words.count);
    mha__gguf_put(w->keys, w->score, (size_t)w->words.count * sizeof *w->score);
    mha__gguf_key_u32(w->keys, MHA__GGUF_KEY("unknown_token_id"),
                      (uint32_t)mha__json_as_int(mha__json_get(w->model.json, "unk_id")));
    MHA__TRY(mha__gguf_unigram_stages(w->words.ctx, w->root.json, w->keys, w->err));
    return mha__gguf_put_template(w, false);
}

static mha_status put_all(mha__gguf_writing *w)
{
    MHA__TRY(mha__json_object(&w->root, "model", MHA__REQUIRED, &w->model, w->err));
    MHA__TRY(mha__gguf_read_tokens(w));
    if (mha__gguf_has_type(w->model.json, "WordPiece")) return put_wordpiece(w);
    if (mha__gguf_has_type(w->model.json, "Unigram")) return put_unigram(w);
    if (!mha__gguf_has_type(w->model.json, "BPE"))
        return mha__gguf_refuse_json(w, "model.type", "BPE, WordPiece or Unigram",
                                     mha__json_get(w->model.json, "type"));
    return is_on(w->model.json, "byte_fallback") ? put_sentencepiece(w) : put_byte_level(w);
}

mha_status mha__gguf_tokenizer_write(mha_ctx *ctx, const char *json, size_t bytes, int64_t rows, int64_t eos,
                                     mha__gguf_keys *keys, mha_error *err)
{
    const mha__json *root = NULL;
    mha__gguf_writing w = {
        .words = {.ctx = ctx, .path = MHA__GGUF_TOKENIZER_FILE, .count = rows}, .eos = eos, .keys = keys, .err = err};
    MHA__TRY(mha__json_parse(ctx, MHA__GGUF_TOKENIZER_FILE, json, bytes, MHA__JSON_BOM, &root, err));
    w.root = (mha__json_obj){.json = root, .file = MHA__GGUF_TOKENIZER_FILE};
    w.words.text = mha__calloc(ctx, (size_t)rows, sizeof *w.words.text);
    w.words.bytes = mha__calloc(ctx, (size_t)rows, sizeof *w.words.bytes);
    w.type = mha__calloc(ctx, (size_t)rows, sizeof *w.type);
    w.score = mha__calloc(ctx, (size_t)rows, sizeof *w.score);
    mha_status status = w.words.text && w.words.bytes && w.type && w.score
                            ? put_all(&w)
                            : mha__no_memory(err, (size_t)rows * 24, "the tokens");
    mha__free(ctx, w.words.text);
    mha__free(ctx, w.words.bytes);
    mha__free(ctx, w.type);
    mha__free(ctx, w.score);
    mha__free(ctx, w.unused);
    mha__json_free(root);
    return status;
}
