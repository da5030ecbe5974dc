/* config_selection.c - layers that select heads for each text: reads the entries "moe_heads", "head_pruning" and
 * "adaptive_heads" of "mha.attention". The keys have the names of the options in variants.h. */
#include "base/error.h"
#include "base/size.h"
#include "model/config/config_layers.h"
#include "model/config/family.h"
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [MHA_CHOICE_EXPERTS] = "moe_heads", [MHA_CHOICE_HEADS] = "head_pruning", [MHA_CHOICE_OPTIONS] = "adaptive_heads"};

static mha_status refuse_decoder(const mha__json_obj *entry, const char *key, const mha__config *c, mha_error *err)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "%s: %s.%s must be absent in a decoder, because heads are selected by the mean over all tokens, "
                     "which would leak later tokens (got model_type %s)",
                     entry->file, entry->where, key, c->family->name);
}

static mha_status read_selection(const mha__json_obj *o, mha__layer_choice *c, mha_error *err)
{
    static const char *const selections[] = {"hard", "soft", "straight_through", NULL};
    int selection = MHA_SELECTION_SOFT; /* the default of the variants (hard) has no gradient to train the selector */
    MHA__TRY(mha__json_choice(o, "selection", MHA__OPTIONAL, selections, "\"hard\", \"soft\" or \"straight_through\"",
                              &selection, err));
    c->selection = (mha_selection)selection;
    return MHA_OK;
}

static mha_status read_experts(const mha__json_obj *o, int64_t heads, mha__layer_choice *c, mha_error *err)
{
    static const char *const keys[] = {"top_k", NULL};
    MHA__TRY(mha__json_only(o, keys, "top_k", err));
    c->top_k = mha__min64(2, heads);
    return mha__json_dim(o, "top_k", MHA__OPTIONAL, heads, &c->top_k, err);
}

static int64_t left_of(int64_t heads, double prune_ratio)
{
    return (int64_t)((double)heads * (1 - prune_ratio));
}

static mha_status read_pruning(const mha__json_obj *o, int64_t heads, mha__layer_choice *c, mha_error *err)
{
    static const char *const keys[] = {"prune_ratio", "selection", NULL};
    MHA__TRY(mha__json_only(o, keys, "prune_ratio and selection", err));
    MHA__TRY(mha__json_number(o, "prune_ratio", MHA__REQUIRED, 0, 1, &c->prune_ratio, err));
    if (left_of(heads, c->prune_ratio) < 1)
        return mha__json_refuse(o, "prune_ratio", "a fraction that keeps at least one head", err);
    return read_selection(o, c, err);
}

/* Reads head counts that divide the total width of all heads evenly. */
static mha_status read_options(const mha__json_obj *o, int64_t columns, mha__layer_choice *c, mha_error *err)
{
    static const char *const keys[] = {"head_options", "predictor_width", "selection", NULL};
    const mha__json *list = NULL;
    MHA__TRY(mha__json_only(o, keys, "head_options, predictor_width and selection", err));
    MHA__TRY(mha__json_array(o, "head_options", MHA__REQUIRED, &list, err));
    c->option_count = (int64_t)mha__json_size(list);
    if (c->option_count < 1 || c->option_count > MHA_HEAD_OPTIONS)
        return mha__fail(err, MHA_ERR_FORMAT, "%s: %s.head_options must have 1 to %d head counts (got %lld)", o->file,
                         o->where, MHA_HEAD_OPTIONS, (long long)c->option_count);
    for (size_t n = 0; n < (size_t)c->option_count; n++) {
        const mha__json *item = mha__json_item(list, n);
        const int64_t heads = mha__json_as_int(item);
        char want[128];
        snprintf(want, sizeof want, "a head count that divides %lld columns into heads of width 1 to %d",
                 (long long)columns, MHA_HEAD_DIM_MAX);
        if (heads < 1 || columns % heads || columns / heads > MHA_HEAD_DIM_MAX)
            return mha__json_refuse_item(o, "head_options", n, want, err);
        c->options[n] = heads;
    }
    c->width = 128;
    MHA__TRY(mha__json_dim(o, "predictor_width", MHA__OPTIONAL, MHA__DIM, &c->width, err));
    return read_selection(o, c, err);
}

static mha_status read_one(const mha__json_obj *o, int64_t heads, int64_t head_dim, mha_choice of,
                           mha__layer_choice *choice, mha_error *err)
{
    choice->of = of;
    if (of == MHA_CHOICE_EXPERTS) return read_experts(o, heads, choice, err);
    if (of == MHA_CHOICE_HEADS) return read_pruning(o, heads, choice, err);
    return read_options(o, heads * head_dim, choice, err);
}

/* Rejects per-head settings with adaptive_heads, since a head is only a range of columns if the head count varies. */
static mha_status check_split(const mha__json_obj *entry, const mha__config *c, int64_t layer, mha_error *err)
{
    const mha__layer_attention *a = &c->attention[layer];
    const bool shares =
        c->layer_k_heads[layer] != c->layer_heads[layer] || c->layer_v_heads[layer] != c->layer_heads[layer];
    const char *what = a->turned                    ? "rotary"
                       : a->normed                  ? "qk_norm"
                       : a->alibi                   ? "alibi"
                       : c->buckets || c->distances ? "relative positions"
                       : shares                     ? "shared keys"
                                                    : NULL;
    if (a->choice.of != MHA_CHOICE_OPTIONS || !what) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s: %s: adaptive_heads must not be combined with %s", entry->file,
                     entry->where, what);
}

mha_status mha__config_choice(const mha__json_obj *entry, mha__config *c, int64_t layer, mha_error *err)
{
    mha__layer_choice *choice = &c->attention[layer].choice;
    for (int of = MHA_CHOICE_EXPERTS; of <= MHA_CHOICE_OPTIONS; of++) {
        char where[96];
        mha__json_obj o = {0};
        MHA__TRY(mha__json_object(entry, names[of], MHA__OPTIONAL, &o, err));
        if (!o.json) continue;
        if (c->family->causal) return refuse_decoder(entry, names[of], c, err);
        if (choice->of)
            return mha__fail(err, MHA_ERR_FORMAT, "%s: %s: %s and %s must not both be set", entry->file, entry->where,
                             names[of], names[choice->of]);
        snprintf(where, sizeof where, "%s.%s", entry->where, names[of]);
        o.where = where;
        MHA__TRY(read_one(&o, c->layer_heads[layer], c->head_dim, (mha_choice)of, choice, err));
    }
    return check_split(entry, c, layer, err);
}

int64_t mha__config_choosing(const mha__config *c)
{
    for (int64_t layer = 0; layer < c->layers; layer++)
        if (c->attention[layer].choice.of) return layer;
    return -1;
}

int64_t mha__config_kept(const mha__config *c, int64_t layer)
{
    const mha__layer_choice *choice = &c->attention[layer].choice;
    int64_t kept = c->layer_heads[layer];
    if (choice->of == MHA_CHOICE_EXPERTS) return choice->top_k;
    if (choice->of == MHA_CHOICE_HEADS) return left_of(kept, choice->prune_ratio);
    for (int64_t n = 0; n < choice->option_count; n++)
        kept = n ? mha__max64(kept, choice->options[n]) : choice->options[n];
    return kept;
}
