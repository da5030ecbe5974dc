/* family_modernbert.c - encoders with rotary position embeddings and a gated feed-forward part: NomicBERT, ModernBERT.
 */
#include "model/config/family_tables.h"

/* ---- NomicBERT: post-norm, token types ---- */

static const mha__config_key nomic_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 30528, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"head_dim", MHA__KEY_MAYBE_DIM, FIELD(head_dim), 0, MHA__DIM, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 3072, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 2048, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"type_vocab_size", MHA__KEY_DIM, FIELD(type_vocab), 2, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-12, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "silu"},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    QUANTIZATION,
};

static const char *const nomic_prefixes[] = {"", "nomic_bert.", NULL};

static const mha__part nomic_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embeddings.word_embeddings", FIELD(vocab), FIELD(hidden))},
    [MHA__TYPES] = {AS(TABLE, "embeddings.token_type_embeddings", FIELD(type_vocab), FIELD(hidden))},
    [MHA__EMBED_NORM] = {AS(NORM, "emb_ln", FIELD(hidden), 0)},
    [MHA__LM_DENSE] = {AS(LINEAR, "/cls.predictions.transform.dense", FIELD(hidden), FIELD(hidden)), .optional = true},
    [MHA__LM_NORM] = {AS(NORM, "/cls.predictions.transform.layer_norm", FIELD(hidden), 0), .optional = true},
    [MHA__LM_BIAS] = {AS(VECTOR, "/cls.predictions.decoder.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_TIED_BIAS] = {AS(VECTOR, "/cls.predictions.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_HEAD] = {AS(TABLE, "/cls.predictions.decoder", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QKV] = {AS(TABLE, "attn.Wqkv", WIDTH(qkv), FIELD(hidden))},
    [MHA__QUERY_NORM] = {AS(RMS, "attn.q_norm", FIELD(head_dim), 0)},
    [MHA__KEY_NORM] = {AS(RMS, "attn.k_norm", FIELD(head_dim), 0)},
    [MHA__ATTN_OUT] = {AS(TABLE, "attn.out_proj", FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM, "norm1", FIELD(hidden), 0)},
    [MHA__UP] = {AS(TABLE, "mlp.fc11", FIELD(intermediate), FIELD(hidden))},
    [MHA__GATE] = {AS(TABLE, "mlp.fc12", FIELD(intermediate), FIELD(hidden))},
    [MHA__DOWN] = {AS(TABLE, "mlp.fc2", FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM, "norm2", FIELD(hidden), 0)},
};

/* ---- ModernBERT: pre-norm without biases, two of every three layers attend to a window ---- */

static const mha__config_key modernbert_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 50368, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 22, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 1152, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 8192, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 50283, MHA__DIM, NULL},
    {"norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-5, 0, NULL},
    {"hidden_activation", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"classifier_activation", MHA__KEY_ACTIVATION, FIELD(head_activation), 0, 0, "gelu"},
    {"local_attention", MHA__KEY_DIM, FIELD(local_keys), 128, MHA__DIM, NULL},
    {"global_attn_every_n_layers", MHA__KEY_DIM, FIELD(window_pattern), 3, MHA__DIM, NULL},
    {"norm_bias", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"attention_bias", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"mlp_bias", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"classifier_bias", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"decoder_bias", MHA__KEY_ONLY_TRUE, 0, 0, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    QUANTIZATION,
};

static const char *const modernbert_prefixes[] = {"", "model.", NULL};

static const mha__part modernbert_parts[MHA__ROLES] = {
    [MHA__WORDS] = {AS(TABLE, "embeddings.tok_embeddings", FIELD(vocab), FIELD(hidden))},
    [MHA__EMBED_NORM] = {AS(NORM_ONLY, "embeddings.norm", FIELD(hidden), 0)},
    [MHA__FINAL_NORM] = {AS(NORM_ONLY, "final_norm", FIELD(hidden), 0)},
    [MHA__LM_DENSE] = {AS(TABLE, "/head.dense", FIELD(hidden), FIELD(hidden)), .optional = true},
    [MHA__LM_NORM] = {AS(NORM_ONLY, "/head.norm", FIELD(hidden), 0), .optional = true},
    [MHA__LM_BIAS] = {AS(VECTOR, "/decoder.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_TIED_BIAS] = {AS(VECTOR, "/decoder.bias", FIELD(vocab), 0), .optional = true},
    [MHA__LM_HEAD] = {AS(TABLE, "/decoder", FIELD(vocab), FIELD(hidden)), .optional = true},
    [MHA__QKV] = {AS(TABLE, "attn.Wqkv", WIDTH(qkv), FIELD(hidden))},
    [MHA__QUERY_NORM] = {AS(RMS, "attn.q_norm", FIELD(head_dim), 0)},
    [MHA__KEY_NORM] = {AS(RMS, "attn.k_norm", FIELD(head_dim), 0)},
    [MHA__ATTN_OUT] = {AS(TABLE, "attn.Wo", FIELD(hidden), WIDTH(q))},
    [MHA__ATTN_NORM] = {AS(NORM_ONLY, "attn_norm", FIELD(hidden), 0),
                        .not_first = true}, /* embeddings.norm is used instead */
    [MHA__GATE_UP] = {AS(TABLE, "mlp.Wi", WIDTH(gate_up), FIELD(hidden))},
    [MHA__DOWN] = {AS(TABLE, "mlp.Wo", FIELD(hidden), FIELD(intermediate))},
    [MHA__MLP_NORM] = {AS(NORM_ONLY, "mlp_norm", FIELD(hidden), 0)},
};

/* ---- list of families ---- */

static const mha__family families[] = {
    {.name = "nomic_bert",
     KEYS(nomic_keys),
     .prefixes = nomic_prefixes,
     .layer = "encoder.layers.",
     .parts = nomic_parts,
     .rotary = true,
     .theta = 1000,
     .theta_key = "rotary_emb_base"},
    {.name = "modernbert",
     KEYS(modernbert_keys),
     .prefixes = modernbert_prefixes,
     .layer = "layers.",
     .parts = modernbert_parts,
     .pre_norm = true,
     .rotary = true,
     .window_rule = MHA__WINDOW_BETWEEN,
     .theta = 160000,
     .theta_key = "global_rope_theta",
     .local_theta = 10000,
     .local_theta_key = "local_rope_theta"},
};

const mha__family_list mha__families_modernbert = {families, COUNT(families)};
