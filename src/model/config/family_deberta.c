/* family_deberta.c - DeBERTa-v2 and v3: BERT with relative positions in the scores. */
#include "model/config/family_tables.h"

static const mha__config_key deberta_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 128100, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 1536, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 24, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 24, MHA__HEADS, NULL},
    {"attention_head_size", MHA__KEY_MAYBE_DIM, FIELD(head_dim), 0, MHA__DIM, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 6144, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 512, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"type_vocab_size", MHA__KEY_COUNT, FIELD(type_vocab), 0, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-7, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"relative_attention", MHA__KEY_BOOL, FIELD(distances), 0, 0, NULL},
    {"share_att_key", MHA__KEY_BOOL, FIELD(own_positions), 0, 0, NULL},
    {"position_biased_input", MHA__KEY_BOOL, FIELD(biased_input), 1, 0, NULL},
    {"legacy", MHA__KEY_BOOL, FIELD(other_head), 1, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"conv_kernel_size", MHA__KEY_COUNT, FIELD(conv_taps), 0, MHA__DIM, NULL},
    {"conv_groups", MHA__KEY_DIM, FIELD(conv_groups), 1, MHA__DIM, NULL},
    {"conv_act", MHA__KEY_ACTIVATION, FIELD(conv_activation), 0, 0, "tanh"},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    QUANTIZATION,
};

static const char *const deberta_prefixes[] = {"", "deberta.", NULL};

/* The output head has other names unless "legacy" is true. */
#define HEAD(legacy, other_) \
    "/cls.predictions." legacy, .other = "/lm_predictions.lm_head." other_, .other_if = FIELD(other_head)
#define IF(flag) .only_if = FIELD(flag)

static const mha__part deberta_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embeddings.word_embeddings", FIELD(vocab), FIELD(hidden))},
    [MHA__POSITIONS] = {AS(TABLE, "embeddings.position_embeddings", FIELD(position_rows), FIELD(hidden)),
                        IF(biased_input)},
    [MHA__TYPES] = {AS(TABLE, "embeddings.token_type_embeddings", FIELD(type_vocab), FIELD(hidden)), IF(typed_input)},
    [MHA__EMBED_NORM] = {AS(NORM, "embeddings.LayerNorm", FIELD(hidden), 0)},
    [MHA__DISTANCES] = {AS(TABLE, "encoder.rel_embeddings", FIELD(distance_rows), FIELD(hidden)), IF(distances)},
    [MHA__DISTANCES_NORM] = {AS(NORM, "encoder.LayerNorm", FIELD(hidden), 0), IF(distances_normed)},
    [MHA__LAYER_CONVOLUTION] = {AS(CONVOLUTION, "encoder.conv.conv", FIELD(hidden), FIELD(conv_channels)),
                                .taps = FIELD(conv_taps), IF(convolved)},
    [MHA__LAYER_CONVOLUTION_NORM] = {AS(NORM, "encoder.conv.LayerNorm", FIELD(hidden), 0), IF(convolved)},
    [MHA__LM_DENSE] = {AS(LINEAR, HEAD("transform.dense", "dense"), FIELD(hidden), FIELD(hidden)), .optional = true},
    [MHA__LM_NORM] = {AS(NORM, HEAD("transform.LayerNorm", "LayerNorm"), FIELD(hidden), 0), .optional = true},
    [MHA__LM_BIAS] = {AS(VECTOR, HEAD("decoder.bias", "bias"), FIELD(vocab), 0), .optional = true},
    [MHA__LM_TIED_BIAS] = {AS(VECTOR, HEAD("bias", "bias"), FIELD(vocab), 0), .optional = true},
    [MHA__LM_HEAD] = {AS(TABLE, "/cls.predictions.decoder", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QUERY] = {AS(LINEAR, "attention.self.query_proj", WIDTH(q), FIELD(hidden))},
    [MHA__KEY] = {AS(LINEAR, "attention.self.key_proj", WIDTH(k), FIELD(hidden))},
    [MHA__VALUE] = {AS(LINEAR, "attention.self.value_proj", WIDTH(v), FIELD(hidden))},
    [MHA__POS_KEY] = {AS(LINEAR, "attention.self.pos_key_proj", WIDTH(q), FIELD(hidden)), IF(pos_key)},
    [MHA__POS_QUERY] = {AS(LINEAR, "attention.self.pos_query_proj", WIDTH(q), FIELD(hidden)), IF(pos_query)},
    [MHA__ATTN_OUT] = {AS(LINEAR, "attention.output.dense", FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM, "attention.output.LayerNorm", FIELD(hidden), 0)},
    [MHA__UP] = {AS(LINEAR, "intermediate.dense", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(LINEAR, "output.dense", FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM, "output.LayerNorm", FIELD(hidden), 0)},
};

static const mha__family families[] = {{.name = "deberta-v2",
                                        KEYS(deberta_keys),
                                        .prefixes = deberta_prefixes,
                                        .layer = "encoder.layer.",
                                        .parts = deberta_parts,
                                        .distances = true}};

const mha__family_list mha__families_deberta = {families, COUNT(families)};
