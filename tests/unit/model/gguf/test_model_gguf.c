/* test_model_gguf.c - tests models in GGUF files: files written by gguf-py, and files written by mha_model_save_gguf,
 * must have the same tokens as the folder, and logits that are bitwise identical. */
#include "mha/model_save.h"
#include "mha/text.h"
#include "model/gguf/gguf_config.h"
#include "model/model_struct.h"
#include "support/files.h"
#include "support/gguf/gguf_case.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char data[] = MHA_TEST_DATA;

static void files_of_gguf_py(void **state)
{
    (void)state;
    static const char *const families[] = {"llama", "llama-f16", "llama-linear", "qwen2", "qwen3", "gpt2", "gemma2"};
    for (size_t n = 0; n < sizeof families / sizeof *families; n++) {
        char folder[300], file[300];
        snprintf(folder, sizeof folder, "%s/families/%s", data, families[n]);
        snprintf(file, sizeof file, "%s/gguf/%s.gguf", data, families[n]);
        mha_model *a = gguf_open(folder, 1), *b = gguf_open(file, 0);
        assert_null(mha_model_tokenizer(b));
        gguf_same_outputs(a, b, families[n]);
        mha_model_free(a);
        mha_model_free(b);
    }
}

/* ---- files written by this library ---- */

static const char *const written[] = {"families/llama",  "families/llama-f16",  "families/llama-linear",
                                      "families/qwen2",  "families/qwen3",      "families/gpt2",
                                      "families/gemma2", "families/llama-yarn", "models/bert-tiny"};

static void own_files(void **state)
{
    (void)state;
    const char *work = files_folder();
    for (size_t n = 0; n < sizeof written / sizeof *written; n++) {
        const char *file = files_path(work, "own.gguf");
        mha_model *a = gguf_open(files_path(data, written[n]), 1);
        for (int wide = 0; wide < 2; wide++) {
            gguf_save(a, file, wide ? MHA_F32 : MHA_DTYPE_DEFAULT);
            mha_model *b = gguf_open(file, 1);
            gguf_same_outputs(a, b, written[n]);
            mha_model_free(b);
        }
        mha_model_free(a);
    }
    files_remove(work);
}

/* Files store the rotation of LLaMA 3 as factors in f32, from which the keys of the config are found again. A folder
 * has these keys, and no tensor of factors. */
static void rotation_of_llama3(void **state)
{
    (void)state;
    const char *work = files_folder();
    char file[300], folder[300];
    snprintf(file, sizeof file, "%s", files_path(work, "llama3.gguf"));
    snprintf(folder, sizeof folder, "%s", files_path(work, "folder"));
    mha_model *a = gguf_open(files_path(data, "families/llama-llama3"), 1);
    gguf_save(a, file, MHA_F32);
    mha_model *b = gguf_open(file, 1);
    mha_error err = {0};
    if (mha_model_save(b, folder, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model *c = gguf_open(folder, 1);
    assert_non_null(mha_file_find(b->shards.file, "rope_freqs.weight"));
    assert_null(mha_file_find(c->shards.file, "rope_freqs.weight"));
    assert_int_equal(c->config.rope.kind, MHA_ROPE_LLAMA3);
    gguf_same_outputs(a, b, "llama3");
    gguf_same_outputs(a, c, "llama3 folder");
    mha_model_free(a);
    mha_model_free(b);
    mha_model_free(c);
    files_remove(folder);
    files_remove(work);
}

/* Computes the factors as the converter of llama.cpp does, with frequencies in float32. */
static void factors_of(double theta, double factor, double low, double high, double original, int64_t pairs, float *to)
{
    for (int64_t i = 0; i < pairs; i++) {
        const float f = 1 / (float)pow(theta, (double)i / (double)pairs);
        const double turns = original * f / 6.283185307179586, t = (turns - low) / (high - low);
        to[i] = (float)(turns > high ? 1 : turns < low ? factor : 1 / ((1 - t) / factor + t));
    }
}

static void factors_of_llama3(void **state)
{
    (void)state;
    static const struct {
        double theta, factor, low, high, original;
        int64_t pairs;
    } cases[] = {{5e5, 8, 1, 4, 8192, 64},   {5e5, 32, 1, 4, 8192, 32}, {1e4, 8, 1, 4, 32, 8},
                 {1e4, 8, 1, 4, 100, 4},     {1e4, 4, 1, 4, 50, 8},     {1e4, 2.5, 1, 4, 24, 2},
                 {1e4, 32, 1.5, 6, 100, 16}, {1e6, 16, 2, 3, 4000, 64}, {1e4, 8, 1, 32, 2048, 16}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const int64_t pairs = cases[n].pairs;
        float factors[64], again[64];
        mha_rope_options o;
        factors_of(cases[n].theta, cases[n].factor, cases[n].low, cases[n].high, cases[n].original, pairs, factors);
        if (!mha__gguf_llama3(factors, 2 * pairs, cases[n].theta, &o)) fail_msg("case %zu must be LLaMA 3", n);
        factors_of(cases[n].theta, o.factor, o.low_freq, o.high_freq, (double)o.original_positions, pairs, again);
        for (int64_t i = 0; i < pairs; i++)
            assert_true(fabsf(again[i] - factors[i]) <= 2e-6F * factors[i]);
        factors[pairs / 2] *= 1.001F;
        if (mha__gguf_llama3(factors, 2 * pairs, cases[n].theta, &o)) fail_msg("case %zu must be refused", n);
    }
    for (int n = 0; n < 3; n++) {
        static const float odd[3][4] = {{1, 0, 4, 4}, {1, NAN, 4, 4}, {1, 2, INFINITY, INFINITY}};
        mha_rope_options o;
        assert_false(mha__gguf_llama3(odd[n], 8, 1e4, &o));
    }
}

/* The elements of a q8_0 file differ from those of the folder, but not from those of the folder that it becomes. */
static void quantized_files(void **state)
{
    (void)state;
    const char *work = files_folder();
    char file[300], folder[300];
    snprintf(file, sizeof file, "%s", files_path(work, "q8.gguf"));
    snprintf(folder, sizeof folder, "%s", files_path(work, "folder"));
    mha_model *a = gguf_open(files_path(data, "models/bert-tiny"), 1);
    gguf_save(a, file, MHA_Q8_0);
    mha_model *b = gguf_open(file, 0);
    mha_error err = {0};
    if (mha_model_save(b, folder, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model *c = gguf_open(folder, 0);
    gguf_same_outputs(b, c, "q8_0");
    assert_non_null(mha_model_tokenizer(c));
    mha_model_free(a);
    mha_model_free(b);
    mha_model_free(c);
    files_remove(folder);
    files_remove(work);
}

/* ---- refusals ---- */

static void refused(const char *folder, const char *config, const char *says)
{
    const char *work = files_folder();
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .config_json = config};
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_open(NULL, folder, &o, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(mha_model_save_gguf(model, files_path(work, "x.gguf"), NULL, &err), MHA_ERR_UNSUPPORTED);
    if (!strstr(err.message, says)) fail_msg("message must contain \"%s\" (got \"%s\")", says, err.message);
    assert_int_equal(files_count(work), 0);
    mha_model_free(model);
    files_remove(work);
}

/* Returns a config.json with one change; the caller frees it. */
static char *changed(const char *folder, const char *key, const char *value)
{
    size_t n;
    char path[400], *text;
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *old = files_read(path, &n), *brace = strchr(old, '{');
    text = malloc(n + strlen(key) + strlen(value) + 10);
    sprintf(text, "{\"%s\": %s,%s", key, value, brace + 1);
    free(old);
    return text;
}

static void models_that_files_cannot_express(void **state)
{
    (void)state;
    char llama[300], mistral[300], window[300], dynamic[300], head[300];
    snprintf(llama, sizeof llama, "%s/families/llama", data);
    snprintf(mistral, sizeof mistral, "%s/families/mistral", data);
    snprintf(window, sizeof window, "%s/families/qwen2-window", data);
    snprintf(dynamic, sizeof dynamic, "%s/families/llama-dynamic", data);
    snprintf(head, sizeof head, "%s/models/bert-mlm-tiny", data);
    refused(mistral, NULL, "sliding_window must be 0 in a GGUF file of architecture llama (got 7)");
    refused(window, NULL, "sliding_window must be 0 in a GGUF file of architecture qwen2");
    refused(dynamic, NULL, "rope_type must not be dynamic in a GGUF file of architecture llama");
    refused(head, NULL, "must be");
    char *text = changed(llama, "mha.attention", "{\"softcap\": 5}");
    refused(llama, text, "config.json: mha.attention must be absent in a GGUF file");
    free(text);
}

/* Options that only folders have must be refused by name. */
static void options_of_folders(void **state)
{
    (void)state;
    const mha_named_tensor tensor = {.name = "x"};
    const mha_model_save_options cases[] = {{.config_json = "{}"}, {.tensors = &tensor, .count = 1}};
    static const char *const says[] = {"config_json must be NULL in a GGUF file (got a config)",
                                       "tensors NULL in a GGUF file (got count 1)"};
    const char *work = files_folder();
    mha_model *model = gguf_open(files_path(data, "families/llama"), 1);
    for (int n = 0; n < 2; n++) {
        mha_model_save_options o = cases[n];
        mha_error err = {0};
        o.size = sizeof o;
        assert_int_equal(mha_model_save_gguf(model, files_path(work, "x.gguf"), &o, &err), MHA_ERR_ARG);
        if (!strstr(err.message, says[n])) fail_msg("message must contain \"%s\" (got \"%s\")", says[n], err.message);
        assert_int_equal(files_count(work), 0);
    }
    mha_model_free(model);
    files_remove(work);
}

/* ---- files with other keys ---- */

enum { U32 = 4, F32 = 6, BOOL = 7, STRING = 8 };

static size_t put(char *to, size_t at, const void *bytes, size_t n)
{
    memcpy(to + at, bytes, n);
    return at + n;
}

static size_t put_text(char *to, size_t at, const char *text)
{
    const uint64_t n = strlen(text);
    return put(to, put(to, at, &n, sizeof n), text, n);
}

/* Writes a copy of a file of gguf-py with one more key, and with a second key that keeps the data aligned. */
static void add_key(const char *family, const char *key, uint32_t type, const void *value, const char *to)
{
    char from[300], filler[40] = "";
    size_t n;
    snprintf(from, sizeof from, "%s/gguf/%s.gguf", data, family);
    char *old = files_read(from, &n), *now = calloc(1, n + 500);
    size_t at = put(now, 0, old, 24);
    now[16] = (char)(now[16] + 2);
    at = put_text(now, at, key);
    at = put(now, at, &type, sizeof type);
    at = type == STRING ? put_text(now, at, value) : put(now, at, value, type == BOOL ? 1 : 4);
    memset(filler, 'x', (2 * 32 + 24 - at - 21) % 32);
    at = put(now, put_text(now, at, "x"), &(uint32_t){STRING}, 4);
    at = put_text(now, at, filler);
    assert_int_equal((at - 24) % 32, 0);
    files_write(to, now, put(now, at, old + 24, n - 24));
    free(old);
    free(now);
}

static void keys_that_change_the_result(void **state)
{
    (void)state;
    static const float half = 0.5F;
    static const uint32_t few = 3;
    static const struct {
        const char *family, *key;
        uint32_t type;
        const void *value;
        const char *says; /* NULL = opens */
    } cases[] = {
        {"llama", "llama.attention.scale", F32, &half, "llama.attention.scale must be absent"},
        {"llama", "llama.attention.causal", BOOL, "", "llama.attention.causal must be true (got bool 0)"},
        {"llama", "llama.attention.causal", BOOL, "\1", NULL},
        {"llama", "llama.attention.sliding_window", U32, &few, "must be 0 or at least the context length (got u32 3)"},
        {"llama", "llama.rope.scaling.attn_factor", F32, &half, "attn_factor must be 1 (got f32 0.5)"},
        {"llama", "llama.rope.scaling.type", STRING, "none", NULL},
        {"llama", "llama.rope.scaling.factor", F32, &half, "factor"},
        {"llama", "llama.expert_count", U32, &few,
         "llama.expert_used_count must be an integer of at least 1 (got nothing)"},
        {"qwen3", "qwen3.expert_count", U32, &few, "qwen3.expert_count must be 0 (got u32 3)"},
        {"qwen3", "qwen3.use_parallel_residual", BOOL, "\1", "qwen3.use_parallel_residual must be false"},
        {"gpt2", "gpt2.attention.max_alibi_bias", F32, &half, "max_alibi_bias must be 0 (got f32 0.5)"},
        {"gpt2", "gpt2.pooling_type", U32, &few, NULL},
        {"gemma2", "gemma2.attention.sliding_window_pattern", U32, &few, NULL},
        {"llama", "split.count", U32, &few, "split.count must be 1"},
    };
    const char *work = files_folder(), *file = files_path(work, "key.gguf");
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_model *model = NULL;
        mha_error err = {0};
        add_key(cases[n].family, cases[n].key, cases[n].type, cases[n].value, file);
        const mha_status status = mha_model_open(NULL, file, NULL, &model, &err);
        if ((status == MHA_OK) != !cases[n].says || (cases[n].says && !strstr(err.message, cases[n].says)))
            fail_msg("%s: message must contain \"%s\" (got \"%s\")", cases[n].key, cases[n].says, err.message);
        mha_model_free(model);
    }
    files_remove(work);
}

/* Replaces `bytes` at `skip` bytes after the only occurrence of a text in a file of gguf-py. */
static void overwrite(const char *family, const char *text, size_t skip, const void *bytes, size_t count,
                      const char *to)
{
    char from[300];
    size_t n, at = 0;
    snprintf(from, sizeof from, "%s/gguf/%s.gguf", data, family);
    char *now = files_read(from, &n);
    while (at + strlen(text) < n && memcmp(now + at, text, strlen(text)) != 0)
        at++;
    memcpy(now + at + skip, bytes, count);
    files_write(to, now, n);
    free(now);
}

/* llama.cpp scales linearly if a file has a factor but no type. */
static void factor_without_type(void **state)
{
    (void)state;
    const char *work = files_folder(), *file = files_path(work, "factor.gguf");
    overwrite("llama-linear", "llama.rope.scaling.type", 0, "other", 5, file);
    mha_model *a = gguf_open(files_path(data, "families/llama-linear"), 1), *b = gguf_open(file, 1);
    gguf_same_outputs(a, b, "llama-linear without a type");
    mha_model_free(a);
    mha_model_free(b);
    files_remove(work);
}

static void unread_tensors(void **state)
{
    (void)state;
    const char *work = files_folder(), *file = files_path(work, "short.gguf");
    const char *key = "llama.block_count";
    mha_model *model = NULL;
    mha_error err = {0};
    overwrite("llama", key, strlen(key) + 4, &(uint32_t){1}, 4, file);
    assert_int_equal(mha_model_open(NULL, file, NULL, &model, &err), MHA_ERR_FORMAT);
    if (!strstr(err.message, "tensor \"blk.1.") || !strstr(err.message, " must be absent in a llama of 1 layers"))
        fail_msg("message must name the first tensor of layer 1 (got \"%s\")", err.message);
    files_remove(work);
}

/* Returns a config.json whose eos_token_id, which is 2, has another value; the caller frees it. */
static char *ending(const char *folder, const char *value)
{
    static const char key[] = "\"eos_token_id\": ";
    size_t n;
    char path[400];
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *old = files_read(path, &n), *at = strstr(old, key), *text = malloc(n + strlen(value) + 1);
    assert_non_null(at);
    at += strlen(key);
    sprintf(text, "%.*s%s%s", (int)(at - old), old, value, at + 1);
    free(old);
    return text;
}

/* Files have at most three tokens that end a text. */
static void ends_of_texts(void **state)
{
    (void)state;
    static const char *const lists[] = {"[5]", "[5, 6, 7]", "[5, 6, 7, 8]"};
    char llama[300];
    snprintf(llama, sizeof llama, "%s/families/llama", data);
    const char *work = files_folder(), *file = files_path(work, "ends.gguf");
    for (int n = 0; n < 2; n++) {
        char *config = ending(llama, lists[n]);
        const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .config_json = config};
        mha_model *a = NULL;
        assert_int_equal(mha_model_open(NULL, llama, &o, &a, NULL), MHA_OK);
        gguf_save(a, file, MHA_F32);
        mha_model *b = gguf_open(file, 1);
        assert_int_equal(b->config.eos_count, a->config.eos_count);
        assert_memory_equal(b->config.eos, a->config.eos, (size_t)a->config.eos_count * sizeof *a->config.eos);
        mha_model_free(a);
        mha_model_free(b);
        free(config);
    }
    char *config = ending(llama, lists[2]);
    refused(llama, config, "(got token 8, which the file cannot store)");
    refused(llama, config, "config.json: eos_token_id must be at most 3 tokens");
    free(config);
    files_remove(work);
}

/* ---- tokenizers ---- */

static void same_tokens(const mha_tokenizer *a, const mha_tokenizer *b)
{
    static const char *const texts[] = {
        "The small house, by the river: 12345 cats can't sleep!",
        "  na\xC3\xAFve caf\xC3\xA9\n\n\t\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80 [MASK]", "<|endoftext|>again", ""};
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        mha_encoding *x = NULL, *y = NULL;
        assert_int_equal(mha_tokenizer_encode(a, texts[n], strlen(texts[n]), NULL, 0, NULL, &x, NULL), MHA_OK);
        assert_int_equal(mha_tokenizer_encode(b, texts[n], strlen(texts[n]), NULL, 0, NULL, &y, NULL), MHA_OK);
        assert_int_equal(x->count, y->count);
        assert_memory_equal(x->ids, y->ids, (size_t)x->count * sizeof *x->ids);
        assert_memory_equal(x->type_ids, y->type_ids, (size_t)x->count * sizeof *x->type_ids);
        mha_encoding_free(x);
        mha_encoding_free(y);
    }
}

static void tokenizers(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2-tiny", "bert-tiny"};
    for (int n = 0; n < 2; n++) {
        char folder[300], file[300];
        mha_tokenizer *a = NULL, *b = NULL;
        mha_error err = {0};
        snprintf(folder, sizeof folder, "%s/models/%s", data, names[n]);
        snprintf(file, sizeof file, "%s/gguf/%s.gguf", data, names[n]);
        if (mha_tokenizer_open(NULL, folder, &a, &err) != MHA_OK || mha_tokenizer_open(NULL, file, &b, &err) != MHA_OK)
            fail_msg("%s", err.message);
        same_tokens(a, b);
        mha_tokenizer_free(a);
        mha_tokenizer_free(b);
    }
}

static int64_t count_tokens(const char *path, const char *text)
{
    mha_tokenizer *t = NULL;
    mha_encoding *e = NULL;
    mha_error err = {0};
    if (mha_tokenizer_open(NULL, path, &t, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(mha_tokenizer_encode(t, text, strlen(text), NULL, 0, NULL, &e, &err), MHA_OK);
    const int64_t count = e->count;
    mha_encoding_free(e);
    mha_tokenizer_free(t);
    return count;
}

static void keys_of_tokenizers(void **state)
{
    (void)state;
    const char *work = files_folder(), *file = files_path(work, "tokens.gguf");
    const char *sep = "tokenizer.ggml.seperator_token_id";
    mha_tokenizer *t = NULL;
    mha_error err = {0};
    add_key("bert-tiny", "tokenizer.ggml.normalizer.lowercase", BOOL, "\1", file);
    const int64_t lower = count_tokens(file, "attention"), same = count_tokens(file, "ATTENTION");
    add_key("bert-tiny", "tokenizer.ggml.normalizer.lowercase", BOOL, "", file);
    assert_int_equal(lower, same);
    assert_int_equal(count_tokens(file, "attention"), lower);
    if (count_tokens(file, "ATTENTION") == lower) fail_msg("ATTENTION must not become lower case");
    overwrite("bert-tiny", sep, 0, "x", 1, file);
    assert_int_equal(mha_tokenizer_open(NULL, file, &t, &err), MHA_ERR_FORMAT);
    if (!strstr(err.message, "eos_token_id must be the id of a token, since one is added to each text (got nothing)"))
        fail_msg("message must name the missing token (got \"%s\")", err.message);
    files_remove(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_gguf_py),    cmocka_unit_test(own_files),
        cmocka_unit_test(rotation_of_llama3),  cmocka_unit_test(factors_of_llama3),
        cmocka_unit_test(quantized_files),     cmocka_unit_test(models_that_files_cannot_express),
        cmocka_unit_test(options_of_folders),  cmocka_unit_test(keys_that_change_the_result),
        cmocka_unit_test(factor_without_type), cmocka_unit_test(unread_tensors),
        cmocka_unit_test(ends_of_texts),       cmocka_unit_test(tokenizers),
        cmocka_unit_test(keys_of_tokenizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
