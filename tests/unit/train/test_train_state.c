/* test_train_state.c - tests trainer states: saving and resuming, and states that must be rejected. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"
/* A checkpoint that stores each tied tensor under both of its names. */
#define TWO_NAMES "models/bert-mlm-tiny-hubnames"

static const char *const folders[] = {GPT2, "families/llama", "models/gemma2-tiny", "models/bert-mlm-tiny", TWO_NAMES};
enum { FOLDERS = sizeof folders / sizeof *folders, B = 2, L = 10 };

static const mha_train_options usual = {
    .size = sizeof usual, .rate = 1e-2, .decay = 0.1, .clip = 1, .warmup = 2, .steps = 9};

static void learn(mha_trainer *t, int steps)
{
    for (int n = 0; n < steps; n++)
        train_on(t, B, L);
}

static mha_trainer *resume(const char *folder)
{
    mha_trainer *t = NULL;
    mha_error err = {0};
    if (mha_trainer_resume(NULL, folder, &usual, &t, &err) != MHA_OK) fail_msg("%s", err.message);
    return t;
}

/* ---- saving and resuming ---- */

static void test_resumed_runs_are_bitwise_identical(void **state)
{
    (void)state;
    const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
    for (int f = 0; f < FOLDERS; f++) {
        const char *folder = files_folder();
        mha_error err = {0};
        mha_trainer *whole = train_case(NULL, folders[f], &usual), *first = train_case(NULL, folders[f], &usual);
        learn(whole, 6);
        learn(first, 2);
        if (mha_trainer_save(first, folder, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
        mha_trainer *second = resume(folder);
        train_expect_same_state(first, second);
        learn(second, 2);
        /* saving must fail, because the folder exists and overwrite is 0 */
        assert_int_equal(mha_trainer_save(second, folder, NULL, &err), MHA_ERR_IO);
        if (mha_trainer_save(second, folder, &over, &err) != MHA_OK) fail_msg("%s", err.message);
        mha_trainer *third = resume(folder);
        learn(third, 2);
        train_expect_same_state(whole, third);
        mha_trainer_free(whole);
        mha_trainer_free(first);
        mha_trainer_free(second);
        mha_trainer_free(third);
        files_remove(folder);
    }
}

/* The saved model must give logits bitwise identical to those of the trainer's model, even if the file stores a
 * parameter twice. */
static void test_saved_model_is_the_trained_one(void **state)
{
    (void)state;
    const mha_trainer_save_options o = {.size = sizeof o, .model_only = 1};
    for (int f = 0; f < FOLDERS; f++) {
        const char *folder = files_folder();
        int32_t ids[L];
        mha_trainer *t = train_case(NULL, folders[f], &usual);
        mha_error err = {0};
        learn(t, 3);
        if (mha_trainer_save(t, folder, &o, &err) != MHA_OK) fail_msg("%s", err.message);
        mha_model *opened = case_open(NULL, folder);
        const mha_model *m[2] = {mha_trainer_model(t), opened};
        const int64_t cells = L * mha_model_describe(opened)->vocab;
        float *logits[2];
        train_texts(7, 1, L, ids);
        for (int n = 0; n < 2; n++) {
            logits[n] = calloc((size_t)cells, sizeof(float));
            const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
            const mha_model_output output = {.size = sizeof output, .logits = logits[n]};
            assert_int_equal(mha_model_forward(m[n], &input, &output, NULL), MHA_OK);
        }
        assert_memory_equal(logits[0], logits[1], (size_t)cells * sizeof(float));
        mha_trainer *again = NULL;
        /* resuming must fail, because the folder has no training state */
        assert_int_equal(mha_trainer_resume(NULL, folder, NULL, &again, &err), MHA_ERR_IO);
        assert_non_null(strstr(err.message, "training.safetensors"));
        free(logits[0]), free(logits[1]);
        mha_model_free(opened);
        mha_trainer_free(t);
        files_remove(folder);
    }
}

static void test_the_last_good_checkpoint_stays(void **state)
{
    (void)state;
    const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
    const char *folder = files_folder();
    mha_error err = {0};
    mha_trainer *t = train_case(NULL, GPT2, &usual);
    assert_int_equal(mha_trainer_save(t, folder, NULL, &err), MHA_OK);
    ((float *)t->list[3].data)[5] = INFINITY;
    assert_int_equal(mha_trainer_save(t, folder, &over, &err), MHA_ERR_NOT_FINITE);
    assert_non_null(strstr(err.message, t->list[3].name));
    mha_trainer_free(resume(folder));
    mha_trainer_free(t);
    files_remove(folder);
}

/* ---- rejected states ---- */

/* A truncated state and a state with invalid or missing metadata must be rejected. */
static void test_rejected_states(void **state)
{
    (void)state;
    const char *folder = files_folder();
    mha_error err = {0};
    size_t n = 0;
    mha_trainer *t = train_case(NULL, GPT2, &usual), *out = NULL;
    assert_int_equal(mha_trainer_save(t, folder, NULL, &err), MHA_OK);
    char *bytes = files_read(files_path(folder, "training.safetensors"), &n);
    files_write(files_path(folder, "training.safetensors"), bytes, n - 1);
    assert_int_equal(mha_trainer_resume(NULL, folder, NULL, &out, &err), MHA_ERR_FORMAT);
    assert_null(out);
    char *step = NULL;
    for (size_t i = 0; i + 20 < n && !step; i++)
        if (memcmp(bytes + i, "mha.train.step\":\"0", 18) == 0) step = bytes + i + 17;
    assert_non_null(step);
    *step = 'x';
    files_write(files_path(folder, "training.safetensors"), bytes, n);
    assert_int_equal(mha_trainer_resume(NULL, folder, NULL, &out, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "mha.train.step must be a number of steps (got "));
    *step = '0';
    memcpy(step - 7, "stop", 4); /* renames the key */
    files_write(files_path(folder, "training.safetensors"), bytes, n);
    assert_int_equal(mha_trainer_resume(NULL, folder, NULL, &out, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "mha.train.step is missing"));
    memcpy(step - 7, "step", 4);
    char *mark = NULL;
    for (size_t i = 0; i + 20 < n && !mark; i++)
        if (memcmp(bytes + i, "mha.train.weights\"", 18) == 0) mark = bytes + i;
    assert_non_null(mark);
    memcpy(mark, "mha.train.nothing", 17);
    files_write(files_path(folder, "training.safetensors"), bytes, n);
    assert_int_equal(mha_trainer_resume(NULL, folder, NULL, &out, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "mha.train.weights is missing"));
    free(bytes);
    mha_trainer_free(t);
    files_remove(folder);
}

/* Moments that cannot result from a step must be rejected with an error that names the tensor, and *out must be
 * NULL. */
static void test_impossible_moments(void **state)
{
    (void)state;
    const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
    static const float wrong[][2] = {{NAN, 0}, {INFINITY, 0}, {0, -1}, {0, NAN}, {0, INFINITY}};
    const char *folder = files_folder();
    mha_error err = {0};
    mha_trainer *t = train_case(NULL, GPT2, &usual), *out = NULL;
    learn(t, 1);
    const mha__parameter *p = &t->parameter[t->count - 1];
    float *means = p->mean, *squares = p->square;
    const float mean = means[p->count - 1], square = squares[p->count - 1];
    for (int n = 0; n < 5; n++) {
        means[p->count - 1] = wrong[n][0], squares[p->count - 1] = wrong[n][1];
        if (mha_trainer_save(t, folder, &over, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(mha_trainer_resume(NULL, folder, &usual, &out, &err), MHA_ERR_FORMAT);
        assert_non_null(strstr(err.message, t->state[2 * t->count - (n < 2 ? 2 : 1)].name));
        assert_null(out);
    }
    means[p->count - 1] = mean, squares[p->count - 1] = square;
    assert_int_equal(mha_trainer_save(t, folder, &over, &err), MHA_OK);
    mha_trainer_free(resume(folder));
    mha_trainer_free(t);
    files_remove(folder);
}

/* A state must be rejected if the weights in its folder are those of another model or of an earlier step. */
static void test_swapped_weights_are_refused(void **state)
{
    (void)state;
    const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
    for (int f = 0; f < FOLDERS; f += FOLDERS - 1) {
        const char *folder = files_folder();
        mha_error err = {0};
        size_t n = 0;
        mha_trainer *t = train_case(NULL, folders[f], &usual), *out = NULL;
        learn(t, 1);
        assert_int_equal(mha_trainer_save(t, folder, NULL, &err), MHA_OK);
        char *older = files_read(files_path(folder, "model.safetensors"), &n);
        learn(t, 1);
        assert_int_equal(mha_trainer_save(t, folder, &over, &err), MHA_OK);
        files_write(files_path(folder, "model.safetensors"), older, n);
        assert_int_equal(mha_trainer_resume(NULL, folder, NULL, &out, &err), MHA_ERR_FORMAT);
        assert_null(out);
        assert_non_null(
            strstr(err.message, "training.safetensors: mha.train.weights must match the weights in the folder"));
        free(older);
        mha_trainer_free(t);
        files_remove(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resumed_runs_are_bitwise_identical),
        cmocka_unit_test(test_saved_model_is_the_trained_one),
        cmocka_unit_test(test_the_last_good_checkpoint_stays),
        cmocka_unit_test(test_rejected_states),
        cmocka_unit_test(test_impossible_moments),
        cmocka_unit_test(test_swapped_weights_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
