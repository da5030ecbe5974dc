/* config_choice.c - heads that a layer chooses for each text: the entries "moe_heads" and "head_pruning" of
 * "mha.attention", with the names that variants.h has for them. */
#include "base/error.h"
#include "base/size.h"
#include "model/config_layers.h"
#include "model/family.h"
#include <stdio.h>
#include <string.h>

static const char *const names[] = {[MHA_CHOICE_EXPERTS] = "moe_heads", [MHA_CHOICE_HEADS] = "head_pruning"};

static mha_status refuse_decoder(const mha__json_obj *entry, const char *key, const mha__config *c, mha_error *err)
{
    return mha__fail(
        err, MHA_ERR_UNSUPPORTED,
        "%s: %s.%s: heads are chosen by the mean of all tokens, and in a model of type %s a token would be "
        "told of later ones; encoders (bert) alone may choose",
        entry->file, entry->where, key, c->family->name);
}

static mha_status refuse_others(const mha__json_obj *o, const char *const *keys, const char *list, mha_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o->json, key, value)
    {
        bool known = false;
        for (int n = 0; keys[n]; n++)
            known |= strcmp(keys[n], key) == 0;
        if (!known)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: %s.%s is no key; there %s", o->file, o->where,
                             mha__quote(&(mha__quoted){0}, key, strlen(key)), list);
    }
    return MHA_OK;
}

static mha_status read_experts(const mha__json_obj *o, const mha__config *c, mha__layer_attention *a, mha_error *err)
{
    static const char *const keys[] = {"top_k", NULL};
    MHA__TRY(refuse_others(o, keys, "is top_k", err));
    a->choice = MHA_CHOICE_EXPERTS;
    a->top_k = c->heads > 1 ? 2 : 1;
    return mha__json_dim(o, "top_k", MHA__OPTIONAL, c->heads, &a->top_k, err);
}

static mha_status read_pruning(const mha__json_obj *o, const mha__config *c, mha__layer_attention *a, mha_error *err)
{
    static const char *const keys[] = {"prune_ratio", "selection", NULL};
    static const char *const selections[] = {"hard", "soft", "straight_through", NULL};
    int selection = MHA_SELECTION_SOFT; /* the published form never learns whom to choose */
    MHA__TRY(refuse_others(o, keys, "are prune_ratio and selection", err));
    MHA__TRY(mha__json_number(o, "prune_ratio", MHA__REQUIRED, 0, 1, &a->prune_ratio, err));
    MHA__TRY(mha__json_choice(o, "selection", MHA__OPTIONAL, selections, "\"hard\", \"soft\" or \"straight_through\"",
                              &selection, err));
    a->choice = MHA_CHOICE_HEADS;
    a->selection = (mha_selection)selection;
    if ((int64_t)((double)c->heads * (1 - a->prune_ratio)) > 0) return MHA_OK;
    return mha__json_refuse(o, "prune_ratio", "a share that leaves a head", err);
}

mha_status mha__config_choice(const mha__json_obj *entry, const mha__config *c, mha__layer_attention *a, mha_error *err)
{
    for (int of = MHA_CHOICE_EXPERTS; of <= MHA_CHOICE_HEADS; of++) {
        char where[96];
        mha__json_obj o = {0};
        MHA__TRY(mha__json_object(entry, names[of], MHA__OPTIONAL, &o, err));
        if (!o.json) continue;
        if (c->family->causal) return refuse_decoder(entry, names[of], c, err);
        if (a->choice)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: %s: %s beside %s; a layer chooses in one way", entry->file,
                             entry->where, names[of], names[a->choice]);
        snprintf(where, sizeof where, "%s.%s", entry->where, names[of]);
        o.where = where;
        MHA__TRY(of == MHA_CHOICE_EXPERTS ? read_experts(&o, c, a, err) : read_pruning(&o, c, a, err));
    }
    return MHA_OK;
}

int64_t mha__config_kept(const mha__config *c, int64_t layer)
{
    const mha__layer_attention *a = &c->attention[layer];
    const int64_t heads = c->layer_heads[layer], kept = (int64_t)((double)heads * (1 - a->prune_ratio));
    if (a->choice == MHA_CHOICE_HEADS) return mha__max64(kept, 1);
    return a->choice == MHA_CHOICE_EXPERTS ? mha__min64(a->top_k, heads) : heads;
}
