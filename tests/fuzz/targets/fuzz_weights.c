/* fuzz_weights.c - reads bytes as model.safetensors of a folder with a fixed config.json. The first byte selects the
 * config. The forward pass of an accepted model must succeed, and a decoder must generate tokens with the KV cache. The
 * status must not depend on memory mapping or packing.
 */
#include "fuzz.h"
#include "mha/generate.h"
#include "mutate.h"
#include "support/files.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const configs[] = {
    "{\"model_type\":\"bert\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"intermediate_size\":8,\"max_position_embeddings\":8}",
    "{\"model_type\":\"gpt2\",\"vocab_size\":8,\"n_embd\":8,\"n_layer\":1,\"n_head\":2,\"n_inner\":8,\"n_positions\":"
    "8}",
    "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"intermediate_size\":8,\"max_position_embeddings\":8}",
    "{\"model_type\":\"gemma2\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"head_dim\":4,\"intermediate_size\":8,\"max_position_embeddings\":8}",
    /* codes with scales: groups of MXFP4 have 32 elements */
    "{\"model_type\":\"gpt_oss\",\"vocab_size\":8,\"hidden_size\":32,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"head_dim\":4,\"intermediate_size\":32,\"num_local_experts\":2,\"num_experts_per_tok\":"
    "1,"
    "\"max_position_embeddings\":8,\"rope_scaling\":null,\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
    "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"intermediate_size\":8,\"max_position_embeddings\":8,\"quantization_config\":"
    "{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[3,5]}}"};
enum { CONFIGS = sizeof configs / sizeof *configs, WIDEST = 32 };

#ifdef MHA_FUZZ
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
    return n < 2 ? fuzz_mutate_json(bytes, n, max, seed) : 1 + fuzz_mutate_header(bytes + 1, n - 1, max - 1, seed);
}
#endif

static mha_status open_folder(const mha_model_options *options, mha_model **model)
{
    mha_error err = {0};
    *model = NULL;
    const mha_status status = mha_model_open(fuzz_ctx(), fuzz_folder(), options, model, &err);
    fuzz_check((status == MHA_OK) == (*model != NULL), "model must be set only on success");
    fuzz_refusal(status, &err, "");
    return status;
}

static void run(const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    const int32_t ids[3] = {0, 7, 1};
    const mha_prompt prompt = {ids, 3};
    const mha_generate_options generate = {.size = sizeof generate, .max_new = 2};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 3, .ids = ids};
    float hidden[3 * WIDEST];
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    mha_error err = {0};
    int32_t out[2];
    int64_t length = 0;
    fuzz_check((info->hidden == 8 || info->hidden == WIDEST) && info->vocab == 8,
               "dimensions must equal those of the config");
    fuzz_check(mha_model_forward(model, &input, &output, &err) == MHA_OK, "forward pass must succeed");
    if (!info->causal || !info->logits) return;
    const mha_status status = mha_model_generate(model, &prompt, 1, &generate, out, &length, &err);
    const int is_nan = status == MHA_ERR_NOT_FINITE; /* the weights in the file may be of any size */
    fuzz_check(is_nan || (status == MHA_OK && length > 0), "generation must succeed");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static unsigned known = CONFIGS;
    if (n == 0) return 0;
    const unsigned base = bytes[0] % CONFIGS;
    const mha_model_options mapped = {.size = sizeof mapped, .no_tokenizer = 1},
                            copied = {.size = sizeof copied, .no_tokenizer = 1, .no_map = 1, .no_weights = 1};
    mha_model *model, *checked;
    files_write(files_path(fuzz_folder(), "model.safetensors"), bytes + 1, n - 1);
    if (known != base) files_write(files_path(fuzz_folder(), "config.json"), configs[base], strlen(configs[base]));
    known = base;
    const mha_status status = open_folder(&mapped, &model);
    fuzz_check(open_folder(&copied, &checked) == status, "the status must not depend on mapping or packing");
    if (model) run(model);
    mha_model_free(model);
    mha_model_free(checked);
    return 0;
}
