/* test_model_families.c - tests further model families: rejected config keys, positions counted from the padding token,
 * pruning, saving and failed allocations. tests/golden/verify/test_verify_models.sh compares recorded results;
 * test_model_grads.c tests gradients of single config options. */
#include "mha/circuits.h"
#include "mha/model_create.h"
#include "mha/model_grads.h"
#include "mha/model_save.h"
#include "mha/prune.h"
#include "mha/regroup.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { L = 9 };

static const int32_t ids[L] = {5, 61, 17, 30, 9, 44, 25, 60, 12};

static mha_model *open_model(mha_ctx *ctx, const char *folder)
{
    return case_model(ctx, folder, &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1});
}

/* Returns the logits [count, vocab] of the tokens. The caller must free them. */
static float *logits_of(const mha_model *model, const int32_t *tokens, int64_t count, const float *gates)
{
    float *logits = malloc((size_t)(count * mha_model_describe(model)->vocab) * sizeof *logits);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = count, .ids = tokens, .gates = gates};
    const mha_model_output output = {.size = sizeof output, .logits = logits};
    mha_error err = {0};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    return logits;
}

static int64_t elements_of(const mha_named_tensor *t)
{
    int64_t count = 1;
    for (int n = 0; n < t->rank; n++)
        count *= t->shape[n];
    return count;
}

/* ---- rejected configs ---- */

/* Replaces `key` in the config with the JSON `value`, or removes it if `value` is NULL. Opening the model must fail
 * with `status` and a message that contains `part`. */
static void refuse(const char *family, const char *key, const char *value, mha_status status, const char *part)
{
    char folder[64];
    snprintf(folder, sizeof folder, "families2/%s", family);
    const char *copy = case_copy(folder);
    json_t *config = json_load_file(files_path(copy, "config.json"), 0, NULL);
    if (value)
        assert_int_equal(json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
    else
        assert_int_equal(json_object_del(config, key), 0);
    assert_int_equal(json_dump_file(config, files_path(copy, "config.json"), 0), 0);
    json_decref(config);
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

/* ---- position embeddings ---- */

/* In RoBERTa and OPT, positions begin after two reserved embedding rows. A model with 66 rows must accept 64 tokens,
 * but not 65. */
static void test_most_tokens(void **state)
{
    (void)state;
    static const char *const folders[] = {"families2/roberta", "families2/opt"};
    static const int64_t most = 64;
    int32_t many[65];
    for (int i = 0; i < 65; i++)
        many[i] = 4 + i % 60;
    for (int f = 0; f < 2; f++) {
        mha_model *model = open_model(NULL, folders[f]);
        assert_int_equal(mha_model_describe(model)->max_positions, most);
        free(logits_of(model, many, most, NULL));
        const mha_model_input longer = {.size = sizeof longer, .batch = 1, .length = most + 1, .ids = many};
        mha_error err = {0};
        assert_int_equal(mha_model_forward(model, &longer, NULL, &err), MHA_ERR_ARG);
        assert_non_null(strstr(err.message, "length must be from 1 to 64 (got 65)"));
        mha_model_free(model);
    }
}

/* The logits of a text must be bitwise identical whether the text is alone, packed or padded. In RoBERTa, positions
 * must restart in each text. */
static void test_packed_and_padded(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "families2/roberta",     "families2/modernbert", "families2/phi3",       "families2/mpnet",
        "families2/electra",     "families2/albert",     "families2/mixtral",    "families2/qwen2-moe",
        "families2/qwen3-moe",   "families2/gpt-oss",    "families2/deberta-v2", "families2/deberta-v3",
        "families2/deepseek-v3", "families2/opt-post",   "families2/opt-mapped", "families2/deberta-v2-convolution"};
    static const int64_t starts[3] = {0, 4, L};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        mha_model *model = open_model(NULL, folders[f]);
        const int64_t V = mha_model_describe(model)->vocab;
        float *together = malloc((size_t)(L * V) * sizeof *together);
        const mha_model_input input = {.size = sizeof input, .batch = 2, .ids = ids, .starts = starts};
        const mha_model_output output = {.size = sizeof output, .logits = together};
        assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
        for (int b = 0; b < 2; b++) {
            const int64_t count = starts[b + 1] - starts[b];
            float *alone = logits_of(model, ids + starts[b], count, NULL);
            assert_memory_equal(alone, together + starts[b] * V, (size_t)(count * V) * sizeof *alone);
            free(alone);
        }
        free(together);
        mha_model_free(model);
    }
}

/* ---- discriminators ---- */

/* A discriminator must have one logit per token, also after removing heads and saving, and must be refused where logits
 * of tokens are required. */
static void test_discriminator(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, "families2/electra-discriminator"), *less = NULL;
    const mha_model_info *info = mha_model_describe(model);
    float logits[2][L + 1] = {{[L] = 7}, {[L] = 7}};
    uint8_t keep[8] = {0, 1, 1, 1, 1, 1, 1, 1};
    float gates[8] = {0, 1, 1, 1, 1, 1, 1, 1};
    mha_model_edit *edit = NULL;
    mha_prompt_pair *pair = NULL;
    mha_error err = {0};
    assert_int_equal(info->logits, 0);
    assert_int_equal(info->logit_width, 1);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids, .gates = gates};
    assert_int_equal(
        mha_model_forward(model, &input, &(mha_model_output){sizeof(mha_model_output), .logits = logits[0]}, &err),
        MHA_OK);
    if (mha_prune(model, keep, NULL, &edit, &err) != MHA_OK || mha_model_edit_open(edit, &less, &err) != MHA_OK)
        fail_msg("%s", err.message);
    const char *saved = files_folder();
    assert_int_equal(
        mha_model_save(less, saved, &(mha_model_save_options){.size = sizeof(mha_model_save_options)}, &err), MHA_OK);
    mha_model *again = open_model(NULL, saved);
    const mha_model_input plain = {.size = sizeof plain, .batch = 1, .length = L, .ids = ids};
    assert_int_equal(
        mha_model_forward(again, &plain, &(mha_model_output){sizeof(mha_model_output), .logits = logits[1]}, &err),
        MHA_OK);
    case_near("discriminator", logits[0], logits[1], L + 1, 1e-5);
    const mha_prompt_pair_options o = {.size = sizeof o, .clean = ids, .corrupted = ids, .length = L};
    assert_int_equal(mha_prompt_pair_create(model, &o, &pair, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "model must have logits of tokens (got the discriminator of electra"));
    mha_model_free(again);
    mha_model_free(less);
    mha_model_edit_free(edit);
    mha_model_free(model);
    files_remove(saved);
}

/* ---- removed heads ---- */

/* A model with removed heads must give the results of the complete model with gates of 0, in memory and after
 * saving. */
static void check_pruned(const char *folder)
{
    enum { MOST = 64 };
    mha_model *whole = open_model(NULL, folder), *less = NULL;
    const mha_model_info *info = mha_model_describe(whole);
    const int64_t cells = info->layers * info->heads, group = info->heads / info->kv_heads;
    uint8_t keep[MOST];
    float gates[MOST];
    mha_model_edit *edit = NULL;
    mha_error err = {0};
    assert_true(cells <= MOST && info->heads > group);
    memset(keep, 1, sizeof keep);
    memset(keep + group, 0, (size_t)group);
    for (int64_t n = 0; n < cells; n++)
        gates[n] = keep[n];
    if (mha_prune(whole, keep, NULL, &edit, &err) != MHA_OK || mha_model_edit_open(edit, &less, &err) != MHA_OK)
        fail_msg("%s: %s", folder, err.message);
    float *want = logits_of(whole, ids, L, gates), *got = logits_of(less, ids, L, NULL);
    case_near(folder, got, want, L * info->vocab, 1e-4);
    const char *saved = files_folder();
    if (mha_model_save(less, saved, &(mha_model_save_options){.size = sizeof(mha_model_save_options)}, &err) != MHA_OK)
        fail_msg("%s: %s", folder, err.message);
    mha_model *again = open_model(NULL, saved);
    float *reopened = logits_of(again, ids, L, NULL);
    assert_memory_equal(got, reopened, (size_t)(L * info->vocab) * sizeof *got);
    free(want);
    free(got);
    free(reopened);
    mha_model_free(again);
    mha_model_free(less);
    mha_model_edit_free(edit);
    mha_model_free(whole);
    files_remove(saved);
}

static void test_pruned(void **state)
{
    (void)state;
    static const char *const folders[] = {"families2/roberta",
                                          "families2/xlm-roberta",
                                          "families2/distilbert",
                                          "families2/electra",
                                          "families2/mixtral",
                                          "families2/qwen2-moe",
                                          "families2/qwen3-moe",
                                          "families2/nomic-bert",
                                          "families2/gemma",
                                          "families2/gemma3",
                                          "families2/phi",
                                          "families2/phi3",
                                          "families2/opt",
                                          "families2/opt-post",
                                          "families2/opt-mapped",
                                          "families2/gpt-neox",
                                          "families2/gpt-neox-parallel",
                                          "families2/granite",
                                          "families2/smollm3",
                                          "families2/cohere",
                                          "families2/bloom",
                                          "families2/modernbert",
                                          "families2/gpt-oss",
                                          "families2/deberta-v2",
                                          "families2/deberta-v3",
                                          "families2/deberta-v2-convolution",
                                          "families2/deepseek-v3",
                                          "families2/deepseek-v3-plain"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        check_pruned(folders[f]);
}

static void test_refused_edits(void **state)
{
    (void)state;
    uint8_t keep[8] = {0, 0, 1, 1, 1, 1, 1, 1};
    mha_model *norms = open_model(NULL, "families2/olmo2"), *rows = open_model(NULL, "families2/gpt-neox");
    mha_model_edit *edit = NULL;
    mha_error err = {0};
    const mha_regroup_options fewer = {
        .size = sizeof fewer, .method = MHA_REGROUP_MEAN, .key_heads = 2, .value_heads = 2};
    const mha_regroup_options one = {.size = sizeof one, .method = MHA_REGROUP_MEAN, .key_heads = 1, .value_heads = 1};
    assert_int_equal(mha_prune(norms, keep, NULL, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(err.message, "heads of olmo2 must not be removed or regrouped, since a norm covers all heads"));
    assert_int_equal(mha_regroup(rows, &fewer, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "key and value heads of gpt_neox must not be regrouped"));
    mha_model *shared = open_model(NULL, "families2/albert");
    uint8_t few[16] = {0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1};
    assert_int_equal(mha_prune(shared, few, NULL, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "heads of albert must not be removed or regrouped, since layers share"));
    assert_int_equal(mha_regroup(shared, &fewer, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "heads of albert must not be removed or regrouped, since layers share"));
    mha_model *sinks = open_model(NULL, "families2/gpt-oss");
    assert_int_equal(mha_regroup(sinks, &one, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "key and value heads of gpt_oss must not be regrouped, since each query head"));
    mha_model_free(sinks);
    mha_model *distances = open_model(NULL, "families2/deberta-v3"),
              *latent = open_model(NULL, "families2/deepseek-v3");
    assert_int_equal(mha_regroup(distances, &one, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "since each head has relative positions of its own"));
    assert_int_equal(mha_regroup(latent, &one, &edit, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "since each head has keys and values of its own"));
    mha_model_free(distances);
    mha_model_free(latent);
    mha_model_free(shared);
    mha_model_free(norms);
    mha_model_free(rows);
}

/* ---- layers that share their tensors ---- */

/* Layers that share their tensors must be counted, listed and saved once, and the saved model must give the same
 * logits. */
static void test_shared_layers(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, "families2/albert");
    const mha_model_info *info = mha_model_describe(model);
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    int64_t count = 0, elements = 0;
    assert_int_equal(info->layers, 4);
    if (mha_model_grads_create(model, NULL, &grads, &err) != MHA_OK) fail_msg("%s", err.message);
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t n = 0; n < count; n++)
        elements += elements_of(&list[n]);
    assert_int_equal(count, 12 + 2 * 16); /* 12 tensors outside the layers, and 16 tensors per group */
    assert_int_equal(elements, info->parameters);
    mha_model_grads_free(grads);
    const char *saved = files_folder();
    if (mha_model_save(model, saved, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model *again = open_model(NULL, saved);
    float *want = logits_of(model, ids, L, NULL), *got = logits_of(again, ids, L, NULL);
    assert_memory_equal(want, got, (size_t)(L * info->vocab) * sizeof *got);
    free(want);
    free(got);
    mha_model_free(again);
    mha_model_free(model);
    files_remove(saved);
}

/* Gradients with packed weights and with recomputed layers must be bitwise identical to those without these options. */
static void check_gradient_options(const char *folder)
{
    const mha_model_grads_options options[3] = {{.size = sizeof options[0]},
                                                {.size = sizeof options[0], .pack = 1},
                                                {.size = sizeof options[0], .recompute = 1}};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_loss_args args = {.size = sizeof args, .labels = ids};
    mha_model *model = open_model(NULL, folder);
    mha_model_grads *grads[3] = {NULL};
    mha_error err = {0};
    int64_t count = 0;
    for (int n = 0; n < 3; n++)
        if (mha_model_grads_create(model, &options[n], &grads[n], &err) != MHA_OK ||
            mha_model_grads_loss(grads[n], &input, &args, NULL, NULL, &err) != MHA_OK)
            fail_msg("%s: %s", folder, err.message);
    const mha_named_tensor *list = mha_model_grads_list(grads[0], &count);
    for (int64_t t = 0; t < count; t++)
        for (int n = 1; n < 3; n++) {
            const size_t elements = (size_t)elements_of(&list[t]);
            assert_memory_equal(list[t].data, mha_model_grads_list(grads[n], NULL)[t].data, elements * sizeof(float));
        }
    for (int n = 0; n < 3; n++)
        mha_model_grads_free(grads[n]);
    mha_model_free(model);
}

static void test_gradient_options(void **state)
{
    (void)state;
    check_gradient_options("families2/electra");
    check_gradient_options("families2/opt-post");
    check_gradient_options("families2/opt-mapped");
    check_gradient_options("families2/albert");
    check_gradient_options("families2/mixtral");
    check_gradient_options("families2/qwen2-moe");
    check_gradient_options("families2/qwen3-moe");
    check_gradient_options("families2/gpt-oss");
    check_gradient_options("families2/deberta-v2");
    check_gradient_options("families2/deberta-v3");
    check_gradient_options("families2/deberta-v2-convolution");
    check_gradient_options("families2/deepseek-v3");
    check_gradient_options("families2/deepseek-v3-plain");
}

/* ---- experts ---- */

/* Returns true if the logits of one token are unchanged when all weights of an expert are NAN. */
static bool skips(const char *folder, const char *name, const float *want)
{
    static const int64_t elements = 16 * 32;
    float *poison = malloc((size_t)elements * sizeof *poison);
    for (int64_t n = 0; n < elements; n++)
        poison[n] = NAN;
    const mha_named_tensor tensor = {.name = name, .dtype = MHA_F32, .rank = 2, .shape = {16, 32}, .data = poison};
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .tensors = &tensor, .tensor_count = 1};
    mha_model *model = case_model(NULL, folder, &o);
    float *got = logits_of(model, ids, 1, NULL);
    const bool same = memcmp(got, want, (size_t)mha_model_describe(model)->vocab * sizeof *got) == 0;
    free(got);
    mha_model_free(model);
    free(poison);
    return same;
}

/* A token must use 3 of the 6 experts of a layer, and the other experts must not be computed. */
static void test_chosen_experts(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL, "families2/qwen3-moe");
    float *want = logits_of(model, ids, 1, NULL);
    assert_int_equal(mha_model_describe(model)->feed_forward_per_layer[0], 40);
    assert_int_equal(mha_model_describe(model)->feed_forward_per_layer[1], 3 * 16);
    for (int layer = 1; layer < 4; layer += 2) {
        int skipped = 0;
        for (int e = 0; e < 6; e++) {
            char name[80];
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.up_proj.weight", layer, e);
            skipped += skips("families2/qwen3-moe", name, want);
        }
        assert_int_equal(skipped, 3);
    }
    free(want);
    mha_model_free(model);
}

/* Computes the logits and the gradients of all parameters in a context with `threads` threads. */
static void run_threads(const char *folder, int threads, float *logits, float *gradients)
{
    mha_ctx *ctx = NULL;
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    int64_t count = 0, at = 0;
    int32_t many[64];
    for (int n = 0; n < 64; n++)
        many[n] = 4 + n * 7 % 60;
    const mha_ctx_options options = {.size = sizeof options, .threads = threads};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 64, .ids = many};
    const mha_model_output output = {.size = sizeof output, .logits = logits};
    const mha_model_loss_args args = {.size = sizeof args, .labels = many};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = open_model(ctx, folder);
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK ||
        mha_model_grads_create(model, NULL, &grads, &err) != MHA_OK ||
        mha_model_grads_loss(grads, &input, &args, NULL, NULL, &err) != MHA_OK)
        fail_msg("%s: %s", folder, err.message);
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t t = 0; t < count; t++) {
        const int64_t elements = elements_of(&list[t]);
        memcpy(gradients + at, list[t].data, (size_t)elements * sizeof(float));
        at += elements;
    }
    assert_int_equal(at, mha_model_describe(model)->parameters);
    mha_model_grads_free(grads);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

/* Results must be bitwise identical for any number of threads, even if groups of rows are divided into several
 * tasks. */
static void test_threads(void **state)
{
    (void)state;
    enum { LOGITS = 64 * 64, GRADIENTS = 1 << 17 };
    static const char *const folders[] = {
        "families2/mixtral",    "families2/qwen2-moe",  "families2/qwen3-moe",   "families2/gpt-oss",
        "families2/deberta-v2", "families2/deberta-v3", "families2/deepseek-v3", "families2/deberta-v2-convolution"};
    float *logits = malloc(2 * LOGITS * sizeof *logits), *gradients = calloc(2 * GRADIENTS, sizeof *gradients);
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        run_threads(folders[f], 1, logits, gradients);
        run_threads(folders[f], 3, logits + LOGITS, gradients + GRADIENTS);
        assert_memory_equal(logits, logits + LOGITS, LOGITS * sizeof *logits);
        assert_memory_equal(gradients, gradients + GRADIENTS, GRADIENTS * sizeof *gradients);
    }
    free(logits);
    free(gradients);
}

/* In bf16, the loss must be near that of f32, and gradients must be finite. */
static void test_experts_in_bf16(void **state)
{
    (void)state;
    const mha_model_options rounded = {.size = sizeof rounded, .no_tokenizer = 1, .dtype = MHA_BF16};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_loss_args args = {.size = sizeof args, .labels = ids};
    double loss[2] = {0};
    for (int n = 0; n < 2; n++) {
        mha_model *model =
            n ? case_model(NULL, "families2/qwen2-moe", &rounded) : open_model(NULL, "families2/qwen2-moe");
        mha_model_grads *grads = NULL;
        int64_t count = 0;
        assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
        assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss[n], NULL, NULL), MHA_OK);
        const mha_named_tensor *list = mha_model_grads_list(grads, &count);
        for (int64_t t = 0; t < count; t++)
            assert_true(isfinite(((const float *)list[t].data)[0]));
        mha_model_grads_free(grads);
        mha_model_free(model);
    }
    assert_true(fabs(loss[0] - loss[1]) < 0.03 * loss[0]);
}

/* ---- new models ---- */

/* The loss of a new model must be near that of random guessing, since its norms have gains of 1. */
static void check_created(const char *folder)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = 3};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_loss_args args = {.size = sizeof args, .labels = ids};
    mha_model *like = open_model(NULL, folder), *model = NULL;
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    double loss = 0;
    if (mha_model_create(NULL, mha_model_config_json(like), &o, &model, &err) != MHA_OK ||
        mha_model_grads_create(model, NULL, &grads, &err) != MHA_OK ||
        mha_model_grads_loss(grads, &input, &args, &loss, NULL, &err) != MHA_OK)
        fail_msg("%s: %s", folder, err.message);
    if (!(fabs(loss - log((double)mha_model_describe(model)->vocab)) < 0.1))
        fail_msg("%s: loss must be near that of random guessing (got %g)", folder, loss);
    mha_model_grads_free(grads);
    mha_model_free(model);
    mha_model_free(like);
}

static void test_created(void **state)
{
    (void)state;
    static const char *const folders[] = {"families2/roberta",     "families2/xlm-roberta",
                                          "families2/distilbert",  "families2/nomic-bert",
                                          "families2/gemma3",      "families2/phi",
                                          "families2/phi3",        "families2/gpt-neox",
                                          "families2/opt",         "families2/opt-post",
                                          "families2/olmo2",       "families2/granite",
                                          "families2/smollm3",     "families2/cohere",
                                          "families2/bloom",       "families2/modernbert",
                                          "families2/mpnet",       "families2/electra",
                                          "families2/albert",      "families2/mixtral",
                                          "families2/qwen2-moe",   "families2/qwen3-moe",
                                          "families2/gpt-oss",     "families2/deberta-v2",
                                          "families2/deepseek-v3", "families2/deberta-v2-convolution"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        check_created(folders[f]);
}

/* ---- failed allocations ---- */

/* With a budget of 0, 1, 2, ... allocations, opening a model or computing its gradients must return MHA_ERR_MEMORY
 * until both succeed, and must free all memory. */
static void check_memory(const char *folder)
{
    const char *copy = case_copy(folder);
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_loss_args args = {.size = sizeof args, .labels = ids};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        mha_model *model = NULL;
        mha_model_grads *grads = NULL;
        memory.budget = memory.calls + n;
        status = mha_model_open(ctx, copy, &o, &model, NULL);
        if (status == MHA_OK) status = mha_model_grads_create(model, NULL, &grads, NULL);
        if (status == MHA_OK) status = mha_model_grads_loss(grads, &input, &args, NULL, NULL, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        memory.budget = -1;
        mha_model_grads_free(grads);
        mha_model_free(model);
        assert_int_equal(memory.live, live);
    }
    assert_true(n > 40);
    files_remove(copy);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    check_memory("families2/gpt-neox-parallel");
    check_memory("families2/phi3");
    check_memory("families2/modernbert");
    check_memory("families2/cohere");
    check_memory("families2/mpnet");
    check_memory("families2/albert");
    check_memory("families2/qwen2-moe");
    check_memory("families2/deberta-v2-convolution");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_configs),  cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_most_tokens),      cmocka_unit_test(test_packed_and_padded),
        cmocka_unit_test(test_discriminator),    cmocka_unit_test(test_pruned),
        cmocka_unit_test(test_refused_edits),    cmocka_unit_test(test_created),
        cmocka_unit_test(test_no_memory),        cmocka_unit_test(test_shared_layers),
        cmocka_unit_test(test_gradient_options), cmocka_unit_test(test_chosen_experts),
        cmocka_unit_test(test_threads),          cmocka_unit_test(test_experts_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
