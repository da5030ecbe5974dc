/* config_layers.h - the parts of a config that are more than one key: rotation, heads, window and parts of each layer,
 * and which tokens end a text. */
#ifndef MHA_MODEL_CONFIG_CONFIG_LAYERS_H
#define MHA_MODEL_CONFIG_CONFIG_LAYERS_H

#include "io/json/json.h"
#include "model/config/config.h"

/* Fills config->rope from rope_parameters (5.x), or rope_scaling and rope_theta (4.x), if some layer rotates. head_dim
 * is known. */
mha_status mha__config_rope(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Fills the heads of each layer: from "mha.heads", the kept original heads of each layer, or all of them; and from
 * "mha.kv_heads" how many heads of keys and of values these share. */
mha_status mha__config_heads(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Fills the windows of config->attention from layer_types, or by the family's rule. */
mha_status mha__config_windows(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Fills config->attention from the family's keys (windows are known), and what "mha.attention" has instead. */
mha_status mha__config_attention(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Refuses a key of an object that is none of `keys`, which NULL ends; `list` says them: "are these and those". */
mha_status mha__config_known(const mha__json_obj *o, const char *const *keys, const char *list, mha_error *err);

/* The part of a layer's entry of "mha.attention" that says which heads a text gets. */
mha_status mha__config_choice(const mha__json_obj *entry, mha__config *config, int64_t layer, mha_error *err);

/* Fills config->attention_only from "mha.feed_forward". */
mha_status mha__config_feed(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Refuses a list that has not one entry for each of `count` layers or dimensions. */
mha_status mha__config_count(const mha__json_obj *o, const char *key, const mha__json *list, int64_t count,
                             const char *want, mha_error *err);

/* Fills config->eos from generation_config.json of the folder, or config.json. vocab is known. */
mha_status mha__config_eos(mha_ctx *ctx, const char *folder, const mha__json_obj *root, mha__config *config,
                           mha_error *err);

#endif
