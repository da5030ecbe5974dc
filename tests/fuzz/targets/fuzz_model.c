/* fuzz_model.c - reads bytes as config.json, and bytes after the first NUL as generation_config.json, of a folder
 * with real weights. The first byte selects the folder. The forward pass of an accepted model must succeed, and a
 * decoder must generate tokens with the KV cache. Opening the model without packing must return the same status.
 */
#include "fuzz.h"
#include "mha/generate.h"
#include "mha/seq2seq.h"
#include "mutate.h"
#include "support/files.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first byte is not part of the JSON text; the mutator accepts malformed text. */
FUZZ_MUTATES_JSON

static const char *const weights[] = {"hostile/base/llama",
                                      "hostile/base/gpt2",
                                      "models/bert-mlm-tiny",
                                      "models/gemma2-tiny",
                                      "seq2seq/t5",
                                      "seq2seq/bart",
                                      "quantized/gpt-oss-mxfp4",
                                      "quantized/llama-compressed",
                                      "quantized/deepseek-v3-fp8"};
enum { BASES = sizeof weights / sizeof weights[0], ENCODER_DECODERS = 2, QUANTIZED = 3 };
enum { OTHERS = BASES - ENCODER_DECODERS - QUANTIZED };

/* Returns the folder that the first byte of an input selects: encoder-decoders have bytes from 128 on, and quantized
 * weights those from 32 to 47. */
static unsigned base_of(uint8_t first)
{
    if (first / 16 == 2) return OTHERS + ENCODER_DECODERS + first % QUANTIZED;
    return first < 128 ? first % OTHERS : OTHERS + first % ENCODER_DECODERS;
}

static const char *folders[BASES];

static void remove_folders(void)
{
    for (int i = 0; i < BASES; i++)
        if (folders[i]) files_remove(folders[i]);
}

/* Returns the folder for base model `base`. The folder is the same for all inputs and contains a link to the
 * weights. */
static const char *folder_of(unsigned base)
{
    static int registered;
    char target[512];
    if (folders[base]) return folders[base];
    if (!registered++) atexit(remove_folders);
    folders[base] = files_folder();
    snprintf(target, sizeof target, "%s/model.safetensors", weights[base]);
    fuzz_check(symlink(fuzz_data(target), files_path(folders[base], "model.safetensors")) == 0,
               "symlink to the weights must succeed");
    return folders[base];
}

/* Returns tensors that variants of LLaMA add: biases of the query, key and value projections, and norms of queries and
 * keys, for two layers of width 24 with heads of width 8. */
static const mha_named_tensor *more_tensors(int64_t *count)
{
    static const struct {
        const char *name;
        int64_t width;
    } parts[] = {
        {"q_proj.bias", 24}, {"k_proj.bias", 8}, {"v_proj.bias", 8}, {"q_norm.weight", 8}, {"k_norm.weight", 8}};
    enum { PARTS = sizeof parts / sizeof parts[0] };
    static float values[24];
    static char names[2 * PARTS][64];
    static mha_named_tensor list[2 * PARTS];
    for (int i = 0; i < 2 * PARTS; i++) {
        snprintf(names[i], sizeof names[i], "model.layers.%d.self_attn.%s", i / PARTS, parts[i % PARTS].name);
        list[i] = (mha_named_tensor){
            .name = names[i], .data = values, .dtype = MHA_F32, .rank = 1, .shape = {parts[i % PARTS].width}};
    }
    *count = 2 * PARTS;
    return list;
}

static mha_status open_base(unsigned base, int check_only, mha_model **model)
{
    mha_model_options options = {.size = sizeof options, .no_tokenizer = 1, .no_weights = check_only};
    mha_error err = {0};
    if (base == 0) options.tensors = more_tensors(&options.tensor_count);
    const mha_status status = mha_model_open(NULL, folder_of(base), &options, model, &err);
    fuzz_check((status == MHA_OK) == (*model != NULL), "model must be set only on success");
    fuzz_refusal(status, &err, folder_of(base));
    return status;
}

static void run(const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    const int32_t ids[3] = {0, (int32_t)(info->vocab - 1), 1 % (int32_t)info->vocab};
    const mha_prompt prompt = {ids, 3};
    const mha_model *encoder = mha_model_encoder(model);
    const int32_t last = (int32_t)(encoder ? mha_model_describe(encoder)->vocab : info->vocab) - 1;
    const int32_t source_ids[3] = {0, last, last};
    const mha_prompt source_of = {source_ids, 3};
    const mha_generate_options generate = {
        .size = sizeof generate, .max_new = 3, .sources = encoder ? &source_of : NULL};
    const mha_model_input source = {.size = sizeof source, .batch = 1, .length = 3, .ids = source_ids};
    const mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = 3, .ids = ids, .source = encoder ? &source : NULL};
    float *hidden = malloc((size_t)(3 * info->hidden) * sizeof *hidden);
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    mha_error err = {0};
    int32_t out[3];
    int64_t length = 0;
    const mha_status status = mha_model_forward(model, &input, &output, &err);
    fuzz_check(status == MHA_OK || info->max_positions < 3, "forward pass must succeed");
    if (info->causal && info->logits && info->max_positions >= 6) {
        const mha_status made = mha_model_generate(model, &prompt, 1, &generate, out, &length, &err);
        const int none = made == MHA_ERR_ARG && strstr(err.message, "must keep at least one token") != NULL;
        fuzz_check((made == MHA_OK && length > 0) || none, "generation must succeed unless all tokens are suppressed");
    }
    free(hidden);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0) return 0;
    const unsigned base = base_of(bytes[0]);
    const char *config = (const char *)bytes + 1, *other = memchr(config, '\0', n - 1);
    const char *generation = files_path(folder_of(base), "generation_config.json");
    files_write(files_path(folder_of(base), "config.json"), config, other ? (size_t)(other - config) : n - 1);
    if (other) files_write(generation, other + 1, (size_t)((const char *)bytes + n - other - 1));

    mha_model *model = NULL, *checked = NULL;
    const mha_status status = open_base(base, 0, &model);
    fuzz_check(open_base(base, 1, &checked) == status, "the status must not depend on packing");
    if (model) run(model);
    mha_model_free(model);
    mha_model_free(checked);
    if (other) unlink(generation);
    return 0;
}
