/* test_model_create.c - tests models created from a config: the tensors that transformers would store, the published
 * parameter counts, and all operations that a loaded model supports. */
#include "mha/generate.h"
#include "mha/model_create.h"
#include "mha/model_save.h"
#include "mha/train.h"
#include "model/model_struct.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES                                                                                                          \
    "\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":48," \
    "\"max_position_embeddings\":32,\"head_dim\":8"

static const char *const configs[] = {
    "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_embd\":32,\"n_layer\":2,\"n_head\":4,\"n_positions\":32}",
    "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_embd\":32,\"n_layer\":2,\"n_head\":4,\"tie_word_embeddings\":"
    "false}",
    "{\"model_type\":\"llama\"," SIZES ",\"num_key_value_heads\":2}",
    "{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":true,\"attention_bias\":true,\"mlp_bias\":true}",
    "{\"model_type\":\"mistral\"," SIZES ",\"num_key_value_heads\":2}",
    "{\"model_type\":\"qwen2\"," SIZES ",\"num_key_value_heads\":2}",
    "{\"model_type\":\"qwen3\"," SIZES ",\"num_key_value_heads\":2}",
    "{\"model_type\":\"gemma2\"," SIZES ",\"num_key_value_heads\":2,\"query_pre_attn_scalar\":8}",
    "{\"model_type\":\"bert\"," SIZES "}",
    "{\"model_type\":\"bert\"," SIZES ",\"tie_word_embeddings\":false}",
};
enum { CONFIGS = sizeof configs / sizeof *configs };

static mha_model *create(mha_ctx *ctx, const char *config, uint64_t seed)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = seed};
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_create(ctx, config, &o, &model, &err) != MHA_OK) fail_msg("%s: %s", config, err.message);
    return model;
}

/* Returns the logits [4, vocab] of fixed tokens. The caller must free them. */
static float *logits_of(const mha_model *model)
{
    const int32_t ids[] = {5, 9, 1, 30};
    float *logits = calloc(4 * (size_t)mha_model_describe(model)->vocab, sizeof *logits);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 4, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .logits = logits};
    mha_error err = {0};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    return logits;
}

/* ---- tensor names and parameter counts ---- */

/* A created model must have tensors with the names and shapes that transformers saves. */
static void test_tensors_are_those_of_transformers(void **state)
{
    (void)state;
    static const char *const folders[] = {"models/gpt2-tiny", "models/gemma2-tiny", "models/bert-mlm-tiny",
                                          "families/qwen3", "families/llama-f32"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
        mha_model *stored = case_model(NULL, folders[f], &o), *made = create(NULL, mha_model_config_json(stored), 1);
        const mha_file *file = stored->shards.file;
        assert_int_equal(mha_file_count(file), made->shards.instead_count);
        for (int64_t n = 0; n < mha_file_count(file); n++) {
            const mha_tensor *a = mha_file_tensor(file, n), *b = mha__shards_find(&made->shards, a->name);
            if (!b) fail_msg("%s: the model must have the tensor %s", folders[f], a->name);
            assert_int_equal(a->rank, b->rank);
            assert_memory_equal(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
        }
        assert_int_equal(mha_model_describe(stored)->parameters, mha_model_describe(made)->parameters);
        mha_model_free(stored);
        mha_model_free(made);
    }
}

/* The largest head width must be accepted with rotary embeddings; its factors fill the whole table. A wider head must
 * be rejected. */
static void test_the_widest_head_is_rotated(void **state)
{
    (void)state;
    enum { PAIRS = MHA_HEAD_DIM_MAX / 2 };
    char list[2 * PAIRS + 1] = "", config[8 * PAIRS];
    for (int i = 0; i < PAIRS; i++)
        strcat(list, i ? ",1" : "1");
    for (int wider = 0; wider < 2; wider++) {
        mha_model *model = NULL;
        mha_error err = {0};
        snprintf(
            config, sizeof config,
            "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_"
            "heads\":1,\"intermediate_size\":8,\"head_dim\":%d,\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":"
            "2,\"short_factor\":[%s],\"long_factor\":[%s]}}",
            MHA_HEAD_DIM_MAX + 2 * wider, list, list);
        const mha_status status = mha_model_create(NULL, config, NULL, &model, &err);
        if (!wider && status != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(status, wider ? MHA_ERR_UNSUPPORTED : MHA_OK);
        mha_model_free(model);
    }
}

/* Computes the mean and the standard deviation of the elements of a tensor. */
static void moments(const mha_model *model, const char *name, double *mean, double *deviation)
{
    const mha_tensor *t = mha__shards_find(&model->shards, name);
    if (!t) fail_msg("the model must have the tensor %s", name);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < t->elements; i++) {
        const double x = (double)((const float *)t->data)[i];
        sum += x;
        squares += x * x;
    }
    *mean = sum / (double)t->elements;
    *deviation = sqrt(squares / (double)t->elements - *mean * *mean);
}

static void expect_moments(const mha_model *model, const char *name, double mean, double deviation)
{
    double m, d;
    moments(model, name, &m, &d);
    if (fabs(m - mean) > 0.06 * deviation || fabs(d - deviation) > 0.04 * deviation)
        fail_msg("%s: got mean %g and deviation %g, expected %g and %g", name, m, d, mean, deviation);
}

static void test_published_parameter_counts(void **state)
{
    (void)state;
    mha_model *gpt2 = create(NULL,
                             "{\"model_type\":\"gpt2\",\"vocab_size\":200,\"n_embd\":64,\"n_layer\":8,\"n_head\":4,"
                             "\"n_positions\":64,\"initializer_range\":0.1}",
                             7);
    expect_moments(gpt2, "transformer.wte.weight", 0, 0.1);
    expect_moments(gpt2, "transformer.wpe.weight", 0, 0.1);
    expect_moments(gpt2, "transformer.h.3.attn.c_attn.weight", 0, 0.1);
    expect_moments(gpt2, "transformer.h.3.mlp.c_fc.weight", 0, 0.1);
    expect_moments(gpt2, "transformer.h.3.attn.c_proj.weight", 0, 0.1 / 4); /* divided by sqrt(2 * 8 layers) */
    expect_moments(gpt2, "transformer.h.7.mlp.c_proj.weight", 0, 0.1 / 4);
    expect_moments(gpt2, "transformer.h.0.attn.c_attn.bias", 0, 0);
    expect_moments(gpt2, "transformer.ln_f.weight", 1, 0);
    expect_moments(gpt2, "transformer.ln_f.bias", 0, 0);
    mha_model_free(gpt2);
    mha_model *bert = create(NULL, configs[8], 7);
    const mha_tensor *words = mha__shards_find(&bert->shards, "bert.embeddings.word_embeddings.weight");
    for (int i = 0; i < 32; i++)
        assert_true(((const float *)words->data)[i] == 0 && ((const float *)words->data)[32 + i] != 0);
    expect_moments(bert, "bert.encoder.layer.1.output.LayerNorm.weight", 1, 0);
    mha_model_free(bert);
    mha_model *gemma = create(NULL, configs[7], 7);
    expect_moments(gemma, "model.norm.weight", 0, 0); /* the stored gain is the difference from 1 */
    expect_moments(gemma, "model.layers.1.mlp.down_proj.weight", 0, 0.02);
    mha_model_free(gemma);
}

static void test_a_seed_determines_the_model(void **state)
{
    (void)state;
    mha_model *m[] = {create(NULL, configs[0], 3), create(NULL, configs[0], 3), create(NULL, configs[0], 4)};
    float *logits[3];
    for (int n = 0; n < 3; n++)
        logits[n] = logits_of(m[n]);
    assert_memory_equal(logits[0], logits[1], 4 * 64 * sizeof(float));
    assert_memory_not_equal(logits[0], logits[2], 4 * 64 * sizeof(float));
    for (int n = 0; n < 3; n++) {
        free(logits[n]);
        mha_model_free(m[n]);
    }
}

/* ---- operations on a new model ---- */

static void test_saved_and_opened(void **state)
{
    (void)state;
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    for (int c = 0; c < CONFIGS; c++) {
        const char *folder = files_folder();
        mha_error err = {0};
        mha_model *made = create(NULL, configs[c], 1);
        if (mha_model_save(made, folder, NULL, &err) != MHA_OK) fail_msg("%s: %s", configs[c], err.message);
        mha_model *opened = case_model(NULL, folder, &o);
        float *a = logits_of(made), *b = logits_of(opened);
        assert_memory_equal(a, b, 4 * 64 * sizeof(float));
        free(a), free(b);
        mha_model_free(made);
        mha_model_free(opened);
        files_remove(folder);
    }
}

static void test_the_tokenizer_is_saved(void **state)
{
    (void)state;
    const char *folder = files_folder();
    size_t n = 0;
    char *text = files_read(files_path(MHA_TEST_DATA, "models/gpt2-tiny/tokenizer.json"), &n);
    files_write(files_path(folder, "tokenizer.json"), text, n);
    const mha_model_create_options o = {.size = sizeof o, .folder = folder};
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_create(NULL, configs[0], &o, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_non_null(mha_model_tokenizer(model));
    const char *out = files_folder();
    if (mha_model_save(model, out, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    size_t copied = 0;
    char *copy = files_read(files_path(out, "tokenizer.json"), &copied);
    assert_int_equal(copied, n);
    assert_memory_equal(copy, text, n);
    free(text), free(copy);
    mha_model_free(model);
    files_remove(folder);
    files_remove(out);
}

/* A folder without a tokenizer must be rejected. If the tokenizer file is removed after the model was created, saving
 * must fail. */
static void test_missing_tokenizer(void **state)
{
    (void)state;
    const char *folder = files_folder(), *out = files_folder();
    const char *wrong[] = {"/nonexistent/folder", folder, files_path(MHA_TEST_DATA, "models/gpt2-tiny/config.json")};
    mha_model *model = NULL;
    mha_error err = {0};
    size_t n = 0;
    for (int i = 0; i < 3; i++) {
        const mha_model_create_options o = {.size = sizeof o, .folder = wrong[i]};
        mha_tokenizer *none = NULL;
        mha_error same = {0};
        const mha_status status = mha_tokenizer_open(NULL, wrong[i], &none, &same);
        assert_int_equal(mha_model_create(NULL, configs[0], &o, &model, &err), status);
        assert_int_not_equal(status, MHA_OK);
        assert_string_equal(err.message, same.message);
        assert_null(model);
    }
    char *text = files_read(files_path(MHA_TEST_DATA, "models/gpt2-tiny/tokenizer.json"), &n);
    files_write(files_path(folder, "tokenizer.json"), text, n);
    const mha_model_create_options o = {.size = sizeof o, .folder = folder};
    if (mha_model_create(NULL, configs[0], &o, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    files_remove(folder);
    assert_int_equal(mha_model_save(model, out, NULL, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "tokenizer.json"));
    assert_int_equal(files_count(out), 0);
    free(text);
    mha_model_free(model);
    files_remove(out);
}

/* ---- error messages ---- */

static void test_refusals(void **state)
{
    (void)state;
    mha_model *model = NULL;
    mha_error err = {0};
    static const struct {
        const char *config;
        mha_status status;
    } cases[] = {
        {"{", MHA_ERR_FORMAT},
        {"{\"model_type\":\"llama\"}", MHA_ERR_FORMAT},
        {"{\"model_type\":\"t5\"}", MHA_ERR_UNSUPPORTED},
        {"{\"model_type\":\"gpt2\",\"n_layer\":1,\"initializer_range\":-1}", MHA_ERR_FORMAT},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        assert_int_equal(mha_model_create(NULL, cases[n].config, NULL, &model, &err), cases[n].status);
        assert_null(model);
    }
    assert_int_equal(mha_model_create(NULL, NULL, NULL, &model, &err), MHA_ERR_ARG);
    assert_int_equal(mha_model_create(NULL, configs[0], NULL, NULL, &err), MHA_ERR_ARG);
    const mha_model_options none = {.size = sizeof none, .memory_only = 1};
    assert_int_equal(mha_model_open(NULL, NULL, &none, &model, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_model_open: folder or config_json must not be NULL");
    const mha_model_options bare = {.size = sizeof bare, .memory_only = 1, .config_json = configs[0]};
    assert_int_equal(mha_model_open(NULL, NULL, &bare, &model, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "tensor \"transformer.wte.weight\" is missing"));
}

/* Returns `config` with `row` added as pad_token_id. The text is valid until the next call. */
static const char *with_padding(const char *config, int64_t row)
{
    static char text[1024];
    snprintf(text, sizeof text, "%.*s,\"pad_token_id\":%lld}", (int)strlen(config) - 1, config, (long long)row);
    return text;
}

/* Messages about a config in memory must not contain a folder; messages about generation_config.json must contain the
 * folder of the file. */
static void test_errors_name_the_file(void **state)
{
    (void)state;
    char want[300];
    mha_error err = {0};
    mha_model *model = NULL;
    const char *folder = files_folder(), *tokens = "{\"eos_token_id\":[3,5]}", *wrong = "{\"eos_token_id\":\"x\"}";
    const mha_model_create_options o = {.size = sizeof o, .folder = folder};
    size_t n = 0;
    char *text = files_read(files_path(MHA_TEST_DATA, "models/gpt2-tiny/tokenizer.json"), &n);
    files_write(files_path(folder, "tokenizer.json"), text, n);
    assert_int_equal(mha_model_create(NULL, "{\"model_type\":\"gpt2\",\"n_layer\":\"x\"}", &o, &model, &err),
                     MHA_ERR_FORMAT);
    assert_memory_equal(err.message, "config.json: n_layer ", 21);
    files_write(files_path(folder, "generation_config.json"), wrong, strlen(wrong));
    assert_int_equal(mha_model_create(NULL, configs[0], &o, &model, &err), MHA_ERR_FORMAT);
    snprintf(want, sizeof want, "%s/generation_config.json: eos_token_id ", folder);
    assert_memory_equal(err.message, want, strlen(want));
    files_write(files_path(folder, "generation_config.json"), tokens, strlen(tokens));
    if (mha_model_create(NULL, configs[0], &o, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model_free(model);
    files_remove(folder);
    free(text);
}

/* The word embedding of pad_token_id must be 0, except in GPT-2, which has no padding row. A pad_token_id outside the
 * vocabulary must be rejected. */
static void test_padding_row_is_zero(void **state)
{
    (void)state;
    static const int64_t outside[] = {64, 128004, -65, -128004};
    for (int c = 0; c < CONFIGS; c++) {
        const bool has = !strstr(configs[c], "gpt2");
        for (int n = 0; n < 4; n++) {
            mha_model *model = NULL;
            char sentence[100];
            mha_error err = {0};
            snprintf(sentence, sizeof sentence, "config.json: pad_token_id must be from -1 to 63 (got %lld)",
                     (long long)outside[n]);
            const mha_status status = mha_model_create(NULL, with_padding(configs[c], outside[n]), NULL, &model, &err);
            if (status != (has ? MHA_ERR_FORMAT : MHA_OK))
                fail_msg("%s: pad_token_id must be %s (got status %d)", configs[c], has ? "rejected" : "accepted",
                         (int)status);
            if (has) assert_string_equal(err.message, sentence);
            mha_model_free(model);
        }
        for (int64_t row = -64; row < 64; row += 127) {
            mha_model *model = create(NULL, with_padding(configs[c], row), 1);
            const mha_named_tensor *words = NULL;
            mha_trainer *t = NULL;
            assert_int_equal(mha_trainer_create(model, NULL, &t, NULL), MHA_OK);
            words = mha_trainer_weights(t, NULL); /* the first tensor contains the word embeddings */
            const float *x = (const float *)words->data + (row < 0 ? 0 : 63) * 32;
            assert_int_equal(words->shape[0], 64);
            for (int i = 0; i < 32; i++)
                assert_true((x[i] == 0) == has);
            mha_trainer_free(t);
            mha_model_free(model);
        }
    }
}

/* A stored model whose pad_token_id has no embedding row must load, since some published checkpoints have such a
 * pad_token_id, and no token reads the row. */
static void test_a_stored_model_may_lack_the_row(void **state)
{
    (void)state;
    const char *folder = files_folder();
    mha_error err = {0};
    mha_model *made = create(NULL, configs[2], 1);
    const mha_model_save_options o = {.size = sizeof o, .config_json = with_padding(configs[2], 128004)};
    if (mha_model_save(made, folder, &o, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_trainer *t = train_case(NULL, folder, NULL), *same = NULL;
    assert_int_equal(mha_trainer_create(made, NULL, &same, NULL), MHA_OK);
    assert_true(train_on(t, 2, 10).norm == train_on(same, 2, 10).norm);
    mha_trainer_free(t), mha_trainer_free(same);
    mha_model_free(made);
    files_remove(folder);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    case_create_without_memory(configs[7]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_widest_head_is_rotated),
        cmocka_unit_test(test_tensors_are_those_of_transformers),
        cmocka_unit_test(test_published_parameter_counts),
        cmocka_unit_test(test_a_seed_determines_the_model),
        cmocka_unit_test(test_saved_and_opened),
        cmocka_unit_test(test_the_tokenizer_is_saved),
        cmocka_unit_test(test_missing_tokenizer),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_errors_name_the_file),
        cmocka_unit_test(test_padding_row_is_zero),
        cmocka_unit_test(test_a_stored_model_may_lack_the_row),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
