/* train_case.c - implements train_case.h. */
#include "support/model/train_case.h"

#include "math/rng_draws.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "train/trainer_struct.h"
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 61, MAX = 4096 };

void train_sequence(int64_t number, int64_t length, int32_t *ids)
{
    uint64_t state = (uint64_t)number << 32;
    ids[0] = (int32_t)(mha__splitmix(&state) % TOKENS);
    for (int64_t i = 1; i < length; i++) {
        const uint64_t other = mha__splitmix(&state) % 8 == 0;
        ids[i] = other ? (int32_t)(mha__splitmix(&state) % TOKENS) : (5 * ids[i - 1] + 3) % TOKENS;
    }
}

void train_texts(int64_t step, int64_t batch, int64_t length, int32_t *ids)
{
    for (int64_t b = 0; b < batch; b++)
        train_sequence((step - 1) * batch + b, length, ids + b * length);
}

mha_trainer *train_case(mha_ctx *ctx, const char *folder, const mha_train_options *options)
{
    mha_trainer *trainer = NULL;
    mha_error err = {0};
    mha_model *model = case_open(ctx, folder);
    if (mha_trainer_create(model, options, &trainer, &err) != MHA_OK) fail_msg("%s: %s", folder, err.message);
    mha_model_free(model);
    return trainer;
}

mha_train_report train_on(mha_trainer *trainer, int64_t batch, int64_t length)
{
    static int32_t ids[MAX], labels[MAX];
    mha_train_report report;
    mha_error err = {0};
    assert_true(batch * length <= MAX);
    train_texts(mha_trainer_step_count(trainer) + 1, batch, length, ids);
    for (int64_t i = 0; i < batch * length; i++)
        labels[i] = i % 3 == 0 ? ids[i] : MHA_IGNORE;
    const mha_model_input input = {.size = sizeof input, .batch = batch, .length = length, .ids = ids};
    const mha_train_batch texts = {.input = &input,
                                   .labels = mha_model_describe(mha_trainer_model(trainer))->causal ? NULL : labels};
    if (mha_trainer_step(trainer, &texts, 1, &report, &err) != MHA_OK) fail_msg("%s", err.message);
    return report;
}

float *train_weights(const mha_trainer *trainer, int64_t *count)
{
    int64_t tensors = 0;
    const mha_named_tensor *list = mha_trainer_weights(trainer, &tensors);
    float *all = NULL;
    *count = 0;
    for (int64_t n = 0; n < tensors; n++) {
        int64_t elements = 1;
        for (int d = 0; d < list[n].rank; d++)
            elements *= list[n].shape[d];
        all = realloc(all, (size_t)(*count + elements) * sizeof *all);
        assert_non_null(all);
        memcpy(all + *count, list[n].data, (size_t)elements * sizeof *all);
        *count += elements;
    }
    return all;
}

void train_shift(mha_trainer *t, float by)
{
    for (int64_t n = 0; n < t->count; n++)
        for (int64_t i = 0; i < t->parameter[n].count; i++)
            ((float *)t->list[n].data)[i] += by * ((const float *)t->gradients[n].data)[i];
    assert_int_equal(mha_trainer_refresh(t, NULL), MHA_OK);
}

void train_expect_alike(const mha_trainer *a, const mha_trainer *b)
{
    int64_t count = 0;
    float *x = train_weights(a, &count), *y = train_weights(b, &count);
    assert_memory_equal(x, y, (size_t)count * sizeof *x);
    free(x), free(y);
}

void train_expect_same_state(const mha_trainer *a, const mha_trainer *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->step, b->step);
    for (int64_t n = 0; n < a->count; n++) {
        const size_t bytes = (size_t)a->parameter[n].count * sizeof(float);
        assert_string_equal(a->list[n].name, b->list[n].name);
        assert_memory_equal(a->list[n].data, b->list[n].data, bytes);
        assert_memory_equal(a->parameter[n].mean, b->parameter[n].mean, bytes);
        assert_memory_equal(a->parameter[n].square, b->parameter[n].square, bytes);
    }
}

void train_check_threads(const char *folder, const mha_train_options *options, int64_t batch, int64_t length)
{
    mha_trainer *first = train_case(NULL, folder, options);
    for (int step = 0; step < 3; step++)
        train_on(first, batch, length);
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options c = {.size = sizeof c, .threads = threads};
        mha_train_options o = *options;
        o.recompute = threads == 2;
        assert_int_equal(mha_ctx_create(&c, &ctx, NULL), MHA_OK);
        mha_trainer *t = train_case(ctx, folder, &o);
        for (int step = 0; step < 3; step++)
            train_on(t, batch, length);
        train_expect_alike(first, t);
        mha_trainer_free(t);
        mha_ctx_free(ctx);
    }
    mha_trainer_free(first);
}

void train_check_resume(const char *folder, const mha_train_options *options, int64_t batch, int64_t length)
{
    const char *saved = files_folder();
    mha_error err = {0};
    mha_trainer *whole = train_case(NULL, folder, options), *second = NULL;
    for (int step = 0; step < 5; step++) {
        train_on(whole, batch, length);
        if (step == 1 && mha_trainer_save(whole, saved, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    }
    if (mha_trainer_resume(NULL, saved, options, &second, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int step = 0; step < 3; step++)
        train_on(second, batch, length);
    train_expect_alike(whole, second);
    mha_trainer_free(whole);
    mha_trainer_free(second);
    files_remove(saved);
}
