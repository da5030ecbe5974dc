/* normalize.c - loads the normalizer: maps each normalizer type to its edits. */
#include "text/tokenizer.h"

static mha_status load_bert(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__edit edit = {.run = mha__edit_bert, .rewrites = true};
    MHA__TRY(mha__json_bool(json, "clean_text", MHA__REQUIRED, &edit.bert.clean_text, err));
    MHA__TRY(mha__json_bool(json, "handle_chinese_chars", MHA__REQUIRED, &edit.bert.chinese, err));
    MHA__TRY(mha__json_bool(json, "lowercase", MHA__REQUIRED, &edit.bert.lowercase, err));
    edit.bert.strip_accents = edit.bert.lowercase;
    MHA__TRY(mha__json_bool(json, "strip_accents", MHA__OPTIONAL, &edit.bert.strip_accents, err));
    return mha__edit_add(t, json, list, &edit, err);
}

static mha_status load_form(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    const char *type = mha__json_as_text(mha__json_get(json->json, "type")); /* NFC, NFD, NFKC, NFKD */
    mha__edit edit = {.run = mha__edit_form, .rewrites = true};
    edit.form.compatible = type[2] == 'K';
    edit.form.compose = type[2] == 'C' || type[3] == 'C';
    return mha__edit_add(t, json, list, &edit, err);
}

static mha_status load_prepend(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    const char *text;
    mha__edit edit = {.run = mha__edit_prefix, .rewrites = true};
    MHA__TRY(mha__json_string(json, "prepend", MHA__REQUIRED, &text, &edit.prefix.n, err));
    MHA__TRY(mha__copy_text(t, text, edit.prefix.n, &edit.prefix.text, err));
    return mha__edit_add(t, json, list, &edit, err);
}

static mha_status load_replace(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__edit edit = {.run = mha__edit_replace, .rewrites = true};
    MHA__TRY(mha__replace_load(t, json, &edit.replace.pattern, &edit.replace.with, &edit.replace.n, err));
    return mha__edit_add(t, json, list, &edit, err);
}

static mha_status load_strip(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__edit edit = {.run = mha__edit_strip, .rewrites = true};
    MHA__TRY(mha__json_bool(json, "strip_left", MHA__REQUIRED, &edit.strip.left, err));
    MHA__TRY(mha__json_bool(json, "strip_right", MHA__REQUIRED, &edit.strip.right, err));
    return mha__edit_add(t, json, list, &edit, err);
}

static mha_status load_strip_accents(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    const mha__edit edit = {.run = mha__edit_drop, .rewrites = true, .dropped = MHA__CHAR_COMBINING};
    return mha__edit_add(t, json, list, &edit, err);
}

static mha_status load_lowercase(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    const mha__edit edit = {.run = mha__edit_bert, .rewrites = true, .bert.lowercase = true};
    return mha__edit_add(t, json, list, &edit, err);
}

static mha_status load_charsmap(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    const char *text;
    const char *blob;
    size_t n;
    mha__edit edit = {.run = mha__edit_charsmap, .rewrites = true};
    MHA__TRY(mha__json_string(json, "precompiled_charsmap", MHA__REQUIRED, &text, &n, err));
    MHA__TRY(mha__copy_text(t, text, n, &blob, err)); /* base64 is decoded in place, because the result is shorter */
    MHA__TRY(mha__charsmap_load(json, text, n, (unsigned char *)(uintptr_t)blob, &edit.charsmap, err));
    return mha__edit_add(t, json, list, &edit, err);
}

static const mha__kind kinds[] = {
    {"BertNormalizer", load_bert},
    {"NFC", load_form},
    {"NFD", load_form},
    {"NFKC", load_form},
    {"NFKD", load_form},
    {"Prepend", load_prepend},
    {"Replace", load_replace},
    {"Strip", load_strip},
    {"StripAccents", load_strip_accents},
    {"Lowercase", load_lowercase},
    {"Precompiled", load_charsmap},
    {NULL, NULL},
};

mha_status mha__normalizer_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    static const mha__stage stage = {"normalizer", "normalizers", kinds};
    return mha__stage_load(t, root, &stage, &t->normalizer, NULL, err);
}

mha_status mha__normalize(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, mha__slice *out)
{
    *out = *in;
    return mha__edits_run(&t->normalizer, pass, pass->normal, out);
}
