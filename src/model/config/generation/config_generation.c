/* config_generation.c - reads the end-of-text tokens, and the rules for generated text of encoder-decoders, from
 * generation_config.json or config.json. */
#include "base/ctx.h"
#include "io/files/input_file.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"

#define FILE_NAME "generation_config.json"
#define EOS "eos_token_id"
#define WORDS "bad_words_ids"
#define LAST "forced_eos_token_id"

/* ---- end-of-text tokens: if neither file defines them, those of the family ---- */

/* Adds an end-of-text token; returns false if the value is not a token id. */
static bool add_eos(const mha__json *value, mha__config *c)
{
    const int64_t id = mha__json_as_int(value);
    if (!mha__json_is(value, MHA__JSON_INTEGER) || id < 0 || id > INT32_MAX) return false;
    if (id < c->vocab) c->eos[c->eos_count++] = (int32_t)id; /* ids outside the vocabulary are never generated */
    return true;
}

/* Reads the end-of-text tokens of an object; sets *found to true if the object defines them. */
static mha_status take_eos(const mha__json_obj *o, mha__config *c, bool *found, mha_error *err)
{
    const mha__json *value = mha__json_get(o->json, EOS);
    *found = mha__json_has(o, EOS);
    if (!*found) return MHA_OK;
    if (!mha__json_is(value, MHA__JSON_ARRAY))
        return add_eos(value, c) ? MHA_OK : mha__json_refuse(o, EOS, "a token id or a list of token ids", err);
    if (mha__json_size(value) > MHA__EOS)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must have at most %d token ids (got %zu)", o->file, EOS,
                         MHA__EOS, mha__json_size(value));
    for (size_t i = 0; i < mha__json_size(value); i++)
        if (!add_eos(mha__json_item(value, i), c))
            return mha__json_refuse_item(o, EOS, i, "a token id of at least 0", err);
    return MHA_OK;
}

static mha_status read_eos(mha_ctx *ctx, const char *folder, mha__config *c, bool *found, mha_error *err)
{
    const mha__json *json = NULL;
    MHA__TRY(mha__json_read(ctx, folder, FILE_NAME, MHA__CONFIG_BYTES, &json, err));
    const mha_status status = take_eos(&(mha__json_obj){.json = json, .file = FILE_NAME}, c, found, err);
    mha__json_free(json);
    return status;
}

mha_status mha__config_eos(mha_ctx *ctx, const char *folder, const mha__json_obj *root, mha__config *c, mha_error *err)
{
    bool found = false;
    if (mha__source_exists(folder, FILE_NAME))
        MHA__TRY(mha__in_folder(read_eos(ctx, folder, c, &found, err), folder, FILE_NAME, err));
    if (!found) MHA__TRY(take_eos(root, c, &found, err));
    if (!found && (c->family->eos > 0 || c->family->eos_first) && c->family->eos < c->vocab)
        c->eos[c->eos_count++] = c->family->eos;
    return MHA_OK;
}

/* ---- rules: from config.json only if generation_config.json does not exist, as in transformers ---- */

/* Returns true if a banned word is one end-of-text token: transformers ignores such a word. */
static bool ends_text(const mha__config *c, const mha__json *word)
{
    bool ends = false;
    for (int64_t i = 0; mha__json_size(word) == 1 && i < c->eos_count; i++)
        ends |= mha__json_as_int(mha__json_item(word, 0)) == c->eos[i];
    return ends;
}

/* Appends the ids of a banned word, and -1; c->banned has space for them. */
static mha_status add_word(const mha__json_obj *o, size_t index, const mha__json *word, mha__config *c, mha_error *err)
{
    const size_t count = mha__json_is(word, MHA__JSON_ARRAY) ? mha__json_size(word) : 0;
    if (!count) return mha__json_refuse_item(o, WORDS, index, "a list of token ids", err);
    for (size_t i = 0; i < count; i++) {
        const int64_t id = mha__json_as_int(mha__json_item(word, i));
        if (!mha__json_is(mha__json_item(word, i), MHA__JSON_INTEGER) || id < 0 || id >= c->vocab)
            return mha__json_refuse_item(o, WORDS, index, "a list of token ids in the vocabulary", err);
    }
    if (ends_text(c, word)) return MHA_OK;
    for (size_t i = 0; i < count; i++)
        c->banned[c->banned_count++] = (int32_t)mha__json_as_int(mha__json_item(word, i));
    c->banned[c->banned_count++] = -1;
    return MHA_OK;
}

/* Reads the banned words. The size of the file limits their number. */
static mha_status take_words(mha_ctx *ctx, const mha__json_obj *o, mha__config *c, mha_error *err)
{
    const mha__json *words = NULL;
    size_t space = 0;
    MHA__TRY(mha__json_array(o, WORDS, MHA__OPTIONAL, &words, err));
    const size_t count = words ? mha__json_size(words) : 0;
    for (size_t i = 0; i < count; i++)
        space += mha__json_size(mha__json_item(words, i)) + 1;
    if (!count) return MHA_OK;
    c->banned = mha__alloc(ctx, space * sizeof *c->banned);
    if (!c->banned) return mha__no_memory(err, space * sizeof *c->banned, WORDS);
    for (size_t i = 0; i < count; i++)
        MHA__TRY(add_word(o, i, mha__json_item(words, i), c, err));
    return MHA_OK;
}

void mha__config_release(mha_ctx *ctx, mha__config *config)
{
    mha__free(ctx, config->banned);
    config->banned = NULL;
}

/* Reads the token that a text of max_new tokens ends with. Of a list, transformers gives all tokens the same score, and
 * greedy decoding takes the smallest id. */
static mha_status take_forced_last(const mha__json_obj *o, mha__config *c, mha_error *err)
{
    const mha__json *list = mha__json_get(o->json, LAST);
    if (!mha__json_is(list, MHA__JSON_ARRAY))
        return mha__json_int(o, LAST, MHA__OPTIONAL, 0, c->vocab - 1, &c->forced_last, err);
    for (size_t i = 0; i < mha__json_size(list); i++) {
        const int64_t id = mha__json_as_int(mha__json_item(list, i));
        if (!mha__json_is(mha__json_item(list, i), MHA__JSON_INTEGER) || id < 0 || id >= c->vocab)
            return mha__json_refuse_item(o, LAST, i, "a token id in the vocabulary", err);
        if (i == 0 || id < c->forced_last) c->forced_last = id;
    }
    return MHA_OK;
}

static mha_status take_rules(mha_ctx *ctx, const mha__json_obj *o, mha__config *c, mha_error *err)
{
    MHA__TRY(mha__json_int(o, "forced_bos_token_id", MHA__OPTIONAL, 0, c->vocab - 1, &c->forced_first, err));
    MHA__TRY(take_forced_last(o, c, err));
    MHA__TRY(take_words(ctx, o, c, err));
    return mha__config_token_rules(o, c, err);
}

static mha_status read_rules(mha_ctx *ctx, const char *folder, mha__config *c, mha_error *err)
{
    const mha__json *json = NULL;
    MHA__TRY(mha__json_read(ctx, folder, FILE_NAME, MHA__CONFIG_BYTES, &json, err));
    const mha__json_obj o = {.json = json, .file = FILE_NAME};
    mha_status status = mha__json_int(&o, "decoder_start_token_id", MHA__OPTIONAL, 0, c->vocab - 1, &c->start, err);
    if (status == MHA_OK) status = take_rules(ctx, &o, c, err);
    mha__json_free(json);
    return status;
}

mha_status mha__config_generation(mha_ctx *ctx, const char *folder, const mha__json_obj *root, mha__config *c,
                                  mha_error *err)
{
    c->label_start = c->start;
    if (!c->family->encoder) return MHA_OK;
    if (!mha__source_exists(folder, FILE_NAME)) return take_rules(ctx, root, c, err);
    return mha__in_folder(read_rules(ctx, folder, c, err), folder, FILE_NAME, err);
}
