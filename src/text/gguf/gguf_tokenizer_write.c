/* gguf_tokenizer_write.c - writes the tokenizer of a checkpoint to a GGUF file.
 *
 * Only tokenizers whose stages are exactly those that gguf_tokenizer_json.c reads from a GGUF file are written, so the
 * file has the same tokens. */
#include "base/ctx.h"
#include "io/json/json.h"
#include "text/gguf/gguf_translation.h"
#include <stdio.h>
#include <string.h>

#define FILE_NAME "tokenizer.json"

typedef struct writing {
    mha__json_obj root, model;
    mha__gguf_words words;
    int32_t *type; /* [words.count] */
    float *score;  /* [words.count] */
    char *unused;  /* texts of rows without a token */
    int64_t eos;
    mha__gguf_keys *keys;
    mha_error *err;
} writing;

/* ---- tokens ---- */

static mha_status refuse(const writing *w, const char *key, const char *rule, const mha__json *got)
{
    return mha__fail(w->err, MHA_ERR_UNSUPPORTED, FILE_NAME ": %s must be %s in a GGUF file (got %s)", key, rule,
                     mha__json_show(&(mha__quoted){0}, got));
}

static mha_status add_token(writing *w, const mha__json *text, const mha__json *id, int32_t type)
{
    const int64_t row = mha__json_as_int(id);
    if (!mha__json_is(id, MHA__JSON_INTEGER) || row < 0 || row >= w->words.count)
        return mha__fail(w->err, MHA_ERR_UNSUPPORTED,
                         FILE_NAME
                         ": id of \"%s\" must be below %lld, the rows of the embeddings, in a GGUF file (got %s)",
                         mha__quote(&(mha__quoted){0}, mha__json_as_text(text), mha__json_bytes(text)),
                         (long long)w->words.count, mha__json_show(&(mha__quoted){0}, id));
    w->words.text[row] = mha__json_as_text(text);
    w->words.bytes[row] = mha__json_bytes(text);
    w->type[row] = type;
    return MHA_OK;
}

/* Reads a token that is matched in raw text; GGUF has no flags for white space around it. */
static mha_status add_added(writing *w, const mha__json *token)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    for (int n = 0; n < 3; n++)
        if (mha__json_is(mha__json_get(token, flags[n]), MHA__JSON_TRUE))
            return refuse(w, flags[n], "false for all added tokens", mha__json_get(token, flags[n]));
    const bool special = mha__json_is(mha__json_get(token, "special"), MHA__JSON_TRUE);
    const int64_t id = mha__json_as_int(mha__json_get(token, "id"));
    const bool unknown = id >= 0 && id < w->words.count && w->type[id] == MHA__GGUF_TOKEN_UNKNOWN;
    return add_token(w, mha__json_get(token, "content"), mha__json_get(token, "id"),
                     unknown   ? MHA__GGUF_TOKEN_UNKNOWN
                     : special ? MHA__GGUF_TOKEN_CONTROL
                               : MHA__GGUF_TOKEN_USER);
}

static bool is_byte(const char *text, size_t n)
{
    return n == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>';
}

/* Reads the pieces of Unigram, a list of texts and scores. */
static mha_status read_pieces(writing *w, const mha__json *vocab)
{
    const int64_t unknown = mha__json_as_int(mha__json_get(w->model.json, "unk_id"));
    for (mha__json_step i = {0}; mha__json_each(vocab, &i);) {
        const int64_t id = (int64_t)i.index;
        if (id >= w->words.count) return refuse(w, "model.vocab", "at most as long as the embeddings have rows", vocab);
        w->words.text[id] = mha__json_as_text(mha__json_item(i.value, 0));
        w->words.bytes[id] = mha__json_bytes(mha__json_item(i.value, 0));
        w->type[id] = id == unknown ? MHA__GGUF_TOKEN_UNKNOWN : MHA__GGUF_TOKEN_NORMAL;
        w->score[id] = (float)mha__json_as_number(mha__json_item(i.value, 1));
    }
    return MHA_OK;
}

static mha_status read_tokens(writing *w)
{
    const mha__json *vocab = mha__json_get(w->model.json, "vocab"),
                    *added = mha__json_get(w->root.json, "added_tokens");
    const bool bytes = mha__json_is(mha__json_get(w->model.json, "byte_fallback"), MHA__JSON_TRUE);
    const bool pieces = mha__json_is(vocab, MHA__JSON_ARRAY);
    if (pieces) MHA__TRY(read_pieces(w, vocab));
    for (mha__json_step i = {0}; !pieces && mha__json_each(vocab, &i);) {
        const bool byte = bytes && is_byte(mha__json_as_text(i.key), mha__json_bytes(i.key));
        MHA__TRY(add_token(w, i.key, i.value, byte ? MHA__GGUF_TOKEN_BYTE : MHA__GGUF_TOKEN_NORMAL));
    }
    for (mha__json_step i = {0}; mha__json_each(added, &i);)
        MHA__TRY(add_added(w, i.value));
    enum { ROOM = 24 };
    w->unused = mha__alloc(w->words.ctx, ROOM * (size_t)w->words.count);
    if (!w->unused) return mha__no_memory(w->err, ROOM * (size_t)w->words.count, "the tokens");
    for (int64_t n = 0; n < w->words.count; n++) {
        char *text = w->unused + ROOM * n;
        if (w->words.text[n]) continue;
        snprintf(text, ROOM, "[PAD%lld]", (long long)n);
        w->words.text[n] = text;
        w->words.bytes[n] = strlen(text);
        w->type[n] = MHA__GGUF_TOKEN_UNUSED;
    }
    return MHA_OK;
}

static void put_tokens(writing *w)
{
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("tokens"), MHA__GGUF_STRING, (uint64_t)w->words.count);
    for (int64_t n = 0; n < w->words.count; n++)
        mha__gguf_put_string(w->keys, w->words.text[n], w->words.bytes[n]);
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("token_type"), MHA__GGUF_I32, (uint64_t)w->words.count);
    mha__gguf_put(w->keys, w->type, (size_t)w->words.count * sizeof *w->type);
}

/* ---- stages ---- */

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

static bool is_absent(const mha__json *value)
{
    return !value || mha__json_is(value, MHA__JSON_NULL);
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

static const mha__gguf_pre *find_pre(const writing *w)
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

/* Returns the name of a special token of a template; NULL for a text. */
static const mha__json *special_of(const mha__json *item)
{
    return mha__json_get(mha__json_get(item, "SpecialToken"), "id");
}

/* Writes the id of a special token that the template adds at one end. */
static mha_status put_end(writing *w, const mha__json *item, const char *key, const char *flag, bool *found)
{
    const mha__json *name = special_of(item);
    *found = name != NULL;
    for (int64_t n = 0; name && n < w->words.count; n++)
        if (w->words.bytes[n] == mha__json_bytes(name) &&
            memcmp(w->words.text[n], mha__json_as_text(name), w->words.bytes[n]) == 0) {
            mha__gguf_key_u32(w->keys, key, (uint32_t)n);
            if (flag) mha__gguf_key_bool(w->keys, flag, true);
            return MHA_OK;
        }
    if (!name && flag) mha__gguf_key_bool(w->keys, flag, false);
    return name ? refuse(w, "post_processor", "a template of known tokens", name) : MHA_OK;
}

/* Returns true if an item of a template is the special token `name` or, if it is NULL, the text `sequence`. */
static bool is_item(const mha__json *item, const mha__json *name, const char *sequence, int64_t type_id)
{
    const mha__json *own = mha__json_get(item, name ? "SpecialToken" : "Sequence"), *id = mha__json_get(own, "id");
    return mha__json_as_int(mha__json_get(own, "type_id")) == type_id &&
           (name ? mha__json_equal(id, name) : mha__json_has_text(own, "id", sequence));
}

/* Checks the template of pairs, for which files have no key: readers add the tokens of a single text to each text,
 * except that WordPiece has its first token once. */
static bool is_usual_pair(const writing *w, const mha__json *pair, const mha__json *first, const mha__json *last)
{
    const bool wordpiece = mha__gguf_has_type(w->model.json, "WordPiece"),
               typed = !mha__gguf_has_type(w->model.json, "Unigram");
    size_t at = 0;
    for (int n = 0; n < 2; n++) {
        const int64_t type = typed ? n : 0;
        if (first && !(n && wordpiece) && !is_item(mha__json_item(pair, at++), first, NULL, type)) return false;
        if (!is_item(mha__json_item(pair, at++), NULL, n ? "B" : "A", type)) return false;
        if (last && !is_item(mha__json_item(pair, at++), last, NULL, type)) return false;
    }
    return mha__json_size(pair) == at;
}

/* Writes which tokens are added before and after a text. */
static mha_status put_template(writing *w, bool wordpiece)
{
    const mha__json *post = mha__json_get(w->root.json, "post_processor"), *list = mha__json_get(post, "processors");
    const size_t count = mha__json_size(list);
    bool first = false, last = false;
    for (size_t n = 0; n + 1 < count; n++)
        if (!mha__gguf_has_type(mha__json_item(list, n), "ByteLevel"))
            return refuse(w, "post_processor.processors", "ByteLevel before the template", mha__json_item(list, n));
    if (mha__gguf_has_type(post, "Sequence")) post = mha__json_item(list, count - 1);
    const mha__json *single = mha__json_get(post, "single");
    if (!is_absent(post) && !mha__gguf_has_type(post, "TemplateProcessing") && !mha__gguf_has_type(post, "ByteLevel"))
        return refuse(w, "post_processor.type", "TemplateProcessing or ByteLevel", mha__json_get(post, "type"));
    const size_t n = mha__json_size(single);
    MHA__TRY(put_end(w, n > 1 ? mha__json_item(single, 0) : NULL, MHA__GGUF_KEY("bos_token_id"),
                     MHA__GGUF_KEY("add_bos_token"), &first));
    MHA__TRY(put_end(w, n > 1 ? mha__json_item(single, n - 1) : NULL,
                     wordpiece ? MHA__GGUF_KEY("seperator_token_id") : MHA__GGUF_KEY("eos_token_id"),
                     wordpiece ? NULL : MHA__GGUF_KEY("add_eos_token"), &last));
    if (!last && w->eos >= 0) mha__gguf_key_u32(w->keys, MHA__GGUF_KEY("eos_token_id"), (uint32_t)w->eos);
    if (n > 1 + (size_t)first + (size_t)last || (wordpiece && (!first || !last)))
        return refuse(w, "post_processor.single", "one text between at most one token on each side", single);
    const mha__json *pair = mha__json_get(post, "pair");
    const mha__json *begin = first ? special_of(mha__json_item(single, 0)) : NULL,
                    *end = last ? special_of(mha__json_item(single, n - 1)) : NULL;
    if ((first || last) && !is_absent(pair) && !is_usual_pair(w, pair, begin, end))
        return refuse(w, "post_processor.pair",
                      "the tokens of a single text around each text, with type_id 1 for B unless the model is Unigram",
                      pair);
    return MHA_OK;
}

/* ---- models ---- */

static mha_status put_byte_level(writing *w)
{
    const mha__gguf_pre *pre = find_pre(w);
    const mha__json *merges = mha__json_get(w->model.json, "merges");
    if (!pre)
        return refuse(w, "pre_tokenizer", "that of GPT-2, LLaMA-3, Qwen2, gpt-oss or StarCoder",
                      mha__json_get(mha__json_get(w->root.json, "pre_tokenizer"), "type"));
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("model"), "gpt2");
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("pre"), pre->name);
    put_tokens(w);
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
    return put_template(w, false);
}

static bool replaces_spaces(const mha__json *step)
{
    return mha__gguf_has_type(step, "Replace") && mha__json_has_text(mha__json_get(step, "pattern"), "String", " ") &&
           mha__json_has_text(step, "content", MHA__GGUF_MARK);
}

/* Reads the normalizer: spaces become U+2581, and one may be added before the text. */
static bool read_spaces(const writing *w, bool *prefix)
{
    const mha__json *normalizer = alone(mha__json_get(w->root.json, "normalizer"), "normalizers");
    const mha__json *items = mha__json_get(normalizer, "normalizers"), *first = mha__json_item(items, 0);
    const mha__json *pre = mha__json_get(w->root.json, "pre_tokenizer");
    const bool splits =
        mha__gguf_has_type(pre, "Split") && mha__json_has_text(mha__json_get(pre, "pattern"), "String", " ");
    *prefix = mha__gguf_has_type(first, "Prepend") && mha__json_has_text(first, "prepend", MHA__GGUF_MARK);
    if (!is_absent(pre) && !splits) return false; /* after the normalizer, no text contains a space */
    return items ? mha__json_size(items) == 2 && *prefix && replaces_spaces(mha__json_item(items, 1))
                 : replaces_spaces(normalizer);
}

static void put_unknown(writing *w)
{
    const mha__json *unknown = mha__json_get(w->model.json, "unk_token");
    const mha__json *id = mha__json_get(mha__json_get(w->model.json, "vocab"),
                                        mha__json_as_text(unknown) ? mha__json_as_text(unknown) : "");
    if (mha__json_is(id, MHA__JSON_INTEGER))
        mha__gguf_key_u32(w->keys, MHA__GGUF_KEY("unknown_token_id"), (uint32_t)mha__json_as_int(id));
}

static mha_status put_sentencepiece(writing *w)
{
    bool prefix = false;
    if (!read_spaces(w, &prefix))
        return refuse(w, "normalizer", "Replace of \" \" by U+2581, optionally after Prepend",
                      mha__json_get(mha__json_get(w->root.json, "normalizer"), "type"));
    MHA__TRY(mha__gguf_scores(&w->words, mha__json_get(w->model.json, "merges"), w->score, w->err));
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("model"), "llama");
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("pre"), "default");
    put_tokens(w);
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("scores"), MHA__GGUF_F32, (uint64_t)w->words.count);
    mha__gguf_put(w->keys, w->score, (size_t)w->words.count * sizeof *w->score);
    mha__gguf_key_bool(w->keys, MHA__GGUF_KEY("add_space_prefix"), prefix);
    put_unknown(w);
    return put_template(w, false);
}

/* Writes the tokens with U+2581 before the start of a word, and without "##" within a word. */
static void put_pieces(writing *w)
{
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("tokens"), MHA__GGUF_STRING, (uint64_t)w->words.count);
    for (int64_t i = 0; i < w->words.count; i++) {
        const char *text = w->words.text[i];
        const size_t n = w->words.bytes[i], mark = strlen(MHA__GGUF_MARK);
        const bool inner = n > 2 && memcmp(text, "##", 2) == 0;
        const bool special = n > 1 && text[0] == '[' && text[n - 1] == ']';
        const uint64_t bytes = special ? n : inner ? n - 2 : n + mark;
        mha__gguf_put(w->keys, &bytes, sizeof bytes);
        if (!special && !inner) mha__gguf_put(w->keys, MHA__GGUF_MARK, mark);
        mha__gguf_put(w->keys, text + (inner && !special ? 2 : 0), inner && !special ? n - 2 : n);
    }
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("token_type"), MHA__GGUF_I32, (uint64_t)w->words.count);
    mha__gguf_put(w->keys, w->type, (size_t)w->words.count * sizeof *w->type);
}

/* Writes the keys of BertNormalizer that differ from the defaults of readers: lower case, and no accents if lower
 * case. */
static void put_case(writing *w, const mha__json *normalizer)
{
    const bool lower = is_on(normalizer, "lowercase");
    const mha__json *strip = mha__json_get(normalizer, "strip_accents");
    if (!lower) mha__gguf_key_bool(w->keys, MHA__GGUF_KEY("normalizer.lowercase"), false);
    if (!is_absent(strip) && mha__json_is(strip, MHA__JSON_TRUE) != lower)
        mha__gguf_key_bool(w->keys, MHA__GGUF_KEY("normalizer.strip_accents"), !lower);
}

static mha_status put_wordpiece(writing *w)
{
    const mha__json *normalizer = mha__json_get(w->root.json, "normalizer");
    if (!mha__gguf_has_type(normalizer, "BertNormalizer") || !is_on(normalizer, "clean_text") ||
        !is_on(normalizer, "handle_chinese_chars"))
        return refuse(w, "normalizer", "BertNormalizer with clean_text and handle_chinese_chars",
                      mha__json_get(normalizer, "type"));
    if (!mha__json_has_text(w->model.json, "continuing_subword_prefix", "##"))
        return refuse(w, "model.continuing_subword_prefix", "\"##\"",
                      mha__json_get(w->model.json, "continuing_subword_prefix"));
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("model"), "bert");
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("pre"), "default");
    put_pieces(w);
    put_unknown(w);
    put_case(w, normalizer);
    return put_template(w, true);
}

static mha_status put_unigram(writing *w)
{
    if (is_on(w->model.json, "byte_fallback"))
        return refuse(w, "model.byte_fallback", "false", mha__json_get(w->model.json, "byte_fallback"));
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("model"), "t5");
    mha__gguf_key_text(w->keys, MHA__GGUF_KEY("pre"), "default");
    put_tokens(w);
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("scores"), MHA__GGUF_F32, (uint64_t)w->words.count);
    mha__gguf_put(w->keys, w->score, (size_t)w->words.count * sizeof *w->score);
    mha__gguf_key_u32(w->keys, MHA__GGUF_KEY("unknown_token_id"),
                      (uint32_t)mha__json_as_int(mha__json_get(w->model.json, "unk_id")));
    MHA__TRY(mha__gguf_unigram_stages(w->words.ctx, w->root.json, w->keys, w->err));
    return put_template(w, false);
}

static mha_status put_all(writing *w)
{
    MHA__TRY(mha__json_object(&w->root, "model", MHA__REQUIRED, &w->model, w->err));
    MHA__TRY(read_tokens(w));
    if (mha__gguf_has_type(w->model.json, "WordPiece")) return put_wordpiece(w);
    if (mha__gguf_has_type(w->model.json, "Unigram")) return put_unigram(w);
    if (!mha__gguf_has_type(w->model.json, "BPE"))
        return refuse(w, "model.type", "BPE, WordPiece or Unigram", mha__json_get(w->model.json, "type"));
    return is_on(w->model.json, "byte_fallback") ? put_sentencepiece(w) : put_byte_level(w);
}

mha_status mha__gguf_tokenizer_write(mha_ctx *ctx, const char *json, size_t bytes, int64_t rows, int64_t eos,
                                     mha__gguf_keys *keys, mha_error *err)
{
    const mha__json *root = NULL;
    writing w = {.words = {.ctx = ctx, .path = FILE_NAME, .count = rows}, .eos = eos, .keys = keys, .err = err};
    MHA__TRY(mha__json_parse(ctx, FILE_NAME, json, bytes, MHA__JSON_BOM, &root, err));
    w.root = (mha__json_obj){.json = root, .file = FILE_NAME};
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
