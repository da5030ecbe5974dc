/* test_model_family_keys.c - config keys with values that a family does not support, and folders in which a tensor of
 * the family is missing, must be rejected. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rejected configs ---- */

/* Replaces `key` in the config with the JSON `value`, or removes it if `value` is NULL. Opening the model must fail
 * with `status` and a message that contains `part`. */
static void refuse(const char *family, const char *key, const char *value, mha_status status, const char *part)
{
    char folder[64];
    snprintf(folder, sizeof folder, "families2/%s", family);
    const char *copy = case_copy_edited(folder, key, value);
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    mha_model *model = NULL;
    mha_error err = {0};
    const mha_status got = mha_model_open(NULL, copy, &o, &model, &err);
    if (got != status || !strstr(err.message, part))
        fail_msg("%s, %s = %s: got status %d, \"%s\", expected %d, \"%s\"", family, key, value ? value : "absent",
                 (int)got, err.message, (int)status, part);
    assert_null(model);
    files_remove(copy);
}

static void test_refused_configs(void **state)
{
    (void)state;
    static const struct {
        const char *family, *key, *value;
        mha_status status;
        const char *part;
    } cases[] = {
        {"roberta", "pad_token_id", "null", MHA_ERR_FORMAT,
         "pad_token_id must be from 0 to 64, since position ids start at pad_token_id + 1"},
        {"roberta", "pad_token_id", "65", MHA_ERR_FORMAT, "pad_token_id must be from 0 to 64"},
        {"roberta", "max_position_embeddings", "67", MHA_ERR_FORMAT,
         "must be [67, 32], as config.json requires (got [66, 32])"},
        {"roberta", "is_decoder", "true", MHA_ERR_UNSUPPORTED, "is_decoder must be false (got true)"},
        {"mpnet", "relative_attention_num_buckets", "31", MHA_ERR_FORMAT,
         "relative_attention_num_buckets must be at least 32 (got 31)"},
        {"mpnet", "relative_attention_num_buckets", "41", MHA_ERR_FORMAT,
         "must be [41, 4], as config.json requires (got [40, 4])"},
        {"opt", "word_embed_proj_dim", "33", MHA_ERR_UNSUPPORTED,
         "word_embed_proj_dim must be at most hidden_size = 32 (got 33)"},
        {"opt", "word_embed_proj_dim", "24", MHA_ERR_FORMAT,
         "must be [64, 24], as config.json requires (got [64, 32])"},
        {"opt-post", "word_embed_proj_dim", "32", MHA_ERR_FORMAT, "must be [64, 32], as config.json requires"},
        {"electra-discriminator", "architectures", "7", MHA_ERR_FORMAT, "architectures must be"},
        {"electra", "embedding_size", "33", MHA_ERR_UNSUPPORTED,
         "embedding_size must be at most hidden_size = 32 (got 33)"},
        {"electra", "embedding_size", "25", MHA_ERR_FORMAT, "must be [64, 25], as config.json requires (got [64, 24])"},
        {"electra", "embedding_size", "0", MHA_ERR_FORMAT, "embedding_size must be"},
        {"electra", "is_decoder", "true", MHA_ERR_UNSUPPORTED, "is_decoder must be false (got true)"},
        {"albert", "inner_group_num", "2", MHA_ERR_UNSUPPORTED, "inner_group_num must be 1 (got 2)"},
        {"albert", "num_hidden_groups", "0", MHA_ERR_FORMAT, "num_hidden_groups must be"},
        {"albert", "num_hidden_groups", "3", MHA_ERR_FORMAT,
         "\"albert.encoder.albert_layer_groups.2.albert_layers.0.attention.query.weight\" is missing"},
        {"albert", "mha.heads", "[[0], [0], [0], [0]]", MHA_ERR_UNSUPPORTED,
         "mha.heads must be absent, since layers of albert share their tensors"},
        {"albert", "mha.attention", "{\"window\": 2}", MHA_ERR_UNSUPPORTED, "mha.attention must be absent"},
        {"mixtral", "num_experts_per_tok", "4", MHA_ERR_FORMAT,
         "num_experts_per_tok must be at most the number of experts, 3 (got 4)"},
        {"mixtral", "num_local_experts", "0", MHA_ERR_FORMAT, "num_local_experts must be"},
        {"mixtral", "num_local_experts", "1025", MHA_ERR_FORMAT, "num_local_experts must be"},
        {"mixtral", "num_local_experts", "4", MHA_ERR_FORMAT, "must be [4, 32], as config.json requires (got [3, 32])"},
        {"mixtral", "intermediate_size", "41", MHA_ERR_FORMAT,
         "\"model.layers.0.block_sparse_moe.experts.0.w1.weight\" must be [41, 32], as config.json requires (got [40, "
         "32])"},
        {"qwen2-moe", "mlp_only_layers", "[]", MHA_ERR_FORMAT,
         "\"model.layers.1.mlp.shared_expert.gate_proj.weight\" is missing"},
        {"qwen2-moe", "mlp_only_layers", "[1, true]", MHA_ERR_FORMAT,
         "mlp_only_layers[1] must be the number of a layer"},
        {"qwen2-moe", "mlp_only_layers", "7", MHA_ERR_FORMAT, "mlp_only_layers must be"},
        {"qwen2-moe", "qkv_bias", "true", MHA_ERR_FORMAT, "\"model.layers.0.self_attn.q_proj.bias\" is missing"},
        {"qwen2-moe", "shared_expert_intermediate_size", "27", MHA_ERR_FORMAT,
         "must be [27, 32], as config.json requires (got [28, 32])"},
        {"qwen3-moe", "decoder_sparse_step", "0", MHA_ERR_FORMAT, "decoder_sparse_step must be"},
        {"qwen3-moe", "num_experts", "5", MHA_ERR_FORMAT, "num_experts and num_local_experts, names of the same key"},
        {"deberta-v2", "conv_kernel_size", "3", MHA_ERR_FORMAT, "\"deberta.encoder.conv.conv.weight\" is missing"},
        {"deberta-v2", "conv_kernel_size", "4", MHA_ERR_FORMAT, "conv_kernel_size must be odd, or 0 (got 4)"},
        {"deberta-v2", "conv_act", "\"mish\"", MHA_ERR_UNSUPPORTED, "conv_act must be one of gelu"},
        {"deberta-v2-convolution", "conv_kernel_size", "3", MHA_ERR_FORMAT,
         "\"deberta.encoder.conv.conv.weight\" must be [32, 16, 3], as config.json requires (got [32, 16, 5])"},
        {"deberta-v2-convolution", "conv_kernel_size", "2147483647", MHA_ERR_FORMAT,
         "conv_kernel_size * hidden_size / conv_groups must be at most 2^31-1 (got 2147483647 * 16)"},
        {"deberta-v2-convolution", "conv_groups", "3", MHA_ERR_FORMAT,
         "conv_groups must divide hidden_size = 32 (got 3)"},
        {"deberta-v2-convolution", "conv_groups", "4", MHA_ERR_FORMAT,
         "must be [32, 8, 5], as config.json requires (got [32, 16, 5])"},
        {"deberta-v2", "embedding_size", "16", MHA_ERR_UNSUPPORTED, "embedding_size must be hidden_size = 32 (got 16)"},
        {"deberta-v2", "pos_att_type", "[\"c2p\", \"p2p\"]", MHA_ERR_FORMAT,
         "pos_att_type[1] must be \"c2p\" or \"p2c\" (got \"p2p\")"},
        {"deberta-v2", "pos_att_type", "\"c2p|x\"", MHA_ERR_FORMAT, "pos_att_type must be names"},
        {"deberta-v2", "pos_att_type", "\"c2p | p2c\"", MHA_ERR_FORMAT,
         "\"deberta.encoder.layer.0.attention.self.pos_query_proj.weight\" is missing"},
        {"deberta-v2", "max_relative_positions", "7", MHA_ERR_FORMAT,
         "must be [14, 32], as config.json requires (got [12, 32])"},
        {"deberta-v2", "norm_rel_ebd", "\"layer_norm\"", MHA_ERR_FORMAT,
         "\"deberta.encoder.LayerNorm.weight\" is missing"},
        {"deberta-v2", "mha.kv_heads", "{\"keys\": 2, \"values\": 2}", MHA_ERR_UNSUPPORTED,
         "mha.kv_heads must be absent, since each head of deberta-v2 has relative positions of its own"},
        {"deberta-v2", "mha.attention", "{\"adaptive_heads\": {\"head_options\": [2, 8]}}", MHA_ERR_UNSUPPORTED,
         "adaptive_heads must not be combined with relative positions"},
        {"mpnet", "mha.attention", "{\"adaptive_heads\": {\"head_options\": [2, 8]}}", MHA_ERR_UNSUPPORTED,
         "adaptive_heads must not be combined with relative positions"},
        {"deberta-v3", "position_buckets", "1", MHA_ERR_FORMAT,
         "position_buckets must be at least 2 and less than twice"},
        {"deberta-v3", "position_buckets", "8", MHA_ERR_FORMAT,
         "must be [16, 32], as config.json requires (got [12, 32])"},
        {"deberta-v3", "type_vocab_size", "2", MHA_ERR_FORMAT,
         "\"deberta.embeddings.token_type_embeddings.weight\" is missing"},
        {"deepseek-v3", "num_key_value_heads", "2", MHA_ERR_UNSUPPORTED,
         "num_key_value_heads must be num_attention_heads = 4 (got 2)"},
        {"deepseek-v3", "v_head_dim", "5000", MHA_ERR_UNSUPPORTED, "v_head_dim must be at most 4096 (got 5000)"},
        {"deepseek-v3", "moe_intermediate_size", "2147483647", MHA_ERR_FORMAT,
         "n_shared_experts * moe_intermediate_size must be at most"},
        {"deepseek-v3", "qk_rope_head_dim", "5", MHA_ERR_FORMAT, "qk_rope_head_dim must be even (got 5)"},
        {"deepseek-v3", "q_lora_rank", "null", MHA_ERR_FORMAT, "\"model.layers.0.self_attn.q_proj.weight\" is missing"},
        {"deepseek-v3", "v_head_dim", "13", MHA_ERR_FORMAT, "must be [84, 12], as config.json requires (got [88, 12])"},
        {"deepseek-v3", "n_group", "4", MHA_ERR_FORMAT, "n_group must divide the number of experts, 6"},
        {"deepseek-v3", "n_group", "6", MHA_ERR_FORMAT, "into groups of at least 2 (got 6)"},
        {"deepseek-v3", "topk_group", "4", MHA_ERR_FORMAT, "topk_group must be at most n_group = 3 (got 4)"},
        {"deepseek-v3", "topk_group", "1", MHA_ERR_FORMAT,
         "num_experts_per_tok must be at most the number of experts in topk_group groups, 2 (got 3)"},
        {"deepseek-v3", "first_k_dense_replace", "2", MHA_ERR_FORMAT,
         "\"model.layers.1.mlp.gate_proj.weight\" is missing"},
        {"deepseek-v3", "mha.kv_heads", "{\"keys\": 2, \"values\": 2}", MHA_ERR_UNSUPPORTED,
         "mha.kv_heads must be absent, since each head of deepseek_v3 has keys and values of its own"},
        {"gpt-oss", "swiglu_limit", "0", MHA_ERR_FORMAT, "swiglu_limit must be"},
        {"gpt-oss", "num_local_experts", "4", MHA_ERR_FORMAT,
         "\"model.layers.0.mlp.router.weight\" must be [4, 32], as config.json requires (got [5, 32])"},
        {"gpt-oss", "intermediate_size", "41", MHA_ERR_FORMAT,
         "\"model.layers.0.mlp.experts.gate_up_proj\" must be [5, 32, 82], as config.json requires (got [5, 32, 80])"},
        {"gpt-oss", "attention_bias", "true", MHA_ERR_FORMAT, "\"model.layers.0.self_attn.q_proj.bias\" is missing"},
        {"gpt-oss", "quantization_config", "{\"quant_method\": \"awq\"}", MHA_ERR_UNSUPPORTED,
         "quantization_config.quant_method must be one of compressed-tensors, fbgemm_fp8, fp8, mxfp4 (got \"awq\")"},
        {"distilbert", "dim", "\"32\"", MHA_ERR_FORMAT, "dim must be"},
        {"distilbert", "hidden_size", "40", MHA_ERR_FORMAT, "dim and hidden_size, names of the same key"},
        {"nomic-bert", "rope_parameters", "{\"rope_theta\": -1}", MHA_ERR_FORMAT, "rope_theta must be"},
        {"modernbert", "norm_bias", "true", MHA_ERR_UNSUPPORTED, "norm_bias must be false (got true)"},
        {"modernbert", "decoder_bias", "false", MHA_ERR_UNSUPPORTED, "decoder_bias must be true (got false)"},
        {"modernbert", "local_attention", "0", MHA_ERR_FORMAT, "local_attention must be"},
        {"modernbert", "rope_parameters", "{\"full_attention\": {\"rope_theta\": 1e4}}", MHA_ERR_FORMAT,
         "sliding_attention"},
        {"modernbert", "rope_parameters", "{\"full_attention\": 7, \"sliding_attention\": {}}", MHA_ERR_FORMAT,
         "full_attention must be an object"},
        {"modernbert", "intermediate_size", "41", MHA_ERR_FORMAT,
         "must be [82, 32], as config.json requires (got [80, 32])"},
        {"gemma", "hidden_activation", "\"gelu_10\"", MHA_ERR_UNSUPPORTED,
         "hidden_activation must be one of gelu, gelu_accurate, gelu_fast, gelu_new, gelu_python, gelu_python_tanh, "
         "gelu_pytorch_tanh, quick_gelu, relu, sigmoid, silu, swish, tanh (got \"gelu_10\")"},
        {"gemma3", "layer_types", "[\"full_attention\"]", MHA_ERR_FORMAT, "one entry per layer"},
        {"gemma3", "rope_parameters",
         "{\"full_attention\": {}, \"sliding_attention\": {\"rope_type\": \"longrope\", \"short_factor\": [1]}}",
         MHA_ERR_UNSUPPORTED, "sliding_attention.rope_type must not be longrope in sliding layers"},
        {"phi", "rope_parameters", "{\"partial_rotary_factor\": 0.125}", MHA_ERR_FORMAT,
         "partial_rotary_factor must select an even number of the 8 dimensions of a head (got 0.125)"},
        {"phi", "rope_parameters", "{\"partial_rotary_factor\": 1.5}", MHA_ERR_FORMAT, "partial_rotary_factor must be"},
        {"phi", "qk_layernorm", "true", MHA_ERR_FORMAT, "\"model.layers.0.self_attn.q_layernorm.weight\" is missing"},
        {"phi3", "rope_parameters",
         "{\"rope_type\": \"longrope\", \"partial_rotary_factor\": 0.75, \"short_factor\": [1, 1], \"long_factor\": "
         "[1, "
         "1, 1], \"original_max_position_embeddings\": 16}",
         MHA_ERR_FORMAT, "one number per rotated pair"},
        {"gpt-neox", "use_parallel_residual", "1", MHA_ERR_FORMAT, "use_parallel_residual must be"},
        {"gpt-neox", "mha.kv_heads", "{\"keys\": 2, \"values\": 2}", MHA_ERR_UNSUPPORTED,
         "mha.kv_heads must be absent, since the tensors of gpt_neox interleave q, k and v by head"},
        {"opt", "layer_norm_elementwise_affine", "false", MHA_ERR_UNSUPPORTED, "must be true (got false)"},
        {"opt", "max_position_embeddings", "65", MHA_ERR_FORMAT,
         "must be [67, 32], as config.json requires (got [66, 32])"},
        {"olmo2", "mha.heads", "[[0, 1], [0, 1, 2, 3]]", MHA_ERR_UNSUPPORTED,
         "mha.heads and mha.kv_heads must be absent, since the norms of olmo2 cover all heads together"},
        {"granite", "residual_multiplier", "0", MHA_ERR_FORMAT, "residual_multiplier must be"},
        {"granite", "logits_scaling", "1e-45", MHA_ERR_FORMAT, "logits_scaling must be"},
        {"granite", "embedding_multiplier", "\"2\"", MHA_ERR_FORMAT, "embedding_multiplier must be"},
        {"smollm3", "no_rope_layers", "[1, 0, 2, 1]", MHA_ERR_FORMAT, "no_rope_layers[2] must be 0 or 1 (got 2"},
        {"smollm3", "no_rope_layers", "[1, 0]", MHA_ERR_FORMAT, "no_rope_layers must have 4 elements"},
        {"smollm3", "no_rope_layers", "7", MHA_ERR_FORMAT, "no_rope_layers must be"},
        {"cohere", "use_qk_norm", "true", MHA_ERR_FORMAT, "\"model.layers.0.self_attn.q_norm.weight\" is missing"},
        {"cohere", "logit_scale", "-1", MHA_ERR_FORMAT, "logit_scale must be"},
        {"bloom", "apply_residual_connection_post_layernorm", "true", MHA_ERR_UNSUPPORTED, "must be false (got true)"},
        {"bloom", "n_head", "5", MHA_ERR_FORMAT, "must divide hidden_size = 36 (got 5)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].family, cases[i].key, cases[i].value, cases[i].status, cases[i].part);
}

/* ---- missing tensors ---- */

/* Changes the first letter of the name of a tensor, so that this tensor is missing. Opening the model must fail with a
 * message that names the tensor. */
static void lose(const char *family, const char *name)
{
    char folder[64], want[200];
    size_t n = 0, length = strlen(name), at = 0;
    snprintf(folder, sizeof folder, "families2/%s", family);
    snprintf(want, sizeof want, "tensor \"%s\" is missing", name);
    const char *copy = case_copy(folder);
    char *bytes = files_read(files_path(copy, "model.safetensors"), &n);
    while (at + length < n && memcmp(bytes + at, name, length) != 0)
        at++;
    assert_true(at + length < n);
    bytes[at] = 'X';
    files_write(files_path(copy, "model.safetensors"), bytes, n);
    free(bytes);
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    mha_model *model = NULL;
    mha_error err = {0};
    assert_int_equal(mha_model_open(NULL, copy, &o, &model, &err), MHA_ERR_FORMAT);
    if (!strstr(err.message, want)) fail_msg("message must contain \"%s\" (got \"%s\")", want, err.message);
    files_remove(copy);
}

static void test_missing_tensors(void **state)
{
    (void)state;
    lose("roberta", "roberta.embeddings.position_embeddings.weight");
    lose("modernbert", "model.layers.1.attn_norm.weight");
    lose("modernbert", "model.layers.2.mlp.Wi.weight");
    lose("modernbert", "head.norm.weight");
    lose("mpnet", "mpnet.encoder.relative_attention_bias.weight");
    lose("electra", "electra.embeddings_project.bias");
    lose("electra", "generator_predictions.LayerNorm.weight");
    lose("electra-discriminator", "discriminator_predictions.dense_prediction.weight");
    lose("electra-discriminator", "discriminator_predictions.dense_prediction.bias");
    lose("opt-post", "model.decoder.project_in.weight");
    lose("opt-mapped", "model.decoder.project_out.weight");
    lose("albert", "albert.encoder.embedding_hidden_mapping_in.weight");
    lose("albert", "albert.encoder.albert_layer_groups.1.albert_layers.0.ffn.weight");
    lose("mixtral", "model.layers.1.block_sparse_moe.gate.weight");
    lose("mixtral", "model.layers.1.block_sparse_moe.experts.2.w2.weight");
    lose("qwen2-moe", "model.layers.2.mlp.shared_expert_gate.weight");
    lose("deberta-v2", "deberta.encoder.layer.1.attention.self.pos_key_proj.bias");
    lose("deberta-v3", "deberta.encoder.rel_embeddings.weight");
    lose("deberta-v2-convolution", "deberta.encoder.conv.conv.bias");
    lose("deberta-v2-convolution", "deberta.encoder.conv.LayerNorm.weight");
    lose("deberta-v3", "lm_predictions.lm_head.LayerNorm.weight");
    lose("deepseek-v3", "model.layers.1.self_attn.kv_a_layernorm.weight");
    lose("deepseek-v3", "model.layers.1.mlp.gate.e_score_correction_bias");
    lose("deepseek-v3-plain", "model.layers.0.self_attn.q_proj.weight");
    lose("gpt-oss", "model.layers.2.self_attn.sinks");
    lose("gpt-oss", "model.layers.1.mlp.experts.down_proj_bias");
    lose("gpt-oss", "model.layers.0.mlp.router.bias");
    lose("qwen3-moe", "model.layers.3.mlp.experts.5.up_proj.weight");
    lose("phi", "lm_head.bias");
    lose("gpt-neox", "gpt_neox.layers.1.attention.query_key_value.bias");
    lose("olmo2", "model.layers.0.self_attn.k_norm.weight");
    lose("bloom", "transformer.word_embeddings_layernorm.bias");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_missing_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
