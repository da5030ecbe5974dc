/* keep_list.h - lists of kept heads, original head numbers, and the head counts of config.json. */
#ifndef MHA_HEADS_EDIT_KEEP_LIST_H
#define MHA_HEADS_EDIT_KEEP_LIST_H

#include "io/json/json_write.h"
#include "mha/prune.h"
#include "model/model_struct.h"

/* Returns the number of query heads that are removed or kept together: the query heads of one key head and one value
 * head. If the counts of key and value heads differ, the group spans the fewest whole key heads and value heads. */
int64_t mha__group(const mha_model *model, int64_t layer);

/* The heads of one kind of attention of a model, and which of them are kept. */
typedef struct mha__keep {
    const mha_model *model;
    bool cross;          /* the cross-attention of a decoder */
    const uint8_t *keep; /* [layers, H]; NULL = all heads are kept */
} mha__keep;

/* Returns the number of heads that a layer has, and the number of head `head` in the unpruned model. */
static inline int64_t mha__keep_heads(const mha__keep *k, int64_t layer)
{
    return k->cross ? k->model->config.cross_heads[layer] : k->model->config.layer_heads[layer];
}

static inline int32_t mha__keep_number(const mha__keep *k, int64_t layer, int64_t head)
{
    const mha_model *m = k->model;
    return (k->cross ? m->cross_numbers : m->head_numbers)[layer * m->config.heads + head];
}

static inline bool mha__keep_has(const mha__keep *k, int64_t layer, int64_t head)
{
    return !k->keep || k->keep[layer * k->model->config.heads + head];
}

/* Returns MHA_ERR_ARG for a layer without a kept head, and for a group of which only some heads are kept. */
mha_status mha__keep_check(const mha__keep *keep, mha_error *err);

/* Returns false for a layer that selects heads for each text: removing a head would change its selection. */
bool mha__may_lose_heads(const mha_model *model, int64_t layer);

/* Returns the number of kept heads in a layer; layer -1 = in all layers. */
int64_t mha__keep_count(const mha__keep *keep, int64_t layer);
/* Returns true if all layers keep the same heads, by their numbers. */
bool mha__keep_is_uniform(const mha__keep *keep);

/* Writes the original numbers of the heads that are kept, or of those that are not: [[0, 2], ...] */
void mha__keep_write(mha__json_writer *w, const mha__keep *keep, bool which);

/* The number of heads in a layer, and of the key and value heads that they read. */
typedef struct mha__head_count {
    int64_t heads, keys, values;
} mha__head_count;
typedef mha__head_count (*mha__head_count_fn)(const void *user, int64_t layer);

/* Returns true if the standard keys of the family can express the head counts: equal in all layers, with as many key
 * heads as value heads. */
bool mha__heads_are_plain(const mha__config *config, mha__head_count_fn count, const void *user);
/* Writes plain head counts as members of config.json. */
void mha__plain_heads_write(mha__json_writer *w, const mha__config *config, const mha__head_count *count);
/* Writes the counts of the unpruned model; the caller must remove "mha.original_heads". */
void mha__original_heads_write(mha__json_writer *w, const mha__config *config);

/* Returns MHA_ERR_ARG for an invalid rule. */
mha_status mha__prune_check_rule(const mha_prune_rule *rule, mha_error *err);
/* Returns the number of heads that the rule removes from a layer, rounded up to whole groups; layer -1 = from all
 * layers, not rounded. */
double mha__prune_wanted(const mha_model *model, const mha_prune_rule *rule, int64_t layer);
/* Returns true if another group of `size` heads should be removed to reach `wanted` removed heads, `gone` of which are
 * already removed. */
bool mha__prune_takes(const mha_prune_rule *rule, double wanted, int64_t gone, int64_t size);
/* Returns MHA_ERR_ARG if the rule's count exceeds `gone`, the number of heads that could be removed. */
mha_status mha__prune_short(const mha_prune_rule *rule, int64_t gone, int64_t layer, mha_error *err);

#endif
