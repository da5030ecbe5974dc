/* gguf_tokens_write.c - the tokens of a tokenizer.json as the rows of a GGUF file. */
#include "base/ctx.h"
#include "text/gguf/gguf_writing.h"
#include <stdio.h>
#include <string.h>

mha_status mha__gguf_refuse_json(const mha__gguf_writing *w, const char *key, const char *rule, const mha__json *got)
{
    return mha__fail(w->err, MHA_ERR_UNSUPPORTED, MHA__GGUF_TOKENIZER_FILE ": %s must be %s in a GGUF file (got %s)",
                     key, rule, mha__json_show(&(mha__quoted){0}, got));
}

bool mha__gguf_is_absent(const mha__json *value)
{
    return !value || mha__json_is(value, MHA__JSON_NULL);
}

static mha_status add_token(mha__gguf_writing *w, const mha__json *text, const mha__json *id, int32_t type)
{
    const int64_t row = mha__json_as_int(id);
    if (!mha__json_is(id, MHA__JSON_INTEGER) || row < 0 || row >= w->words.count)
        return mha__fail(w->err, MHA_ERR_UNSUPPORTED,
                         MHA__GGUF_TOKENIZER_FILE
                         ": id of \"%s\" must be below %lld, the rows of the embeddings, in a GGUF file (got %s)",
                         mha__quote(&(mha__quoted){0}, mha__json_as_text(text), mha__json_bytes(text)),
                         (long long)w->words.count, mha__json_show(&(mha__quoted){0}, id));
    w->words.text[row] = mha__json_as_text(text);
    w->words.bytes[row] = mha__json_bytes(text);
    w->type[row] = type;
    return MHA_OK;
}

/* Reads a token that is matched in raw text; GGUF has no flags for white space around it. */
static mha_status add_added(mha__gguf_writing *w, const mha__json *token)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    for (int n = 0; n < 3; n++)
        if (mha__json_is(mha__json_get(token, flags[n]), MHA__JSON_TRUE))
            return mha__gguf_refuse_json(w, flags[n], "false for all added tokens", mha__json_get(token, flags[n]));
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
static mha_status read_pieces(mha__gguf_writing *w, const mha__json *vocab)
{
    const int64_t unknown = mha__json_as_int(mha__json_get(w->model.json, "unk_id"));
    for (mha__json_step i = {0}; mha__json_each(vocab, &i);) {
        const int64_t id = (int64_t)i.index;
        if (id >= w->words.count)
            return mha__gguf_refuse_json(w, "model.vocab", "at most as long as the embeddings have rows", vocab);
        w->words.text[id] = mha__json_as_text(mha__json_item(i.value, 0));
        w->words.bytes[id] = mha__json_bytes(mha__json_item(i.value, 0));
        w->type[id] = id == unknown ? MHA__GGUF_TOKEN_UNKNOWN : MHA__GGUF_TOKEN_NORMAL;
        w->score[id] = (float)mha__json_as_number(mha__json_item(i.value, 1));
    }
    return MHA_OK;
}

mha_status mha__gguf_read_tokens(mha__gguf_writing *w)
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

void mha__gguf_put_tokens(mha__gguf_writing *w)
{
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("tokens"), MHA__GGUF_STRING, (uint64_t)w->words.count);
    for (int64_t n = 0; n < w->words.count; n++)
        mha__gguf_put_string(w->keys, w->words.text[n], w->words.bytes[n]);
    mha__gguf_key_array(w->keys, MHA__GGUF_KEY("token_type"), MHA__GGUF_I32, (uint64_t)w->words.count);
    mha__gguf_put(w->keys, w->type, (size_t)w->words.count * sizeof *w->type);
}

/* Writes the tokens with U+2581 before the start of a word, and without "##" within a word. */
void mha__gguf_put_pieces(mha__gguf_writing *w)
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
