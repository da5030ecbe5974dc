/* config_layers.h - the parts of config.json that are more than one key: rotation, and which layers have a window. */
#ifndef MHA_MODEL_CONFIG_LAYERS_H
#define MHA_MODEL_CONFIG_LAYERS_H

#include "io/json.h"
#include "model/config.h"

/* Fills config->rope from rope_parameters (5.x), or rope_scaling and rope_theta (4.x). head_dim is known. */
mha_status mha__config_rope(const mha__json_obj *root, mha__config *config, mha_error *err);

/* Fills config->slides from layer_types, or by the family's rule. */
mha_status mha__config_windows(const mha__json_obj *root, mha__config *config, mha_error *err);

#endif
