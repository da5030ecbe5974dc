/* test_model_layers_training.c - tests training of models with composed layers: the loss must fall, a resumed run must
 * be bitwise identical, and the saved model must give the logits of the trained model. Also tests stored types. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/composed.h"
#include "support/model/train_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 11 };

static int64_t stored(const char *folder, const char *word)
{
    mha_file *file = case_file(files_path(folder, "model.safetensors"));
    int64_t found = 0;
    for (int64_t n = 0; n < mha_file_count(file); n++)
        found += strstr(mha_file_tensor(file, n)->name, word) != NULL;
    mha_file_free(file);
    return found;
}

static void test_learns_and_is_saved(void **state)
{
    (void)state;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    for (int n = 0; n < 2 * COMPOSED_CASES; n++) {
        const char *folder = files_folder();
        mha_error err = {0};
        mha_model *model = case_create(NULL, composed_config(&composed_cases[n / 2], n % 2), SEED);
        mha_trainer *trainer = composed_trainer(model), *resumed = NULL;
        const double first = train_on(trainer, 8, 24).loss;
        for (int step = 1; step < 10; step++)
            train_on(trainer, 8, 24);
        if (mha_trainer_save(trainer, folder, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
        mha_model *opened = case_model(NULL, folder, &bare);
        float *a = composed_logits(mha_trainer_model(trainer), NULL), *b = composed_logits(opened, NULL);
        composed_same(a, b, B * L * V, "model saved and opened again");
        int64_t feeding = 0;
        for (int layer = 0; layer < LAYERS; layer++) {
            const int64_t width = mha_model_describe(opened)->feed_forward_per_layer[layer];
            assert_int_equal(width, composed_cases[n / 2].layer[layer].alone ? 0 : 40);
            feeding += width > 0;
        }
        assert_int_equal(stored(folder, "mlp."), feeding * (n % 2 ? 4 : 3));
        assert_int_equal(stored(folder, n % 2 ? "ln_2.weight" : "post_attention_layernorm.weight"), feeding);
        const mha_train_options o = {.size = sizeof o, .rate = 1e-2};
        if (mha_trainer_resume(NULL, folder, &o, &resumed, &err) != MHA_OK) fail_msg("%s", err.message);
        const double next = train_on(trainer, 8, 24).loss;
        assert_true(next == train_on(resumed, 8, 24).loss);
        if (!(next < first - 1))
            fail_msg("%s: the loss must fall by at least 1 (got %g, then %g)",
                     composed_config(&composed_cases[n / 2], n % 2), first, next);
        free(a), free(b);
        mha_trainer_free(trainer), mha_trainer_free(resumed);
        mha_model_free(model), mha_model_free(opened);
        files_remove(folder);
    }
}

/* Training in bf16, with dropout at every site and recomputation in the backward pass, must reduce the loss. */
static void test_learns_with_every_option(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * COMPOSED_CASES; n++) {
        const mha_train_options o = {.size = sizeof o,
                                     .rate = 1e-2,
                                     .recompute = 1,
                                     .dropout = {.embedding = 0.05, .attention = 0.05, .residual = 0.05},
                                     .dtype = MHA_BF16};
        mha_model *model = case_create(NULL, composed_config(&composed_cases[n / 2], n % 2), SEED);
        mha_trainer *trainer = NULL;
        mha_error err = {0};
        if (mha_trainer_create(model, &o, &trainer, &err) != MHA_OK) fail_msg("%s", err.message);
        const double first = train_on(trainer, 8, 24).loss;
        for (int step = 1; step < 10; step++)
            train_on(trainer, 8, 24);
        const double last = train_on(trainer, 8, 24).loss;
        if (!(last < first - 0.8))
            fail_msg("%s: the loss must fall by at least 0.8 (got %g, then %g)",
                     composed_config(&composed_cases[n / 2], n % 2), first, last);
        mha_trainer_free(trainer);
        mha_model_free(model);
    }
}

/* The keys must be supported in all families: in encoders, in families with norms after a branch, and in families with
 * windows and q/k norms. */
static void test_other_families_learn(void **state)
{
    (void)state;
    static const char *const types[] = {"bert", "mistral", "qwen2", "qwen3", "gemma2"};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        char config[1024];
        snprintf(config, sizeof config, "{\"model_type\":\"%s\"," COMPOSED_SIZES "\"num_key_value_heads\":4,%s}",
                 types[t],
                 "\"mha.feed_forward\":[false,true,false],\"mha.attention\":[{\"window\":4,\"qk_norm\":true},"
                 "{\"alibi\":true,\"rotary\":false,\"qk_norm\":false},{\"softcap\":5,\"scale\":1,\"rotary\":true}]");
        mha_model *model = case_create(NULL, config, SEED);
        mha_trainer *trainer = composed_trainer(model);
        const double first = train_on(trainer, 8, 24).loss;
        for (int step = 1; step < 10; step++)
            train_on(trainer, 8, 24);
        const double last = train_on(trainer, 8, 24).loss;
        if (!(last < first - 0.4))
            fail_msg("%s: the loss must fall by at least 0.4 (got %g, then %g)", types[t], first, last);
        mha_trainer_free(trainer);
        mha_model_free(model);
    }
}

/* ---- stored types ---- */

/* For any composition of layers, models opened as bf16, f16 and q8_0 must give logits close to those of f32. */
static void test_opened_in_shorter_types(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_BF16, MHA_F16, MHA_Q8_0};
    for (int n = 0; n < 2 * COMPOSED_CASES * 3; n++) {
        const char *config = composed_config(&composed_cases[n / 6], n / 3 % 2);
        mha_model_options o = {.size = sizeof o, .dtype = types[n % 3], .memory_only = 1, .config_json = config};
        mha_model *model = case_create(NULL, config, SEED), *rounded = NULL;
        mha_trainer *trainer = composed_trainer(model); /* lists the weights of the model */
        o.tensors = mha_trainer_weights(trainer, &o.tensor_count);
        assert_int_equal(mha_model_open(NULL, NULL, &o, &rounded, NULL), MHA_OK);
        float *want = composed_logits(model, NULL), *got = composed_logits(rounded, NULL);
        double squares = 0, errors = 0;
        for (int i = 0; i < B * L * V; i++) {
            squares += pow((double)want[i], 2);
            errors += pow((double)(want[i] - got[i]), 2);
        }
        if (!(errors > 0 && errors < 0.0025 * squares))
            fail_msg("%s in %s: norm of the errors of the logits must be above 0 and below %g (got %g)", config,
                     mha_dtype_name(types[n % 3]), 0.05 * sqrt(squares), sqrt(errors));
        free(want), free(got);
        mha_model_free(rounded), mha_model_free(model);
        mha_trainer_free(trainer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns_and_is_saved),
        cmocka_unit_test(test_learns_with_every_option),
        cmocka_unit_test(test_other_families_learn),
        cmocka_unit_test(test_opened_in_shorter_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
