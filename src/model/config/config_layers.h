/* config_layers.h - settings that depend on several config keys: rotation, heads, window and parts of each layer, and
 * the end-of-text tokens. */
#ifndef MHA_MODEL_CONFIG_CONFIG_LAYERS_H
#define MHA_MODEL_CONFIG_CONFIG_LAYERS_H

#include "io/json/json.h"
#include "model/config/config.h"

/* Reads the keys that the table of config->family lists. */
mha_status mha__config_keys(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Reads the keys that the family has at the root of the file, if the keys of the model are in a nested object. */
mha_status mha__config_top(const mha__json_obj *root, mha__config *config, mha_error *err);
/* Finds the object with the keys of this model: the root, or that of a tower of CLIP. */
mha_status mha__config_tower(const mha__json_obj *root, const mha__config *config, mha__json_obj *own, mha_error *err);

/* Derives the number of patches, and checks the keys that models of images do not support. */
mha_status mha__config_vision(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Sets config->rope from rope_parameters (5.x), or rope_scaling and rope_theta (4.x), if any layer has rotation.
 * head_dim must be set. */
mha_status mha__config_rope(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Finds the lists of the original heads that each layer keeps: "mha.heads" of the object with the keys of this model
 * or, for one side of an encoder-decoder, the member "encoder" or "decoder" of "mha.heads" and, with `cross`, its
 * member "cross". *lists is NULL if all heads are kept. */
mha_status mha__config_head_lists(const mha__json_obj *own, const mha__config *config, bool cross,
                                  const mha__json **lists, mha_error *err);
/* Sets the head counts of each layer: query heads from these lists, and key and value heads from "mha.kv_heads". */
mha_status mha__config_heads(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Sets config->unturned, which marks the layers without rotation. */
mha_status mha__config_turned(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Sets the windows of config->attention from layer_types or, if absent, by the family's rule. */
mha_status mha__config_windows(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Sets config->attention from the family's keys (windows must be set), then overrides it from "mha.attention". */
mha_status mha__config_attention(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Reads the head selection from a layer's entry of "mha.attention". */
mha_status mha__config_choice(const mha__json_obj *entry, mha__config *config, int64_t layer, mha_error *err);

/* Sets head_dim and the scale of scores from the widths of latent attention; does nothing in other families. */
mha_status mha__config_latent(const mha__json_obj *root, mha__config *config, mha_error *err);
/* Multiplies the scales by the factor that depends on the rotation. */
void mha__config_latent_scale(mha__config *config);

/* Reads the config keys of DeBERTa's relative position embeddings (pos_att_type, position_buckets and others). */
mha_status mha__config_distances(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Sets config->attention_only from "mha.feed_forward". */
mha_status mha__config_feed(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Sets config->sparse, which marks the layers with experts, and checks how many experts a token uses. */
mha_status mha__config_experts(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Checks the table of relative positions, and sets how many of its rows are used. */
mha_status mha__config_relative(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Checks the keys that encoder-decoders do not support, and sets the vocabulary of this side. */
mha_status mha__config_one_side(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Rejects a list that does not have exactly `count` entries, one per layer or dimension. */
mha_status mha__config_count(const mha__json_obj *o, const char *key, const mha__json *list, int64_t count,
                             const char *want, mha_error *err);

/* Sets config->eos from generation_config.json of the folder, or config.json. vocab must be set. */
mha_status mha__config_eos(mha_ctx *ctx, const char *folder, const mha__json_obj *root, mha__config *config,
                           mha_error *err);

/* Sets the first token of the decoder of an encoder-decoder, if generation_config.json of the folder defines it, and
 * the rules for generated text. The end-of-text tokens must be set. */
mha_status mha__config_generation(mha_ctx *ctx, const char *folder, const mha__json_obj *root, mha__config *config,
                                  mha_error *err);

/* Reads the rules for single tokens (suppress_tokens, begin_suppress_tokens, forced_decoder_ids), and Whisper's
 * alignment_heads, from generation_config.json or config.json. vocab and the heads must be set. */
mha_status mha__config_token_rules(const mha__json_obj *o, mha__config *config, mha_error *err);

/* Rejects an encoder whose preprocessor_config.json, if it exists, describes other audio features than mha/audio.h. */
mha_status mha__config_features(mha_ctx *ctx, const char *folder, const mha__config *config, mha_error *err);

#endif
