/* test_model_config_errors.c - config keys that must be rejected when a model is opened: invalid and unsupported values
 * in config.json and generation_config.json, and the hostile configs of the golden data. */
#include "mha/io.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TINY "models/bert-tiny"
#define ACTIVATIONS                                                                                                  \
    "gelu, gelu_accurate, gelu_fast, gelu_new, gelu_python, gelu_python_tanh, gelu_pytorch_tanh, quick_gelu, relu, " \
    "sigmoid, silu, swish, tanh"
#define MODEL_TYPES                                                                                                   \
    "bert, roberta, camembert, xlm-roberta, mpnet, distilbert, electra, albert, deberta-v2, nomic_bert, modernbert, " \
    "gpt2, opt, bloom, gpt_neox, phi, cohere, llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, gemma3, "     \
    "phi3, olmo2, granite, smollm3, starcoder2, mixtral, qwen2_moe, qwen3_moe, gpt_oss, deepseek_v3, t5, mt5, bart, " \
    "mbart, marian, pegasus, whisper, vit, clip, clip_text_model, clip_vision_model"

static void test_refused_configs(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        mha_status status;
        const char *part;
    } cases[] = {
        {"num_attention_heads", "0", MHA_ERR_FORMAT, "num_attention_heads"},
        {"num_attention_heads", "-4", MHA_ERR_FORMAT, "-4"},
        {"num_attention_heads", "true", MHA_ERR_FORMAT, "true"},
        {"num_attention_heads", "5", MHA_ERR_FORMAT, "num_attention_heads must divide hidden_size = 48 (got 5"},
        {"num_attention_heads", "65537", MHA_ERR_FORMAT, "65536"},
        {"num_hidden_layers", "0", MHA_ERR_FORMAT, "num_hidden_layers"},
        {"num_hidden_layers", "4097", MHA_ERR_FORMAT, "4096"},
        {"num_hidden_layers", "1000000000000", MHA_ERR_FORMAT, "4096"},
        {"num_hidden_layers", "4", MHA_ERR_FORMAT, "\"encoder.layer.3.attention.self.query.weight\" is missing"},
        {"hidden_size", "\"48\"", MHA_ERR_FORMAT, "hidden_size"},
        {"hidden_size", "48.5", MHA_ERR_FORMAT, "hidden_size"},
        {"hidden_size", "9223372036854775807", MHA_ERR_FORMAT, "hidden_size"},
        {"hidden_size", "64", MHA_ERR_FORMAT, "must be [600, 64], as config.json requires"},
        {"hidden_size", "null", MHA_ERR_FORMAT, "[600, 768]"},
        {"hidden_size", "32768", MHA_ERR_UNSUPPORTED, "head_dim must be at most 4096 (got 8192"},
        {"intermediate_size", "113", MHA_ERR_FORMAT, "must be [113, 48], as config.json requires (got [112, 48])"},
        {"intermediate_size", "4294967336", MHA_ERR_FORMAT, "intermediate_size"},
        {"vocab_size", "601", MHA_ERR_FORMAT, "embeddings.word_embeddings.weight"},
        {"vocab_size", "[600]", MHA_ERR_FORMAT, "vocab_size"},
        {"max_position_embeddings", "97", MHA_ERR_FORMAT, "embeddings.position_embeddings.weight"},
        {"type_vocab_size", "1", MHA_ERR_FORMAT, "embeddings.token_type_embeddings.weight"},
        {"layer_norm_eps", "0", MHA_ERR_FORMAT, "layer_norm_eps"},
        {"layer_norm_eps", "-1e-5", MHA_ERR_FORMAT, "layer_norm_eps"},
        {"layer_norm_eps", "1e300", MHA_ERR_FORMAT, "layer_norm_eps"},
        {"layer_norm_eps", "\"small\"", MHA_ERR_FORMAT, "layer_norm_eps"},
        {"hidden_act", "\"gelu_10\"", MHA_ERR_UNSUPPORTED,
         "hidden_act must be one of " ACTIVATIONS " (got \"gelu_10\")"},
        {"hidden_act", "7", MHA_ERR_FORMAT, "hidden_act"},
        {"position_embedding_type", "\"relative_key\"", MHA_ERR_UNSUPPORTED, "relative_key"},
        {"is_decoder", "true", MHA_ERR_UNSUPPORTED, "is_decoder must be false (got true)"},
        {"add_cross_attention", "true", MHA_ERR_UNSUPPORTED, "add_cross_attention"},
        {"quantization_config", "{\"bits\": 4}", MHA_ERR_UNSUPPORTED,
         "quantization_config must be absent (got an object)"},
        {"quantization_config", "{\"bits\": 4, \"quant_method\": \"gptq\"}", MHA_ERR_UNSUPPORTED,
         "config.json: quantization_config.quant_method must be one of compressed-tensors, fbgemm_fp8, fp8, mxfp4 (got "
         "\"gptq\")"},
        {"quantization_config", "{\"quant_method\": 8}", MHA_ERR_FORMAT, "quantization_config.quant_method must be"},
        {"quantization_config", "{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}", MHA_ERR_UNSUPPORTED,
         "quantization_config.fmt must be e4m3 (got \"e5m2\")"},
        {"quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": [128]}", MHA_ERR_FORMAT,
         "quantization_config.weight_block_size must be a list of two integers, rows and columns (got an array)"},
        {"quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 0]}", MHA_ERR_FORMAT,
         "quantization_config.weight_block_size[1] must be an integer of at least 1 (got 0)"},
        {"quantization_config", "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}",
         MHA_ERR_UNSUPPORTED, "quantization_config.format must be float-quantized (got \"pack-quantized\")"},
        {"quantization_config",
         "{\"quant_method\": \"compressed-tensors\", \"transform_config\": {\"config_groups\": {}}}",
         MHA_ERR_UNSUPPORTED, "quantization_config.transform_config must be absent or empty (got an object)"},
        {"quantization_config",
         "{\"quant_method\": \"compressed-tensors\", \"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}}",
         MHA_ERR_UNSUPPORTED, "format must be dense (got \"sparse-24-bitmask\")"},
        {"compression_config", "{\"quant_method\": \"compressed-tensors\"}", MHA_ERR_UNSUPPORTED,
         "compression_config.quant_method must be absent (got \"compressed-tensors\")"},
        {"pad_token_id", "\"[PAD]\"", MHA_ERR_FORMAT, "pad_token_id must be an integer"},
        {"pruned_heads", "{\"0\": [1]}", MHA_ERR_UNSUPPORTED, "pruned_heads"},
        {"model_type", "\"wav2vec2\"", MHA_ERR_UNSUPPORTED,
         "model_type must be one of " MODEL_TYPES " (got \"wav2vec2\")"},
        {"model_type", "\"llama\"", MHA_ERR_FORMAT, "\"model.embed_tokens.weight\" is missing"},
        {"model_type", "\"\\u001b[31m\"", MHA_ERR_UNSUPPORTED,
         "model_type must be one of " MODEL_TYPES " (got \"\\x1B[31m\")"},
        {"eos_token_id", "-1", MHA_ERR_FORMAT,
         "config.json: eos_token_id must be a token id or a list of token ids (got -1"},
        {"eos_token_id", "[3, \"x\"]", MHA_ERR_FORMAT, "eos_token_id[1] must be a token id of at least 0 (got \"x\""},
        {"model_type", "[1]", MHA_ERR_FORMAT, "model_type"},
        {"model_type", NULL, MHA_ERR_FORMAT, "model_type"},
    };
    const char *folder = case_copy(TINY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        case_write_config(folder, TINY, cases[i].key, cases[i].value);
        case_refused(folder, cases[i].status, cases[i].part);
    }
    files_remove(folder);
}

/* generation_config.json must be read instead of config.json if it exists. Its errors must name the file and the
 * key. */
static void test_refused_generation(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"eos_token_id\": [1, 2.5]}",
         "generation_config.json: eos_token_id[1] must be a token id of at least 0 (got 2.5"},
        {"{\"eos_token_id\": {}}",
         "generation_config.json: eos_token_id must be a token id or a list of token ids (got an object"},
        {"{\"eos_token_id\": ", "generation_config.json: line 1"},
    };
    const char *folder = case_copy(TINY);
    char want[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        files_write(files_path(folder, "generation_config.json"), cases[i][0], strlen(cases[i][0]));
        snprintf(want, sizeof want, "%s/%s", folder, cases[i][1]);
        case_refused(folder, MHA_ERR_FORMAT, want);
    }
    files_remove(folder);
}

/* ---- decoders ---- */

/* Writes config.json of a small decoder with model type `type` and the additional keys `keys`, without weights. */
static void write_decoder(const char *folder, const char *type, const char *keys)
{
    char config[1024];
    const int n = snprintf(config, sizeof config,
                           "{\"model_type\": \"%s\", \"vocab_size\": 280, \"hidden_size\": 24,"
                           " \"intermediate_size\": 40, \"num_hidden_layers\": 2, \"num_attention_heads\": 3,"
                           " \"num_key_value_heads\": 1, %s}",
                           type, keys);
    assert_true(n > 0 && (size_t)n < sizeof config);
    files_write(files_path(folder, "config.json"), config, (size_t)n);
}

/* Tests invalid lists with one entry per layer or per pair of dimensions, and invalid parameters of scaled rotary
 * position embeddings. */
static void test_refused_lists(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"layer_types\": [\"full_attention\"]",
         "config.json: layer_types must have 2 elements, one entry per layer (got 1)"},
        {"\"layer_types\": [\"full_attention\", \"chunked\"]",
         "layer_types[1] must be \"full_attention\" or \"sliding_attention\" (got \"chunked\""},
        {"\"layer_types\": [7, \"full_attention\"]", "layer_types[0] must be \"full_attention\" or"},
        {"\"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 2, \"short_factor\": [1, 1, 1, 1],"
         " \"long_factor\": [1, 1]}",
         "rope_scaling.long_factor must have 4 elements, one number per rotated pair of dimensions (got 2)"},
        {"\"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 2, \"short_factor\": [1, 1, 0, 1],"
         " \"long_factor\": [1, 1, 1, 1]}",
         "rope_scaling.short_factor[2] must be a number > 0 (got 0"},
        {"\"rope_parameters\": {\"rope_type\": \"linear\"}", "rope_parameters.factor must be a number from 1 to"},
        {"\"rope_parameters\": {\"rope_type\": \"llama3\"}", "rope_parameters.factor must be a number from 1 to"},
        {"\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 0.5}",
         "rope_scaling.factor must be a number from 1"},
        {"\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 5}",
         "rope_parameters.low_freq_factor must be below high_freq_factor = 4 (got 5"},
        {"\"head_dim\": 7", "config.json: head_dim must be even for rotation (got 7"},
    };
    const char *folder = files_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_decoder(folder, "qwen2", cases[i][0]);
        case_refused(folder, MHA_ERR_FORMAT, cases[i][1]);
    }
    files_remove(folder);
}

static void test_refused_decoders(void **state)
{
    (void)state;
    static const struct {
        const char *type, *keys, *part;
    } cases[] = {
        {"llama", "\"is_causal\": false", "config.json: is_causal must be true (got false)"},
        {"qwen3", "\"is_causal\": null", "config.json: is_causal must be true (got null)"},
        {"gpt2", "\"is_causal\": false", "config.json: is_causal must be true (got false)"},
        {"gemma2", "\"use_bidirectional_attention\": true", "use_bidirectional_attention must be false (got true)"},
        {"llama", "\"compression_config\": {\"quant_method\": \"x\"}",
         "compression_config.quant_method must be absent (got \"x\")"},
        {"gemma2", "\"hidden_activation\": \"gelu_10\"",
         "hidden_activation must be one of " ACTIVATIONS " (got \"gelu_10\")"},
    };
    const char *folder = files_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_decoder(folder, cases[i].type, cases[i].keys);
        case_refused(folder, MHA_ERR_UNSUPPORTED, cases[i].part);
    }
    files_remove(folder);
}

/* ---- hostile configs: each is broken or of an unsupported family, except for the controls ---- */

static void install(const char *folder, const char *from, const char *name)
{
    size_t n = 0;
    char *bytes = files_read(files_path(MHA_TEST_DATA "/hostile", from), &n);
    assert_non_null(bytes);
    files_write(files_path(folder, name), bytes, n);
    free(bytes);
}

static void test_hostile_configs(void **state)
{
    (void)state;
    json_t *index = json_load_file(MHA_TEST_DATA "/hostile/index.json", 0, NULL), *entry;
    const char *folder = files_folder();
    const mha_model_options quick = {.size = sizeof quick, .no_tokenizer = 1};
    size_t i;
    int count = 0;
    json_array_foreach(json_object_get(index, "cases"), i, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "kind")), "config") != 0) continue;
        const char *base = json_string_value(json_object_get(entry, "base"));
        char from[200];
        snprintf(from, sizeof from, "base/%s/model.safetensors", base);
        install(folder, from, "model.safetensors");
        install(folder, json_string_value(json_object_get(entry, "path")), "config.json");
        mha_model *model = NULL;
        mha_error err = {0};
        const mha_status status = mha_model_open(NULL, folder, &quick, &model, &err);
        const char *expect = json_string_value(json_object_get(entry, "expect"));
        const bool refused = status == MHA_ERR_FORMAT || status == MHA_ERR_UNSUPPORTED;
        if (strcmp(expect, "either") != 0 ? refused != (strcmp(expect, "refuse") == 0) : !refused && status != MHA_OK)
            fail_msg("%s: expected %s (got status %d, %s)", json_string_value(json_object_get(entry, "id")), expect,
                     (int)status, err.message);
        assert_true(refused == !model);
        if (refused) assert_true(strstr(err.message, "config.json") || strstr(err.message, "model.safetensors"));
        mha_model_free(model);
        count++;
    }
    files_remove(folder);
    assert_int_equal(count, 30);
    json_decref(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_configs), cmocka_unit_test(test_refused_generation),
        cmocka_unit_test(test_refused_lists),   cmocka_unit_test(test_refused_decoders),
        cmocka_unit_test(test_hostile_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
