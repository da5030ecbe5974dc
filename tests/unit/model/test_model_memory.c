/* test_model_memory.c - models, tokenizers and tensor files opened from memory must equal those opened from a folder,
 * and must refuse the same contents. */
#include "mha/io.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <stdlib.h>
#include <string.h>

#define GPT2 MHA_TEST_DATA "/models/gpt2-tiny"
#define BERT MHA_TEST_DATA "/models/bert-tiny"
enum { IDS = 5 };
static const int32_t ids[IDS] = {36, 402, 88, 36, 7};

/* The contents of a checkpoint folder. */
typedef struct contents {
    char *config, *tokenizer, *weights;
    size_t config_bytes, tokenizer_bytes, weight_bytes;
} contents;

static contents read_contents(const char *folder)
{
    contents c;
    c.config = files_read(files_path(folder, "config.json"), &c.config_bytes);
    c.tokenizer = files_read(files_path(folder, "tokenizer.json"), &c.tokenizer_bytes);
    c.weights = files_read(files_path(folder, "model.safetensors"), &c.weight_bytes);
    assert_true(c.config && c.tokenizer && c.weights);
    c.config = realloc(c.config, c.config_bytes + 1);
    c.tokenizer = realloc(c.tokenizer, c.tokenizer_bytes + 1);
    c.config[c.config_bytes] = c.tokenizer[c.tokenizer_bytes] = '\0';
    return c;
}

static void free_contents(contents *c)
{
    free(c->config);
    free(c->tokenizer);
    free(c->weights);
}

static float *hidden_of(const mha_model *model)
{
    const size_t n = (size_t)(IDS * mha_model_describe(model)->hidden);
    float *x = calloc(n, sizeof *x);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = IDS, .ids = ids};
    const mha_model_output out = {.size = sizeof out, .last_hidden = x};
    mha_error err;
    if (mha_model_forward(model, &in, &out, &err)) fail_msg("%s", err.message);
    return x;
}

static void assert_same_results(const mha_model *a, const mha_model *b)
{
    float *x = hidden_of(a), *y = hidden_of(b);
    assert_memory_equal(x, y, (size_t)(IDS * mha_model_describe(a)->hidden) * sizeof *x);
    free(x);
    free(y);
}

static mha_model *open_memory(const contents *c, const mha_file *const *files, int64_t count)
{
    mha_model *model = NULL;
    mha_error err;
    const mha_model_options o = {.size = sizeof o,
                                 .config_json = c->config,
                                 .tokenizer_json = c->tokenizer,
                                 .memory_only = 1,
                                 .files = files,
                                 .file_count = count};
    if (mha_model_open(NULL, NULL, &o, &model, &err)) fail_msg("%s", err.message);
    return model;
}

static void check_model(const char *folder)
{
    contents c = read_contents(folder);
    mha_model *stored = NULL;
    mha_file *file = NULL;
    mha_encoding *a = NULL, *b = NULL;
    assert_int_equal(mha_model_open(NULL, folder, NULL, &stored, NULL), MHA_OK);
    assert_int_equal(mha_file_open_memory(NULL, "dropped", c.weights, c.weight_bytes, &file, NULL), MHA_OK);
    assert_string_equal(mha_file_path(file), "dropped");
    mha_model *model = open_memory(&c, (const mha_file *const[]){file}, 1);
    assert_same_results(stored, model);
    const char text[] = "The river wakes up.";
    const size_t n = sizeof text - 1;
    assert_int_equal(mha_tokenizer_encode(mha_model_tokenizer(stored), text, n, NULL, 0, NULL, &a, NULL), MHA_OK);
    assert_int_equal(mha_tokenizer_encode(mha_model_tokenizer(model), text, n, NULL, 0, NULL, &b, NULL), MHA_OK);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof *a->ids);
    mha_encoding_free(a);
    mha_encoding_free(b);
    mha_model_free(model);
    mha_model_free(stored);
    mha_file_free(file);
    free_contents(&c);
}

static void test_equal_to_the_folder(void **state)
{
    (void)state;
    check_model(GPT2);
    check_model(BERT);
}

/* Writes every second tensor of a file to a file of its own, beginning with tensor `first`. */
static char *write_half(const mha_file *whole, const char *path, int64_t first, size_t *bytes)
{
    mha_tensor half[512];
    int64_t count = 0;
    mha_tensors_writer *writer = NULL;
    for (int64_t i = first; i < mha_file_count(whole); i += 2)
        half[count++] = *mha_file_tensor(whole, i);
    assert_int_equal(mha_tensors_writer_create(NULL, path, half, count, NULL, &writer, NULL), MHA_OK);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(mha_tensors_writer_put(writer, i, half[i].data, half[i].bytes, NULL), MHA_OK);
    assert_int_equal(mha_tensors_writer_finish(writer, NULL), MHA_OK);
    mha_tensors_writer_free(writer);
    return files_read(path, bytes);
}

static void test_weights_in_several_files(void **state)
{
    (void)state;
    const char *folder = files_folder();
    contents c = read_contents(GPT2);
    size_t bytes[2];
    mha_file *whole = NULL, *half[2] = {NULL, NULL};
    assert_int_equal(mha_file_open_memory(NULL, "whole", c.weights, c.weight_bytes, &whole, NULL), MHA_OK);
    char *even = write_half(whole, files_path(folder, "even"), 0, &bytes[0]);
    char *odd = write_half(whole, files_path(folder, "odd"), 1, &bytes[1]);
    assert_int_equal(mha_file_open_memory(NULL, "even", even, bytes[0], &half[0], NULL), MHA_OK);
    assert_int_equal(mha_file_open_memory(NULL, "odd", odd, bytes[1], &half[1], NULL), MHA_OK);
    mha_model *one = open_memory(&c, (const mha_file *const[]){whole}, 1);
    mha_model *two = open_memory(&c, (const mha_file *const *)half, 2);
    assert_same_results(one, two);
    mha_model_free(one);
    mha_model_free(two);
    for (int n = 0; n < 2; n++)
        mha_file_free(half[n]);
    mha_file_free(whole);
    free(even);
    free(odd);
    free_contents(&c);
    files_remove(folder);
}

static void refused_model(const mha_model_options *o, mha_status status, const char *part)
{
    mha_model *model = (mha_model *)(uintptr_t)1;
    mha_error err = {0};
    assert_int_equal(mha_model_open(NULL, NULL, o, &model, &err), status);
    assert_null(model);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

static void test_refused_models(void **state)
{
    (void)state;
    contents c = read_contents(GPT2);
    mha_file *file = NULL;
    assert_int_equal(mha_file_open_memory(NULL, "w", c.weights, c.weight_bytes, &file, NULL), MHA_OK);
    const mha_file *twice[] = {file, file}, *none[] = {NULL};
    mha_model_options o = {
        .size = sizeof o, .config_json = c.config, .tokenizer_json = c.tokenizer, .memory_only = 1, .files = twice};
    refused_model(&o, MHA_ERR_FORMAT, "\" is missing");
    o.file_count = -1;
    refused_model(&o, MHA_ERR_ARG, "file_count must be the number of entries in files (got -1, given)");
    o.file_count = 2;
    refused_model(&o, MHA_ERR_FORMAT, "must be in one file (got two)");
    o.tokenizer_json = "{\"model\": {}}";
    refused_model(&o, MHA_ERR_FORMAT, "tokenizer.json: model");
    o.files = none;
    o.file_count = 1;
    refused_model(&o, MHA_ERR_ARG, "files[0] must not be NULL");
    o.files = NULL;
    refused_model(&o, MHA_ERR_ARG, "file_count must be the number of entries in files (got 1, NULL)");
    mha_model *model = NULL;
    mha_error err = {0};
    o.files = twice;
    o.memory_only = 0;
    assert_int_equal(mha_model_open(NULL, GPT2, &o, &model, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "memory_only must be 1 if files are given"));
    mha_file_free(file);
    free_contents(&c);
}

/* Every prefix of a file must be refused or, if only the data end early, must name the missing bytes. */
static void test_cut_contents(void **state)
{
    (void)state;
    contents c = read_contents(GPT2);
    mha_error err = {0};
    for (size_t n = 0; n < c.weight_bytes; n = n < 64 ? n + 1 : n + n / 3) {
        mha_file *file = (mha_file *)(uintptr_t)1;
        char *part = malloc(n + 1); /* a copy, so that the address sanitizer sees reads beyond the end */
        memcpy(part, c.weights, n);
        part = realloc(part, n ? n : 1);
        assert_int_equal(mha_file_open_memory(NULL, "cut", part, n, &file, &err), MHA_ERR_FORMAT);
        assert_null(file);
        assert_int_equal(strncmp(err.message, "cut: ", 5), 0);
        free(part);
    }
    for (size_t n = 0; n < c.tokenizer_bytes; n = n < 64 ? n + 1 : n + n / 3) {
        mha_tokenizer *t = (mha_tokenizer *)(uintptr_t)1;
        assert_int_equal(mha_tokenizer_open_memory(NULL, c.tokenizer, n, &t, &err), MHA_ERR_FORMAT);
        assert_null(t);
    }
    free_contents(&c);
}

static void test_null_arguments(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_file *file = NULL;
    mha_tokenizer *t = NULL;
    assert_int_equal(mha_file_open_memory(NULL, "x", "", 0, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_file_open_memory(NULL, NULL, "", 0, &file, &err), MHA_ERR_ARG);
    assert_int_equal(mha_file_open_memory(NULL, "x", NULL, 0, &file, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_file_open_memory: data must not be NULL");
    assert_int_equal(mha_tokenizer_open_memory(NULL, NULL, 0, &t, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_tokenizer_open_memory: json must not be NULL");
    assert_int_equal(mha_tokenizer_open_memory(NULL, "", 0, NULL, &err), MHA_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_to_the_folder), cmocka_unit_test(test_weights_in_several_files),
        cmocka_unit_test(test_refused_models),      cmocka_unit_test(test_cut_contents),
        cmocka_unit_test(test_null_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
