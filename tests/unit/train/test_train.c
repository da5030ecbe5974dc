/* test_train.c - compares components of the trainer with closed forms, and tests invariants of a step.
 * tests/golden/test_train_curves.c compares loss curves with PyTorch. */
#include "layer/adamw.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "support/reference/layer_ref.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"

static const char *const folders[] = {GPT2, "families/llama-f32", "models/gemma2-tiny", "models/bert-mlm-tiny"};
enum { FOLDERS = sizeof folders / sizeof *folders };

/* ---- learning rate ---- */

static void test_rate(void **state)
{
    (void)state;
    const mha_train_options o = {.size = sizeof o, .rate = 0.5, .warmup = 10, .steps = 110, .floor = 0.1};
    const mha_train_options held = {.size = sizeof held, .rate = 0.5, .warmup = 4}, none = {.size = sizeof none};
    assert_true(mha_train_rate(&o, 1) == 0.5 / 10);
    assert_true(mha_train_rate(&o, 10) == 0.5);
    /* halfway between the end of the warmup and the last step */
    assert_true(fabs(mha_train_rate(&o, 60) - 0.3) < 1e-15);
    assert_true(fabs(mha_train_rate(&o, 35) - (0.1 + 0.2 * (1 + sqrt(0.5)))) < 1e-15);
    assert_true(mha_train_rate(&o, 110) == 0.1 && mha_train_rate(&o, 100000) == 0.1);
    assert_true(mha_train_rate(&held, 2) == 0.25 && mha_train_rate(&held, 99) == 0.5);
    assert_true(mha_train_rate(&none, 1) == 1e-3);
    const mha_train_options older = {.size = sizeof older.size, .rate = 0.5}; /* a struct without the field rate */
    assert_true(mha_train_rate(&older, 1) == 1e-3);
    const mha_train_options climb = {.size = sizeof climb, .rate = 0.5, .warmup = 10, .steps = 10, .floor = 0.1};
    assert_true(mha_train_rate(&climb, 9) == 0.45 && mha_train_rate(&climb, 10) == 0.1);
}

/* ---- update of the weights ---- */

enum { ELEMENTS = 40000 }; /* more elements than two blocks of the update */

static void test_update_against_doubles(void **state)
{
    (void)state;
    float *gradient = random_floats(3, 1, ELEMENTS, 1, 0), *kept = random_floats(3, 1, ELEMENTS, 1, 0);
    float *weight = random_floats(3, 2, ELEMENTS, 1, 0), *mean = calloc(ELEMENTS, sizeof *mean);
    float *square = calloc(ELEMENTS, sizeof *square);
    double *w = malloc(ELEMENTS * sizeof *w), *m = calloc(ELEMENTS, sizeof *m), *v = calloc(ELEMENTS, sizeof *v);
    for (int i = 0; i < ELEMENTS; i++)
        w[i] = (double)weight[i];
    for (int step = 1; step <= 3; step++) {
        const mha__adamw job = {.count = ELEMENTS,
                                .weight = weight,
                                .gradient = gradient,
                                .mean = mean,
                                .square = square,
                                .scale = 0.25,
                                .rate = 0.1,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .eps = 1e-3,
                                .decay = 0.5,
                                .step = step};
        memcpy(gradient, kept, ELEMENTS * sizeof *gradient);
        mha__adamw_run(NULL, &job);
        for (int i = 0; i < ELEMENTS; i++) {
            const double g = 0.25 * (double)kept[i];
            w[i] -= 0.1 * 0.5 * w[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.99 * v[i] + 0.01 * g * g;
            w[i] -= 0.1 * (m[i] / (1 - pow(0.9, step))) / (sqrt(v[i] / (1 - pow(0.99, step))) + 1e-3);
            assert_true(fabs(w[i] - (double)weight[i]) < 2e-6);
            assert_true(gradient[i] == 0);
        }
    }
    free(gradient), free(kept), free(weight), free(mean), free(square), free(w), free(m), free(v);
}

static double sum_of_squares(mha_ctx *ctx, int64_t count, const float *x, double *partial)
{
    mha__squares_partial(ctx, count, x, partial);
    return mha__squares_sum(partial, mha__squares_blocks(count));
}

static void test_squares(void **state)
{
    (void)state;
    float *x = random_floats(4, 1, ELEMENTS, 1, 0);
    double *partial = malloc((size_t)mha__squares_blocks(ELEMENTS) * sizeof *partial), sum = 0;
    for (int i = 0; i < ELEMENTS; i++)
        sum += (double)x[i] * (double)x[i];
    assert_true(fabs(sum_of_squares(NULL, ELEMENTS, x, partial) - sum) < 1e-12 * sum);
    assert_true(sum_of_squares(NULL, 0, x, partial) == 0);
    x[ELEMENTS - 1] = 3e38F;
    assert_true(isfinite(sum_of_squares(NULL, ELEMENTS, x, partial)));
    x[17] = INFINITY;
    assert_false(isfinite(sum_of_squares(NULL, ELEMENTS, x, partial)));
    free(x), free(partial);
}

/* ---- patterns of tensor names ---- */

static void test_names(void **state)
{
    (void)state;
    assert_true(mha__train_fits("a.b", "a.b") && !mha__train_fits("a.b", "a.bc") && !mha__train_fits("a.b", "a"));
    assert_true(mha__train_fits("*.bias", "h.0.bias") && !mha__train_fits("*.bias", "bias"));
    assert_true(mha__train_fits("h.0.*", "h.0.attn") && !mha__train_fits("h.0.*", "h.1.attn"));
    assert_true(mha__train_fits("*mlp*", "h.0.mlp.c_fc") && !mha__train_fits("*mlp*", "h.0.ml"));
    assert_true(mha__train_fits("*", "") && !mha__train_fits("", "a"));
}

static void test_decayed_tensors(void **state)
{
    (void)state;
    for (int kind = MHA_DECAY_MATRICES; kind <= MHA_DECAY_ALL; kind++) {
        const mha_train_options o = {.size = sizeof o, .decay = 0.1, .decays = (mha_train_decay)kind};
        mha_trainer *t = train_case(NULL, GPT2, &o);
        for (int64_t n = 0; n < t->count; n++) {
            const char *name = t->list[n].name;
            const bool vector = strstr(name, ".bias") || strstr(name, "ln_"),
                       table = strstr(name, ".wte.") || strstr(name, ".wpe.");
            assert_int_equal(t->parameter[n].decays,
                             kind == MHA_DECAY_ALL || (!vector && !(table && kind == MHA_DECAY_DENSE)));
        }
        mha_trainer_free(t);
    }
}

static void test_frozen_tensors_stay(void **state)
{
    (void)state;
    static const char *const frozen[] = {"*.mlp.*", "transformer.wpe.weight"};
    const mha_train_options o = {.size = sizeof o, .decay = 0.1, .frozen = frozen, .frozen_count = 2};
    mha_trainer *t = train_case(NULL, GPT2, &o), *fresh = train_case(NULL, GPT2, NULL);
    train_on(t, 2, 16);
    train_on(t, 2, 16);
    for (int64_t n = 0; n < t->count; n++) {
        const bool stays = strstr(t->list[n].name, ".mlp.") || strstr(t->list[n].name, ".wpe.");
        const size_t bytes = (size_t)t->parameter[n].count * sizeof(float);
        assert_int_equal(stays, memcmp(t->list[n].data, fresh->list[n].data, bytes) == 0);
    }
    mha_trainer_free(t);
    mha_trainer_free(fresh);
}

/* The bias that corrects the router of deepseek_v3 is a constant: PyTorch has a buffer. */
static void test_constants_stay(void **state)
{
    (void)state;
    const char *folder = "families2/deepseek-v3";
    const mha_train_options o = {.size = sizeof o, .decay = 0.1, .decays = MHA_DECAY_ALL};
    mha_trainer *t = train_case(NULL, folder, &o), *fresh = train_case(NULL, folder, NULL);
    train_on(t, 2, 16);
    int64_t constants = 0;
    for (int64_t n = 0; n < t->count; n++) {
        const bool stays = strstr(t->list[n].name, "e_score_correction_bias");
        const size_t bytes = (size_t)t->parameter[n].count * sizeof(float);
        assert_string_equal(t->list[n].name, t->gradients[n].name);
        assert_int_equal(stays, memcmp(t->list[n].data, fresh->list[n].data, bytes) == 0);
        constants += stays;
    }
    assert_true(constants > 0);
    mha_trainer_free(t);
    mha_trainer_free(fresh);
    train_check_threads(folder, &o, 2, 16);
    train_check_resume(folder, &o, 2, 16);
}

/* ---- training steps ---- */

/* Returns the norm of the first moments after the first step. These moments are a tenth of the gradient. */
static double first_mean(const mha_trainer *t)
{
    double squares = 0;
    for (int64_t n = 0; n < t->count; n++)
        for (int64_t i = 0; i < t->parameter[n].count; i++)
            squares += pow((double)((const float *)t->parameter[n].mean)[i], 2);
    return sqrt(squares);
}

static void test_clipping(void **state)
{
    (void)state;
    const double limits[] = {0, 1e6, 0.5};
    double norm = 0;
    for (int n = 0; n < 3; n++) {
        const mha_train_options o = {.size = sizeof o, .clip = limits[n]};
        mha_trainer *t = train_case(NULL, GPT2, &o);
        const mha_train_report r = train_on(t, 2, 16);
        if (n == 0) norm = r.norm;
        assert_true(r.norm == norm && norm > 0.5);
        assert_true(fabs(first_mean(t) - 0.1 * (n == 2 ? 0.5 : norm)) < 1e-5 * norm);
        mha_trainer_free(t);
    }
}

/* A step on four texts must give the same weights with one batch and with several batches of different sizes. */
static void test_batches_of_a_step_are_summed(void **state)
{
    (void)state;
    enum { B = 4, L = 12 };
    int32_t ids[B * L];
    mha_train_report report[2];
    train_texts(1, B, L, ids);
    for (int n = 0; n < 2; n++) {
        mha_trainer *t = train_case(NULL, GPT2, NULL);
        const int64_t from[] = {0, n ? 1 : B, 3, B};
        mha_model_input input[3];
        mha_train_batch batch[3];
        for (int p = 0; p < 3; p++) {
            input[p] = (mha_model_input){
                .size = sizeof *input, .batch = from[p + 1] - from[p], .length = L, .ids = ids + from[p] * L};
            batch[p] = (mha_train_batch){.input = &input[p]};
        }
        assert_int_equal(mha_trainer_step(t, batch, n ? 3 : 1, &report[n], NULL), MHA_OK);
        mha_trainer_free(t);
    }
    assert_int_equal(report[0].labels, B * (L - 1));
    assert_int_equal(report[1].labels, B * (L - 1));
    assert_true(fabs(report[0].loss - report[1].loss) < 1e-6 && fabs(report[0].norm - report[1].norm) < 1e-5);
}

static void test_loss_alone_is_that_of_the_step(void **state)
{
    (void)state;
    enum { B = 2, L = 9 };
    for (int f = 0; f < 3; f++) {
        int32_t ids[B * L];
        double loss = 0;
        int64_t labels = 0;
        mha_trainer *t = train_case(NULL, folders[f], NULL);
        train_texts(1, B, L, ids);
        const mha_model_input input = {.size = sizeof input, .batch = B, .length = L, .ids = ids};
        const mha_train_batch batch = {.input = &input};
        assert_int_equal(mha_trainer_loss(t, &batch, 1, &loss, &labels, NULL), MHA_OK);
        const mha_train_report r = train_on(t, B, L);
        assert_true(r.loss == loss && r.labels == labels && mha_trainer_step_count(t) == 1);
        mha_trainer_free(t);
    }
}

/* The derivative of the loss along its gradient must equal the norm of the gradient. It is computed from central
 * differences in f32, with a step that is large enough for f32. */
static void test_gradient_against_differences(void **state)
{
    (void)state;
    enum { B = 3, L = 14 };
    for (int f = 0; f < FOLDERS; f++) {
        int32_t ids[B * L];
        double loss[2], squares = 0;
        mha_error err = {0};
        mha_trainer *t = train_case(NULL, folders[f], NULL);
        train_texts(1, B, L, ids);
        const mha_model_input input = {.size = sizeof input, .batch = B, .length = L, .ids = ids};
        const mha_train_batch batch = {.input = &input, .labels = t->model->info.causal ? NULL : ids};
        const mha_model_loss_args args = {.size = sizeof args, .labels = batch.labels};
        if (mha_model_grads_loss(t->grads, &input, &args, NULL, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int64_t n = 0; n < t->count; n++)
            squares += sum_of_squares(t->ctx, t->parameter[n].count, t->gradients[n].data, t->partial);
        const double norm = sqrt(squares), step = 0x1p-8;
        for (int side = 0; side < 2; side++) {
            const float by = (float)((side ? -2 : 1) * step / norm);
            train_shift(t, by);
            assert_int_equal(mha_trainer_loss(t, &batch, 1, &loss[side], NULL, NULL), MHA_OK);
        }
        const double slope = (loss[0] - loss[1]) / (2 * step);
        if (fabs(slope - norm) > 2e-3 * norm)
            fail_msg("%s: expected derivative %g from differences, got %g from the gradient", folders[f], slope, norm);
        mha_trainer_free(t);
    }
}

static void test_bits_for_any_threads(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        float *first = NULL;
        int64_t count = 0;
        for (int threads = 1; threads <= 3; threads++) {
            mha_ctx *ctx = NULL;
            const mha_ctx_options c = {.size = sizeof c, .threads = threads};
            const mha_train_options o = {.size = sizeof o, .decay = 0.1, .clip = 1, .recompute = threads == 2};
            assert_int_equal(mha_ctx_create(&c, &ctx, NULL), MHA_OK);
            mha_trainer *t = train_case(ctx, folders[f], &o);
            for (int step = 0; step < 3; step++)
                train_on(t, 3, 14);
            float *weights = train_weights(t, &count);
            if (first) assert_memory_equal(first, weights, (size_t)count * sizeof *first);
            if (first) free(weights);
            if (!first) first = weights;
            mha_trainer_free(t);
            mha_ctx_free(ctx);
        }
        free(first);
    }
}

/* After a step, the packed weights of the trainer's model must be the current weights. */
static void test_model_follows_its_weights(void **state)
{
    (void)state;
    enum { L = 8 };
    int32_t ids[L];
    train_texts(9, 1, L, ids);
    for (int f = 0; f < FOLDERS; f++) {
        mha_trainer *t = train_case(NULL, folders[f], NULL), *again = NULL;
        mha_error err = {0};
        for (int step = 0; step < 2; step++)
            train_on(t, 2, 10);
        const mha_model *m[2] = {mha_trainer_model(t)};
        const int64_t cells = L * mha_model_describe(m[0])->vocab;
        float *logits[2];
        if (mha_trainer_create(m[0], NULL, &again, &err) != MHA_OK) fail_msg("%s", err.message);
        m[1] = mha_trainer_model(again); /* a model with the same weights, packed when it was opened */
        for (int n = 0; n < 2; n++) {
            logits[n] = calloc((size_t)cells, sizeof(float));
            const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
            const mha_model_output output = {.size = sizeof output, .logits = logits[n]};
            assert_int_equal(mha_model_forward(m[n], &input, &output, NULL), MHA_OK);
        }
        assert_memory_equal(logits[0], logits[1], (size_t)cells * sizeof(float));
        free(logits[0]), free(logits[1]);
        mha_trainer_free(t);
        mha_trainer_free(again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_update_against_doubles),
        cmocka_unit_test(test_squares),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_decayed_tensors),
        cmocka_unit_test(test_frozen_tensors_stay),
        cmocka_unit_test(test_constants_stay),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_batches_of_a_step_are_summed),
        cmocka_unit_test(test_loss_alone_is_that_of_the_step),
        cmocka_unit_test(test_gradient_against_differences),
        cmocka_unit_test(test_bits_for_any_threads),
        cmocka_unit_test(test_model_follows_its_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
