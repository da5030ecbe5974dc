/* gguf_template.c - writes the post-processor of tokenizer.json, which adds special tokens. */
#include "text/gguf/gguf_translation.h"
#include <stdio.h>
#include <string.h>

static void put_special(mha__gguf_translation *t, int64_t id, int type_id)
{
    mha__json_open(&t->w, '{');
    mha__json_key(&t->w, "SpecialToken");
    mha__json_open(&t->w, '{');
    mha__json_key(&t->w, "id");
    mha__gguf_put_word(t, id);
    mha__json_key(&t->w, "type_id");
    mha__json_put_int(&t->w, type_id);
    mha__gguf_end(t);
    mha__gguf_end(t);
}

static void put_sequence(mha__gguf_translation *t, const char *name, int type_id)
{
    mha__json_open(&t->w, '{');
    mha__json_key(&t->w, "Sequence");
    mha__json_open(&t->w, '{');
    mha__gguf_put_text(t, "id", name);
    mha__json_key(&t->w, "type_id");
    mha__json_put_int(&t->w, type_id);
    mha__gguf_end(t);
    mha__gguf_end(t);
}

/* Writes: first A last, and for a pair: first A last, again B last, where `again` is `first` except in WordPiece. */
static void put_template(mha__gguf_translation *t, const char *key, int64_t first, int64_t last)
{
    const bool typed = t->model != MHA__GGUF_UNIGRAM; /* T5 has no types of texts */
    mha__gguf_begin(t, key, "TemplateProcessing");
    for (int texts = 1; texts <= 2; texts++) {
        mha__gguf_begin_list(t, texts == 1 ? "single" : "pair");
        for (int n = 0; n < texts; n++) {
            if (first >= 0 && (n == 0 || t->model != MHA__GGUF_WORDPIECE)) put_special(t, first, typed ? n : 0);
            put_sequence(t, n ? "B" : "A", typed ? n : 0);
            if (last >= 0) put_special(t, last, typed ? n : 0);
        }
        mha__gguf_end_list(t);
    }
    mha__json_key(&t->w, "special_tokens");
    mha__json_open(&t->w, '{');
    for (int n = 0; n < 2; n++) {
        const int64_t id = n ? last : first;
        char token[64];
        if (id < 0 || (n && first == last)) continue;
        snprintf(token, sizeof token, "%.*s", (int)t->words.bytes[id], t->words.text[id]);
        mha__json_key(&t->w, token);
        mha__json_open(&t->w, '{');
        mha__json_key(&t->w, "id");
        mha__gguf_put_word(t, id);
        mha__gguf_begin_list(t, "ids");
        mha__json_put_int(&t->w, id);
        mha__gguf_end_list(t);
        mha__gguf_begin_list(t, "tokens");
        mha__gguf_put_word(t, id);
        mha__gguf_end_list(t);
        mha__gguf_end(t);
    }
    mha__gguf_end(t);
    mha__gguf_end(t);
}

/* Finds the tokens that are added before and after a text. */
static mha_status find_ends(const mha__gguf_translation *t, int64_t *first, int64_t *last)
{
    bool begins = t->model == MHA__GGUF_BYTE_LEVEL ? t->pre->starts : t->model != MHA__GGUF_UNIGRAM;
    bool ends = t->model == MHA__GGUF_UNIGRAM;
    static const char known[] = "the id of a token, since one is added to each text";
    int64_t sep = -1;
    MHA__TRY(mha__gguf_bool(t->file, MHA__GGUF_KEY("add_bos_token"), &begins, t->err));
    MHA__TRY(mha__gguf_bool(t->file, MHA__GGUF_KEY("add_eos_token"), &ends, t->err));
    MHA__TRY(mha__gguf_token_id(t, MHA__GGUF_KEY("bos_token_id"), first));
    if (t->model == MHA__GGUF_WORDPIECE && *first < 0)
        MHA__TRY(mha__gguf_token_id(t, MHA__GGUF_KEY("cls_token_id"), first));
    MHA__TRY(mha__gguf_token_id(t, MHA__GGUF_KEY("eos_token_id"), last));
    if (t->model == MHA__GGUF_WORDPIECE) MHA__TRY(mha__gguf_token_id(t, MHA__GGUF_KEY("seperator_token_id"), &sep));
    if (sep >= 0) *last = sep;
    if (t->model == MHA__GGUF_WORDPIECE) ends = true;
    if (begins && *first < 0) return mha__gguf_refuse(t->file, MHA__GGUF_KEY("bos_token_id"), known, t->err);
    if (ends && *last < 0) return mha__gguf_refuse(t->file, MHA__GGUF_KEY("eos_token_id"), known, t->err);
    if (!begins) *first = -1;
    if (!ends) *last = -1;
    for (int n = 0; n < 2; n++) {
        const int64_t id = n ? *last : *first;
        if (id >= 0 &&
            (!t->words.bytes[id] || t->words.bytes[id] > 60 || memchr(t->words.text[id], 0, t->words.bytes[id])))
            return mha__gguf_refuse(t->file, n ? MHA__GGUF_KEY("eos_token_id") : MHA__GGUF_KEY("bos_token_id"),
                                    "a token of 1 to 60 bytes without NUL characters", t->err);
    }
    return MHA_OK;
}

mha_status mha__gguf_put_post_processor(mha__gguf_translation *t)
{
    int64_t first, last;
    MHA__TRY(find_ends(t, &first, &last));
    const bool adds = first >= 0 || last >= 0;
    if (adds && t->model == MHA__GGUF_BYTE_LEVEL) {
        mha__gguf_begin(t, "post_processor", "Sequence");
        mha__gguf_begin_list(t, "processors");
        mha__gguf_put_byte_level(t, NULL, true);
        put_template(t, NULL, first, last);
        mha__gguf_end_list(t);
        mha__gguf_end(t);
    } else if (adds)
        put_template(t, "post_processor", first, last);
    else if (t->model == MHA__GGUF_BYTE_LEVEL)
        mha__gguf_put_byte_level(t, "post_processor", true);
    return MHA_OK;
}
