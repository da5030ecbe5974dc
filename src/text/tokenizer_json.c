/* tokenizer_json.c - finds the kind of a stage's object, and reads elements of tokenizer.json that several stages
 * use. */
#include "base/ctx.h"
#include "base/utf8.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <string.h>

/* ---- copies of strings in the file ---- */

struct mha__copy {
    mha__copy *next;
    char text[];
};

mha_status mha__copy_text(mha_tokenizer *t, const char *text, size_t n, const char **copy, mha_error *err)
{
    size_t bytes = sizeof(mha__copy) + n + 1;
    MHA__TRY(mha__room_take(&t->room, bytes, err));
    mha__copy *c = mha__alloc(t->ctx, bytes);
    if (!c) return mha__no_memory(err, bytes, "the tokenizer");
    memcpy(c->text, text, n);
    c->text[n] = '\0';
    c->next = t->copies;
    t->copies = c;
    *copy = c->text;
    return MHA_OK;
}

void mha__free_copies(mha_tokenizer *t)
{
    while (t->copies) {
        mha__copy *c = t->copies;
        t->copies = c->next;
        mha__free(t->ctx, c);
    }
}

/* ---- stages ---- */

/* Fails with a message such as: FILE: model.type must be one of WordPiece, BPE (got "BNE") */
static mha_status refuse_type(const mha__json_obj *json, const mha__stage *stage, mha_error *err)
{
    char known[256] = "";
    size_t n = 0;
    for (const mha__kind *kind = stage->kinds; kind->type && n < sizeof known; kind++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", kind->type);
    if (stage->list && n < sizeof known) snprintf(known + n, sizeof known - n, ", Sequence");
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s.type must be one of %s (got %s)", json->file, json->where, known,
                     mha__json_show(&(mha__quoted){0}, mha__json_get(json->json, "type")));
}

static mha_status load_object(mha_tokenizer *t, const mha__json_obj *json, const mha__stage *stage, void *into,
                              mha_error *err);

/* Loads all items of a Sequence. The parser's nesting limit bounds the recursion. */
static mha_status load_sequence(mha_tokenizer *t, const mha__json_obj *json, const mha__stage *stage, void *into,
                                mha_error *err)
{
    const mha__json *list;
    MHA__TRY(mha__json_array(json, stage->list, MHA__REQUIRED, &list, err));
    for (mha__json_step i = {0}; mha__json_each(list, &i);) {
        char where[128];
        snprintf(where, sizeof where, "%s.%s[%zu]", json->where, stage->list, i.index);
        mha__json_obj item = {i.value, json->file, where};
        if (!mha__json_is(i.value, MHA__JSON_OBJECT))
            return mha__fail(err, MHA_ERR_FORMAT, "%s: %s must be an object (got %s)", json->file, where,
                             mha__json_show(&(mha__quoted){0}, i.value));
        MHA__TRY(load_object(t, &item, stage, into, err));
    }
    return MHA_OK;
}

static mha_status load_object(mha_tokenizer *t, const mha__json_obj *json, const mha__stage *stage, void *into,
                              mha_error *err)
{
    const char *type;
    MHA__TRY(mha__json_string(json, "type", MHA__REQUIRED, &type, NULL, err));
    if (stage->list && strcmp(type, "Sequence") == 0) return load_sequence(t, json, stage, into, err);
    for (const mha__kind *kind = stage->kinds; kind->type; kind++)
        if (strcmp(kind->type, type) == 0) return kind->load(t, json, into, err);
    return refuse_type(json, stage, err);
}

mha_status mha__stage_load(mha_tokenizer *t, const mha__json_obj *root, const mha__stage *stage, void *into,
                           bool *found, mha_error *err)
{
    mha__json_obj json;
    MHA__TRY(mha__json_object(root, stage->name, MHA__OPTIONAL, &json, err));
    if (found) *found = json.json != NULL;
    return json.json ? load_object(t, &json, stage, into, err) : MHA_OK;
}

/* ---- elements that several stages read ---- */

mha_status mha__edit_add(const mha_tokenizer *t, const mha__json_obj *json, void *list, const mha__edit *edit,
                         mha_error *err)
{
    (void)t;
    mha__edit_list *edits = list;
    if (edits->count == MHA__EDITS)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must have at most %d steps", json->file, json->where,
                         (int)MHA__EDITS);
    edits->items[edits->count++] = *edit;
    return MHA_OK;
}

mha_status mha__replace_load(mha_tokenizer *t, const mha__json_obj *json, mha__pattern *pattern, const char **with,
                             size_t *n, mha_error *err)
{
    const char *content;
    MHA__TRY(mha__pattern_load(t->ctx, &t->regexes, json, pattern, err));
    if (pattern->string) MHA__TRY(mha__copy_text(t, pattern->string, pattern->n, &pattern->string, err));
    MHA__TRY(mha__json_string(json, "content", MHA__REQUIRED, &content, n, err));
    return mha__copy_text(t, content, *n, with, err);
}

mha_status mha__character_load(mha_tokenizer *t, const mha__json_obj *json, const char *key, const char **text,
                               size_t *n, mha_error *err)
{
    const char *read;
    uint32_t code;
    MHA__TRY(mha__json_string(json, key, MHA__REQUIRED, &read, n, err));
    if (*n == 0 || mha__utf8_read(read, *n, &code) != (int)*n) return mha__json_refuse(json, key, "one character", err);
    return mha__copy_text(t, read, *n, text, err);
}

/* Reads the settings of Metaspace. The marker is one character. In older files, "add_prefix_space" enables
 * prepending the marker; in newer files, "prepend_scheme" defines when the marker is prepended. As in the reference,
 * contradictory values are an error. */
mha_status mha__metaspace_load(mha_tokenizer *t, const mha__json_obj *json, mha__metaspace *m, mha_error *err)
{
    static const char *const schemes[] = {"always", "first", "never", NULL};
    int scheme = MHA__PREPEND_ALWAYS;
    bool prefix = true;
    *m = (mha__metaspace){.split = true};
    MHA__TRY(mha__character_load(t, json, "replacement", &m->mark, &m->n, err));
    MHA__TRY(mha__json_choice(json, "prepend_scheme", MHA__OPTIONAL, schemes, "\"always\", \"first\" or \"never\"",
                              &scheme, err));
    MHA__TRY(mha__json_bool(json, "add_prefix_space", MHA__OPTIONAL, &prefix, err));
    if (!prefix && scheme != MHA__PREPEND_NEVER)
        return mha__json_refuse(json, "add_prefix_space", "true unless prepend_scheme is \"never\"", err);
    m->scheme = (mha__prepend)scheme;
    return mha__json_bool(json, "split", MHA__OPTIONAL, &m->split, err);
}

/* ---- the vocabulary of WordPiece and BPE ---- */

static mha_status refuse_id(const mha__json_step *token, const char *want, mha_error *err)
{
    return mha__fail(err, MHA_ERR_FORMAT, MHA__TOKENIZER_FILE ": model.vocab: id of \"%s\" must be %s (got %s)",
                     mha__quote(&(mha__quoted){0}, mha__json_as_text(token->key), mha__json_bytes(token->key)), want,
                     mha__json_show(&(mha__quoted){0}, token->value));
}

/* Validates all ids before any token is stored, and sets *bytes to the total length of the keys. */
static mha_status measure_vocab(const mha_tokenizer *t, const mha__json *json, size_t *bytes, mha_error *err)
{
    *bytes = 0;
    for (mha__json_step i = {0}; mha__json_each(json, &i);) {
        const int64_t id = mha__json_is(i.value, MHA__JSON_INTEGER) ? mha__json_as_int(i.value) : -1;
        *bytes += mha__json_bytes(i.key); /* cannot overflow: all keys are part of the file */
        if (id < 0 || id >= t->id_limit) {
            char want[64];
            snprintf(want, sizeof want, "an integer from 0 to %lld", (long long)t->id_limit - 1);
            return refuse_id(&i, want, err);
        }
    }
    return MHA_OK;
}

mha_status mha__vocab_load(mha_tokenizer *t, const mha__json_obj *model, mha_error *err)
{
    mha__json_obj vocab = {0};
    size_t bytes;
    MHA__TRY(mha__json_object(model, "vocab", MHA__REQUIRED, &vocab, err));
    MHA__TRY(measure_vocab(t, vocab.json, &bytes, err));
    MHA__TRY(mha__vocab_create(t->ctx, mha__json_size(vocab.json), bytes, &t->room, &t->vocab, err));
    for (mha__json_step i = {0}; mha__json_each(vocab.json, &i);)
        MHA__TRY(mha__vocab_add(&t->vocab, mha__json_as_text(i.key), mha__json_bytes(i.key),
                                (int32_t)mha__json_as_int(i.value), NULL, err));
    return MHA_OK;
}
