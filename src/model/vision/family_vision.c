/* family_vision.c - models that read images: ViT, and both towers of CLIP. All are pre-norm encoders; the text tower of
 * CLIP is causal. */
#include "model/config/family_tables.h"

/* ---- ViT ---- */

enum { PIXELS = 1 << 15 }; /* most pixels of an image in one dimension */

#define IMAGE_KEYS(patch_)                                                     \
    {"num_channels", MHA__KEY_DIM, FIELD(channels), 3, MHA__DIM, NULL},        \
        {"image_size", MHA__KEY_SIZE, FIELD(image_height), 224, PIXELS, NULL}, \
    {                                                                          \
        "patch_size", MHA__KEY_SIZE, FIELD(patch_height), patch_, PIXELS, NULL \
    }

static const mha__config_key vit_keys[] = {
    IMAGE_KEYS(16),
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 3072, MHA__DIM, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-12, 0, NULL},
    {"qkv_bias", MHA__KEY_BOOL, FIELD(qkv_bias), 1, 0, NULL},
    {"", MHA__KEY_BOOL, FIELD(patch_bias), 1, 0, NULL},
    {"pooler_act", MHA__KEY_ONLY_TEXT, 0, 0, 0, "tanh"},
    {"pooler_output_size", MHA__KEY_DIM_IF, FIELD(pooled), 0, MHA__DIM, NULL},
    {"id2label", MHA__KEY_LABELS, FIELD(vocab), 2, MHA__DIM, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    QUANTIZATION,
};

static const char *const vit_prefixes[] = {"", "vit.", NULL};

static const mha__part vit_parts[MHA__ROLES] = {
    [MHA__POSITIONS] = {AS(TOKENS, "embeddings.position_embeddings", FIELD(position_rows), FIELD(hidden))},
    [MHA__PATCHES] = {AS(CONV2D, "embeddings.patch_embeddings.projection", FIELD(hidden), 0),
                      .bias = FIELD(patch_bias)},
    [MHA__CLASS_TOKEN] = {AS(TOKENS, "embeddings.cls_token", FIELD(class_tokens), FIELD(hidden))},
    [MHA__POOLER] = {AS(LINEAR, "pooler.dense", FIELD(hidden), FIELD(hidden)), .optional = true},
    [MHA__FINAL_NORM] = {AS(NORM, "layernorm", FIELD(hidden), 0)},
    [MHA__LM_BIAS] = {AS(VECTOR, "/classifier.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_HEAD] = {AS(TABLE, "/classifier", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QUERY] = {AS(LINEAR, "attention.attention.query", WIDTH(q), FIELD(hidden)), .bias = FIELD(qkv_bias)},
    [MHA__KEY] = {AS(LINEAR, "attention.attention.key", WIDTH(k), FIELD(hidden)), .bias = FIELD(qkv_bias)},
    [MHA__VALUE] = {AS(LINEAR, "attention.attention.value", WIDTH(v), FIELD(hidden)), .bias = FIELD(qkv_bias)},
    [MHA__ATTN_OUT] = {AS(LINEAR, "attention.output.dense", FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM, "layernorm_before", FIELD(hidden), 0)},
    [MHA__UP] = {AS(LINEAR, "intermediate.dense", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(LINEAR, "output.dense", FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM, "layernorm_after", FIELD(hidden), 0)},
};

/* ---- CLIP ---- */

/* The keys that both towers have, with the defaults of the text tower. */
#define CLIP_KEYS(hidden_, heads_, intermediate_)                                                \
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), hidden_, MHA__DIM, NULL},                       \
        {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},               \
        {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), heads_, MHA__HEADS, NULL},           \
        {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), intermediate_, MHA__DIM, NULL}, \
        {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "quick_gelu"},              \
        {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL}, QUANTIZATION

static const mha__config_key clip_text_keys[] = {
    CLIP_KEYS(512, 8, 2048),
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 49408, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 77, MHA__DIM, NULL},
    {"eos_token_id", MHA__KEY_COUNT, FIELD(pool_token), 49407, MHA__DIM, NULL},
};
static const mha__config_key clip_vision_keys[] = {CLIP_KEYS(768, 12, 3072), IMAGE_KEYS(32)};
static const mha__config_key clip_top_keys[] = {
    {"projection_dim", MHA__KEY_DIM, FIELD(projection), 512, MHA__DIM, NULL},
    QUANTIZATION,
};

static const char *const clip_text_prefixes[] = {"text_model.", "", NULL};
static const char *const clip_vision_prefixes[] = {"vision_model.", "", NULL};

#define CLIP_LAYER                                                                 \
    [MHA__QUERY] = {AS(LINEAR, "self_attn.q_proj", WIDTH(q), FIELD(hidden))},      \
    [MHA__KEY] = {AS(LINEAR, "self_attn.k_proj", WIDTH(k), FIELD(hidden))},        \
    [MHA__VALUE] = {AS(LINEAR, "self_attn.v_proj", WIDTH(v), FIELD(hidden))},      \
    [MHA__ATTN_OUT] = {AS(LINEAR, "self_attn.out_proj", FIELD(hidden), WIDTH(q))}, \
    [MHA__ATTN_NORM] = {AS(NORM, "layer_norm1", FIELD(hidden), 0)},                \
    [MHA__UP] = {AS(LINEAR, "mlp.fc1", FIELD(intermediate), FIELD(hidden))},       \
    [MHA__DOWN] = {AS(LINEAR, "mlp.fc2", FIELD(hidden), FIELD(intermediate))},     \
    [MHA__MLP_NORM] = {AS(NORM, "layer_norm2", FIELD(hidden), 0)}

static const mha__part clip_text_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embeddings.token_embedding", FIELD(vocab), FIELD(hidden))},
    [MHA__POSITIONS] = {AS(TABLE, "embeddings.position_embedding", FIELD(position_rows), FIELD(hidden))},
    [MHA__FINAL_NORM] = {AS(NORM, "final_layer_norm", FIELD(hidden), 0)},
    [MHA__PROJECTION] = {AS(TABLE, "/text_projection", FIELD(projection), FIELD(hidden)), .optional = true},
    [MHA__LOGIT_SCALE] = {AS(SCALAR, "/logit_scale", 0, 0), .optional = true},
    CLIP_LAYER,
};

static const mha__part clip_vision_parts[MHA__ROLES] = {
    [MHA__POSITIONS] = {AS(TABLE, "embeddings.position_embedding", FIELD(position_rows), FIELD(hidden))},
    [MHA__PATCHES] = {AS(CONV2D, "embeddings.patch_embedding", FIELD(hidden), 0), .bias = FIELD(patch_bias)},
    [MHA__CLASS_TOKEN] = {AS(VECTOR, "embeddings.class_embedding", FIELD(hidden), 0)},
    [MHA__EMBED_NORM] = {AS(NORM, "pre_layrnorm", FIELD(hidden), 0)},
    [MHA__POOL_NORM] = {AS(NORM, "post_layernorm", FIELD(hidden), 0)},
    [MHA__PROJECTION] = {AS(TABLE, "/visual_projection", FIELD(projection), FIELD(hidden)), .optional = true},
    CLIP_LAYER,
};

/* ---- list of families ---- */

#define TOP(array) .top = array, .top_count = COUNT(array)
#define TEXT_TOWER                                                                                              \
    KEYS(clip_text_keys), .prefixes = clip_text_prefixes, .layer = "encoder.layers.", .parts = clip_text_parts, \
                          .pre_norm = true, .causal = true, .pools = true, .hidden_last = true
#define IMAGE_TOWER                                                                                                   \
    KEYS(clip_vision_keys), .prefixes = clip_vision_prefixes, .layer = "encoder.layers.", .parts = clip_vision_parts, \
                            .pre_norm = true, .pools = true, .hidden_last = true

static const mha__family image_tower = {
    .name = "clip", IMAGE_TOWER, TOP(clip_top_keys), .tower = "vision_config", .tower_dict = "vision_config_dict"};

static const mha__family families[] = {
    {.name = "vit",
     KEYS(vit_keys),
     .prefixes = vit_prefixes,
     .layer = "encoder.layer.",
     .parts = vit_parts,
     .pre_norm = true,
     .hidden_last = true},
    {.name = "clip",
     TEXT_TOWER,
     TOP(clip_top_keys),
     .tower = "text_config",
     .tower_dict = "text_config_dict",
     .vision = &image_tower},
    {.name = "clip_text_model", TEXT_TOWER, TOP(clip_top_keys)},
    {.name = "clip_vision_model", IMAGE_TOWER, TOP(clip_top_keys)},
};

const mha__family_list mha__families_vision = {families, COUNT(families)};
