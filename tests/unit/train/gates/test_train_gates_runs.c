/* test_train_gates_runs.c - tests training runs with head gates: bitwise identity for any number of threads and after
 * resuming, gates that are trained before the weights, failed steps, and rejected options and states. */
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"
#define TINYLM "heads/tinylm"
enum { B = 3, L = 12, MAX = 256 };
static const char *const folders[] = {GPT2, "families/llama", "models/bert-mlm-tiny"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static mha_trainer *trainer_of(const char *folder, mha_train_gates gates)
{
    const mha_train_options o = {.size = sizeof o, .rate = 1e-2, .decay = 0.1, .clip = 1, .seed = 5, .gates = gates};
    return train_case(NULL, folder, &o);
}

/* ---- bitwise identity ---- */

static void expect_alike(const mha_trainer *a, const mha_trainer *b)
{
    int64_t count;
    float *x = train_weights(a, &count), *y = train_weights(b, &count);
    assert_memory_equal(x, y, (size_t)count * sizeof *x);
    assert_int_equal(a->gates->state_count, b->gates->state_count);
    for (int64_t n = 0; n < a->gates->state_count; n++) {
        const mha_named_tensor *s = &a->gates->state[n];
        size_t bytes = mha_dtype_size(s->dtype);
        for (int d = 0; d < s->rank; d++)
            bytes *= (size_t)s->shape[d];
        assert_memory_equal(s->data, b->gates->state[n].data, bytes);
    }
    free(x), free(y);
}

static void test_bits_for_any_threads(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        mha_trainer *t[3];
        mha_ctx *ctx[3];
        for (int n = 0; n < 3; n++) {
            const mha_ctx_options c = {.size = sizeof c, .threads = n + 1};
            const mha_train_options o = {.size = sizeof o, .recompute = n == 1, .gates = {MHA_GATES_L0, .initial = 1}};
            assert_int_equal(mha_ctx_create(&c, &ctx[n], NULL), MHA_OK);
            t[n] = train_case(ctx[n], folders[f], &o);
            for (int step = 0; step < 3; step++)
                train_on(t[n], B, L);
            expect_alike(t[0], t[n]);
        }
        for (int n = 0; n < 3; n++)
            mha_trainer_free(t[n]), mha_ctx_free(ctx[n]);
    }
}

static mha_trainer *resume(const char *folder, const mha_train_options *o)
{
    mha_trainer *t = NULL;
    mha_error err = {0};
    if (mha_trainer_resume(NULL, folder, o, &t, &err) != MHA_OK) fail_msg("%s", err.message);
    return t;
}

/* A run with gates that is saved and resumed must be bitwise identical to an uninterrupted run, whether it is saved
 * before or after the gates are fixed. */
static void test_resumed_gates_are_bitwise_identical(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * FOLDERS; n++) {
        const char *place = files_folder();
        const mha_train_options o = {
            .size = sizeof o,
            .rate = 1e-2,
            .seed = 9,
            .gates = {n % 2 ? MHA_GATES_L1 : MHA_GATES_L0, .initial = 0.5, .end = 4, .heads = 5, .first = n < 2}};
        const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
        mha_trainer *whole = train_case(NULL, folders[n / 2], &o), *part = train_case(NULL, folders[n / 2], &o);
        for (int step = 1; step <= 6; step++) {
            train_on(whole, B, L);
            train_on(part, B, L);
            if (step == 2 || step == 5) {
                assert_int_equal(mha_trainer_save(part, place, &over, NULL), MHA_OK);
                mha_trainer_free(part);
                part = resume(place, &o);
            }
            expect_alike(whole, part);
        }
        mha_trainer_free(whole);
        mha_trainer_free(part);
        files_remove(place);
    }
}

/* Runs one step of a decoder on the texts of step `texts`. `gates` holds one gate per head, or is NULL. */
static mha_train_report step_under(mha_trainer *t, int64_t texts, const float *gates)
{
    int32_t ids[B * L];
    float spread[MAX * B];
    mha_train_report report = {0};
    mha_error err = {0};
    const int64_t heads = mha_model_describe(mha_trainer_model(t))->heads;
    const int64_t layers = mha_model_describe(mha_trainer_model(t))->layers;
    for (int64_t n = 0; gates && n < layers * B * heads; n++)
        spread[n] = gates[n / (B * heads) * heads + n % heads];
    train_texts(texts, B, L, ids);
    const mha_model_input input = {
        .size = sizeof input, .batch = B, .length = L, .ids = ids, .gates = gates ? spread : NULL};
    const mha_train_batch batch = {.input = &input};
    if (mha_trainer_step(t, &batch, 1, &report, &err) != MHA_OK) fail_msg("%s", err.message);
    return report;
}

/* Fails unless the weights of two trainers are bitwise identical; those of `t` are compared before they are multiplied
 * by gates. */
static void expect_weights(const mha_trainer *t, const mha_trainer *plain)
{
    for (int64_t n = 0; n < t->count; n++) {
        const float *data = t->list[n].data;
        for (int64_t l = 0; l < t->gates->layers; l++)
            if (t->gates->layer[l].parameter == n) data = t->gates->layer[l].raw;
        assert_memory_equal(data, plain->list[n].data, (size_t)t->parameter[n].count * sizeof(float));
    }
}

/* With gates.first, the weights must not change while the gates are trained. Before that, they must be bitwise
 * identical to those of a run without gates. After it, they must be bitwise identical to those of a run without the
 * removed heads, including rates and moments. */
static void test_weights_wait_for_gates(void **state)
{
    (void)state;
    enum { START = 2, END = 6, STEPS = 11, WAIT = END - START };
    for (int penalty = MHA_GATES_L0; penalty <= MHA_GATES_L1; penalty++) {
        mha_train_options o = {
            .size = sizeof o, .rate = 1e-2, .decay = 0.1, .clip = 1, .warmup = 3, .steps = STEPS - WAIT};
        mha_trainer *plain = train_case(NULL, GPT2, &o);
        o.steps = STEPS;
        o.gates = (mha_train_gates){(mha_gates_penalty)penalty, .start = START, .end = END, .heads = 5, .first = 1};
        mha_trainer *t = train_case(NULL, GPT2, &o);
        float gates[MAX];
        for (int64_t step = 1; step <= START; step++) {
            const mha_train_report a = step_under(t, step, NULL), b = step_under(plain, step, NULL);
            assert_true(a.loss == b.loss && a.norm == b.norm && a.rate == b.rate && a.rate > 0);
        }
        for (int64_t step = START + 1; step <= END; step++) {
            const mha_train_report r = step_under(t, step, NULL);
            assert_true(r.rate == 0 && r.norm == 0 && mha_train_rate(&o, step) == 0);
            expect_weights(t, plain);
        }
        assert_int_equal(mha_trainer_gates(t, gates, NULL), 5);
        for (int64_t step = END + 1; step <= STEPS && penalty == MHA_GATES_L0; step++) {
            const mha_train_report a = step_under(t, step, NULL), b = step_under(plain, step, gates);
            assert_true(a.loss == b.loss && a.norm == b.norm && a.rate == b.rate);
            expect_weights(t, plain);
        }
        mha_trainer_free(t);
        mha_trainer_free(plain);
    }
}

/* A resumed run may have gates that the saved run did not have, and may omit those that it had. */
static void test_gates_added_and_dropped_on_resume(void **state)
{
    (void)state;
    const char *place = files_folder();
    const mha_trainer_save_options over = {.size = sizeof over, .overwrite = 1};
    const mha_train_options with = {.size = sizeof with, .gates = {MHA_GATES_L0, .initial = -3}},
                            without = {.size = sizeof without};
    const mha_train_options other = {.size = sizeof other, .gates = {.penalty = MHA_GATES_L1}};
    mha_trainer *t = train_case(NULL, GPT2, &without), *none = NULL;
    mha_error err = {0};
    train_on(t, B, L);
    assert_int_equal(mha_trainer_save(t, place, NULL, NULL), MHA_OK);
    mha_trainer_free(t);
    const mha_train_options late = {.size = sizeof late, .gates = {MHA_GATES_L0, .end = 1}};
    assert_int_equal(mha_trainer_resume(NULL, place, &late, &none, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "gates.end must be above 1, the step at which the gates begin (got 1)");
    t = resume(place, &with);
    assert_int_equal(mha_trainer_gates(t, NULL, NULL), t->gates->total);
    train_on(t, B, L);
    assert_int_equal(mha_trainer_gates(t, NULL, NULL), 0);
    assert_int_equal(mha_trainer_save(t, place, &over, NULL), MHA_OK);
    mha_trainer *plain = resume(place, &without);
    for (int64_t l = 0; l < t->gates->layers; l++) {
        const int64_t n = t->gates->layer[l].parameter;
        for (int64_t e = 0; e < t->parameter[n].count; e++)
            assert_true(((const float *)t->list[n].data)[e] == 0);
    }
    assert_memory_equal(plain->list[3].data, t->list[3].data, (size_t)t->parameter[3].count * sizeof(float));
    assert_int_equal(mha_trainer_resume(NULL, place, &other, &none, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "gates.penalty must be \"l0\", as in "));
    mha_trainer_free(t);
    mha_trainer_free(plain);
    files_remove(place);
}

/* ---- failed steps and rejected states ---- */

/* A step that fails after its gates were sampled must leave the trainer unchanged. */
static void test_a_failed_step_leaves_nothing(void **state)
{
    (void)state;
    int32_t ids[L] = {1, 2, 100000};
    mha_error err = {0};
    mha_trainer *t = trainer_of(GPT2, (mha_train_gates){MHA_GATES_L0, .initial = 0.5});
    mha_trainer *other = trainer_of(GPT2, (mha_train_gates){MHA_GATES_L0, .initial = 0.5});
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    const mha_train_batch batch = {.input = &input};
    train_on(t, B, L);
    train_on(other, B, L);
    assert_int_equal(mha_trainer_step(t, &batch, 1, NULL, &err), MHA_ERR_ARG);
    expect_alike(t, other);
    train_on(t, B, L);
    train_on(other, B, L);
    expect_alike(t, other);
    mha_trainer_free(t);
    mha_trainer_free(other);
}

/* For a batch without sequences, a trainer with gates must return the same error as one without gates, not
 * MHA_ERR_MEMORY. */
static void test_batches_without_sequences(void **state)
{
    (void)state;
    const int32_t ids[2] = {1, 2};
    mha_trainer *gated = trainer_of(TINYLM, (mha_train_gates){.penalty = MHA_GATES_L0});
    mha_trainer *plain = trainer_of(TINYLM, (mha_train_gates){0});
    for (int64_t count = -3; count <= 0; count += 3) {
        const mha_model_input input = {.size = sizeof input, .batch = count, .length = 2, .ids = ids};
        const mha_train_batch batch = {.input = &input};
        mha_error err = {0}, want = {0};
        assert_int_equal(mha_trainer_step(plain, &batch, 1, NULL, &want), MHA_ERR_ARG);
        assert_int_equal(mha_trainer_step(gated, &batch, 1, NULL, &err), MHA_ERR_ARG);
        assert_string_equal(err.message, want.message);
    }
    mha_trainer_free(gated);
    mha_trainer_free(plain);
}

static void expect_refused(mha_train_gates gates, const char *sentence)
{
    const mha_train_options o = {.size = sizeof o, .gates = gates};
    mha_trainer *t = NULL;
    mha_error err = {0};
    mha_model *model = case_open(NULL, TINYLM);
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_ARG);
    if (!strstr(err.message, sentence)) fail_msg("%s must contain %s", err.message, sentence);
    assert_null(t);
    mha_model_free(model);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refused((mha_train_gates){.penalty = (mha_gates_penalty)3},
                   "gates.penalty must be a value of mha_gates_penalty (got 3)");
    expect_refused((mha_train_gates){.heads = 3}, "gates.penalty must be set if other fields of gates are set");
    expect_refused((mha_train_gates){MHA_GATES_L0, .strength = -1}, "gates.strength must be in (0, 1000] (got -1");
    expect_refused((mha_train_gates){MHA_GATES_L0, .rate = NAN}, "gates.rate must be in (0, 1000] (got nan)");
    expect_refused((mha_train_gates){MHA_GATES_L0, .initial = 6.5}, "gates.initial must be in [-6, 4] (got 6.5)");
    expect_refused((mha_train_gates){MHA_GATES_L1, .initial = -1}, "gates.initial must be above 0 (got -1");
    expect_refused(
        (mha_train_gates){MHA_GATES_L0, .start = 5, .end = 5},
        "gates.start and gates.ramp must be at least 0, and gates.end must be 0 or above gates.start (got 5, 0, 5)");
    expect_refused((mha_train_gates){MHA_GATES_L0, .first = 1}, "gates.first must be 0 without gates.end");
    expect_refused((mha_train_gates){MHA_GATES_L0, .end = 5, .only = 1, .first = 1},
                   "gates.first must be 0 with gates.only");
    expect_refused((mha_train_gates){MHA_GATES_L0, .heads = 4, .rate = 0.5},
                   "gates.rate must be 0 for L0 gates with a target head count (got 0.5)");
    expect_refused((mha_train_gates){MHA_GATES_L0, .heads = 4, .strength = 2},
                   "gates.strength must be 0 for L0 gates with a target head count (got 2)");
    expect_refused((mha_train_gates){MHA_GATES_L0, .heads = 1},
                   "gates.heads must be from 2 (one per layer) to 8 (all heads of the model) (got 1)");
    expect_refused((mha_train_gates){MHA_GATES_L0, .heads = 9},
                   "gates.heads must be from 2 (one per layer) to 8 (all heads of the model) (got 9)");
    const int32_t ids[2] = {1, 2};
    const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 2, .ids = ids, .gates = ones};
    const mha_train_batch batch = {.input = &input};
    mha_error err = {0};
    mha_trainer *t = trainer_of(TINYLM, (mha_train_gates){.penalty = MHA_GATES_L0});
    assert_int_equal(mha_trainer_step(t, &batch, 1, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "gates of a batch must be NULL if the trainer trains gates");
    assert_int_equal(mha_trainer_loss(t, &batch, 1, NULL, NULL, &err), MHA_ERR_ARG);
    mha_trainer_free(t);
}

/* Gates cannot be multiplied into a projection that several layers share. */
static void test_shared_layers(void **state)
{
    (void)state;
    const mha_train_options o = {.size = sizeof o, .gates = {.penalty = MHA_GATES_L0}};
    mha_error err = {0};
    mha_trainer *t = NULL;
    mha_model *model = case_open(NULL, "families2/albert");
    assert_int_equal(mha_trainer_create(model, &o, &t, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "mha_train_options: gates must be unset for a model whose layers share tensors (got albert)");
    mha_model_free(model);
}

/* A state with a gate of NaN must be rejected. */
static void test_rejected_states(void **state)
{
    (void)state;
    const mha_train_options o = {.size = sizeof o, .gates = {.penalty = MHA_GATES_L0}};
    const char *place = files_folder();
    mha_trainer *t = train_case(NULL, TINYLM, &o), *out = NULL;
    mha_error err = {0};
    t->gates->value[3] = NAN;
    assert_int_equal(mha_trainer_save(t, place, NULL, NULL), MHA_OK);
    assert_int_equal(mha_trainer_resume(NULL, place, &o, &out, &err), MHA_ERR_FORMAT);
    assert_null(out);
    assert_non_null(strstr(err.message, "the state of the gates must be finite"));
    mha_trainer_free(t);
    files_remove(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_for_any_threads),
        cmocka_unit_test(test_resumed_gates_are_bitwise_identical),
        cmocka_unit_test(test_weights_wait_for_gates),
        cmocka_unit_test(test_gates_added_and_dropped_on_resume),
        cmocka_unit_test(test_a_failed_step_leaves_nothing),
        cmocka_unit_test(test_batches_without_sequences),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_shared_layers),
        cmocka_unit_test(test_rejected_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
