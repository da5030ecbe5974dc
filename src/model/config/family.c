/* family.c - the model families: one table each.
 *
 * To add a family, add its keys, its parts, and a row in `families`. Defaults are those of transformers for a missing
 * key. Tensors that no table names are ignored: pre-training heads (cls.*), and buffers such as
 * embeddings.position_ids. */
#include "model/config/family.h"
#include "io/input_limits.h"
#include <stdio.h>
#include <string.h>

#define FIELD(name) offsetof(mha__config, name)
#define WIDTH(name) MHA__PART_WIDTH(name)
#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

/* ---- BERT: post-norm encoder, learned positions, token types ---- */

static const mha__config_key bert_keys[] = {
    {"vocab_size", MHA__KEY_DIM, FIELD(vocab), 30522, MHA__DIM, NULL},
    {"hidden_size", MHA__KEY_DIM, FIELD(hidden), 768, MHA__DIM, NULL},
    {"num_hidden_layers", MHA__KEY_DIM, FIELD(layers), 12, MHA__LAYERS, NULL},
    {"num_attention_heads", MHA__KEY_DIM, FIELD(heads), 12, MHA__HEADS, NULL},
    {"intermediate_size", MHA__KEY_DIM, FIELD(intermediate), 3072, MHA__DIM, NULL},
    {"max_position_embeddings", MHA__KEY_DIM, FIELD(max_positions), 512, MHA__DIM, NULL},
    {"pad_token_id", MHA__KEY_ROW, FIELD(padding), 0, MHA__DIM, NULL},
    {"type_vocab_size", MHA__KEY_DIM, FIELD(type_vocab), 2, MHA__DIM, NULL},
    {"layer_norm_eps", MHA__KEY_POSITIVE, FIELD(eps), 1e-12, 0, NULL},
    {"hidden_act", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu"},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
    {"position_embedding_type", MHA__KEY_ONLY_TEXT, 0, 0, 0, "absolute"},
    {"is_decoder", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"add_cross_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"quantization_config", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    {"compression_config", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
};

static const char *const bert_prefixes[] = {"", "bert.", NULL};

static const mha__part bert_parts[MHA__ROLES] = {
    [MHA__WORDS] = {"embeddings.word_embeddings", MHA__PART_TABLE, FIELD(vocab), FIELD(hidden), false, 0},
    [MHA__POSITIONS] = {"embeddings.position_embeddings", MHA__PART_TABLE, FIELD(max_positions), FIELD(hidden), false,
                        0},
    [MHA__TYPES] = {"embeddings.token_type_embeddings", MHA__PART_TABLE, FIELD(type_vocab), FIELD(hidden), false, 0},
    [MHA__EMBED_NORM] = {"embeddings.LayerNorm", MHA__PART_NORM, FIELD(hidden), 0, false, 0},
    [MHA__POOLER] = {"pooler.dense", MHA__PART_LINEAR, FIELD(hidden), FIELD(hidden), true, 0},
    [MHA__LM_DENSE] = {"/cls.predictions.transform.dense", MHA__PART_LINEAR, FIELD(hidden), FIELD(hidden), true, 0},
    [MHA__LM_NORM] = {"/cls.predictions.transform.LayerNorm", MHA__PART_NORM, FIELD(hidden), 0, true, 0},
    [MHA__LM_BIAS] = {"/cls.predictions.decoder.bias", MHA__PART_VECTOR, FIELD(vocab), 0, true, 0},
    [MHA__LM_TIED_BIAS] = {"/cls.predictions.bias", MHA__PART_VECTOR, FIELD(vocab), 0, true, 0},
    [MHA__LM_HEAD] = {"/cls.predictions.decoder", MHA__PART_TABLE, FIELD(vocab), FIELD(hidden), true, 0},
    [MHA__QUERY] = {"attention.self.query", MHA__PART_LINEAR, WIDTH(q), FIELD(hidden), false, 0},
    [MHA__KEY] = {"attention.self.key", MHA__PART_LINEAR, WIDTH(k), FIELD(hidden), false, 0},
    [MHA__VALUE] = {"attention.self.value", MHA__PART_LINEAR, WIDTH(v), FIELD(hidden), false, 0},
    [MHA__QUERY_NORM] = {"attention.self.q_norm", MHA__PART_RMS, FIELD(head_dim), 0, false, 0},
    [MHA__KEY_NORM] = {"attention.self.k_norm", MHA__PART_RMS, FIELD(head_dim), 0, false, 0},
    [MHA__HEAD_CHOICE] = {"attention.self.head_choice", MHA__PART_LINEAR, WIDTH(scores), WIDTH(scored), false, 0},
    [MHA__HEAD_CHOICE_HIDDEN] = {"attention.self.head_choice_hidden", MHA__PART_LINEAR, WIDTH(scored), FIELD(hidden),
                                 false, 0},
    [MHA__ATTN_OUT] = {"attention.output.dense", MHA__PART_LINEAR, FIELD(hidden), WIDTH(q), false, 0},
    [MHA__ATTN_NORM] = {"attention.output.LayerNorm", MHA__PART_NORM, FIELD(hidden), 0, false, 0},
    [MHA__UP] = {"intermediate.dense", MHA__PART_LINEAR, FIELD(intermediate), FIELD(hidden), false, 0},
    [MHA__DOWN] = {"output.dense", MHA__PART_LINEAR, FIELD(hidden), FIELD(intermediate), false, 0},
    [MHA__MLP_NORM] = {"output.LayerNorm", MHA__PART_NORM, FIELD(hidden), 0, false, 0},
};

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
    {"quantization_config", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    {"compression_config", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    {"pruned_heads", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
};

/* Alternative names of these keys, from the other families; transformers accepts both. */
static const char *const gpt2_aliases[][2] = {
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_positions", "max_position_embeddings"},
    {NULL, NULL},
};

static const char *const gpt2_prefixes[] = {"transformer.", "", NULL};

static const mha__part gpt2_parts[MHA__ROLES] = {
    [MHA__WORDS] = {"wte", MHA__PART_TABLE, FIELD(vocab), FIELD(hidden), false, 0},
    [MHA__POSITIONS] = {"wpe", MHA__PART_TABLE, FIELD(max_positions), FIELD(hidden), false, 0},
    [MHA__FINAL_NORM] = {"ln_f", MHA__PART_NORM, FIELD(hidden), 0, false, 0},
    [MHA__LM_HEAD] = {"/lm_head", MHA__PART_TABLE, FIELD(vocab), FIELD(hidden), true, 0},
    [MHA__QKV] = {"attn.c_attn", MHA__PART_CONV1D, WIDTH(qkv), FIELD(hidden), false, 0},
    [MHA__QUERY_NORM] = {"attn.q_norm", MHA__PART_RMS, FIELD(head_dim), 0, false, 0},
    [MHA__KEY_NORM] = {"attn.k_norm", MHA__PART_RMS, FIELD(head_dim), 0, false, 0},
    [MHA__ATTN_OUT] = {"attn.c_proj", MHA__PART_CONV1D, FIELD(hidden), WIDTH(q), false, 0},
    [MHA__ATTN_NORM] = {"ln_1", MHA__PART_NORM, FIELD(hidden), 0, false, 0},
    [MHA__UP] = {"mlp.c_fc", MHA__PART_CONV1D, FIELD(intermediate), FIELD(hidden), false, 0},
    [MHA__DOWN] = {"mlp.c_proj", MHA__PART_CONV1D, FIELD(hidden), FIELD(intermediate), false, 0},
    [MHA__MLP_NORM] = {"ln_2", MHA__PART_NORM, FIELD(hidden), 0, false, 0},
};

/* ---- LLaMA and related families: pre-norm decoders, RMSNorm, rotation, SwiGLU ---- */

/* Bias keys are read in the families where transformers reads them; Mistral and Qwen2 ignore them. */
static const mha__config_key llama_common[] = {
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
    {"quantization_config", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
    {"compression_config", MHA__KEY_ONLY_EMPTY, 0, 0, 0, NULL},
};

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
    {"hidden_activation", MHA__KEY_ACTIVATION, FIELD(activation), 0, 0, "gelu_pytorch_tanh"}, /* not hidden_act */
    {"use_bidirectional_attention", MHA__KEY_ONLY_FALSE, 0, 0, 0, NULL},
    {"attention_bias", MHA__KEY_BOOL, FIELD(attn_bias), 0, 0, NULL},
    {"query_pre_attn_scalar", MHA__KEY_POSITIVE, FIELD(query_scalar), 256, 0, NULL},
    {"sliding_window", MHA__KEY_DIM_OR_OFF, FIELD(window), 4096, MHA__DIM, NULL},
    {"attn_logit_softcapping", MHA__KEY_POSITIVE_OR_OFF, FIELD(softcap), 50, 0, NULL},
    {"final_logit_softcapping", MHA__KEY_POSITIVE_OR_OFF, FIELD(logit_cap), 30, 0, NULL},
    {"tie_word_embeddings", MHA__KEY_BOOL, FIELD(tied), 1, 0, NULL},
};

static const char *const llama_prefixes[] = {"model.", "", NULL};

/* The common parts: `norm` is the kind of norm, `qkv` and `o` say whether these projections have biases. */
#define LLAMA_PARTS(norm, qkv, o)                                                                                    \
    [MHA__WORDS] = {"embed_tokens", MHA__PART_TABLE, FIELD(vocab), FIELD(hidden), false, 0},                         \
    [MHA__FINAL_NORM] = {"norm", norm, FIELD(hidden), 0, false, 0}, [MHA__LM_HEAD] = {"/lm_head",   MHA__PART_TABLE, \
                                                                                      FIELD(vocab), FIELD(hidden),   \
                                                                                      true,         0},              \
    [MHA__QUERY] = {"self_attn.q_proj", MHA__PART_LINEAR, WIDTH(q), FIELD(hidden), false, qkv},                      \
    [MHA__QUERY_NORM] = {"self_attn.q_norm", norm, FIELD(head_dim), 0, false, 0},                                    \
    [MHA__KEY_NORM] = {"self_attn.k_norm", norm, FIELD(head_dim), 0, false, 0}, [MHA__KEY] = {"self_attn.k_proj",    \
                                                                                              MHA__PART_LINEAR,      \
                                                                                              WIDTH(k),              \
                                                                                              FIELD(hidden),         \
                                                                                              false,                 \
                                                                                              qkv},                  \
    [MHA__VALUE] = {"self_attn.v_proj", MHA__PART_LINEAR, WIDTH(v), FIELD(hidden), false, qkv},                      \
    [MHA__ATTN_OUT] = {"self_attn.o_proj", MHA__PART_LINEAR, FIELD(hidden), WIDTH(q), false, o},                     \
    [MHA__ATTN_NORM] = {"input_layernorm", norm, FIELD(hidden), 0, false, 0}, [MHA__GATE] = {"mlp.gate_proj",        \
                                                                                             MHA__PART_LINEAR,       \
                                                                                             FIELD(intermediate),    \
                                                                                             FIELD(hidden),          \
                                                                                             false,                  \
                                                                                             FIELD(mlp_bias)},       \
    [MHA__UP] = {"mlp.up_proj", MHA__PART_LINEAR, FIELD(intermediate), FIELD(hidden), false, FIELD(mlp_bias)},       \
    [MHA__DOWN] = {"mlp.down_proj", MHA__PART_LINEAR, FIELD(hidden), FIELD(intermediate), false, FIELD(mlp_bias)}

static const mha__part llama_parts[MHA__ROLES] = {
    LLAMA_PARTS(MHA__PART_RMS, FIELD(attn_bias), FIELD(attn_bias)),
    [MHA__MLP_NORM] = {"post_attention_layernorm", MHA__PART_RMS, FIELD(hidden), 0, false, 0},
};
static const mha__part qwen2_parts[MHA__ROLES] = {
    LLAMA_PARTS(MHA__PART_RMS, 0, FIELD(attn_bias)),
    [MHA__MLP_NORM] = {"post_attention_layernorm", MHA__PART_RMS, FIELD(hidden), 0, false, 0},
};
static const mha__part gemma2_parts[MHA__ROLES] = {
    LLAMA_PARTS(MHA__PART_RMS_1, FIELD(attn_bias), FIELD(attn_bias)),
    [MHA__ATTN_OUT_NORM] = {"post_attention_layernorm", MHA__PART_RMS_1, FIELD(hidden), 0, false, 0},
    [MHA__MLP_NORM] = {"pre_feedforward_layernorm", MHA__PART_RMS_1, FIELD(hidden), 0, false, 0},
    [MHA__MLP_OUT_NORM] = {"post_feedforward_layernorm", MHA__PART_RMS_1, FIELD(hidden), 0, false, 0},
};

/* ---- list of families ---- */

#define LLAMA_LIKE                                                                                               \
    .common = llama_common, .common_count = COUNT(llama_common), .prefixes = llama_prefixes, .layer = "layers.", \
    .pre_norm = true, .causal = true, .rotary = true

static const mha__family families[] = {
    {.name = "bert",
     .keys = bert_keys,
     .key_count = COUNT(bert_keys),
     .prefixes = bert_prefixes,
     .layer = "encoder.layer.",
     .parts = bert_parts},
    {.name = "gpt2",
     .keys = gpt2_keys,
     .key_count = COUNT(gpt2_keys),
     .aliases = gpt2_aliases,
     .prefixes = gpt2_prefixes,
     .layer = "h.",
     .parts = gpt2_parts,
     .eos = 50256,
     .pre_norm = true,
     .causal = true},
    {LLAMA_LIKE, .name = "llama", .keys = llama_keys, .key_count = COUNT(llama_keys), .parts = llama_parts, .eos = 2},
    {LLAMA_LIKE, .name = "mistral", .keys = mistral_keys, .key_count = COUNT(mistral_keys), .parts = llama_parts,
     .window_rule = MHA__WINDOW_ALL},
    {LLAMA_LIKE, .name = "qwen2", .keys = qwen_keys, .key_count = COUNT(qwen_keys), .parts = qwen2_parts,
     .window_rule = MHA__WINDOW_LATER},
    {LLAMA_LIKE, .name = "qwen3", .keys = qwen3_keys, .key_count = COUNT(qwen3_keys), .parts = llama_parts,
     .normed = true, .window_rule = MHA__WINDOW_LATER},
    {LLAMA_LIKE, .name = "gemma2", .keys = gemma2_keys, .key_count = COUNT(gemma2_keys), .parts = gemma2_parts,
     .embed_scaled = true, .window_rule = MHA__WINDOW_EVEN},
};

const mha__family *mha__family_find(const char *model_type)
{
    for (int i = 0; i < COUNT(families); i++)
        if (strcmp(families[i].name, model_type) == 0) return &families[i];
    return NULL;
}

void mha__family_names(char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < COUNT(families) && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? ", " : "", families[i].name);
}
