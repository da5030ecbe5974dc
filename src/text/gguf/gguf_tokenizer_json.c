/* gguf_tokenizer_json.c - writes tokenizer.json for the tokenizer of a GGUF file: byte-level BPE, BPE of SentencePiece,
 * WordPiece, or Unigram. */
#include "base/ctx.h"
#include "text/gguf/gguf_translation.h"
#include <string.h>

/* Writes the tokens that are matched in the text before it is split. */
static void put_added(mha__gguf_translation *t)
{
    mha__gguf_begin_list(t, "added_tokens");
    for (int64_t i = 0; i < t->words.count; i++) {
        if (t->type[i] < MHA__GGUF_TOKEN_UNKNOWN || t->type[i] > MHA__GGUF_TOKEN_USER || !t->words.bytes[i]) continue;
        mha__json_open(&t->w, '{');
        mha__json_key(&t->w, "id");
        mha__json_put_int(&t->w, i);
        mha__json_key(&t->w, "content");
        mha__gguf_put_word(t, i);
        static const char *const off[] = {"single_word", "lstrip", "rstrip", "normalized"};
        for (int n = 0; n < 4; n++)
            mha__gguf_put_bool(t, off[n], false);
        mha__gguf_put_bool(t, "special", t->type[i] != MHA__GGUF_TOKEN_USER);
        mha__gguf_end(t);
    }
    mha__gguf_end_list(t);
}

static mha_status find_model(mha__gguf_translation *t)
{
    static const char *const names[] = {"gpt2", "llama", "bert", "t5"};
    const char *name = "";
    size_t n = 0;
    MHA__TRY(mha__gguf_text(t->file, MHA__GGUF_KEY("model"), &name, &n, t->err));
    for (int i = 0; i < 4; i++)
        if (n == strlen(names[i]) && memcmp(name, names[i], n) == 0) {
            t->model = (mha__gguf_model)i;
            return i == MHA__GGUF_BYTE_LEVEL ? mha__gguf_find_pre(t) : MHA_OK;
        }
    return mha__gguf_unsupported(t->file, MHA__GGUF_KEY("model"), "one of gpt2, llama, bert, t5", t->err);
}

static mha_status translate(mha__gguf_translation *t)
{
    static mha_status (*const models[])(mha__gguf_translation *) = {
        mha__gguf_put_byte_level_model, mha__gguf_put_sentencepiece, mha__gguf_put_wordpiece, mha__gguf_put_unigram};
    MHA__TRY(find_model(t));
    MHA__TRY(mha__gguf_read_words(t));
    MHA__TRY(mha__gguf_read_types(t));
    mha__json_open(&t->w, '{');
    mha__gguf_put_text(t, "version", "1.0");
    put_added(t);
    MHA__TRY(mha__gguf_put_post_processor(t));
    MHA__TRY(models[t->model](t));
    mha__gguf_end(t);
    return MHA_OK;
}

mha_status mha__gguf_tokenizer(const mha_file *file, char **json, size_t *bytes, mha_error *err)
{
    mha__gguf_translation t = {
        .file = file, .words = {.ctx = file->ctx, .path = file->path}, .w = {.ctx = file->ctx}, .err = err};
    *json = NULL;
    *bytes = 0;
    if (!mha__gguf_find(file, MHA__GGUF_KEY("model")) || !mha__gguf_find(file, MHA__GGUF_KEY("tokens"))) return MHA_OK;
    mha_status status = translate(&t);
    if (status == MHA_OK)
        status = mha__json_written(&t.w, "tokenizer.json", json, bytes, err);
    else
        mha__json_written(&t.w, "tokenizer.json", NULL, NULL, NULL);
    mha__free(file->ctx, t.words.text);
    mha__free(file->ctx, t.words.bytes);
    mha__free(file->ctx, t.type);
    return status;
}
