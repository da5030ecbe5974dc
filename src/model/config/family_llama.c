/* family_llama.c - decoders derived from LLaMA: pre-norm, RMSNorm, rotation, SwiGLU; and StarCoder2. */
#include "model/config/family_llama.h"

/* ---- LLaMA and related families: pre-norm decoders, RMSNorm, rotation, SwiGLU ---- */

/* Keys of every family like LLaMA. The bias keys are in the tables of those families for which transformers reads
 * them; Mistral and Qwen2 ignore them. */
const mha__config_key mha__llama_common[MHA__LLAMA_COMMON] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 0, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 0, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 0, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 0, MHA__HEADS, NULL},
    {"num_key_value_heads", MHA__KEY_MAYBE_DIM, FIELD(kv_heads), 0, MHA__HEADS, NULL},
    {"head_dim", MHA__KEY_MAYBE_DIM, FIELD(head_dim), 0, MHA__DIM, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 0, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 2048, MHA__DIM, NULL},
    {"rms_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-6, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 0, 0, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), -1, MHA__DIM, NULL},
    {"is_causal", MHA__KEY_ONLY_TRUE, 0, 0, 0, NULL},
    QUANTIZATION,
};

const char *const mha__llama_prefixes[] = {"model.", "", NULL};

static const mha__config_key llama_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"mlp_bias", MHA__KEY_BOOL, FIELD(mlp_bias), 0, 0, NULL},
};

static const mha__config_key mistral_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 8, MHA__HEADS, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 4096, MHA__DIM, NULL},
};

static const mha__config_key qwen_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 32, MHA__HEADS, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 4096, MHA__DIM, NULL},
    {"use_sliding_window", MHA__KEY_BOOL, FIELD(windowed), 0, 0, NULL},
    {"max_window_layers", MHA__KEY_COUNT, FIELD(full_layers), 28, MHA__DIM, NULL},
};

static const mha__config_key qwen3_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 32, MHA__HEADS, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 4096, MHA__DIM, NULL},
    {"use_sliding_window", MHA__KEY_BOOL, FIELD(windowed), 0, 0, NULL},
    {"max_window_layers", MHA__KEY_COUNT, FIELD(full_layers), 28, MHA__DIM, NULL},
    {"head_dim", MHA__KEY_DIM_OR_OFF, FIELD(head_dim), 128, MHA__DIM, NULL},
};

static const mha__config_key gemma2_keys[] = {
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 4, MHA__HEADS, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"head_dim", MHA__KEY_DIM_OR_OFF, FIELD(head_dim), 256, MHA__DIM, NULL},
    {"hidden_activation", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0,
     "gelu_pytorch_tanh"}, /* hidden_act is ignored */
    {"use_bidirectional_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"query_pre_attn_scalar", MHA__KEY_POSITIVE, FIELD(query_scalar), 256, 0, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 4096, MHA__DIM, NULL},
    {"attn_logit_softcapping", MHA__KEY_POSITIVE_OR_OFF, FIELD(softcap), 50, 0, NULL},
    {"final_logit_softcapping", MHA__KEY_POSITIVE_OR_OFF, FIELD(logit_cap), 30, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
};
static const mha__config_key gemma_keys[] = {
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 16, MHA__HEADS, NULL},
    {"head_dim", MHA__KEY_DIM_OR_OFF, FIELD(head_dim), 256, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"hidden_act", MHA__KEY_TANH_GELU, FIELD(activation), 0, 0, "gelu_pytorch_tanh"},
    {"hidden_activation", MHA__KEY_ACTIVATION_IF, FIELD(activation), 0, 0, NULL}, /* takes precedence if present */
    {"use_bidirectional_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
};

/* Keys of all forms of Gemma 3. Published files of models that also read images omit many of them. */
static const mha__config_key gemma3_common[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 262208, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 2304, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 26, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 8, MHA__HEADS, NULL},
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 4, MHA__HEADS, NULL},
    {"head_dim", MHA__KEY_DIM_OR_OFF, FIELD(head_dim), 256, MHA__DIM, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 9216, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 131072, MHA__DIM, NULL},
    {"rms_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-6, 0, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"is_causal", MHA__KEY_ONLY_TRUE, 0, 0, 0, NULL},
    {"hidden_activation", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0,
     "gelu_pytorch_tanh"}, /* hidden_act is ignored */
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"query_pre_attn_scalar", MHA__KEY_POSITIVE, FIELD(query_scalar), 256, 0, NULL},
    {"_sliding_window_pattern", MHA__KEY_DIM, FIELD(window_pattern), 6, MHA__DIM, NULL},
    {"final_logit_softcapping", MHA__KEY_POSITIVE_OR_OFF, FIELD(logit_cap), 0, 0, NULL},
    QUANTIZATION,
};

#define GEMMA3_DECODER                                                             \
    {"use_bidirectional_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},           \
    {                                                                              \
        "sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 4096, MHA__DIM, NULL \
    }
#define TIED                                                          \
    {                                                                 \
        "tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL \
    }

static const mha__config_key gemma3_text_keys[] = {GEMMA3_DECODER, TIED};
static const mha__config_key gemma3_keys[] = {GEMMA3_DECODER};
static const mha__config_key gemma3_top_keys[] = {TIED, QUANTIZATION};
/* EmbeddingGemma: the window counts the keys on both sides. */
static const mha__config_key gemma3_encoder_keys[] = {
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(local_keys), 4096, MHA__DIM, NULL},
};

static const char *const gemma3_aliases[][2] = {
    {"_sliding_window_pattern", "sliding_window_pattern"}, /* name in transformers 4.x */
    {NULL, NULL},
};

static const mha__config_key phi3_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"rms_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 4096, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 32000, MHA__DIM, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 0, MHA__DIM, NULL},
};

static const mha__config_key olmo2_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"rms_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 1, MHA__DIM, NULL},
};

static const mha__config_key granite_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"mlp_bias", MHA__KEY_BOOL, FIELD(mlp_bias), 0, 0, NULL},
    {"embedding_multiplier", MHA__KEY_POSITIVE, FIELD(embed_multiplier), 1, 0, NULL},
    {"attention_multiplier", MHA__KEY_POSITIVE, FIELD(attention_multiplier), 1, 0, NULL},
    {"residual_multiplier", MHA__KEY_POSITIVE, FIELD(residual_multiplier), 1, 0, NULL},
    {"logits_scaling", MHA__KEY_POSITIVE, FIELD(logit_divisor), 1, 0, NULL},
};

static const mha__config_key smollm3_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 4, MHA__HEADS, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 32768, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 128004, MHA__DIM, NULL},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"mlp_bias", MHA__KEY_BOOL, FIELD(mlp_bias), 0, 0, NULL},
    {"no_rope_layer_interval", MHA__KEY_DIM, FIELD(rope_interval), 4, MHA__DIM, NULL},
    {"use_sliding_window", MHA__KEY_BOOL, FIELD(windowed), 0, 0, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 0, MHA__DIM, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
};

static const mha__config_key starcoder2_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu_pytorch_tanh"},
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 2, MHA__HEADS, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 4096, MHA__DIM, NULL},
    {"norm_epsilon", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 0, MHA__DIM, NULL},
    {"use_bias", MHA__KEY_BOOL, FIELD(mlp_bias), 1, 0, NULL}, /* biases of all matrices */
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
};

static const mha__part llama_parts[MHA__ROLES] = {
    LLAMA_PARTS(RMS, FIELD(attn_bias), FIELD(attn_bias)),
    NORM_OF(MHA__ATTN_NORM, RMS, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, RMS, "post_attention_layernorm"),
};
static const mha__part qwen2_parts[MHA__ROLES] = {
    LLAMA_PARTS(RMS, 0, FIELD(attn_bias)),
    NORM_OF(MHA__ATTN_NORM, RMS, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, RMS, "post_attention_layernorm"),
};
static const mha__part gemma_parts[MHA__ROLES] = {
    LLAMA_PARTS(RMS_1, FIELD(attn_bias), FIELD(attn_bias)),
    NORM_OF(MHA__ATTN_NORM, RMS_1, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, RMS_1, "post_attention_layernorm"),
};
#define GEMMA2_LAYER                                                                                           \
    LLAMA_LAYER(RMS_1, FIELD(attn_bias), FIELD(attn_bias)), NORM_OF(MHA__ATTN_NORM, RMS_1, "input_layernorm"), \
        NORM_OF(MHA__ATTN_OUT_NORM, RMS_1, "post_attention_layernorm"),                                        \
        NORM_OF(MHA__MLP_NORM, RMS_1, "pre_feedforward_layernorm"),                                            \
        NORM_OF(MHA__MLP_OUT_NORM, RMS_1, "post_feedforward_layernorm")
static const mha__part gemma2_parts[MHA__ROLES] = {LLAMA_OUTER(RMS_1), GEMMA2_LAYER};
static const mha__part gemma3_parts[MHA__ROLES] = {
    LLAMA_STATES(RMS_1),
    [MHA__LM_HEAD] = {AS(TABLE, "/language_model.lm_head", FIELD(vocab), FIELD(hidden)), .optional = true},
    GEMMA2_LAYER,
};
static const mha__part gemma3_encoder_parts[MHA__ROLES] = {LLAMA_STATES(RMS_1), GEMMA2_LAYER};
static const char *const gemma3_prefixes[] = {"language_model.model.", NULL};
/* OLMo 2: no norms before the branches; q and k are normalized over all heads together. */
static const mha__part olmo2_parts[MHA__ROLES] = {
    LLAMA_OUTER(RMS),
    LLAMA_ATTENTION(FIELD(attn_bias), FIELD(attn_bias)),
    [MHA__QUERY_NORM] = {AS(RMS, "self_attn.q_norm", WIDTH(q), 0)},
    [MHA__KEY_NORM] = {AS(RMS, "self_attn.k_norm", WIDTH(k), 0)},
    LLAMA_FEED,
    NORM_OF(MHA__ATTN_OUT_NORM, RMS, "post_attention_layernorm"),
    NORM_OF(MHA__MLP_OUT_NORM, RMS, "post_feedforward_layernorm"),
};
/* Phi-3: q, k and v are one tensor, and so are gate and up. */
static const mha__part phi3_parts[MHA__ROLES] = {
    LLAMA_OUTER(RMS),
    HEAD_NORMS(RMS),
    [MHA__QKV] = {AS(TABLE, "self_attn.qkv_proj", WIDTH(qkv), FIELD(hidden))},
    [MHA__ATTN_OUT] = {AS(TABLE, "self_attn.o_proj", FIELD(hidden), WIDTH(q))},
    [MHA__GATE_UP] = {AS(TABLE, "mlp.gate_up_proj", WIDTH(gate_up), FIELD(hidden))},
    [MHA__DOWN] = {AS(TABLE, "mlp.down_proj", FIELD(hidden), FIELD(intermediate))},
    NORM_OF(MHA__ATTN_NORM, RMS, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, RMS, "post_attention_layernorm"),
};

/* StarCoder2: LayerNorm, and feed-forward without a gate. */
static const mha__part starcoder2_parts[MHA__ROLES] = {
    LLAMA_OUTER(NORM),
    LLAMA_ATTENTION(FIELD(mlp_bias), FIELD(mlp_bias)),
    HEAD_NORMS(RMS),
    [MHA__UP] = {AS(LINEAR, "mlp.c_fc", FIELD(intermediate), FIELD(hidden)), .bias = FIELD(mlp_bias)},
    [MHA__DOWN] = {AS(LINEAR, "mlp.c_proj", FIELD(hidden), FIELD(intermediate)), .bias = FIELD(mlp_bias)},
    NORM_OF(MHA__ATTN_NORM, NORM, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, NORM, "post_attention_layernorm"),
};

/* ---- list of families ---- */

#define GEMMA3                                                                                           \
    .common = gemma3_common, .common_count = COUNT(gemma3_common), .layer = "layers.", .pre_norm = true, \
    .rotary = true, .head_keys = true, .aliases = gemma3_aliases, .embed_scaled = true, .normed = true,  \
    .window_rule = MHA__WINDOW_PATTERN, .theta = 1e6, .local_theta = 1e4, .local_theta_key = "rope_local_base_freq"

static const mha__family gemma3_encoder = {GEMMA3, .name = "gemma3_text", KEYS(gemma3_encoder_keys),
                                           .prefixes = mha__llama_prefixes, .parts = gemma3_encoder_parts};

static const mha__family families[] = {
    {LLAMA_LIKE, .name = "llama", KEYS(llama_keys), .parts = llama_parts, .eos = 2},
    {LLAMA_LIKE, .name = "mistral", KEYS(mistral_keys), .parts = llama_parts, .window_rule = MHA__WINDOW_ALL},
    {LLAMA_LIKE, .name = "qwen2", KEYS(qwen_keys), .parts = qwen2_parts, .window_rule = MHA__WINDOW_LATER},
    {LLAMA_LIKE, .name = "qwen3", KEYS(qwen3_keys), .parts = llama_parts, .normed = true,
     .window_rule = MHA__WINDOW_LATER},
    {LLAMA_LIKE, .name = "gemma", KEYS(gemma_keys), .parts = gemma_parts, .eos = 1, .embed_scaled = true},
    {LLAMA_LIKE, .name = "gemma2", KEYS(gemma2_keys), .parts = gemma2_parts, .embed_scaled = true,
     .window_rule = MHA__WINDOW_EVEN},
    {GEMMA3, .name = "gemma3_text", KEYS(gemma3_text_keys), .prefixes = mha__llama_prefixes, .parts = gemma2_parts,
     .eos = 1, .causal = true, .bidirectional = &gemma3_encoder},
    {GEMMA3, .name = "gemma3", KEYS(gemma3_keys), .top = gemma3_top_keys, .top_count = COUNT(gemma3_top_keys),
     .tower = "text_config", .prefixes = gemma3_prefixes, .parts = gemma3_parts, .eos = 1, .causal = true},
    {LLAMA_LIKE, .name = "phi3", KEYS(phi3_keys), .parts = phi3_parts, .eos = 32000, .drops_cache = true,
     .width_checked = true, .rotary_part = 1, .window_rule = MHA__WINDOW_ALL, .old_longrope = true,
     .original_positions = 4096},
    {LLAMA_LIKE, .name = "olmo2", KEYS(olmo2_keys), .parts = olmo2_parts, .eos = 50279, .normed = true,
     .whole_norms = true},
    {LLAMA_LIKE, .name = "granite", KEYS(granite_keys), .parts = llama_parts, .eos = 2},
    {LLAMA_LIKE, .name = "smollm3", KEYS(smollm3_keys), .parts = llama_parts, .eos = 128001, .rope_list = true,
     .window_rule = MHA__WINDOW_UNTURNED, .theta = 2e6},
    {LLAMA_LIKE, .name = "starcoder2", KEYS(starcoder2_keys), .parts = starcoder2_parts, .eos = 50256,
     .window_rule = MHA__WINDOW_ALL},
};

const mha__family_list mha__families_llama = {families, COUNT(families)};
