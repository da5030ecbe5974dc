/* keep_list.h - lists of kept heads, original head numbers, and the head counts of config.json. */
#ifndef MHA_HEADS_EDIT_KEEP_LIST_H
#define MHA_HEADS_EDIT_KEEP_LIST_H

#include "heads/weights/head_kinds.h"
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

/* Returns true if config.json can express another head count with heads of the same width. */
bool mha__head_count_is_free(const mha__config *config);
/* Returns true if the standard keys of the family can express the head counts: equal in all layers, with as many key
 * heads as value heads. */
bool mha__heads_are_plain(const mha__config *config, mha__head_count_fn count, const void *user);
/* Writes plain head counts as members of config.json. */
void mha__plain_heads_write(mha__json_writer *w, const mha__config *config, const mha__head_count *count);
/* Writes the counts of the unpruned model; the caller must remove "mha.original_heads". */
void mha__original_heads_write(mha__json_writer *w, const mha__config *config);

/* Returns MHA_ERR_ARG for an invalid rule. */
mha_status mha__prune_check_rule(const mha_model *model, const mha_prune_rule *rule, mha_error *err);
/* Returns the number of layers that the rule covers: of all kinds of heads, or only of the model. */
int64_t mha__prune_rows(const mha__head_sets *sets, const mha_prune_rule *rule);
/* Returns the number of heads of the layer that are removed or kept together; whether it may lose heads; and how many
 * heads of it `keep` [total] keeps. */
int64_t mha__row_group(const mha__head_row *row);
bool mha__row_may_lose(const mha__head_row *row);
int64_t mha__row_kept(const mha__head_row *row, const uint8_t *keep);
/* Returns the number of heads that the rule removes from layer `row`, rounded up to whole groups; -1 = from all layers,
 * not rounded. */
double mha__prune_wanted(const mha__head_sets *sets, const mha_prune_rule *rule, int64_t row);
/* Choose heads like mha_prune_choose and mha_prune_choose_joint, with arrays [total] of all kinds (head_kinds.h). */
mha_status mha__prune_by_scores(const mha_model *model, const double *scores, const mha_prune_rule *rule, uint8_t *keep,
                                mha_error *err);
mha_status mha__prune_jointly(const mha_model *model, const mha_head_data *data, const mha_prune_rule *rule,
                              const mha_prune_joint_options *options, uint8_t *keep, mha_error *err);
/* Copies the parts of `all` [total] to the lists of the kinds; NULL = not copied. */
void mha__kinds_split(const mha__head_sets *sets, const uint8_t *all, uint8_t *own, uint8_t *cross, uint8_t *encoder);
/* Returns true if another group of `size` heads should be removed to reach `wanted` removed heads, `gone` of which are
 * already removed. */
bool mha__prune_takes(const mha_prune_rule *rule, double wanted, int64_t gone, int64_t size);
/* Returns MHA_ERR_ARG if the rule's count exceeds `gone`, the number of heads that could be removed. */
mha_status mha__prune_short(const mha_prune_rule *rule, int64_t gone, int64_t layer, mha_error *err);

#endif
