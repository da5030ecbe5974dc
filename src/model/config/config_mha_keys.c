/* config_mha_keys.c - reads the config.json keys of this project: the parts of each layer, and the attention options
 * that differ from the family's defaults. */
#include "base/error.h"
#include "io/json/json.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"
#include <float.h>
#include <math.h>
#include <stdio.h>

#define FEED "mha.feed_forward"
#define ATTENTION "mha.attention"

/* ---- the feed-forward part ---- */

mha_status mha__config_feed(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const mha__json *given = mha__json_get(root->json, FEED),
                    *list = mha__json_is(given, MHA__JSON_ARRAY) ? given : NULL;
    bool every = true;
    if (!list) MHA__TRY(mha__json_bool(root, FEED, MHA__OPTIONAL, &every, err));
    if (list) MHA__TRY(mha__config_count(root, FEED, list, c->layers, "true or false per layer", err));
    for (int64_t layer = 0; layer < c->layers; layer++) {
        const mha__json *item = mha__json_item(list, (size_t)layer);
        if (list && !mha__json_is_bool(item))
            return mha__json_refuse_item(root, FEED, (size_t)layer, "true or false", err);
        c->attention_only[layer] = list ? mha__json_is(item, MHA__JSON_FALSE) : !every;
        if (c->attention_only[layer]) c->own_key = FEED;
    }
    return MHA_OK;
}

/* ---- attention options ---- */

static const char *const keys[] = {"adaptive_heads", "alibi", "head_pruning", "moe_heads", "qk_norm",
                                   "rotary",         "scale", "softcap",      "window",    NULL};

/* Reads a number > 0, or null as 0; an absent key leaves *value unchanged. */
static mha_status read_or_off(const mha__json_obj *entry, const char *key, double *value, mha_error *err)
{
    if (mha__json_is(mha__json_get(entry->json, key), MHA__JSON_NULL)) *value = 0;
    return mha__json_number(entry, key, MHA__OPTIONAL, FLT_MIN, FLT_MAX, value, err);
}

static mha_status read_entry(const mha__json_obj *entry, mha__config *c, int64_t layer, mha_error *err)
{
    mha__layer_attention *a = &c->attention[layer];
    MHA__TRY(mha__json_only(entry, keys,
                            "adaptive_heads, alibi, head_pruning, moe_heads, qk_norm, rotary, scale, softcap and "
                            "window; head counts are in mha.heads and mha.kv_heads",
                            err));
    if (mha__json_is(mha__json_get(entry->json, "window"), MHA__JSON_NULL)) a->window = 0;
    MHA__TRY(mha__json_dim(entry, "window", MHA__OPTIONAL, MHA__DIM, &a->window, err));
    MHA__TRY(read_or_off(entry, "scale", &a->scale, err));
    MHA__TRY(read_or_off(entry, "softcap", &a->softcap, err));
    MHA__TRY(mha__json_bool(entry, "rotary", MHA__OPTIONAL, &a->turned, err));
    MHA__TRY(mha__json_bool(entry, "qk_norm", MHA__OPTIONAL, &a->normed, err));
    MHA__TRY(mha__json_bool(entry, "alibi", MHA__OPTIONAL, &a->alibi, err));
    return mha__config_choice(entry, c, layer, err);
}

/* Returns the default scale of scores; 0 = 1 / sqrt(head_dim). */
static double scale_of(const mha__config *c, int64_t layer)
{
    if (c->attention_multiplier != 0) return c->attention_multiplier;
    const double width = c->query_scalar != 0 ? c->query_scalar : (double)c->head_dim;
    if (c->query_scalar == 0 && c->scaled && !c->inverse_layer_scale) return 0;
    return (c->scaled ? 1 / sqrt(width) : 1) / (c->inverse_layer_scale ? (double)(layer + 1) : 1);
}

mha_status mha__config_attention(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const mha__json *given = mha__json_get(root->json, ATTENTION),
                    *list = mha__json_is(given, MHA__JSON_ARRAY) ? given : NULL;
    if (list) MHA__TRY(mha__config_count(root, ATTENTION, list, c->layers, "one entry per layer", err));
    for (int64_t layer = 0; layer < c->layers; layer++) {
        char where[48];
        const mha__json *item = list ? mha__json_item(list, (size_t)layer) : given;
        const mha__json_obj entry = {.json = item, .file = root->file, .where = where};
        mha__layer_attention *a = &c->attention[layer];
        a->scale = scale_of(c, layer);
        a->softcap = c->softcap;
        a->turned = c->family->rotary && !c->unturned[layer];
        a->alibi = c->family->alibi;
        a->local = c->family->local_theta != 0 && a->window > 0;
        a->normed = c->family->normed || c->qk_normed;
        snprintf(where, sizeof where, list ? ATTENTION "[%lld]" : ATTENTION, (long long)layer);
        if (!item || mha__json_is(item, MHA__JSON_NULL)) continue;
        if (!mha__json_is(item, MHA__JSON_OBJECT))
            return mha__fail(err, MHA_ERR_FORMAT,
                             "%s: %s must be an object, or null for the default of the family (got %s)", root->file,
                             where, mha__json_show(&(mha__quoted){0}, item));
        if (mha__json_size(item)) c->own_key = ATTENTION;
        MHA__TRY(read_entry(&entry, c, layer, err));
    }
    return MHA_OK;
}
