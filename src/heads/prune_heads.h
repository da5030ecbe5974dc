/* prune_heads.h - the heads of a model by number, and lists of which stay. */
#ifndef MHA_HEADS_PRUNE_HEADS_H
#define MHA_HEADS_PRUNE_HEADS_H

#include "mha/prune.h"
#include "model/model_struct.h"
#include <jansson.h>

/* Heads of a layer that go or stay together: those of one key head and of one value head; where there are different
 * numbers of these, of whole ones of both. */
int64_t mha__group(const mha_model *model, int64_t layer);

/* Numbers in the unpruned model, [layers, H], -1 behind the last head of a layer. Memory of the context. */
mha_status mha__head_numbers(const mha_model *model, int32_t **numbers, mha_error *err);

/* MHA_ERR_ARG for a layer that would be left without a head, and for a group that would be left in part. */
mha_status mha__check_keep(const mha_model *model, const uint8_t *keep, mha_error *err);

/* False for a layer that chooses heads for each text: without one it would choose another in its place. */
bool mha__may_lose_heads(const mha_model *model, int64_t layer);

/* Heads of a layer, or of all (-1), that stay. */
int64_t mha__kept(const mha_model *model, const uint8_t *keep, int64_t layer);

/* The numbers of those whose keep is `which`: [[0, 2], ...]; NULL when memory is short. */
json_t *mha__heads_json(const mha_model *model, const int32_t *numbers, const uint8_t *keep, bool which);

/* The rule: checked; heads that it removes from a layer, or with -1 from all; MHA_ERR_ARG where it asks for more than
 * the `gone` that could go. */
mha_status mha__prune_check_rule(const mha_prune_rule *rule, mha_error *err);
int64_t mha__prune_wanted(const mha_model *model, const mha_prune_rule *rule, int64_t layer);
mha_status mha__prune_short(const mha_prune_rule *rule, int64_t gone, int64_t layer, mha_error *err);

#endif
