/* test_model_open.c - tests opening of checkpoint folders: required files, config keys and tensors, and error
 * messages. */
#include "math/half.h"
#include "support/alloc.h"
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
#define QUICK (&(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1})

static void refused(const char *folder, mha_status status, const char *part)
{
    mha_model *model = (mha_model *)(uintptr_t)1;
    mha_error err = {0};
    assert_int_equal(mha_model_open(NULL, folder, QUICK, &model, &err), status);
    assert_null(model);
    assert_int_equal(err.status, status);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

/* ---- config.json ---- */

/* Writes config.json of the tiny model with `key` set to the JSON `value`, or without `key` if `value` is NULL. */
static void write_config(const char *folder, const char *key, const char *value)
{
    json_t *config = json_load_file(files_path(MHA_TEST_DATA "/" TINY, "config.json"), 0, NULL);
    assert_non_null(config);
    if (value) {
        json_t *json = json_loads(value, JSON_DECODE_ANY, NULL);
        assert_non_null(json);
        json_object_set_new(config, key, json);
    } else {
        json_object_del(config, key);
    }
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    json_decref(config);
}

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
        write_config(folder, cases[i].key, cases[i].value);
        refused(folder, cases[i].status, cases[i].part);
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
        refused(folder, MHA_ERR_FORMAT, want);
    }
    files_remove(folder);
}

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
        refused(folder, MHA_ERR_FORMAT, cases[i][1]);
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
        refused(folder, MHA_ERR_UNSUPPORTED, cases[i].part);
    }
    files_remove(folder);
}

/* GPT-2 must accept four keys by its own names and by those of other families. If a config contains both names, their
 * values must be equal. */
static void test_names_of_gpt2(void **state)
{
    (void)state;
    const char *folder = case_copy("models/gpt2-tiny");
    mha_model *model = case_model(NULL, folder, QUICK);
    const int64_t heads = mha_model_describe(model)->heads;
    mha_model_free(model);
    json_t *config = json_load_file(files_path(folder, "config.json"), 0, NULL);
    json_object_set(config, "num_attention_heads", json_object_get(config, "n_head"));
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    mha_model_free(case_model(NULL, folder, QUICK));
    json_object_del(config, "n_head");
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    model = case_model(NULL, folder, QUICK);
    assert_int_equal(mha_model_describe(model)->heads, heads);
    mha_model_free(model);
    json_object_set_new(config, "n_head", json_integer(2 * heads));
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    refused(folder, MHA_ERR_FORMAT, "n_head and num_attention_heads, names of the same key, must be equal");
    json_decref(config);
    files_remove(folder);
}

/* A list of 64 eos tokens must be accepted; a longer list must be rejected, not truncated. */
static void test_many_eos_tokens(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    char list[512] = "[1";
    for (size_t used = 2, i = 1; i < 64; i++)
        used += (size_t)sprintf(list + used, ",%zu", i);
    const size_t end = strlen(list);
    strcpy(list + end, "]");
    write_config(folder, "eos_token_id", list);
    mha_model_free(case_model(NULL, folder, QUICK));
    strcpy(list + end, ",7]");
    write_config(folder, "eos_token_id", list);
    refused(folder, MHA_ERR_UNSUPPORTED, "config.json: eos_token_id must have at most 64 token ids (got 65)");
    files_remove(folder);
}

static void test_accepted_configs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"hidden_act", "null"},
        {"layer_norm_eps", "1"},
        {"type_vocab_size", NULL},
        {"position_embedding_type", "\"absolute\""},
        {"quantization_config", "null"},
        {"pruned_heads", "{}"},
        {"auto_map", "{\"AutoModel\": \"evil.Model\"}"},
        {"_attn_implementation", "\"somebody/kernels\""},
        {"torch_dtype", "\"bfloat16\""},
        {"head_dim", "-7"}, /* a key of another family, which BERT ignores */
    };
    const char *folder = case_copy(TINY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_config(folder, cases[i][0], cases[i][1]);
        mha_model_free(case_model(NULL, folder, QUICK));
    }
    files_remove(folder);
}

static void test_config_text(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    size_t n = 0;
    char *config = files_read(files_path(folder, "config.json"), &n);
    char *with_mark = malloc(n + 3);
    memcpy(with_mark, "\xEF\xBB\xBF", 3);
    memcpy(with_mark + 3, config, n);
    files_write(files_path(folder, "config.json"), with_mark, n + 3);
    mha_model *model = case_model(NULL, folder, QUICK);
    assert_string_equal(mha_model_config_json(model), config);
    mha_model_free(model);
    files_write(files_path(folder, "config.json"), config, n / 2);
    char want[512];
    snprintf(want, sizeof want, "%s/config.json: line ", folder);
    refused(folder, MHA_ERR_FORMAT, want);
    files_remove(folder);
    free(config);
    free(with_mark);
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
        const mha_status status = mha_model_open(NULL, folder, QUICK, &model, &err);
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

/* ---- weight files ---- */

static void test_missing_files(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    remove(files_path(folder, "model.safetensors"));
    refused(folder, MHA_ERR_IO, "model.safetensors");
    files_write(files_path(folder, "model.safetensors.index.json"), "{}", 2);
    refused(folder, MHA_ERR_FORMAT, "weight_map");
    remove(files_path(folder, "config.json"));
    refused(folder, MHA_ERR_IO, "config.json");
    files_remove(folder);
    refused(folder, MHA_ERR_IO, "config.json");
}

static void test_cut_file(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    size_t n = 0;
    char *bytes = files_read(files_path(folder, "model.safetensors"), &n);
    for (size_t cut = 0; cut < n; cut += n / 23) {
        files_write(files_path(folder, "model.safetensors"), bytes, cut);
        refused(folder, MHA_ERR_FORMAT, "model.safetensors");
    }
    files_remove(folder);
    free(bytes);
}

typedef enum edit { KEEP, TO_BF16, TO_F16, ROUNDED_BF16, ROUNDED_F16, MISALIGNED, TO_F64, RENAMED } edit;

static uint16_t half_bits(edit how, float x)
{
    return how == TO_BF16 || how == ROUNDED_BF16 ? mha__f32_to_bf16(x) : mha__f32_to_f16(x);
}

/* Writes the weights of the tiny model in one of several forms: stored as another type, rounded to another type,
 * unaligned by one byte, or with a renamed tensor. */
static void write_weights(const char *folder, edit how)
{
    static const char *const types[] = {"F32", "BF16", "F16", "F32", "F32", "F32", "F64", "F32"};
    static const size_t sizes[] = {4, 2, 2, 4, 4, 4, 8, 4};
    mha_file *file = case_file(TINY "/model.safetensors");
    char *header = malloc(1 << 20), *data = calloc(1, 1 << 22);
    size_t used = 8, at = 0;
    used += (size_t)sprintf(header + used, "{%s",
                            how == MISALIGNED ? "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}," : "");
    at = how == MISALIGNED;
    for (int64_t i = 0; i < mha_file_count(file); i++) {
        const mha_tensor *t = mha_file_tensor(file, i);
        const size_t bytes = (size_t)t->elements * sizes[how];
        const bool renamed = how == RENAMED && strstr(t->name, "layer.1.output.dense.bias");
        used += (size_t)sprintf(header + used, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%lld", i ? "," : "", t->name,
                                renamed ? "x" : "", types[how], (long long)t->shape[0]);
        if (t->rank == 2) used += (size_t)sprintf(header + used, ",%lld", (long long)t->shape[1]);
        used += (size_t)sprintf(header + used, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
        for (int64_t e = 0; e < t->elements; e++) {
            const float x = ((const float *)t->data)[e];
            const uint16_t half = half_bits(how, x);
            const float rounded = how == ROUNDED_BF16  ? mha__bf16_to_f32(half)
                                  : how == ROUNDED_F16 ? mha__f16_to_f32(half)
                                                       : x;
            const double wide = (double)x;
            const void *from = sizes[how] == 2   ? (const void *)&half
                               : sizes[how] == 8 ? (const void *)&wide
                                                 : (const void *)&rounded;
            memcpy(data + at + (size_t)e * sizes[how], from, sizes[how]);
        }
        at += bytes;
    }
    used += (size_t)sprintf(header + used, "}");
    while (used % 8) /* spaces before the data, which the format permits */
        header[used++] = ' ';
    const uint64_t n = used - 8;
    memcpy(header, &n, 8);
    header = realloc(header, used + at);
    memcpy(header + used, data, at);
    files_write(files_path(folder, "model.safetensors"), header, used + at);
    mha_file_free(file);
    free(header);
    free(data);
}

/* Returns the last hidden states of fixed tokens, computed by a model opened with `options`. The type of the model must
 * be `dtype`. The caller must free them. */
static float *hidden_of(const char *folder, mha_dtype dtype, const mha_model_options *options)
{
    static const int32_t ids[9] = {2, 489, 152, 255, 30, 259, 237, 141, 3};
    mha_model *model = case_model(NULL, folder, options);
    assert_int_equal(mha_model_describe(model)->dtype, dtype);
    float *hidden = malloc(9 * 48 * sizeof *hidden);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 9, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
    mha_model_free(model);
    return hidden;
}

static void assert_same(const char *folder, edit a, mha_dtype type_a, edit b, mha_dtype type_b)
{
    write_weights(folder, a);
    float *x = hidden_of(folder, type_a, QUICK);
    write_weights(folder, b);
    float *y = hidden_of(folder, type_b, QUICK);
    assert_memory_equal(x, y, 9 * 48 * sizeof *x);
    free(x);
    free(y);
}

static void test_stored_types(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    assert_same(folder, TO_BF16, MHA_BF16, ROUNDED_BF16, MHA_F32);
    assert_same(folder, TO_F16, MHA_F16, ROUNDED_F16, MHA_F32);
    assert_same(folder, MISALIGNED, MHA_F32, KEEP, MHA_F32);
    const mha_model_options copied = {.size = sizeof copied, .no_tokenizer = 1, .no_map = 1};
    float *x = hidden_of(folder, MHA_F32, QUICK), *y = hidden_of(folder, MHA_F32, &copied);
    assert_memory_equal(x, y, 9 * 48 * sizeof *x);
    free(x);
    free(y);
    write_weights(folder, TO_F64);
    refused(folder, MHA_ERR_UNSUPPORTED, "must be one of F32, F16, BF16 (got F64)");
    write_weights(folder, RENAMED);
    refused(folder, MHA_ERR_FORMAT, "\"encoder.layer.1.output.dense.bias\" is missing");
    files_remove(folder);
}

/* ---- mha_model_info ---- */

static void test_info(void **state)
{
    (void)state;
    const mha_model_options check_only = {.size = sizeof check_only, .no_tokenizer = 1, .no_weights = 1};
    for (int light = 0; light < 2; light++) {
        mha_model *model = case_model(NULL, TINY, light ? &check_only : QUICK);
        const mha_model_info *info = mha_model_describe(model);
        assert_string_equal(info->family, "bert");
        assert_int_equal(info->layers, 3);
        assert_int_equal(info->heads, 4);
        assert_int_equal(info->kv_heads, 4);
        assert_int_equal(info->head_dim, 12);
        assert_int_equal(info->hidden, 48);
        assert_int_equal(info->intermediate, 112);
        assert_int_equal(info->vocab, 600);
        assert_int_equal(info->max_positions, 96);
        assert_int_equal(info->type_vocab, 2);
        assert_int_equal(info->parameters, 97488); /* the parameter count in the golden index.json */
        assert_int_equal(info->bytes, 4 * 97488);
        assert_int_equal(info->kv_bytes_per_token, 0);
        assert_int_equal(info->causal, 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(info->heads_per_layer[i], 4);
        assert_null(mha_model_tokenizer(model));
        assert_null(mha_model_ctx(model));
        if (light) {
            const int32_t id = 2;
            mha_error err = {0};
            const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 1, .ids = &id};
            assert_int_equal(mha_model_forward(model, &input, NULL, &err), MHA_ERR_ARG);
            assert_non_null(strstr(err.message, "no_weights"));
        }
        mha_model_free(model);
    }
    mha_model_free(NULL);
}

/* ---- failed allocations ---- */

/* With a budget of 0, 1, 2, ... allocations, opening the model in `folder` must return MHA_ERR_MEMORY, free its memory,
 * and fail at least `least` times before it succeeds. */
static void starve(const char *folder, int least)
{
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long live = memory.live;
    int failures = 0;
    for (long n = 0;; n++, failures++) {
        mha_model *model = NULL;
        mha_error err = {0};
        memory.budget = memory.calls + n;
        const mha_status status = mha_model_open(ctx, files_path(MHA_TEST_DATA, folder), NULL, &model, &err);
        if (status == MHA_OK) {
            mha_model_free(model);
            assert_int_equal(memory.live, live);
            break;
        }
        if (status != MHA_ERR_MEMORY)
            fail_msg("without allocation %ld, the call must return MHA_ERR_MEMORY (got status %d, %s)", n, (int)status,
                     err.message);
        assert_null(model);
        assert_int_equal(memory.live, live);
    }
    assert_true(failures >= least);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    starve(TINY, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_refused_generation),
        cmocka_unit_test(test_refused_lists),
        cmocka_unit_test(test_refused_decoders),
        cmocka_unit_test(test_names_of_gpt2),
        cmocka_unit_test(test_many_eos_tokens),
        cmocka_unit_test(test_accepted_configs),
        cmocka_unit_test(test_config_text),
        cmocka_unit_test(test_hostile_configs),
        cmocka_unit_test(test_missing_files),
        cmocka_unit_test(test_cut_file),
        cmocka_unit_test(test_stored_types),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
