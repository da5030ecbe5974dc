/* family_tables.h - shorthand macros for the tables in family_*.c, and the lists that these files define.
 *
 * Missing keys have the defaults of transformers. Tensors that no table names are ignored, such as pre-training heads
 * and the buffer embeddings.position_ids. */
#ifndef MHA_MODEL_CONFIG_FAMILY_TABLES_H
#define MHA_MODEL_CONFIG_FAMILY_TABLES_H

#include "io/input_limits.h"
#include "model/config/family.h"

#define FIELD(name) offsetof(mha__config, name)
#define WIDTH(name) MHA__PART_WIDTH(name)
#define COUNT(array) (int)(sizeof(array) / sizeof *(array))
#define AS(kind_, name_, rows_, columns_) .name = name_, .kind = MHA__PART_##kind_, .rows = rows_, .columns = columns_
#define KEYS(array) .keys = array, .key_count = COUNT(array)

/* The families that one file defines. */
typedef struct mha__family_list {
    const mha__family *families; /* [count] */
    int count;
} mha__family_list;

extern const mha__family_list mha__families_bert, mha__families_modernbert, mha__families_gpt2, mha__families_neox,
    mha__families_llama, mha__families_experts, mha__families_deberta, mha__families_seq2seq, mha__families_whisper,
    mha__families_vision;

/* Keys of every family that say in which form weights are stored. */
#define QUANTIZATION                                               \
    {"quantization_config", MHA__KEY_QUANTIZATION, 0, 0, 0, NULL}, \
    {                                                              \
        "compression_config", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL   \
    }

/* The parts of a layer and of its cross-attention that BART, Marian and Whisper have in common. `key` is LINEAR, or
 * TABLE if the projection of the keys has no bias. */
#define BART_LAYER(key)                                                            \
    [MHA__QUERY] = {AS(LINEAR, "self_attn.q_proj", WIDTH(q), FIELD(hidden))},      \
    [MHA__KEY] = {AS(key, "self_attn.k_proj", WIDTH(k), FIELD(hidden))},           \
    [MHA__VALUE] = {AS(LINEAR, "self_attn.v_proj", WIDTH(v), FIELD(hidden))},      \
    [MHA__ATTN_OUT] = {AS(LINEAR, "self_attn.out_proj", FIELD(hidden), WIDTH(q))}, \
    [MHA__ATTN_NORM] = {AS(NORM, "self_attn_layer_norm", FIELD(hidden), 0)},       \
    [MHA__UP] = {AS(LINEAR, "fc1", FIELD(intermediate), FIELD(hidden))},           \
    [MHA__DOWN] = {AS(LINEAR, "fc2", FIELD(hidden), FIELD(intermediate))},         \
    [MHA__MLP_NORM] = {AS(NORM, "final_layer_norm", FIELD(hidden), 0)}

#define BART_CROSS(key)                                                                    \
    [MHA__CROSS_QUERY] = {AS(LINEAR, "encoder_attn.q_proj", WIDTH(cross), FIELD(hidden))}, \
    [MHA__CROSS_KEY] = {AS(key, "encoder_attn.k_proj", WIDTH(cross), FIELD(hidden))},      \
    [MHA__CROSS_VALUE] = {AS(LINEAR, "encoder_attn.v_proj", WIDTH(cross), FIELD(hidden))}, \
    [MHA__CROSS_OUT] = {AS(LINEAR, "encoder_attn.out_proj", FIELD(hidden), WIDTH(cross))}, \
    [MHA__CROSS_NORM] = {AS(NORM, "encoder_attn_layer_norm", FIELD(hidden), 0)}

#endif
