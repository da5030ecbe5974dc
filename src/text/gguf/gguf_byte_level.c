/* gguf_byte_level.c - writes byte-level BPE as tokenizer.json. */
#include "base/utf8.h"
#include "text/gguf/gguf_translation.h"
#include "text/pretokenize/split_pattern.h"
#include <string.h>

/* The writer uses the first name that expresses a tokenizer; llama.cpp treats the other names alike. */
const mha__gguf_pre mha__gguf_pres[] = {
    {.name = "gpt-2"},
    {.name = "olmo"},
    {.name = "llama-bpe", .pattern = mha__regex_llama3, .whole_words = true, .starts = true},
    {.name = "llama3", .pattern = mha__regex_llama3, .whole_words = true, .starts = true},
    {.name = "llama-v3", .pattern = mha__regex_llama3, .whole_words = true, .starts = true},
    {.name = "dbrx", .pattern = mha__regex_llama3},
    {.name = "smaug-bpe", .pattern = mha__regex_llama3},
    {.name = "qwen2", .pattern = mha__regex_qwen2, .nfc = true},
    {.name = "gpt-4o", .pattern = mha__regex_gpt_oss, .whole_words = true},
    {.name = "refact", .digits = true},
    {.name = "starcoder", .digits = true},
    {.name = "smollm", .digits = true},
    {.name = NULL},
};

mha_status mha__gguf_find_pre(mha__gguf_translation *t)
{
    const char *name = "";
    size_t n = 0;
    MHA__TRY(mha__gguf_text(t->file, MHA__GGUF_KEY("pre"), &name, &n, t->err));
    for (t->pre = mha__gguf_pres; t->pre->name; t->pre++)
        if (n == strlen(t->pre->name) && memcmp(name, t->pre->name, n) == 0) return MHA_OK;
    return mha__gguf_unsupported(t->file, MHA__GGUF_KEY("pre"),
                                 "one of gpt-2, olmo, llama-bpe, dbrx, smaug-bpe, qwen2, gpt-4o, refact, starcoder, "
                                 "smollm",
                                 t->err);
}

static mha_status put_merges(mha__gguf_translation *t)
{
    const mha__gguf_value *v = NULL;
    MHA__TRY(mha__gguf_array(t->file, MHA__GGUF_KEY("merges"), MHA__GGUF_STRING, &v, t->err));
    if (!v) return mha__gguf_refuse(t->file, MHA__GGUF_KEY("merges"), "an array of string", t->err);
    const char *at = v->data;
    mha__gguf_begin_list(t, "merges");
    for (uint64_t i = 0; i < v->count; i++) {
        size_t n;
        const char *text = mha__gguf_next_text(&at, &n);
        if (mha__utf8_check(text, n) < n) return mha__gguf_refuse(t->file, MHA__GGUF_KEY("merges"), "UTF-8", t->err);
        mha__json_put_bytes(&t->w, text, n);
    }
    mha__gguf_end_list(t);
    return MHA_OK;
}

/* Writes the step before ByteLevel: a split by `pattern`, or of each digit if it is NULL. */
static void put_split(mha__gguf_translation *t, const char *pattern)
{
    mha__gguf_begin(t, NULL, pattern ? "Split" : "Digits");
    if (pattern) {
        mha__json_key(&t->w, "pattern");
        mha__json_open(&t->w, '{');
        mha__gguf_put_text(t, "Regex", pattern);
        mha__gguf_end(t);
        mha__gguf_put_text(t, "behavior", "Isolated");
        mha__gguf_put_bool(t, "invert", false);
    } else
        mha__gguf_put_bool(t, "individual_digits", true);
    mha__gguf_end(t);
}

mha_status mha__gguf_put_byte_level_model(mha__gguf_translation *t)
{
    const char *pattern = t->pre->pattern;
    if (t->pre->nfc) {
        mha__gguf_begin(t, "normalizer", "NFC");
        mha__gguf_end(t);
    }
    if (pattern || t->pre->digits) {
        mha__gguf_begin(t, "pre_tokenizer", "Sequence");
        mha__gguf_begin_list(t, "pretokenizers");
        put_split(t, pattern);
        mha__gguf_put_byte_level(t, NULL, !pattern);
        mha__gguf_end_list(t);
        mha__gguf_end(t);
    } else
        mha__gguf_put_byte_level(t, "pre_tokenizer", true);
    mha__gguf_put_byte_level(t, "decoder", true);
    mha__gguf_begin(t, "model", "BPE");
    mha__gguf_put_bool(t, "ignore_merges", t->pre->whole_words);
    mha__gguf_put_vocab(t);
    MHA__TRY(put_merges(t));
    mha__gguf_end(t);
    return MHA_OK;
}
