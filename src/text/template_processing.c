/* template_processing.c - inserts special tokens around a text or a pair: TemplateProcessing and its older equivalents.
 *
 * Every post-processor type is converted to two lists of items, one for a single text and one for a pair. The items of
 * a list are texts and the special tokens around the texts. Without a post-processor, a text has no special tokens, and
 * the texts of a pair are concatenated. ByteLevel adds no tokens; it may exclude white space from token offsets. */
#include "base/ctx.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <string.h>

/* Allocates the items of a template; fails if the file already defines one. `json` is the object that defines the
 * template, or NULL. */
static mha_status start(mha_tokenizer *t, mha__template *list, size_t room, const mha__json_obj *json, mha_error *err)
{
    if (list->items)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must be the only template", json->file, json->where);
    MHA__TRY(mha__room_take(&t->room, (room + 1) * sizeof *list->items, err));
    list->items = mha__calloc(t->ctx, room + 1, sizeof *list->items);
    return list->items ? MHA_OK : mha__no_memory(err, (room + 1) * sizeof *list->items, "the template");
}

static void put_text(mha__template *list, int sequence, int32_t type_id)
{
    list->items[list->count++] = (mha__template_item){.sequence = sequence, .id = -1, .type_id = type_id};
}

static void put_special(mha__template *list, int32_t id, int32_t type_id)
{
    list->items[list->count++] = (mha__template_item){.sequence = -1, .id = id, .type_id = type_id};
    list->specials++;
}

static bool is_known_id(const mha_tokenizer *t, const mha__json *value)
{
    int64_t id = mha__json_as_int(value);
    return mha__json_is(value, MHA__JSON_INTEGER) && id >= 0 && id < t->ids && t->token[id];
}

static mha_status load_none(mha_tokenizer *t, mha_error *err)
{
    MHA__TRY(start(t, &t->single, 1, NULL, err));
    MHA__TRY(start(t, &t->pair, 2, NULL, err));
    put_text(&t->single, 0, 0);
    put_text(&t->pair, 0, 0);
    put_text(&t->pair, 1, 1);
    return MHA_OK;
}

/* ---- BertProcessing: [CLS] A [SEP], and B [SEP]; RobertaProcessing: <s> A </s>, and </s> B </s> ---- */

/* Reads a token and its id, such as "sep": ["[SEP]", 102]. */
static mha_status bert_token(const mha_tokenizer *t, const mha__json_obj *json, const char *key, int32_t *id,
                             mha_error *err)
{
    const mha__json *value = mha__json_get(json->json, key);
    if (!mha__json_is(value, MHA__JSON_ARRAY) || mha__json_size(value) != 2 ||
        !mha__json_is(mha__json_item(value, 0), MHA__JSON_STRING) || !is_known_id(t, mha__json_item(value, 1)))
        return mha__json_refuse(json, key, "[token, id] with an id in the vocabulary", err);
    *id = (int32_t)mha__json_as_int(mha__json_item(value, 1));
    return MHA_OK;
}

/* Creates the templates of BertProcessing or RobertaProcessing. The second text has type id `second_type`. If `twice`
 * is set, a second separator precedes the second text. */
static mha_status load_pair(mha_tokenizer *t, const mha__json_obj *json, int32_t second_type, bool twice,
                            mha_error *err)
{
    int32_t cls = -1;
    int32_t sep = -1;
    MHA__TRY(bert_token(t, json, "cls", &cls, err));
    MHA__TRY(bert_token(t, json, "sep", &sep, err));
    MHA__TRY(start(t, &t->single, 3, json, err));
    MHA__TRY(start(t, &t->pair, 6, json, err));
    mha__template *both[] = {&t->single, &t->pair};
    for (int i = 0; i < 2; i++) {
        put_special(both[i], cls, 0);
        put_text(both[i], 0, 0);
        put_special(both[i], sep, 0);
    }
    if (twice) put_special(&t->pair, sep, 0);
    put_text(&t->pair, 1, second_type);
    put_special(&t->pair, sep, second_type);
    return MHA_OK;
}

static mha_status bert_load(mha_tokenizer *t, const mha__json_obj *json, void *into, mha_error *err)
{
    (void)into;
    return load_pair(t, json, 1, false, err);
}

/* ---- trim_offsets of ByteLevel and RobertaProcessing ---- */

static mha_status bytes_load(mha_tokenizer *t, const mha__json_obj *json, void *into, mha_error *err)
{
    (void)into;
    bool trim = false;
    bool prefix_space = false;
    MHA__TRY(mha__json_bool(json, "trim_offsets", MHA__REQUIRED, &trim, err));
    MHA__TRY(mha__json_bool(json, "add_prefix_space", MHA__REQUIRED, &prefix_space, err));
    if (!trim) return MHA_OK;
    if (t->trim.wanted) return mha__json_refuse(json, "trim_offsets", "true in at most one post-processor", err);
    t->trim.wanted = true;
    t->trim.prefix_space = prefix_space;
    return MHA_OK;
}

static mha_status roberta_load(mha_tokenizer *t, const mha__json_obj *json, void *into, mha_error *err)
{
    MHA__TRY(bytes_load(t, json, into, err));
    return load_pair(t, json, 0, true, err);
}

/* ---- TemplateProcessing ---- */

enum { ITEMS_MAX = 1024 }; /* maximum number of items in a template; a special token counts once per id */

/* Appends the ids of a special token; `json` is {"id": name, "type_id": n}. */
static mha_status template_special(const mha_tokenizer *t, const mha__json_obj *json, const mha__json_obj *specials,
                                   int32_t type_id, mha__template *list, mha_error *err)
{
    const char *name;
    mha__json_obj special;
    const mha__json *ids;
    MHA__TRY(mha__json_string(json, "id", MHA__REQUIRED, &name, NULL, err));
    MHA__TRY(mha__json_object(specials, name, MHA__REQUIRED, &special, err));
    MHA__TRY(mha__json_array(&special, "ids", MHA__REQUIRED, &ids, err));
    if (list->count + mha__json_size(ids) > ITEMS_MAX)
        return mha__json_refuse(&special, "ids", "a template of at most 1024 items", err);
    for (mha__json_step i = {0}; mha__json_each(ids, &i);) {
        if (!is_known_id(t, i.value))
            return mha__fail(
                err, MHA_ERR_FORMAT,
                MHA__TOKENIZER_FILE ": post_processor.special_tokens: \"%s\": ids[%zu] must be an id in the "
                                    "vocabulary (got %s)",
                mha__quote(&(mha__quoted){0}, name, strlen(name)), i.index, mha__json_show(&(mha__quoted){0}, i.value));
        put_special(list, (int32_t)mha__json_as_int(i.value), type_id);
    }
    return MHA_OK;
}

static mha_status template_text(const mha__json_obj *json, int texts, int32_t type_id, mha__template *list,
                                mha_error *err)
{
    const char *name;
    MHA__TRY(mha__json_string(json, "id", MHA__REQUIRED, &name, NULL, err));
    int sequence = strcmp(name, "A") == 0 ? 0 : strcmp(name, "B") == 0 ? 1 : 2;
    if (sequence >= texts) return mha__json_refuse(json, "id", texts == 1 ? "\"A\"" : "\"A\" or \"B\"", err);
    put_text(list, sequence, type_id);
    return MHA_OK;
}

/* Appends one item of a template: {"SpecialToken": {...}} or {"Sequence": {...}}. */
static mha_status template_item(const mha_tokenizer *t, const mha__json_obj *item, const mha__json_obj *specials,
                                int texts, mha__template *list, mha_error *err)
{
    mha__json_obj special;
    mha__json_obj text;
    int64_t type_id;
    MHA__TRY(mha__json_object(item, "SpecialToken", MHA__OPTIONAL, &special, err));
    MHA__TRY(mha__json_object(item, "Sequence", special.json ? MHA__OPTIONAL : MHA__REQUIRED, &text, err));
    MHA__TRY(mha__json_int(special.json ? &special : &text, "type_id", MHA__REQUIRED, 0, INT32_MAX, &type_id, err));
    if (special.json) return template_special(t, &special, specials, (int32_t)type_id, list, err);
    return template_text(&text, texts, (int32_t)type_id, list, err);
}

static bool has_each_text_once(const mha__template *list, int texts)
{
    int seen[2] = {0};
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].sequence >= 0) seen[list->items[i].sequence]++;
    return seen[0] == 1 && seen[1] == (texts == 2);
}

static mha_status template_list(mha_tokenizer *t, const mha__json_obj *json, const char *key, int texts,
                                mha__template *list, mha_error *err)
{
    mha__json_obj specials;
    const mha__json *items;
    MHA__TRY(mha__json_object(json, "special_tokens", MHA__REQUIRED, &specials, err));
    MHA__TRY(mha__json_array(json, key, MHA__REQUIRED, &items, err));
    MHA__TRY(start(t, list, ITEMS_MAX, json, err));
    for (mha__json_step i = {0}; mha__json_each(items, &i);) {
        mha__json_obj item = {mha__json_is(i.value, MHA__JSON_OBJECT) ? i.value : NULL, json->file, key};
        if (list->count >= ITEMS_MAX) return mha__json_refuse(json, key, "at most 1024 items", err);
        MHA__TRY(template_item(t, &item, &specials, texts, list, err));
    }
    const char *want = texts == 1 ? "a template that contains Sequence A exactly once"
                                  : "a template that contains Sequences A and B exactly once";
    return has_each_text_once(list, texts) ? MHA_OK : mha__json_refuse(json, key, want, err);
}

static mha_status template_load(mha_tokenizer *t, const mha__json_obj *json, void *into, mha_error *err)
{
    (void)into;
    MHA__TRY(template_list(t, json, "single", 1, &t->single, err));
    return template_list(t, json, "pair", 2, &t->pair, err);
}

static const mha__kind kinds[] = {
    {"TemplateProcessing", template_load},
    {"BertProcessing", bert_load},
    {"RobertaProcessing", roberta_load},
    {"ByteLevel", bytes_load},
    {NULL, NULL},
};

mha_status mha__template_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    static const mha__stage stage = {"post_processor", "processors", kinds};
    MHA__TRY(mha__stage_load(t, root, &stage, NULL, NULL, err));
    return t->single.items ? MHA_OK : load_none(t, err);
}
