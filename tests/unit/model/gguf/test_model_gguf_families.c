/* test_model_gguf_families.c - tests GGUF files of further families: files written by gguf-py, and files written by
 * mha_model_save_gguf, must have outputs that are bitwise identical to those of the folder; models that llama.cpp
 * computes differently must be refused. */
#include "mha/model_create.h"
#include "model/model_struct.h"
#include "support/check.h"
#include "support/files.h"
#include "support/gguf/gguf_case.h"
#include "support/gguf/gguf_edit.h"
#include "support/model/model_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EDITS = 4 };

static const char data[] = MHA_TEST_DATA;

/* A model, and changes of its config.json for what files can express. */
typedef struct family {
    const char *name;
    const char *folder; /* in data; NULL = families2/NAME */
    bool head;          /* has the head of a masked model, which files cannot express */
    const char *edits[EDITS][2];
    const char *saved[EDITS][2]; /* instead, for files that this library writes */
} family;

static const family families[] = {
    {.name = "olmo2", .saved = {{"\"attention_bias\": true", "\"attention_bias\": false"}}},
    {.name = "granite"},
    {.name = "phi3"},
    {.name = "mixtral", .edits = {{"\"sliding_window\": 6", "\"sliding_window\": null"}}},
    {.name = "gpt-oss", .folder = "quantized/gpt-oss-mxfp4"},
    {.name = "nomic-bert", .head = true, .edits = {{"\"hidden_act\": \"gelu\"", "\"hidden_act\": \"silu\""}}},
    {.name = "gemma3",
     .edits = {{"\"query_pre_attn_scalar\": 12", "\"query_pre_attn_scalar\": 16"}},
     .saved = {{"\"query_pre_attn_scalar\": 12", "\"query_pre_attn_scalar\": 16"}, {"\"layer_types\"", "\"unused\""}}},
    {.name = "smollm3",
     .edits = {{"\"no_rope_layers\"", "\"unused\""},
               {"\"layer_types\"", "\"also_unused\""},
               {"\"no_rope_layer_interval\": 2", "\"no_rope_layer_interval\": 4"},
               {"\"use_sliding_window\": true", "\"use_sliding_window\": false"}}},
};

/* Returns the config.json of a model with one text replaced; the caller frees it. */
static char *replace(char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at) fail_msg("config.json must contain %s", from);
    char *now = malloc(strlen(text) + strlen(to) + 1);
    sprintf(now, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return now;
}

/* Opens the folder of a family with up to `count` changes of its config. */
static mha_model *open_family(const family *f, const char *const (*edits)[2], int count)
{
    char folder[300], path[320];
    size_t n;
    snprintf(folder, sizeof folder, "%s/%s%s", data, f->folder ? f->folder : "families2/", f->folder ? "" : f->name);
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *config = files_read(path, &n);
    for (int i = 0; i < count && edits[i][0]; i++)
        config = replace(config, edits[i][0], edits[i][1]);
    mha_model *model = gguf_open_as(folder, config);
    free(config);
    return model;
}

static mha_model *open_golden(const char *name)
{
    char file[300];
    snprintf(file, sizeof file, "%s/gguf/%s.gguf", data, name);
    return gguf_open(file, 1);
}

static void files_of_gguf_py(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof families / sizeof *families; n++) {
        const family *f = &families[n];
        mha_model *a = open_family(f, f->edits, EDITS), *b = open_golden(f->name);
        gguf_same_outputs(a, b, f->name);
        mha_model_free(a);
        mha_model_free(b);
    }
}

static void own_files(void **state)
{
    (void)state;
    const char *work = files_folder(), *file = files_path(work, "own.gguf");
    for (size_t n = 0; n < sizeof families / sizeof *families; n++) {
        const family *f = &families[n];
        mha_model *a = f->head ? open_golden(f->name) : open_family(f, f->saved[0][0] ? f->saved : f->edits, EDITS);
        for (int wide = 0; wide < 2; wide++) {
            gguf_save(a, file, wide ? MHA_F32 : MHA_DTYPE_DEFAULT);
            mha_model *b = gguf_open(file, 1);
            gguf_same_outputs(a, b, f->name);
            mha_model_free(b);
        }
        mha_model_free(a);
    }
    files_remove(work);
}

/* Saves a file in another type, and then as a folder. */
static void through_a_folder(const char *name, mha_dtype dtype)
{
    const char *work = files_folder();
    char file[300], folder[300];
    snprintf(file, sizeof file, "%s", files_path(work, "stored.gguf"));
    snprintf(folder, sizeof folder, "%s", files_path(work, "folder"));
    mha_model *a = open_golden(name);
    gguf_save(a, file, dtype);
    mha_model *b = gguf_open(file, 1);
    mha_error err = {0};
    if (mha_model_save(b, folder, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model *c = gguf_open(folder, 1);
    gguf_same_outputs(b, c, name);
    mha_model_free(a);
    mha_model_free(b);
    mha_model_free(c);
    files_remove(folder);
    files_remove(work);
}

/* Quantized experts are the experts of the folder that the file becomes, whatever their type in the file. */
static void quantized_experts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        mha_dtype dtype;
    } cases[] = {{"mixtral", MHA_Q8_0}, {"gpt-oss", MHA_Q8_0}, {"gpt-oss", MHA_F16}, {"gpt-oss", MHA_DTYPE_DEFAULT}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        through_a_folder(cases[n].name, cases[n].dtype);
}

/* Checks the type of the tensors of experts whose name contains `part`. */
static void check_experts(const char *path, const char *part, const char *type)
{
    int seen = 0;
    mha_file *file = case_file(path);
    for (int64_t n = 0; n < mha_file_count(file); n++) {
        const mha_tensor *t = mha_file_tensor(file, n);
        if (t->rank != 3 || !strstr(t->name, part)) continue;
        assert_string_equal(t->dtype_name, type);
        seen++;
    }
    assert_true(seen > 0);
    mha_file_free(file);
}

/* Experts keep their 16-bit type, although they are stored transposed, and gate and up apart. */
static void experts_of_16_bits(void **state)
{
    (void)state;
    static const mha_dtype dtypes[] = {MHA_BF16, MHA_F16};
    const char *work = files_folder(), *folder = files_folder();
    for (int n = 0; n < 2; n++) {
        const char *type = n ? "F16" : "BF16", *first = files_path(work, "first.gguf");
        const mha_model_save_options o = {.size = sizeof o, .overwrite = 1};
        mha_error err = {0};
        mha_model *a = open_golden("gpt-oss");
        gguf_save(a, first, dtypes[n]);
        mha_model *b = gguf_open(first, 1);
        gguf_save(b, files_path(work, "second.gguf"), MHA_DTYPE_DEFAULT);
        if (mha_model_save(b, folder, &o, &err) != MHA_OK) fail_msg("%s", err.message);
        check_experts(first, "_exps.weight", type);
        check_experts(files_path(work, "second.gguf"), "_exps.weight", type);
        check_experts(files_path(folder, "model.safetensors"), "_proj", type);
        mha_model_free(a);
        mha_model_free(b);
    }
    files_remove(folder);
    files_remove(work);
}

/* ---- refusals ---- */

static void models_that_files_cannot_express(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"olmo2", "_proj.bias\" must be absent in a GGUF file of architecture olmo2"},
        {"mixtral", "sliding_window must be 0 in a GGUF file of architecture llama (got 6)"},
        {"nomic-bert", "must be absent in a GGUF file of architecture nomic-bert"},
        {"gemma3", "the scale of scores must be"},
        {"smollm3", "must be"},
        {"qwen3-moe", "must be"},
        {"gpt-oss", "swiglu_alpha must be 1.702 in a GGUF file of architecture gpt-oss (got 1.3)"},
    };
    const char *work = files_folder();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_model *model = open_family(&(family){.name = cases[n].name}, NULL, 0);
        mha_error err = {0};
        if (mha_model_save_gguf(model, files_path(work, "x.gguf"), NULL, &err) != MHA_ERR_UNSUPPORTED ||
            !strstr(err.message, cases[n].says))
            fail_msg("%s: message must contain \"%s\" (got \"%s\")", cases[n].name, cases[n].says, err.message);
        assert_int_equal(files_count(work), 0);
        mha_model_free(model);
    }
    files_remove(work);
}

/* llama.cpp has no biases of some projections in these architectures. */
static void biases(void **state)
{
    (void)state;
    static const char *const cases[] = {"qwen3\",\"attention_bias",  "smollm3\",\"attention_bias",
                                        "smollm3\",\"mlp_bias",      "gemma\",\"attention_bias",
                                        "gemma2\",\"attention_bias", "gemma3_text\",\"attention_bias"};
    const char *work = files_folder();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char config[300];
        mha_model *model;
        mha_error err = {0};
        snprintf(
            config, sizeof config,
            "{\"vocab_size\":40,\"pad_token_id\":0,\"hidden_size\":16,\"intermediate_size\":16,\"num_hidden_layers\":1,"
            "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,\"query_pre_attn_scalar\":8,"
            "\"model_type\":\"%s\":true}",
            cases[n]);
        if (mha_model_create(NULL, config, NULL, &model, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(mha_model_save_gguf(model, files_path(work, "x.gguf"), NULL, &err), MHA_ERR_UNSUPPORTED);
        if (!strstr(err.message, "bias\" must be absent in a GGUF file")) fail_msg("%s: %s", cases[n], err.message);
        mha_model_free(model);
    }
    files_remove(work);
}

/* llama.cpp opens encoders only if this key has the number of token types. */
static void types_of_encoders(void **state)
{
    (void)state;
    static const char key[] = "tokenizer.ggml.token_type_count";
    const uint32_t value[] = {MHA__GGUF_U32, 2};
    const char *work = files_folder(), *file = files_path(work, "own.gguf");
    size_t n, at = 0;
    mha_model *model = open_golden("nomic-bert");
    gguf_save(model, file, MHA_DTYPE_DEFAULT);
    mha_model_free(model);
    char *now = files_read(file, &n);
    while (at + sizeof key + sizeof value < n && memcmp(now + at, key, sizeof key - 1) != 0)
        at++;
    assert_memory_equal(now + at + sizeof key - 1, value, sizeof value);
    free(now);
    files_remove(work);
}

/* Opens a file of gguf-py with `bytes` bytes changed, `skip` bytes after the end of the only occurrence of a text. */
static void refused(const char *name, const char *text, size_t skip, const void *bytes, size_t count, const char *says)
{
    char from[300];
    size_t n, at = 0;
    mha_model *model = NULL;
    mha_error err = {0};
    const char *work = files_folder(), *file = files_path(work, "damaged.gguf");
    snprintf(from, sizeof from, "%s/gguf/%s.gguf", data, name);
    char *now = files_read(from, &n);
    while (at + strlen(text) < n && memcmp(now + at, text, strlen(text)) != 0)
        at++;
    memcpy(now + at + strlen(text) + skip, bytes, count);
    files_write(file, now, n);
    if (mha_model_open(NULL, file, NULL, &model, &err) == MHA_OK) fail_msg("%s of %s must be refused", text, name);
    if (!strstr(err.message, says) || !strstr(err.message, "damaged.gguf"))
        fail_msg("message must contain \"%s\" (got \"%s\")", says, err.message);
    free(now);
    files_remove(work);
}

static void damaged_files(void **state)
{
    (void)state;
    enum { TYPE = 4 };
    const uint32_t four = 4, one = 1, huge = UINT32_MAX;
    refused("mixtral", "llama.expert_count", TYPE, &four, 4, "must have rank 3 and 4 experts (got [3, 32, 40])");
    refused("mixtral", "llama.expert_count", TYPE, &huge, 4, "llama.expert_count must be an integer from 0 to 1024");
    refused("mixtral", "llama.expert_used_count", TYPE, &four, 4, "num_experts_per_tok must be at most");
    refused("mixtral", "ffn_gate_exps", 0, "_", 1, "must be a tensor of the architecture llama");
    refused("mixtral", "blk.1.ffn_up_ex", 0, "x", 1, "must be a tensor of the architecture llama");
    refused("phi3", "phi3.rope.scaling.original_context_length", TYPE, &one, 4,
            "must be an integer from 2 to 2147483648");
    refused("phi3", "rope_factors_long", 0, "x", 1, "\"rope_factors_long.weight\" must have 3 elements (got 0)");
    refused("phi3", "rope_factors_short", 0, "x", 1, "\"rope_factors_short.weight\" must have 3 elements (got 0)");
    refused("phi3", "phi3.rope.dimension_count", TYPE, &four, 4, "must have 2 elements (got 3)");
    refused("phi3", "phi3.rope.dimension_count", TYPE, &huge, 4, "rope.dimension_count must be an integer from 2 to 8");
    refused("granite", "granite.logit_scale", TYPE, "\0\0\0\0", 4, "logits_scaling must be");
    refused("granite", "granite.attention.scale", TYPE, "\0\0\x80\x7F", 4, "must be a finite f32 or f64");
    refused("gpt-oss", "blk.1.ffn_up_ex", 0, "x", 1, "must have the counterpart blk.1.ffn_up_exps");
    refused("gpt-oss", "gpt-oss.expert_count", TYPE, &four, 4,
            "must be [4, 64], as config.json requires (got [3, 64])");
    refused("gpt-oss", "gpt-oss.expert_feed_forward_length", TYPE, &four, 4,
            "shape of gate and up, transposed, with tensor \"blk.0.ffn_gate_exps.weight\" must be [3, 64, 8]");
    refused("gpt-oss", "gpt-oss.attention.sliding_window", TYPE, "\0\0\0\0", 4,
            "sliding_window must be an integer from");
    refused("gpt-oss", "blk.0.ffn_up_exps.weight", 4, "\x20", 1, "offset of tensor");
    refused("gpt-oss", "blk.1.attn_sink", 0, "x", 1, "must be a tensor of the architecture gpt-oss");
    refused("nomic-bert", "nomic-bert.attention.causal", TYPE, "\1", 1, "nomic-bert.attention.causal must be false");
}

/* A tensor of encoders does not make a file of LLaMA one with experts. */
static void tensor_of_another_architecture(void **state)
{
    (void)state;
    static const gguf_edit added = {.tensor = "enc.blk.0.ffn_gate.weight", .rank = 1, .shape = {4}};
    const char *work = files_folder(), *path = files_path(work, "x.gguf");
    mha_model *model = NULL;
    mha_error err = {0};
    gguf_edited(MHA_TEST_DATA "/gguf/llama.gguf", &added, 1, path);
    assert_int_equal(mha_model_open(NULL, path, NULL, &model, &err), MHA_ERR_FORMAT);
    if (!strstr(err.message, "\"enc.blk.0.ffn_gate.weight\" must be a tensor of the architecture llama"))
        fail_msg("%s", err.message);
    files_remove(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_gguf_py),
        cmocka_unit_test(own_files),
        cmocka_unit_test(quantized_experts),
        cmocka_unit_test(experts_of_16_bits),
        cmocka_unit_test(models_that_files_cannot_express),
        cmocka_unit_test(biases),
        cmocka_unit_test(types_of_encoders),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(tensor_of_another_architecture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
