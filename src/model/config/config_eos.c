/* config_eos.c - reads the end-of-text tokens from generation_config.json or, if it defines none, from config.json. If
 * neither file defines them, the family's default is used. */
#include "base/error.h"
#include "io/files/input_file.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"

#define FILE_NAME "generation_config.json"
#define KEY "eos_token_id"

/* Adds an end-of-text token; returns false if the value is not a token id. */
static bool add(const mha__json *value, mha__config *c)
{
    const int64_t id = mha__json_as_int(value);
    if (!mha__json_is(value, MHA__JSON_INTEGER) || id < 0 || id > INT32_MAX) return false;
    if (id < c->vocab) c->eos[c->eos_count++] = (int32_t)id; /* ids outside the vocabulary are never generated */
    return true;
}

/* Reads the end-of-text tokens of an object; sets *found to true if the object defines them. */
static mha_status take(const mha__json_obj *o, mha__config *c, bool *found, mha_error *err)
{
    const mha__json *value = mha__json_get(o->json, KEY);
    *found = mha__json_has(o, KEY);
    if (!*found) return MHA_OK;
    if (!mha__json_is(value, MHA__JSON_ARRAY))
        return add(value, c) ? MHA_OK : mha__json_refuse(o, KEY, "a token id or a list of token ids", err);
    if (mha__json_size(value) > MHA__EOS)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s must have at most %d token ids (got %zu)", o->file, KEY,
                         MHA__EOS, mha__json_size(value));
    for (size_t i = 0; i < mha__json_size(value); i++)
        if (!add(mha__json_item(value, i), c)) return mha__json_refuse_item(o, KEY, i, "a token id of at least 0", err);
    return MHA_OK;
}

static mha_status read_file(mha_ctx *ctx, const char *folder, mha__config *c, bool *found, mha_error *err)
{
    const mha__json *json = NULL;
    MHA__TRY(mha__json_read(ctx, folder, FILE_NAME, MHA__CONFIG_BYTES, &json, err));
    const mha_status status = take(&(mha__json_obj){.json = json, .file = FILE_NAME}, c, found, err);
    mha__json_free(json);
    return status;
}

mha_status mha__config_eos(mha_ctx *ctx, const char *folder, const mha__json_obj *root, mha__config *c, mha_error *err)
{
    bool found = false;
    if (mha__source_exists(folder, FILE_NAME))
        MHA__TRY(mha__in_folder(read_file(ctx, folder, c, &found, err), folder, FILE_NAME, err));
    if (!found) MHA__TRY(take(root, c, &found, err));
    if (!found && c->family->eos > 0 && c->family->eos < c->vocab) c->eos[c->eos_count++] = c->family->eos;
    return MHA_OK;
}
