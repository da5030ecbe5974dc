/* test_model_head.c - tests BERT's MLM head: which tensors compute the logits, and the error message for a missing
 * tensor. */
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TINY "models/bert-mlm-tiny"
/* A checkpoint that contains decoder.weight, but not decoder.bias. */
#define WITH_DECODER "models/bert-mlm-tiny-hubnames"
enum { VOCAB = 520, L = 3 };

static void set_key(const char *folder, const char *key, json_t *value)
{
    json_t *config = json_load_file(files_path(folder, "config.json"), 0, NULL);
    assert_int_equal(json_object_set_new(config, key, value), 0);
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    json_decref(config);
}

/* Changes the first letter of the name of a tensor, so that this tensor is missing from the file. */
static void lose(const char *folder, const char *name)
{
    const char *path = files_path(folder, "model.safetensors");
    size_t n = 0, length = strlen(name), at = 0;
    char *bytes = files_read(path, &n);
    while (at + length < n && memcmp(bytes + at, name, length) != 0)
        at++;
    assert_true(at + length < n);
    bytes[at] = 'X';
    files_write(path, bytes, n);
    free(bytes);
}

static mha_model_options options_of(const mha_named_tensor *tensors, int count)
{
    return (mha_model_options){
        .size = sizeof(mha_model_options), .no_tokenizer = 1, .tensors = tensors, .tensor_count = count};
}

/* Returns the logits [L, VOCAB] of fixed tokens. The caller must free them. */
static float *logits_of(const mha_model *model)
{
    static const int32_t ids[L] = {2, 489, 3};
    float *logits = malloc(sizeof *logits * L * VOCAB);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .logits = logits};
    assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
    return logits;
}

/* If the decoder has a bias of its own, it must be used instead of the shared bias, for logits and for the list of
 * gradients. */
static void test_the_bias_is_the_decoders(void **state)
{
    (void)state;
    float bias[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        bias[i] = (float)i;
    const mha_named_tensor own = {
        .name = "cls.predictions.decoder.bias", .dtype = MHA_F32, .rank = 1, .shape = {VOCAB}, .data = bias};
    const mha_named_tensor other = {
        .name = "cls.predictions.bias", .dtype = MHA_F32, .rank = 1, .shape = {VOCAB}, .data = bias};
    const mha_model_options with_own = options_of(&own, 1), with_other = options_of(&other, 1);
    mha_model *a = case_model(NULL, TINY, &with_own), *b = case_model(NULL, TINY, &with_other);
    float *x = logits_of(a), *y = logits_of(b);
    assert_memory_equal(x, y, sizeof *x * L * VOCAB);
    mha_model_grads *grads = NULL;
    assert_int_equal(mha_model_grads_create(a, NULL, &grads, NULL), MHA_OK);
    int64_t count = 0;
    int found = 0;
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int64_t n = 0; n < count; n++) {
        found += strcmp(list[n].name, own.name) == 0;
        assert_string_not_equal(list[n].name, other.name);
    }
    assert_int_equal(found, 1);
    mha_model_grads_free(grads);
    mha_model_free(a);
    mha_model_free(b);
    free(x);
    free(y);
}

static void refused(const char *folder, const char *name)
{
    char want[128];
    for (int light = 0; light < 2; light++) {
        mha_model_options o = options_of(NULL, 0);
        mha_model *model = NULL;
        mha_error err = {0};
        o.no_weights = light;
        snprintf(want, sizeof want, "model.safetensors: tensor \"%s\" is missing", name);
        assert_int_equal(mha_model_open(NULL, folder, &o, &model, &err), MHA_ERR_FORMAT);
        if (!strstr(err.message, want)) fail_msg("message must contain \"%s\" (got \"%s\")", want, err.message);
    }
}

static void test_missing_tensors_have_no_default(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    lose(folder, "cls.predictions.bias");
    refused(folder, "cls.predictions.bias");
    files_remove(folder);
    folder = case_copy(TINY);
    lose(folder, "cls.predictions.transform.LayerNorm.weight");
    refused(folder, "cls.predictions.transform.LayerNorm.weight");
    files_remove(folder);
    folder = case_copy(WITH_DECODER);
    set_key(folder, "tie_word_embeddings", json_false());
    refused(folder, "cls.predictions.decoder.bias");
    files_remove(folder);
}

/* If the first tensor of the MLM head is missing, the model must have no head, even if other tensors of the head
 * exist. */
static void test_no_head(void **state)
{
    (void)state;
    const char *folder = case_copy(TINY);
    lose(folder, "cls.predictions.transform.dense.weight");
    const mha_model_options o = options_of(NULL, 0);
    mha_model *model = case_model(NULL, folder, &o);
    assert_false(mha_model_describe(model)->logits);
    mha_model_free(model);
    files_remove(folder);
}

/* ---- gradient of the padding row: only from the hidden states, not from the tied head ---- */

/* Returns the largest absolute gradient of word embedding row `id` for an input of three tokens `id`. */
static float row_gradient(const char *folder, int32_t id)
{
    const int32_t ids[L] = {id, id, id};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_model_options o = options_of(NULL, 0);
    mha_model *model = case_model(NULL, folder, &o);
    const int64_t width = mha_model_describe(model)->hidden;
    mha_model_grads *grads = NULL;
    float *ones = malloc(sizeof *ones * (size_t)(L * width)), max = 0;
    for (int64_t i = 0; i < L * width; i++)
        ones[i] = (float)(i % 7);
    const mha_model_gradient gradient = {.size = sizeof gradient, .last_hidden = ones};
    assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_forward(grads, &input, NULL, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_backward(grads, &gradient, NULL), MHA_OK);
    int64_t count = 0;
    /* the first tensor contains the word embeddings */
    const mha_named_tensor *words = mha_model_grads_list(grads, &count);
    for (int64_t i = 0; i < width; i++) {
        const float x = ((const float *)words->data)[id * width + i];
        max = x > max ? x : max;
    }
    mha_model_grads_free(grads);
    mha_model_free(model);
    free(ones);
    return max;
}

static void test_the_row_of_padding_gets_no_gradient(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        /* the row without a gradient if pad_token_id is 5 (`pad`) and if pad_token_id is absent (`missing`); -1 =
         * none */
        int pad, missing;
    } cases[] = {{TINY, 5, 0}, {"models/gemma2-tiny", 5, 0}, {"models/gpt2-tiny", -1, -1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *folder = case_copy(cases[c].family);
        set_key(folder, "pad_token_id", json_null());
        for (int32_t id = 0; id < 6; id += 5)
            assert_true(row_gradient(folder, id) > 0);
        set_key(folder, "pad_token_id", json_integer(5));
        for (int32_t id = 0; id < 6; id += 5)
            assert_int_equal(row_gradient(folder, id) > 0, id != cases[c].pad);
        json_t *config = json_load_file(files_path(folder, "config.json"), 0, NULL);
        json_object_del(config, "pad_token_id");
        assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
        json_decref(config);
        for (int32_t id = 0; id < 6; id += 5)
            assert_int_equal(row_gradient(folder, id) > 0, id != cases[c].missing);
        files_remove(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bias_is_the_decoders),
        cmocka_unit_test(test_missing_tensors_have_no_default),
        cmocka_unit_test(test_no_head),
        cmocka_unit_test(test_the_row_of_padding_gets_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
