/* family_gpt2.c - decoders with learned positions or ALiBi: GPT-2, OPT, BLOOM. */
#include "model/config/family_tables.h"

/* ---- GPT-2: pre-norm decoder, learned positions, Conv1D ---- */

static const mha__config_key gpt2_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 50257, MHA__DIM, NULL},
    {"n_embd", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"n_layer", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"n_head", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"n_inner", MHA__KEY_MAYBE_DIM, FIELD(intermediate), 0, MHA__DIM, NULL},
    {"n_positions", MHA__KEY_DIM, FIELD(max_positions), 1024, MHA__DIM, NULL},
    {"layer_norm_epsilon", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"activation_function", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu_new"},
    {"scale_attn_weights", MHA__KEY_BOOL, FIELD(scaled), 1, 0, NULL},
    {"scale_attn_by_inverse_layer_idx", MHA__KEY_BOOL, FIELD(inverse_layer_scale), 0, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"is_causal", MHA__KEY_ONLY_TRUE, 0, 0, 0, NULL},
    {"add_cross_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    QUANTIZATION,
};

/* Alternative names of the keys above, from other families; transformers accepts both names. */
static const char *const gpt2_aliases[][2] = {
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_positions", "max_position_embeddings"},
    {NULL, NULL},
};

static const char *const gpt2_prefixes[] = {"transformer.", "", NULL};

static const mha__part gpt2_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "wte", FIELD(vocab), FIELD(hidden))},
    [MHA__POSITIONS] = {AS(TABLE, "wpe", FIELD(position_rows), FIELD(hidden))},
    [MHA__FINAL_NORM] = {AS(NORM, "ln_f", FIELD(hidden), 0)},
    [MHA__LM_HEAD] = {AS(TABLE, "/lm_head", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QKV] = {AS(CONV1D, "attn.c_attn", WIDTH(qkv), FIELD(hidden))},
    [MHA__QUERY_NORM] = {AS(RMS, "attn.q_norm", FIELD(head_dim), 0)},
    [MHA__KEY_NORM] = {AS(RMS, "attn.k_norm", FIELD(head_dim), 0)},
    [MHA__ATTN_OUT] = {AS(CONV1D, "attn.c_proj", FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM, "ln_1", FIELD(hidden), 0)},
    [MHA__UP] = {AS(CONV1D, "mlp.c_fc", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(CONV1D, "mlp.c_proj", FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM, "ln_2", FIELD(hidden), 0)},
};

/* ---- OPT: like GPT-2, with two unused rows at the start of the position table ---- */

static const mha__config_key opt_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 50272, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"word_embed_proj_dim", MHA__KEY_MAYBE_DIM, FIELD(embed_width), 0, MHA__DIM, NULL},
    {"ffn_dim", MHA__KEY_DIM, FIELD(intermediate), 3072, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 2048, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 1, MHA__DIM, NULL},
    {"", MHA__KEY_FIXED, FIELD(eps), 1e-5, 0, NULL},
    {"activation_function", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "relu"},
    {"do_layer_norm_before", MHA__KEY_BOOL, FIELD(pre_norm), 1, 0, NULL},
    {"_remove_final_layer_norm", MHA__KEY_BOOL, FIELD(no_final_norm), 0, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"enable_bias", MHA__KEY_BOOL, FIELD(mlp_bias), 1, 0, NULL}, /* biases of all matrices */
    {"layer_norm_elementwise_affine", MHA__KEY_ONLY_TRUE, 0, 0, 0, NULL},
    QUANTIZATION,
};

static const char *const opt_prefixes[] = {"model.decoder.", "decoder.", "", NULL};

static const mha__part opt_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embed_tokens", FIELD(vocab), FIELD(embed_width))},
    [MHA__POSITIONS] = {AS(TABLE, "embed_positions", FIELD(position_rows), FIELD(hidden))},
    [MHA__EMBED_MAP] = {AS(TABLE, "project_in", FIELD(hidden), FIELD(embed_width)), .only_if = FIELD(embed_mapped)},
    [MHA__FINAL_NORM] = {AS(NORM, "final_layer_norm", FIELD(hidden), 0), .only_if = FIELD(final_normed)},
    [MHA__LM_DENSE] = {AS(TABLE, "project_out", FIELD(embed_width), FIELD(hidden)), .only_if = FIELD(embed_mapped)},
    [MHA__LM_HEAD] = {AS(TABLE, "/lm_head", FIELD(vocab), FIELD(embed_width)), .optional = true},
    [MHA__QUERY] = {AS(LINEAR, "self_attn.q_proj", WIDTH(q), FIELD(hidden)), .bias = FIELD(mlp_bias)},
    [MHA__KEY] = {AS(LINEAR, "self_attn.k_proj", WIDTH(k), FIELD(hidden)), .bias = FIELD(mlp_bias)},
    [MHA__VALUE] = {AS(LINEAR, "self_attn.v_proj", WIDTH(v), FIELD(hidden)), .bias = FIELD(mlp_bias)},
    [MHA__QUERY_NORM] = {AS(RMS, "self_attn.q_norm", FIELD(head_dim), 0)},
    [MHA__KEY_NORM] = {AS(RMS, "self_attn.k_norm", FIELD(head_dim), 0)},
    [MHA__ATTN_OUT] = {AS(LINEAR, "self_attn.out_proj", FIELD(hidden), WIDTH(q)), .bias = FIELD(mlp_bias)},
    [MHA__ATTN_NORM] = {AS(NORM, "self_attn_layer_norm", FIELD(hidden), 0)},
    [MHA__UP] = {AS(LINEAR, "fc1", FIELD(intermediate), FIELD(hidden)), .bias = FIELD(mlp_bias)},
    [MHA__DOWN] = {AS(LINEAR, "fc2", FIELD(hidden), FIELD(intermediate)), .bias = FIELD(mlp_bias)},
    [MHA__MLP_NORM] = {AS(NORM, "final_layer_norm", FIELD(hidden), 0)},
};

/* ---- BLOOM: ALiBi; layer norm after the embeddings; q, k and v interleaved per head ---- */

static const mha__config_key bloom_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 250880, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 64, MHA__DIM, NULL},
    {"n_layer", MHA__KEY_DIM, FIELD(layers), 2, MHA__LAYERS, NULL},
    {"n_head", MHA__KEY_DIM, FIELD(heads), 8, MHA__HEADS, NULL},
    {"seq_length", MHA__KEY_DIM, FIELD(max_positions), 2048, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(pad), -1, MHA__DIM, NULL}, /* its embedding gets a gradient */
    {"layer_norm_epsilon", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu_pytorch_tanh"},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"apply_residual_connection_post_layernorm", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    QUANTIZATION,
};

static const char *const bloom_aliases[][2] = {
    {"hidden_size", "n_embed"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {NULL, NULL},
};

static const mha__part bloom_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "word_embeddings", FIELD(vocab), FIELD(hidden))},
    [MHA__EMBED_NORM] = {AS(NORM, "word_embeddings_layernorm", FIELD(hidden), 0)},
    [MHA__FINAL_NORM] = {AS(NORM, "ln_f", FIELD(hidden), 0)},
    [MHA__LM_HEAD] = {AS(TABLE, "/lm_head", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QKV] = {AS(LINEAR, "self_attention.query_key_value", WIDTH(qkv), FIELD(hidden)), .per_head = true},
    [MHA__QUERY_NORM] = {AS(RMS, "self_attention.q_norm", FIELD(head_dim), 0)},
    [MHA__KEY_NORM] = {AS(RMS, "self_attention.k_norm", FIELD(head_dim), 0)},
    [MHA__ATTN_OUT] = {AS(LINEAR, "self_attention.dense", FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM, "input_layernorm", FIELD(hidden), 0)},
    [MHA__UP] = {AS(LINEAR, "mlp.dense_h_to_4h", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(LINEAR, "mlp.dense_4h_to_h", FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM, "post_attention_layernorm", FIELD(hidden), 0)},
};

/* ---- list of families ---- */

static const mha__family families[] = {
    {.name = "gpt2",
     KEYS(gpt2_keys),
     .aliases = gpt2_aliases,
     .prefixes = gpt2_prefixes,
     .layer = "h.",
     .parts = gpt2_parts,
     .eos = 50256,
     .pre_norm = true,
     .causal = true},
    {.name = "opt",
     KEYS(opt_keys),
     .prefixes = opt_prefixes,
     .layer = "layers.",
     .parts = opt_parts,
     .eos = 2,
     .pre_norm = true,
     .causal = true,
     .positions_mapped = true,
     .linear_head = true,
     .position_rule = MHA__POSITIONS_OF_REAL},
    {.name = "bloom",
     KEYS(bloom_keys),
     .aliases = bloom_aliases,
     .prefixes = gpt2_prefixes,
     .layer = "h.",
     .parts = bloom_parts,
     .eos = 2,
     .pre_norm = true,
     .causal = true,
     .alibi = true},
};

const mha__family_list mha__families_gpt2 = {families, COUNT(families)};
