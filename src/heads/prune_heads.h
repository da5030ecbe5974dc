/* prune_heads.h - the heads of a model by number, and lists of which stay. */
#ifndef MHA_HEADS_PRUNE_HEADS_H
#define MHA_HEADS_PRUNE_HEADS_H

#include "model/model_struct.h"
#include <jansson.h>

/* Query heads that share one key head. */
int64_t mha__group(const mha_model *model);

/* Numbers in the unpruned model, [layers, H], -1 behind the last head of a layer. Memory of the context. */
mha_status mha__head_numbers(const mha_model *model, int32_t **numbers, mha_error *err);

/* MHA_ERR_ARG for a layer that would be left without a head, and for a group that would be left in part. */
mha_status mha__check_keep(const mha_model *model, const uint8_t *keep, mha_error *err);

/* Heads of a layer, or of all (-1), that stay. */
int64_t mha__kept(const mha_model *model, const uint8_t *keep, int64_t layer);

/* The numbers of those whose keep is `which`: [[0, 2], ...]; NULL when memory is short. */
json_t *mha__heads_json(const mha_model *model, const int32_t *numbers, const uint8_t *keep, bool which);

#endif
