/* family_neox.c - decoders whose attention and feed-forward run in parallel: GPT-NeoX, Phi, Cohere. */
#include "model/config/family_tables.h"

/* ---- GPT-NeoX and Pythia: q, k and v interleaved per head, partial rotation ---- */

static const mha__config_key neox_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 50432, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 6144, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 44, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 64, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 24576, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 2048, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(pad), -1, MHA__DIM, NULL}, /* its embedding gets a gradient */
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 1, 0, NULL},
    {"use_parallel_residual", MHA__KEY_BOOL, FIELD(parallel), 1, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 0, 0, NULL},
    QUANTIZATION,
};

static const char *const neox_prefixes[] = {"gpt_neox.", "", NULL};

static const mha__part neox_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embed_in", FIELD(vocab), FIELD(hidden))},
    [MHA__FINAL_NORM] = {AS(NORM, "final_layer_norm", FIELD(hidden), 0)},
    [MHA__LM_HEAD] = {AS(TABLE, "/embed_out", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QKV] = {AS(LINEAR, "attention.query_key_value", WIDTH(qkv), FIELD(hidden)), .bias = FIELD(attn_bias),
                  .per_head = true},
    [MHA__QUERY_NORM] = {AS(RMS, "attention.q_norm", FIELD(head_dim), 0)},
    [MHA__KEY_NORM] = {AS(RMS, "attention.k_norm", FIELD(head_dim), 0)},
    [MHA__ATTN_OUT] = {AS(LINEAR, "attention.dense", FIELD(hidden), WIDTH(q)), .bias = FIELD(attn_bias)},
    [MHA__ATTN_NORM] = {AS(NORM, "input_layernorm", FIELD(hidden), 0)},
    [MHA__UP] = {AS(LINEAR, "mlp.dense_h_to_4h", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(LINEAR, "mlp.dense_4h_to_h", FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM, "post_attention_layernorm", FIELD(hidden), 0)},
};

/* ---- Phi 1, 1.5 and 2: one norm for both branches, biases everywhere ---- */

static const mha__config_key phi_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 51200, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 2048, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 24, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 32, MHA__HEADS, NULL},
    {"num_key_value_heads", MHA__KEY_MAYBE_DIM, FIELD(kv_heads), 0, MHA__HEADS, NULL},
    {"head_dim", MHA__KEY_MAYBE_DIM, FIELD(head_dim), 0, MHA__DIM, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 8192, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 2048, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), -1, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu_new"},
    {"qk_layernorm", MHA__KEY_BOOL, FIELD(qk_normed), 0, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 0, 0, NULL},
    QUANTIZATION,
};

static const char *const model_prefixes[] = {"model.", "", NULL};

static const mha__part phi_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embed_tokens", FIELD(vocab), FIELD(hidden))},
    [MHA__FINAL_NORM] = {AS(NORM, "final_layernorm", FIELD(hidden), 0)},
    [MHA__LM_BIAS] = {AS(VECTOR, "/lm_head.bias", FIELD(vocab), 0)},
    [MHA__LM_HEAD] = {AS(TABLE, "/lm_head", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QUERY] = {AS(LINEAR, "self_attn.q_proj", WIDTH(q), FIELD(hidden))},
    [MHA__KEY] = {AS(LINEAR, "self_attn.k_proj", WIDTH(k), FIELD(hidden))},
    [MHA__VALUE] = {AS(LINEAR, "self_attn.v_proj", WIDTH(v), FIELD(hidden))},
    [MHA__QUERY_NORM] = {AS(NORM, "self_attn.q_layernorm", FIELD(head_dim), 0)},
    [MHA__KEY_NORM] = {AS(NORM, "self_attn.k_layernorm", FIELD(head_dim), 0)},
    [MHA__ATTN_OUT] = {AS(LINEAR, "self_attn.dense", FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM, "input_layernorm", FIELD(hidden), 0)},
    [MHA__UP] = {AS(LINEAR, "mlp.fc1", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(LINEAR, "mlp.fc2", FIELD(hidden), FIELD(intermediate))},
};

/* ---- Cohere (Command R): one norm without a bias for both branches, SwiGLU ---- */

static const mha__config_key cohere_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 256000, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 8192, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 40, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 64, MHA__HEADS, NULL},
    {"num_key_value_heads", MHA__KEY_MAYBE_DIM, FIELD(kv_heads), 0, MHA__HEADS, NULL},
    {"head_dim", MHA__KEY_MAYBE_DIM, FIELD(head_dim), 0, MHA__DIM, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 22528, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 8192, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"logit_scale", MHA__KEY_POSITIVE, FIELD(logit_multiplier), 0.0625, 0, NULL},
    {"use_qk_norm", MHA__KEY_BOOL, FIELD(qk_normed), 0, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    QUANTIZATION,
};

static const mha__part cohere_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embed_tokens", FIELD(vocab), FIELD(hidden))},
    [MHA__FINAL_NORM] = {AS(NORM_ONLY, "norm", FIELD(hidden), 0)},
    [MHA__LM_HEAD] = {AS(TABLE, "/lm_head", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QUERY] = {AS(LINEAR, "self_attn.q_proj", WIDTH(q), FIELD(hidden)), .bias = FIELD(attn_bias)},
    [MHA__KEY] = {AS(LINEAR, "self_attn.k_proj", WIDTH(k), FIELD(hidden)), .bias = FIELD(attn_bias)},
    [MHA__VALUE] = {AS(LINEAR, "self_attn.v_proj", WIDTH(v), FIELD(hidden)), .bias = FIELD(attn_bias)},
    [MHA__QUERY_NORM] = {AS(HEAD_NORMS, "self_attn.q_norm", WIDTH(heads), FIELD(head_dim))},
    [MHA__KEY_NORM] = {AS(HEAD_NORMS, "self_attn.k_norm", WIDTH(k_heads), FIELD(head_dim))},
    [MHA__ATTN_OUT] = {AS(LINEAR, "self_attn.o_proj", FIELD(hidden), WIDTH(q)), .bias = FIELD(attn_bias)},
    [MHA__ATTN_NORM] = {AS(NORM_ONLY, "input_layernorm", FIELD(hidden), 0)},
    [MHA__GATE] = {AS(TABLE, "mlp.gate_proj", FIELD(intermediate), FIELD(hidden))},
    [MHA__UP] = {AS(TABLE, "mlp.up_proj", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(TABLE, "mlp.down_proj", FIELD(hidden), FIELD(intermediate))},
};

/* ---- list of families ---- */

#define PARALLEL .layer = "layers.", .pre_norm = true, .causal = true, .rotary = true, .parallel = true

static const mha__family families[] = {
    {.name = "gpt_neox",
     PARALLEL,
     KEYS(neox_keys),
     .prefixes = neox_prefixes,
     .parts = neox_parts,
     .eos = 2,
     .rotary_part = 0.25,
     .partial_key = "rotary_pct",
     .theta_key = "rotary_emb_base"},
    {.name = "phi",
     PARALLEL,
     KEYS(phi_keys),
     .prefixes = model_prefixes,
     .parts = phi_parts,
     .head_keys = true,
     .width_checked = true,
     .eos = 2,
     .rotary_part = 0.5},
    {.name = "cohere",
     PARALLEL,
     KEYS(cohere_keys),
     .prefixes = model_prefixes,
     .parts = cohere_parts,
     .head_keys = true,
     .eos = 255001,
     .head_gains = true,
     .interleaved = true},
};

const mha__family_list mha__families_neox = {families, COUNT(families)};
