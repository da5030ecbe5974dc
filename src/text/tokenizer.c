/* tokenizer.c - opening tokenizer.json, and what a tokenizer knows about its tokens.
 *
 * Everything in the file is checked before it is stored, and nothing is allocated from a number that stands in it:
 * the table of tokens by id has an entry per id, and ids stay below 4 times the number of tokens and 1024.
 */
#include "text/tokenizer.h"

#include "base/ctx.h"
#include "io/limits.h"
#include <stdio.h>
#include <string.h>

mha_status mha__copy_text(mha_tokenizer *t, const char *text, char **copy, mha_error *err)
{
    size_t bytes = strlen(text) + 1;
    *copy = mha__alloc(t->ctx, bytes);
    if (!*copy) return mha__no_memory(err, bytes, "the tokenizer");
    memcpy(*copy, text, bytes);
    return MHA_OK;
}

/* "FILE: model.type: "BPE" is not supported (supported: WordPiece)" */
static mha_status refuse_type(const mha__json_obj *json, const mha__kind *const *kinds, mha_error *err)
{
    char known[256] = "";
    for (size_t n = 0; *kinds && n < sizeof known; kinds++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", (*kinds)->type);
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s.type: %s is not supported (supported: %s)", json->file,
                     json->where, mha__json_show(&(mha__quoted){0}, json_object_get(json->json, "type")), known);
}

mha_status mha__stage_load(mha_tokenizer *t, const mha__json_obj *root, const char *stage,
                           const mha__kind *const *kinds, const mha__kind **kind, mha_error *err)
{
    mha__json_obj json;
    const char *type;
    *kind = NULL;
    MHA__TRY(mha__json_object(root, stage, MHA__OPTIONAL, &json, err));
    if (!json.json) return MHA_OK;
    MHA__TRY(mha__json_string(&json, "type", MHA__REQUIRED, &type, NULL, err));
    for (size_t i = 0; kinds[i]; i++)
        if (strcmp(kinds[i]->type, type) == 0) {
            *kind = kinds[i];
            return kinds[i]->load(t, &json, err);
        }
    return refuse_type(&json, kinds, err);
}

/* ---- tokens by id ---- */

static int64_t largest_id(const mha_tokenizer *t)
{
    int64_t largest = -1;
    for (size_t i = 0; i < t->vocab.count; i++)
        if (t->vocab.entries[i].value > largest) largest = t->vocab.entries[i].value;
    for (size_t i = 0; i < t->added_count; i++)
        if (t->added[i].id > largest) largest = t->added[i].id;
    return largest;
}

static mha_status name_id(mha_tokenizer *t, int32_t id, const char *token, const char *shown, mha_error *err)
{
    const char *other = t->token[id];
    if (other && strcmp(other, token) != 0)
        return mha__fail(err, MHA_ERR_FORMAT, MHA__TOKENIZER_FILE ": id %d: want one token, got \"%s\" and \"%s\"",
                         (int)id, mha__quote(&(mha__quoted){0}, other, strlen(other)),
                         mha__quote(&(mha__quoted){0}, token, strlen(token)));
    t->token[id] = shown;
    return MHA_OK;
}

static mha_status build_ids(mha_tokenizer *t, mha_error *err)
{
    t->ids = largest_id(t) + 1;
    size_t n = (size_t)t->ids + 1;
    t->token = mha__calloc(t->ctx, n, sizeof *t->token);
    t->special = mha__calloc(t->ctx, n, sizeof *t->special);
    if (!t->token || !t->special) return mha__no_memory(err, n * (sizeof *t->token + sizeof *t->special), "the tokens");
    for (size_t i = 0; i < t->vocab.count; i++)
        MHA__TRY(name_id(t, t->vocab.entries[i].value, t->vocab.bytes + t->vocab.entries[i].begin,
                         t->vocab.bytes + t->vocab.entries[i].begin, err));
    for (size_t i = 0; i < t->added_count; i++) {
        MHA__TRY(name_id(t, t->added[i].id, t->added[i].content, t->added[i].shown, err));
        if (t->added[i].special) t->special[t->added[i].id] = true;
    }
    return MHA_OK;
}

/* ---- opening ---- */

/* Counts tokens wherever they are listed; the loaders check what they are. */
static int64_t limit_of_ids(const json_t *root)
{
    size_t tokens = json_object_size(json_object_get(json_object_get(root, "model"), "vocab")) +
                    json_array_size(json_object_get(root, "added_tokens"));
    int64_t limit = 4 * (int64_t)tokens + 1024;
    return limit <= INT32_MAX ? limit : INT32_MAX;
}

static mha_status load(mha_tokenizer *t, const json_t *json, mha_error *err)
{
    mha__json_obj root = {json, MHA__TOKENIZER_FILE, NULL};
    t->id_limit = limit_of_ids(json);
    MHA__TRY(mha__model_load(t, &root, err)); /* first: its name says most about why a file is refused */
    MHA__TRY(mha__normalizer_load(t, &root, err));
    MHA__TRY(mha__splitter_load(t, &root, err));
    MHA__TRY(mha__added_load(t, &root, err));
    MHA__TRY(build_ids(t, err));
    MHA__TRY(mha__template_load(t, &root, err));
    MHA__TRY(mha__decoder_load(t, &root, err));
    return mha__limits_load(t, &root, err);
}

mha_status mha__tokenizer_make(mha_ctx *ctx, const json_t *json, mha_tokenizer **out, mha_error *err)
{
    mha_tokenizer *t = mha__calloc(ctx, 1, sizeof *t);
    *out = NULL;
    if (!t) return mha__no_memory(err, sizeof *t, "the tokenizer");
    t->ctx = ctx;
    mha_status status = load(t, json, err);
    if (status == MHA_OK)
        *out = t;
    else
        mha_tokenizer_free(t);
    return status;
}

mha_status mha_tokenizer_open(mha_ctx *ctx, const char *folder, mha_tokenizer **out, mha_error *err)
{
    json_t *json = NULL;
    if (!out || !folder) return mha__fail(err, MHA_ERR_ARG, "%s: want an address, got NULL", out ? "folder" : "out");
    *out = NULL;
    mha_status status = mha__json_read(ctx, folder, MHA__TOKENIZER_FILE, MHA__JSON_BYTES, &json, err);
    if (status == MHA_OK) status = mha__tokenizer_make(ctx, json, out, err);
    json_decref(json);
    return mha__in_folder(status, folder, MHA__TOKENIZER_FILE, err);
}

void mha_tokenizer_free(mha_tokenizer *t)
{
    if (!t) return;
    mha_ctx *ctx = t->ctx;
    mha__vocab_free(&t->vocab);
    mha__free(ctx, (void *)t->wordpiece.prefix.bytes);
    mha__added_free(t);
    mha__free(ctx, t->token);
    mha__free(ctx, t->special);
    mha__free(ctx, t->single.items);
    mha__free(ctx, t->pair.items);
    mha__free(ctx, t->wordpiece_decoder.prefix);
    mha__free(ctx, t);
}

/* ---- looking up ---- */

int64_t mha_tokenizer_size(const mha_tokenizer *t)
{
    return t ? t->ids : 0;
}

const char *mha_tokenizer_token(const mha_tokenizer *t, int32_t id)
{
    return t && id >= 0 && id < t->ids ? t->token[id] : NULL;
}

int32_t mha_tokenizer_id(const mha_tokenizer *t, const char *token)
{
    if (!t || !token) return -1;
    int32_t added = mha__vocab_find(&t->added_names, token, strlen(token));
    return added >= 0 ? t->added[added].id : mha__vocab_find(&t->vocab, token, strlen(token));
}

int mha_tokenizer_is_special(const mha_tokenizer *t, int32_t id)
{
    return mha_tokenizer_token(t, id) && t->special[id];
}
