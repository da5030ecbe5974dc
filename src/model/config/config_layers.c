/* config_layers.c - reads the heads, windows and rotation of each layer, under the key names of transformers 4.x and
 * 5.x. */
#include "model/config/config_layers.h"

#include "base/error.h"
#include "base/size.h"
#include "model/config/family.h"
#include <stdio.h>
#include <string.h>

/* Return the path of an object in the file, and the dot that follows it, for messages; "" for the root. */
static const char *path_of(const mha__json_obj *o)
{
    return o->where ? o->where : "";
}

static const char *dot_of(const mha__json_obj *o)
{
    return o->where ? "." : "";
}

mha_status mha__config_count(const mha__json_obj *o, const char *key, const mha__json *list, int64_t count,
                             const char *want, mha_error *err)
{
    if ((int64_t)mha__json_size(list) == count) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s%s%s must have %lld elements, %s (got %zu)", o->file, path_of(o),
                     dot_of(o), key, (long long)count, want, mha__json_size(list));
}

/* ---- layers without rotation ---- */

/* Reads which layers have rotation: the layers with 1 in no_rope_layers or, without that key, all layers except every
 * no_rope_layer_interval-th layer. */
mha_status mha__config_turned(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    static const char *const key = "no_rope_layers";
    const mha__json *list = NULL;
    if (!c->family->rope_list) return MHA_OK;
    MHA__TRY(mha__json_array(root, key, MHA__OPTIONAL, &list, err));
    if (list) MHA__TRY(mha__config_count(root, key, list, c->layers, "0 or 1 per layer", err));
    for (int64_t i = 0; i < c->layers; i++) {
        const mha__json *item = mha__json_item(list, (size_t)i);
        const int64_t value = mha__json_as_int(item);
        c->unturned[i] = list ? value == 0 : (i + 1) % c->rope_interval == 0;
        if (list && (!mha__json_is(item, MHA__JSON_INTEGER) || value < 0 || value > 1))
            return mha__json_refuse_item(root, key, (size_t)i, "0 or 1", err);
    }
    return MHA_OK;
}

/* ---- heads ---- */

#define HEADS "mha.heads"

/* The lists of the heads of one kind of attention, while they are read. */
typedef struct head_lists {
    const mha__json_obj *root;
    const char *name; /* of the lists, for messages */
    const mha__json *lists;
    int32_t *counts; /* [layers] written */
} head_lists;

/* Returns the name of the lists of a model; for one side of an encoder-decoder, it ends with the name of a member. */
static const char *name_of(const mha__config *c, bool cross)
{
    if (!c->family->one_side) return HEADS;
    return cross ? HEADS ".cross" : c->family->encoder ? HEADS ".decoder" : HEADS ".encoder";
}

mha_status mha__config_head_lists(const mha__json_obj *own, const mha__config *c, bool cross, const mha__json **lists,
                                  mha_error *err)
{
    static const char *const members[] = {"cross", "decoder", "encoder", NULL};
    mha__json_obj sides = {0};
    *lists = NULL;
    if (!c->family->one_side) return mha__json_array(own, HEADS, MHA__OPTIONAL, lists, err);
    MHA__TRY(mha__json_object(own, HEADS, MHA__OPTIONAL, &sides, err));
    if (!sides.json) return MHA_OK;
    MHA__TRY(mha__json_only(&sides, members, "cross, decoder and encoder", err));
    return mha__json_array(&sides, name_of(c, cross) + sizeof HEADS, MHA__OPTIONAL, lists, err);
}

static mha_status refuse_head(const head_lists *h, int64_t layer, const mha__json_step *place, const char *want,
                              mha_error *err)
{
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s%s%s[%lld][%zu] must be %s (got %s)", h->root->file, path_of(h->root),
                     dot_of(h->root), h->name, (long long)layer, place->index, want,
                     mha__json_show(&(mha__quoted){0}, place->value));
}

/* Reads a list of distinct heads in any order. */
static mha_status read_any_order(const head_lists *h, const mha__json *list, int64_t layer, const mha__config *c,
                                 mha_error *err)
{
    uint8_t seen[MHA__HEADS / 8] = {0};
    for (mha__json_step i = {0}; mha__json_each(list, &i);) {
        const int64_t head = mha__json_is(i.value, MHA__JSON_INTEGER) ? mha__json_as_int(i.value) : -1;
        if (head < 0 || head >= c->original_heads || (seen[head / 8] >> (head % 8) & 1))
            return refuse_head(h, layer, &i, "a distinct head number", err);
        seen[head / 8] |= (uint8_t)(1u << (head % 8));
    }
    if (mha__json_size(list) == 0)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: %s%s%s[%lld] must have at least one head (got an empty array)",
                         h->root->file, path_of(h->root), dot_of(h->root), h->name, (long long)layer);
    return MHA_OK;
}

/* Reads the head list of one layer. Heads must be in ascending order and in whole groups, because the operator requires
 * the same number of query heads for every key head. With "mha.kv_heads", groups follow the order of the list, which
 * may then be arbitrary. */
static mha_status read_heads(const head_lists *h, const mha__json *list, int64_t layer, const mha__config *c,
                             mha_error *err)
{
    const int64_t group = c->heads / c->kv_heads, count = (int64_t)mha__json_size(list);
    int64_t before = -1;
    if (mha__json_has(h->root, "mha.kv_heads")) return read_any_order(h, list, layer, c, err);
    for (mha__json_step i = {0}; mha__json_each(list, &i);) {
        const int64_t head = mha__json_is(i.value, MHA__JSON_INTEGER) ? mha__json_as_int(i.value) : -1;
        if (head <= before || head >= c->original_heads) {
            char want[80];
            snprintf(want, sizeof want, "a head number from 0 to %lld, greater than the previous one",
                     (long long)c->original_heads - 1);
            return refuse_head(h, layer, &i, want, err);
        }
        if ((int64_t)i.index % group == 0 ? head % group != 0 : head != before + 1)
            return refuse_head(h, layer, &i, "in a whole group of heads that share keys", err);
        before = head;
    }
    if (count > 0 && count % group == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s%s%s[%lld] must have whole groups of %lld heads (got %lld heads)",
                     h->root->file, path_of(h->root), dot_of(h->root), h->name, (long long)layer, (long long)group,
                     (long long)count);
}

/* Reads "keys" or "values" of mha.kv_heads: a head count, or a list with one head count per layer. */
static mha_status read_counts(const mha__json_obj *shared, const char *key, const mha__config *c, int32_t *counts,
                              mha_error *err)
{
    const mha__json *given = mha__json_get(shared->json, key),
                    *list = mha__json_is(given, MHA__JSON_ARRAY) ? given : NULL;
    if (list) MHA__TRY(mha__config_count(shared, key, list, c->layers, "one head count per layer", err));
    for (int64_t layer = 0; layer < c->layers; layer++) {
        const mha__json *item = list ? mha__json_item(list, (size_t)layer) : given;
        const int64_t count = mha__json_as_int(item);
        if (mha__json_is(item, MHA__JSON_INTEGER) && count > 0 && count <= c->heads &&
            c->layer_heads[layer] % count == 0) {
            counts[layer] = (int32_t)count;
            continue;
        }
        char want[96];
        snprintf(want, sizeof want, "a divisor of %d, the head count of layer %lld", (int)c->layer_heads[layer],
                 (long long)layer);
        return list ? mha__json_refuse_item(shared, key, (size_t)layer, want, err)
                    : mha__json_refuse(shared, key, want, err);
    }
    return MHA_OK;
}

static mha_status read_shared(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    mha__json_obj shared = {0};
    MHA__TRY(mha__json_object(root, "mha.kv_heads", MHA__OPTIONAL, &shared, err));
    memcpy(c->layer_k_heads, c->layer_kv_heads, sizeof c->layer_k_heads);
    memcpy(c->layer_v_heads, c->layer_kv_heads, sizeof c->layer_v_heads);
    if (!shared.json) return MHA_OK;
    MHA__TRY(read_counts(&shared, "keys", c, c->layer_k_heads, err));
    MHA__TRY(read_counts(&shared, "values", c, c->layer_v_heads, err));
    for (int64_t layer = 0; layer < c->layers; layer++)
        c->layer_kv_heads[layer] = (int32_t)mha__common_multiple(c->layer_k_heads[layer], c->layer_v_heads[layer]);
    return MHA_OK;
}

/* Returns the key of the head count in a list of keys; NULL if it is not in the list. */
static const char *count_key_in(const mha__config_key *keys, int count)
{
    for (int i = 0; i < count; i++)
        if (keys[i].offset == offsetof(mha__config, heads)) return keys[i].key;
    return NULL;
}

/* Returns the key of the family's head count. */
static const char *count_key(const mha__config *c)
{
    const mha__family *f = c->family;
    const char *own = count_key_in(f->keys, f->key_count);
    return own ? own : count_key_in(f->common, f->common_count);
}

/* Reads the original number of heads. If all layers of a pruned model have the same shape, the key of the head count is
 * the number of remaining heads. */
static mha_status read_original(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    static const char *const key = "mha.original_heads";
    c->original_heads = c->heads;
    MHA__TRY(mha__json_dim(root, key, MHA__OPTIONAL, MHA__HEADS, &c->original_heads, err));
    if (c->original_heads < c->heads) {
        char want[64];
        snprintf(want, sizeof want, "at least %s", count_key(c));
        return mha__json_refuse(root, key, want, err);
    }
    if (c->layers * c->original_heads <= MHA__MODEL_HEADS) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: layers times heads must be at most %lld (got %lld times %lld)",
                     root->file, (long long)MHA__MODEL_HEADS, (long long)c->layers, (long long)c->original_heads);
}

static mha_status check_list(const head_lists *h, const mha__json *list, int64_t layer, const mha__config *c,
                             mha_error *err)
{
    if (!mha__json_is(list, MHA__JSON_ARRAY))
        return mha__json_refuse_item(h->root, h->name, (size_t)layer, "a list of heads", err);
    if ((int64_t)mha__json_size(list) <= c->heads) return MHA_OK;
    return mha__fail(err, MHA_ERR_FORMAT, "%s: %s%s%s[%lld] must have at most %s = %lld heads (got %zu)", h->root->file,
                     path_of(h->root), dot_of(h->root), h->name, (long long)layer, count_key(c), (long long)c->heads,
                     mha__json_size(list));
}

/* Reads the lists of all layers, and their lengths as head counts. */
static mha_status read_lists(const head_lists *h, const mha__config *c, mha_error *err)
{
    if (h->lists) MHA__TRY(mha__config_count(h->root, h->name, h->lists, c->layers, "one list per layer", err));
    if (!h->lists && c->original_heads != c->heads) {
        char want[64];
        snprintf(want, sizeof want, "absent without \"%s\"", h->name);
        return mha__json_refuse(h->root, "mha.original_heads", want, err);
    }
    for (int64_t layer = 0; layer < c->layers; layer++) {
        const mha__json *list = mha__json_item(h->lists, (size_t)layer);
        h->counts[layer] = (int32_t)c->heads;
        if (!h->lists) continue;
        MHA__TRY(check_list(h, list, layer, c, err));
        MHA__TRY(read_heads(h, list, layer, c, err));
        h->counts[layer] = (int32_t)mha__json_size(list);
    }
    return MHA_OK;
}

/* Counts the heads that at least one layer keeps. The table of relative positions of an encoder-decoder (T5) has a
 * column for each of them; in other families, it keeps the columns of removed heads. */
static int64_t count_listed(const head_lists *h, const mha__config *c)
{
    uint8_t seen[MHA__HEADS / 8] = {0};
    int64_t count = 0;
    if (!h->lists || !c->family->one_side) return c->original_heads;
    for (mha__json_step l = {0}; mha__json_each(h->lists, &l);)
        for (mha__json_step i = {0}; mha__json_each(l.value, &i);) {
            const int64_t head = mha__json_as_int(i.value);
            count += !(seen[head / 8] >> (head % 8) & 1);
            seen[head / 8] |= (uint8_t)(1u << (head % 8));
        }
    return count;
}

mha_status mha__config_heads(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    head_lists own = {root, name_of(c, false), NULL, c->layer_heads},
               cross = {root, name_of(c, true), NULL, c->cross_heads};
    MHA__TRY(read_original(root, c, err));
    MHA__TRY(mha__config_head_lists(root, c, false, &own.lists, err));
    MHA__TRY(read_lists(&own, c, err));
    c->relative_heads = count_listed(&own, c);
    if (c->family->encoder) {
        MHA__TRY(mha__config_head_lists(root, c, true, &cross.lists, err));
        MHA__TRY(read_lists(&cross, c, err));
    }
    for (int64_t layer = 0; layer < c->layers; layer++)
        c->layer_kv_heads[layer] = (int32_t)(c->layer_heads[layer] / (c->heads / c->kv_heads));
    return read_shared(root, c, err);
}

/* ---- windows ---- */

static mha_status read_types(const mha__json_obj *root, const mha__json *types, mha__config *c, mha_error *err)
{
    MHA__TRY(mha__config_count(root, "layer_types", types, c->layers, "one entry per layer", err));
    for (int64_t i = 0; i < c->layers; i++) {
        const char *type = mha__json_as_text(mha__json_item(types, (size_t)i));
        const bool slides = type && strcmp(type, "sliding_attention") == 0;
        if (!type || (!slides && strcmp(type, "full_attention") != 0))
            return mha__json_refuse_item(root, "layer_types", (size_t)i, "\"full_attention\" or \"sliding_attention\"",
                                         err);
        c->attention[i].window = slides ? c->window : 0;
    }
    return MHA_OK;
}

mha_status mha__config_windows(const mha__json_obj *root, mha__config *c, mha_error *err)
{
    const mha__json *types = NULL;
    const mha__window_rule rule = c->family->window_rule;
    if (rule == MHA__WINDOW_NONE) return MHA_OK;
    if (c->local_keys) c->window = c->local_keys / 2 + 1;
    MHA__TRY(mha__json_array(root, "layer_types", MHA__OPTIONAL, &types, err));
    const bool optional = rule == MHA__WINDOW_LATER || rule == MHA__WINDOW_UNTURNED || rule == MHA__WINDOW_EVEN_BEFORE;
    const bool listed = types && rule == MHA__WINDOW_UNTURNED; /* transformers then ignores use_sliding_window */
    if (optional && !c->windowed && !listed) c->window = 0;
    if (types) return read_types(root, types, c, err);
    for (int64_t i = 0; i < c->layers; i++) {
        const bool slides = rule == MHA__WINDOW_ALL || (rule == MHA__WINDOW_EVEN && i % 2 == 0) ||
                            (rule == MHA__WINDOW_LATER && i >= c->full_layers) ||
                            (rule == MHA__WINDOW_EVEN_BEFORE && i % 2 == 0 && i < c->full_layers) ||
                            (rule == MHA__WINDOW_UNTURNED && c->unturned[i]) ||
                            (rule == MHA__WINDOW_BETWEEN && i % c->window_pattern != 0) ||
                            (rule == MHA__WINDOW_PATTERN && (i + 1) % c->window_pattern != 0);
        c->attention[i].window = slides ? c->window : 0;
    }
    return MHA_OK;
}
