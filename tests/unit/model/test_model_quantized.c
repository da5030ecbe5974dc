/* test_model_quantized.c - tests folders whose weights are codes with scales: they can be saved, opened again and
 * edited; codes without scales, scales without codes, and shapes that do not match must be refused with a sentence that
 * names the file and the tensor. The results are those of `mha verify --golden` on data/quantized. */
#include "mha/io.h"
#include "mha/model_save.h"
#include "support/check.h"
#include "support/files.h"
#include "support/gguf/gguf_case.h"
#include "support/model/model_case.h"
#include "support/model/save_edit.h"
#include "support/quantized/fp8_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const folders[] = {"quantized/gpt-oss-mxfp4", "quantized/deepseek-v3-fp8",
                                      "quantized/llama-compressed"};
enum { FOLDERS = sizeof folders / sizeof *folders };

/* A saved folder has plain weights and no quantization_config, and the same outputs. */
static void saved_folders(void **state)
{
    (void)state;
    const char *work = files_folder();
    char to[300];
    snprintf(to, sizeof to, "%s", files_path(work, "saved"));
    for (int n = 0; n < FOLDERS; n++)
        for (int narrow = 0; narrow < (n ? 1 : 2); narrow++) { /* MXFP4 is exact in bf16 */
            mha_error err = {0};
            size_t bytes;
            const mha_model_save_options o = {
                .size = sizeof o, .overwrite = 1, .dtype = narrow ? MHA_BF16 : MHA_DTYPE_DEFAULT};
            mha_model *a = case_open(NULL, folders[n]);
            if (mha_model_save(a, to, &o, &err) != MHA_OK) fail_msg("%s", err.message);
            mha_model *b = case_open(NULL, to);
            gguf_same_outputs(a, b, folders[n]);
            char *config = files_read(files_path(to, "config.json"), &bytes);
            assert_null(strstr(config, "quantization_config"));
            assert_non_null(strstr(config, narrow ? "\"dtype\": \"bfloat16\"" : "\"dtype\": \"float32\""));
            mha_file *file = case_file(files_path(to, "model.safetensors"));
            for (int64_t t = 0; t < mha_file_count(file); t++)
                assert_null(strstr(mha_file_tensor(file, t)->name, "_scale"));
            mha_file_free(file);
            free(config);
            mha_model_free(a);
            mha_model_free(b);
        }
    files_remove(to);
    files_remove(work);
}

/* A pruned model has plain weights of the heads that it keeps. */
static void pruned_folders(void **state)
{
    (void)state;
    enum { HEADS = 8 };
    const uint8_t keep[HEADS] = {0, 0, 1, 1, 1, 1, 1, 1}; /* without a group of heads that share keys */
    const char *work = files_folder();
    char to[300];
    snprintf(to, sizeof to, "%s", files_path(work, "pruned"));
    for (int n = 0; n < FOLDERS; n += 2) { /* heads of DeepSeek-V3 share no keys */
        mha_model *a = case_open(NULL, folders[n]);
        save_pruned(a, keep, NULL, to);
        mha_model *b = case_open(NULL, to);
        assert_int_equal(mha_model_describe(b)->heads_per_layer[0], 2);
        assert_int_equal(mha_model_describe(b)->heads_per_layer[1], 4);
        mha_model_free(a);
        mha_model_free(b);
    }
    files_remove(to);
    files_remove(work);
}

/* A fingerprint depends on the stored elements, never on addresses. */
static void fingerprints(void **state)
{
    (void)state;
    char text[2][17] = {"", ""};
    mha_error err = {0};
    for (int n = 0; n < 2; n++) {
        mha_model *model = case_open(NULL, folders[0]);
        assert_int_equal(mha_model_fingerprint(model, text[n], &err), MHA_OK);
        mha_model_free(model);
    }
    assert_string_equal(text[0], text[1]);
}

/* An output matrix that has the codes of the word embeddings, but another scale, is not tied to them, whatever
 * config.json requires. */
static void scales_of_tied_weights(void **state)
{
    (void)state;
    size_t n;
    for (int equal = 0; equal < 2; equal++) {
        const char *folder = fp8_tables(0.5F, equal ? 0.5F : 0.25F);
        char *config = files_read(files_path(folder, "config.json"), &n);
        char *tied = strstr(config, "\"tie_word_embeddings\": false");
        assert_non_null(tied);
        memcpy(tied, "\"tie_word_embeddings\": true ", strlen("\"tie_word_embeddings\": false"));
        mha_model *a = case_open(NULL, folder), *b = gguf_open_as(folder, config);
        gguf_same_outputs(a, b, folder);
        mha_model_free(a);
        mha_model_free(b);
        free(config);
        files_remove(folder);
    }
}

/* ---- refusals ---- */

/* Opens a copy of a folder in whose header, or config.json, the only occurrence of a text after `after` is replaced by
 * one of the same length. */
static void refuse(const char *folder, const char *file, const char *after, const char *from, const char *to,
                   mha_status status, const char *part)
{
    size_t n = 0;
    const char *copy = case_copy(folder);
    char *bytes = files_read(files_path(copy, file), &n), *at = bytes, *const end = bytes + n;
    const char *const texts[] = {after, from};
    assert_int_equal(strlen(from), strlen(to));
    for (int i = 0; i < 2; i++) {
        while (at + strlen(texts[i]) < end && memcmp(at, texts[i], strlen(texts[i])) != 0)
            at++;
        if (at + strlen(texts[i]) >= end) fail_msg("%s must contain \"%s\"", file, texts[i]);
    }
    memcpy(at, to, strlen(to));
    files_write(files_path(copy, file), bytes, n);
    free(bytes);
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    mha_model *model = NULL;
    mha_error err = {0};
    const mha_status got = mha_model_open(NULL, copy, &o, &model, &err);
    if (got != status || !strstr(err.message, part) || !strstr(err.message, copy))
        fail_msg("expected status %d, \"%s\" (got %d, \"%s\")", (int)status, part, (int)got, err.message);
    assert_null(model);
    files_remove(copy);
}

#define UP "model.layers.1.mlp.experts.gate_up_proj"

static void hostile_mxfp4(void **state)
{
    (void)state;
    static const char weights[] = "model.safetensors", *const folder = "quantized/gpt-oss-mxfp4";
    refuse(folder, weights, "", UP "_scales", UP "_scaleX", MHA_ERR_FORMAT, "tensor \"" UP "_scales\" is missing");
    refuse(folder, weights, "", UP "_blocks", UP "_blockX", MHA_ERR_FORMAT, "tensor \"" UP "_blocks\" is missing");
    refuse(folder, weights, UP "_blocks", "[3,64,2,16]", "[3,64,16,2]", MHA_ERR_FORMAT,
           "shape of tensor \"" UP "_blocks\" must be [experts, rows, groups, 16] (got [3, 64, 16, 2])");
    refuse(folder, weights, UP "_blocks", "[3,64,2,16]", "[3,2,64,16]", MHA_ERR_FORMAT,
           "shape of tensor \"" UP "_scales\" must be [3, 2, 64], a scale per group (got [3, 64, 2])");
    refuse(folder, weights, UP "_scales", "[3,64,2]", "[6,64,1]", MHA_ERR_FORMAT,
           "shape of tensor \"" UP "_scales\" must be [3, 64, 2], a scale per group (got [6, 64, 1])");
    refuse(folder, weights, UP "_scales", "U8", "I8", MHA_ERR_UNSUPPORTED,
           "type of tensor \"" UP "_scales\" must be U8 (got I8)");
    refuse(folder, weights, UP "_blocks", "U8", "I8", MHA_ERR_UNSUPPORTED,
           "type of tensor \"" UP "_blocks\" must be U8 (got I8)");
    refuse(folder, weights, UP "_blocks", "[3,64,2,16]", "[3,64,2,17]", MHA_ERR_FORMAT, UP "_blocks");
    refuse(folder, "config.json", "", "\"num_local_experts\": 3", "\"num_local_experts\": 4", MHA_ERR_FORMAT,
           "must be [4, 64], as config.json requires (got [3, 64])");
    refuse(
        folder, "config.json", "", "\"intermediate_size\": 32", "\"intermediate_size\": 64", MHA_ERR_FORMAT,
        "\"model.layers.0.mlp.experts.gate_up_proj\" must be [3, 64, 128], as config.json requires (got [3, 64, 64])");
    refuse(folder, "config.json", "", "\"mxfp4\"", "\"mxfp8\"", MHA_ERR_UNSUPPORTED,
           "quant_method must be one of compressed-tensors, fbgemm_fp8, fp8, mxfp4 (got \"mxfp8\")");
}

#define KV "model.layers.1.self_attn.kv_b_proj.weight"
#define GATE "model.layers.1.mlp.gate_proj."

static void hostile_fp8(void **state)
{
    (void)state;
    static const char weights[] = "model.safetensors", *const folder = "quantized/deepseek-v3-fp8",
                      *const other = "quantized/llama-compressed";
    refuse(folder, weights, "", KV "_scale_inv", KV "_scale_inX", MHA_ERR_FORMAT,
           "tensor \"" KV "_scale_inv\" is missing");
    refuse(folder, weights, KV "_scale_inv", "[5,1]", "[1,5]", MHA_ERR_FORMAT,
           "shape of tensor \"" KV "_scale_inv\" must be [], [72, 1] or [5, 1], a scale per 16 x 12 elements (got [1, "
           "5])");
    refuse(folder, weights, KV "\"", "F8_E4M3", "F8_E8M0", MHA_ERR_UNSUPPORTED,
           "type of tensor \"" KV "\" must be F8_E4M3 or F8_E5M2, since it has scales (got F8_E8M0)");
    refuse(folder, "config.json", "weight_block_size", "16,", "40,", MHA_ERR_FORMAT, "a scale per 40 x 12 elements");
    refuse(folder, "config.json", "", "\"e4m3\"", "\"e5m2\"", MHA_ERR_UNSUPPORTED,
           "quantization_config.fmt must be e4m3 (got \"e5m2\")");
    refuse(other, weights, "", GATE "weight_scale", GATE "weight_scalX", MHA_ERR_FORMAT,
           "tensor \"" GATE "weight_scale\" is missing");
    refuse(other, weights, GATE "weight_scale", "[40]", "[20]", MHA_ERR_FORMAT, GATE "weight_scale");
    refuse(other, weights, GATE "weight_scale", "F32", "I32", MHA_ERR_UNSUPPORTED,
           "type of tensor \"" GATE "weight_scale\" must be one of F32, F16, BF16 (got I32)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_folders),          cmocka_unit_test(pruned_folders), cmocka_unit_test(fingerprints),
        cmocka_unit_test(scales_of_tied_weights), cmocka_unit_test(hostile_mxfp4),  cmocka_unit_test(hostile_fp8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
