/* gguf_template_write.c - the tokens that a tokenizer.json adds to a text, as keys of a GGUF file. */
#include "text/gguf/gguf_writing.h"
#include <string.h>

/* Returns the name of a special token of a template; NULL for a text. */
static const mha__json *special_of(const mha__json *item)
{
    return mha__json_get(mha__json_get(item, "SpecialToken"), "id");
}

/* Writes the id of a special token that the template adds at one end. */
static mha_status put_end(mha__gguf_writing *w, const mha__json *item, const char *key, const char *flag, bool *found)
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
    return name ? mha__gguf_refuse_json(w, "post_processor", "a template of known tokens", name) : MHA_OK;
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
static bool is_usual_pair(const mha__gguf_writing *w, const mha__json *pair, const mha__json *first,
                          const mha__json *last)
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

mha_status mha__gguf_put_template(mha__gguf_writing *w, bool wordpiece)
{
    const mha__json *post = mha__json_get(w->root.json, "post_processor"), *list = mha__json_get(post, "processors");
    const size_t count = mha__json_size(list);
    bool first = false, last = false;
    for (size_t n = 0; n + 1 < count; n++)
        if (!mha__gguf_has_type(mha__json_item(list, n), "ByteLevel"))
            return mha__gguf_refuse_json(w, "post_processor.processors", "ByteLevel before the template",
                                         mha__json_item(list, n));
    if (mha__gguf_has_type(post, "Sequence")) post = mha__json_item(list, count - 1);
    const mha__json *single = mha__json_get(post, "single");
    if (!mha__gguf_is_absent(post) && !mha__gguf_has_type(post, "TemplateProcessing") &&
        !mha__gguf_has_type(post, "ByteLevel"))
        return mha__gguf_refuse_json(w, "post_processor.type", "TemplateProcessing or ByteLevel",
                                     mha__json_get(post, "type"));
    const size_t n = mha__json_size(single);
    MHA__TRY(put_end(w, n > 1 ? mha__json_item(single, 0) : NULL, MHA__GGUF_KEY("bos_token_id"),
                     MHA__GGUF_KEY("add_bos_token"), &first));
    MHA__TRY(put_end(w, n > 1 ? mha__json_item(single, n - 1) : NULL,
                     wordpiece ? MHA__GGUF_KEY("seperator_token_id") : MHA__GGUF_KEY("eos_token_id"),
                     wordpiece ? NULL : MHA__GGUF_KEY("add_eos_token"), &last));
    if (!last && w->eos >= 0) mha__gguf_key_u32(w->keys, MHA__GGUF_KEY("eos_token_id"), (uint32_t)w->eos);
    if (n > 1 + (size_t)first + (size_t)last || (wordpiece && (!first || !last)))
        return mha__gguf_refuse_json(w, "post_processor.single", "one text between at most one token on each side",
                                     single);
    const mha__json *pair = mha__json_get(post, "pair");
    const mha__json *begin = first ? special_of(mha__json_item(single, 0)) : NULL,
                    *end = last ? special_of(mha__json_item(single, n - 1)) : NULL;
    if ((first || last) && !mha__gguf_is_absent(pair) && !is_usual_pair(w, pair, begin, end))
        return mha__gguf_refuse_json(
            w, "post_processor.pair",
            "the tokens of a single text around each text, with type_id 1 for B unless the model is Unigram", pair);
    return MHA_OK;
}
