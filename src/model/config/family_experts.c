/* family_experts.c - decoders derived from LLaMA whose layers have experts. */
#include "layer/block/feed_forward.h"
#include "model/config/family_llama.h"

static const mha__config_key mixtral_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 8, MHA__HEADS, NULL},
    {"rms_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 131072, MHA__DIM, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 0, MHA__DIM, NULL},
    {"num_local_experts", MHA__KEY_DIM, FIELD(experts), 8, MHA__EXPERTS_MAX, NULL},
    {"num_experts_per_tok", MHA__KEY_DIM, FIELD(experts_chosen), 2, MHA__EXPERTS_MAX, NULL},
};

static const mha__config_key qwen2_moe_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 16, MHA__HEADS, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 32768, MHA__DIM, NULL},
    {"qkv_bias", MHA__KEY_BOOL, FIELD(qkv_bias), 1, 0, NULL},
    {"sliding_window", MHA__KEY_COUNT_OR_OFF, FIELD(window), 4096, MHA__DIM, NULL},
    {"use_sliding_window", MHA__KEY_BOOL, FIELD(windowed), 0, 0, NULL},
    {"max_window_layers", MHA__KEY_COUNT, FIELD(full_layers), 28, MHA__DIM, NULL},
    {"num_experts", MHA__KEY_DIM, FIELD(experts), 60, MHA__EXPERTS_MAX, NULL},
    {"num_experts_per_tok", MHA__KEY_DIM, FIELD(experts_chosen), 4, MHA__EXPERTS_MAX, NULL},
    {"moe_intermediate_size", MHA__KEY_DIM, FIELD(expert_width), 1408, MHA__DIM, NULL},
    {"shared_expert_intermediate_size", MHA__KEY_DIM, FIELD(shared_width), 5632, MHA__DIM, NULL},
    {"decoder_sparse_step", MHA__KEY_DIM, FIELD(sparse_step), 1, MHA__DIM, NULL},
    {"norm_topk_prob", MHA__KEY_BOOL, FIELD(experts_normed), 0, 0, NULL},
};

static const mha__config_key qwen3_moe_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 4, MHA__HEADS, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 32768, MHA__DIM, NULL},
    {"sliding_window", MHA__KEY_COUNT_OR_OFF, FIELD(window), 4096, MHA__DIM, NULL},
    {"use_sliding_window", MHA__KEY_BOOL, FIELD(windowed), 0, 0, NULL},
    {"num_experts", MHA__KEY_DIM, FIELD(experts), 128, MHA__EXPERTS_MAX, NULL},
    {"num_experts_per_tok", MHA__KEY_DIM, FIELD(experts_chosen), 8, MHA__EXPERTS_MAX, NULL},
    {"moe_intermediate_size", MHA__KEY_DIM, FIELD(expert_width), 768, MHA__DIM, NULL},
    {"decoder_sparse_step", MHA__KEY_DIM, FIELD(sparse_step), 1, MHA__DIM, NULL},
    {"norm_topk_prob", MHA__KEY_BOOL, FIELD(experts_normed), 0, 0, NULL},
};

static const mha__config_key gpt_oss_keys[] = {
    {"num_key_value_heads", MHA__KEY_DIM_OR_OFF, FIELD(kv_heads), 8, MHA__HEADS, NULL},
    {"head_dim", MHA__KEY_DIM_OR_OFF, FIELD(head_dim), 64, MHA__DIM, NULL},
    {"rms_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 131072, MHA__DIM, NULL},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 1, 0, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 128, MHA__DIM, NULL},
    {"num_local_experts", MHA__KEY_DIM, FIELD(experts), 128, MHA__EXPERTS_MAX, NULL},
    {"num_experts_per_tok", MHA__KEY_DIM, FIELD(experts_chosen), 4, MHA__EXPERTS_MAX, NULL},
    {"swiglu_alpha", MHA__KEY_POSITIVE, FIELD(swiglu_alpha), 1.702, 0, NULL},
    {"swiglu_limit", MHA__KEY_POSITIVE, FIELD(swiglu_limit), 7, 0, NULL},
};

static const mha_rope_options gpt_oss_rope = {.size = sizeof gpt_oss_rope,
                                              .kind = MHA_ROPE_YARN,
                                              .theta = 150000,
                                              .factor = 32,
                                              .original_positions = 4096,
                                              .no_truncate = 1};

static const char *const gpt_oss_aliases[][2] = {
    {"num_local_experts", "num_experts"},
    {NULL, NULL},
};

static const mha__config_key deepseek_keys[] = {
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 4096, MHA__DIM, NULL},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"q_lora_rank", MHA__KEY_DIM_OR_OFF, FIELD(q_rank), 1536, MHA__DIM, NULL},
    {"kv_lora_rank", MHA__KEY_DIM, FIELD(kv_rank), 512, MHA__DIM, NULL},
    {"qk_nope_head_dim", MHA__KEY_DIM, FIELD(nope_width), 128, MHA__DIM, NULL},
    {"qk_rope_head_dim", MHA__KEY_DIM, FIELD(rope_width), 64, MHA__DIM, NULL},
    {"v_head_dim", MHA__KEY_DIM, FIELD(value_width), 128, MHA__DIM, NULL},
    {"rope_interleave", MHA__KEY_BOOL, FIELD(interleaved), 1, 0, NULL},
    {"n_routed_experts", MHA__KEY_DIM, FIELD(experts), 256, MHA__EXPERTS_MAX, NULL},
    {"num_experts_per_tok", MHA__KEY_DIM, FIELD(experts_chosen), 8, MHA__EXPERTS_MAX, NULL},
    {"moe_intermediate_size", MHA__KEY_DIM, FIELD(expert_width), 2048, MHA__DIM, NULL},
    {"n_shared_experts", MHA__KEY_DIM, FIELD(shared_experts), 1, MHA__EXPERTS_MAX, NULL},
    {"first_k_dense_replace", MHA__KEY_COUNT, FIELD(dense_layers), 3, MHA__LAYERS, NULL},
    {"n_group", MHA__KEY_DIM, FIELD(expert_groups), 8, MHA__EXPERTS_MAX, NULL},
    {"topk_group", MHA__KEY_DIM, FIELD(kept_groups), 4, MHA__EXPERTS_MAX, NULL},
    {"norm_topk_prob", MHA__KEY_BOOL, FIELD(experts_normed), 1, 0, NULL},
    {"routed_scaling_factor", MHA__KEY_POSITIVE, FIELD(expert_factor), 2.5, 0, NULL},
};

static const char *const deepseek_aliases[][2] = {
    {"n_routed_experts", "num_local_experts"},
    {NULL, NULL},
};

static const char *const qwen3_moe_aliases[][2] = {
    {"num_experts", "num_local_experts"}, /* name in transformers 5.x */
    {NULL, NULL},
};

/* The experts of a layer, of width `wide`. */
#define EXPERTS(router, gate, up, down, wide)                           \
    [MHA__ROUTER] = {AS(TABLE, router, FIELD(experts), FIELD(hidden))}, \
    [MHA__EXPERT_GATE] = {AS(TABLE, gate, FIELD(wide), FIELD(hidden))}, \
    [MHA__EXPERT_UP] = {AS(TABLE, up, FIELD(wide), FIELD(hidden))},     \
    [MHA__EXPERT_DOWN] = {AS(TABLE, down, FIELD(hidden), FIELD(wide))}
#define QWEN_EXPERTS \
    EXPERTS("mlp.gate", "mlp.experts.*.gate_proj", "mlp.experts.*.up_proj", "mlp.experts.*.down_proj", expert_width)

static const mha__part mixtral_parts[MHA__ROLES] = {
    LLAMA_OUTER(RMS),
    LLAMA_ATTENTION(FIELD(attn_bias), FIELD(attn_bias)),
    HEAD_NORMS(RMS),
    EXPERTS("block_sparse_moe.gate", "block_sparse_moe.experts.*.w1", "block_sparse_moe.experts.*.w3",
            "block_sparse_moe.experts.*.w2", intermediate),
    NORM_OF(MHA__ATTN_NORM, RMS, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, RMS, "post_attention_layernorm"),
};
static const mha__part qwen2_moe_parts[MHA__ROLES] = {
    LLAMA_PARTS(RMS, FIELD(qkv_bias), FIELD(attn_bias)),
    QWEN_EXPERTS,
    [MHA__SHARED_GATE] = {AS(TABLE, "mlp.shared_expert.gate_proj", FIELD(shared_width), FIELD(hidden))},
    [MHA__SHARED_UP] = {AS(TABLE, "mlp.shared_expert.up_proj", FIELD(shared_width), FIELD(hidden))},
    [MHA__SHARED_DOWN] = {AS(TABLE, "mlp.shared_expert.down_proj", FIELD(hidden), FIELD(shared_width))},
    [MHA__SHARED_SHARE] = {AS(TABLE, "mlp.shared_expert_gate", WIDTH(one), FIELD(hidden))},
    NORM_OF(MHA__ATTN_NORM, RMS, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, RMS, "post_attention_layernorm"),
};
static const mha__part qwen3_moe_parts[MHA__ROLES] = {
    LLAMA_PARTS(RMS, FIELD(attn_bias), FIELD(attn_bias)),
    QWEN_EXPERTS,
    NORM_OF(MHA__ATTN_NORM, RMS, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, RMS, "post_attention_layernorm"),
};

/* gpt-oss: all experts are in two tensors. */
static const mha__part gpt_oss_parts[MHA__ROLES] = {
    LLAMA_OUTER(RMS),
    LLAMA_ATTENTION(FIELD(attn_bias), FIELD(attn_bias)),
    HEAD_NORMS(RMS),
    [MHA__SINKS] = {AS(VECTOR, "self_attn.sinks", WIDTH(heads), 0)},
    [MHA__ROUTER] = {AS(LINEAR, "mlp.router", FIELD(experts), FIELD(hidden))},
    [MHA__EXPERTS_GATE_UP] = {AS(STACK, "mlp.experts.gate_up_proj", WIDTH(gate_up), FIELD(hidden)),
                              .alternating = true},
    [MHA__EXPERTS_DOWN] = {AS(STACK, "mlp.experts.down_proj", FIELD(hidden), FIELD(intermediate))},
    NORM_OF(MHA__ATTN_NORM, RMS, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, RMS, "post_attention_layernorm"),
};

/* DeepSeek-V3: latent attention, and experts in addition to a shared feed-forward. */
static const mha__part deepseek_parts[MHA__ROLES] = {
    LLAMA_OUTER(RMS),
    [MHA__QUERY] = {AS(TABLE, "self_attn.q_b_proj", WIDTH(q_out), WIDTH(q_in)), .other = "self_attn.q_proj",
                    .other_if = FIELD(q_direct)},
    [MHA__Q_LATENT] = {AS(LINEAR, "self_attn.q_a_proj", FIELD(q_rank), FIELD(hidden)), .bias = FIELD(attn_bias),
                       .only_if = FIELD(q_latent)},
    [MHA__Q_LATENT_NORM] = {AS(RMS, "self_attn.q_a_layernorm", FIELD(q_rank), 0), .only_if = FIELD(q_latent)},
    [MHA__KV_LATENT] = {AS(LINEAR, "self_attn.kv_a_proj_with_mqa", WIDTH(kv_low), FIELD(hidden)),
                        .bias = FIELD(attn_bias)},
    [MHA__KV_LATENT_NORM] = {AS(RMS, "self_attn.kv_a_layernorm", FIELD(kv_rank), 0)},
    [MHA__KV_EXPAND] = {AS(TABLE, "self_attn.kv_b_proj", WIDTH(kv_out), FIELD(kv_rank))},
    [MHA__ATTN_OUT] = {AS(LINEAR, "self_attn.o_proj", FIELD(hidden), WIDTH(o_in)), .bias = FIELD(attn_bias),
                       .padded = true},
    LLAMA_FEED,
    QWEN_EXPERTS,
    [MHA__ROUTER_BIAS] = {AS(VECTOR, "mlp.gate.e_score_correction_bias", FIELD(experts), 0)},
    [MHA__SHARED_GATE] = {AS(TABLE, "mlp.shared_experts.gate_proj", FIELD(shared_width), FIELD(hidden))},
    [MHA__SHARED_UP] = {AS(TABLE, "mlp.shared_experts.up_proj", FIELD(shared_width), FIELD(hidden))},
    [MHA__SHARED_DOWN] = {AS(TABLE, "mlp.shared_experts.down_proj", FIELD(hidden), FIELD(shared_width))},
    NORM_OF(MHA__ATTN_NORM, RMS, "input_layernorm"),
    NORM_OF(MHA__MLP_NORM, RMS, "post_attention_layernorm"),
};

/* ---- list of families ---- */

static const mha__family families[] = {
    {LLAMA_LIKE, .name = "mixtral", KEYS(mixtral_keys), .parts = mixtral_parts, .eos = 2, .experts_normed = true,
     .window_rule = MHA__WINDOW_ALL, .theta = 1e6},
    {LLAMA_LIKE, .name = "qwen2_moe", KEYS(qwen2_moe_keys), .parts = qwen2_moe_parts,
     .window_rule = MHA__WINDOW_EVEN_BEFORE},
    {LLAMA_LIKE, .name = "qwen3_moe", KEYS(qwen3_moe_keys), .parts = qwen3_moe_parts, .aliases = qwen3_moe_aliases,
     .normed = true, .window_rule = MHA__WINDOW_LATER},
    {LLAMA_LIKE, .name = "gpt_oss", KEYS(gpt_oss_keys), .parts = gpt_oss_parts, .aliases = gpt_oss_aliases,
     .experts_normed = true, .window_rule = MHA__WINDOW_EVEN, .theta = 150000, .default_rope = &gpt_oss_rope},
    {LLAMA_BASE, .name = "deepseek_v3", KEYS(deepseek_keys), .parts = deepseek_parts, .aliases = deepseek_aliases,
     .eos = 1, .latent = true, .sigmoid_router = true},
};

const mha__family_list mha__families_experts = {families, COUNT(families)};
