/* test_train_gates.c - tests trainable head gates: formulas, gradients, the model with gates, and the selection of
 * heads. */
#include "math/rng_draws.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer_struct.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT2 "models/gpt2-tiny"
#define TINYLM "heads/tinylm"

enum { B = 3, L = 12, MOST = 256 };
static const char *const folders[] = {GPT2, "families/llama", "models/bert-mlm-tiny"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static mha_trainer *trainer_of(const char *folder, mha_train_gates gates)
{
    const mha_train_options o = {.size = sizeof o, .rate = 1e-2, .decay = 0.1, .clip = 1, .seed = 5, .gates = gates};
    return train_case(NULL, folder, &o);
}

static bool has_head(const mha__gates *g, int64_t at)
{
    return at % g->heads < g->layer[at / g->heads].heads;
}

/* ---- formulas of the gates ---- */

/* Compares the generator Philox4x32-10 with the test vectors that Salmon et al. publish with their code. */
static void test_philox(void **state)
{
    (void)state;
    assert_int_equal(mha__philox(0, 0, 0, 0, 0), 0x6627e8d5);
    assert_int_equal(mha__philox(UINT64_MAX, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff), 0x408f276d);
    assert_int_equal(mha__philox(UINT64_C(0x299f31d0a4093822), 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344),
                     0xd16cfe09);
}

/* Compares the hard concrete formulas with PyTorch 2.13 in float64, and their derivatives with those of autograd. */
static void test_hard_concrete(void **state)
{
    (void)state;
    static const struct {
        double a, u, gate, slope, open, mean;
    } want[] = {
        {2.5, 0.500, 1, 0, 0.983674983391515, 1},
        {0.3, 0.400, 0.452639432614929, 0.447196220821205, 0.869732634149287, 0.589331020173991},
        {-1.0, 0.900, 0.929169684244394, 0.219766727656959, 0.645335221713115, 0.222729705643994},
        {-4.0, 0.010, 0, 0, 0.0830657617407501, 0},
        {3.0, 0.999, 1, 0, 0.990034363703072, 1},
        {0.0, 0.250, 0.0936685733556908, 0.2436184646515, 0.831822183991691, 0.5},
        {-0.7, 0.600, 0.369573910545794, 0.428736293987104, 0.710661069239875, 0.298174673398201},
    };
    for (size_t n = 0; n < sizeof want / sizeof *want; n++) {
        double slope = 7;
        assert_true(fabs(mha__gate_drawn(want[n].a, want[n].u, &slope) - want[n].gate) < 1e-13);
        assert_true(fabs(slope - want[n].slope) < 1e-13);
        assert_true(fabs(mha__gate_open(want[n].a) - want[n].open) < 1e-13);
        assert_true(fabs(mha__gate_mean(want[n].a) - want[n].mean) < 1e-13);
    }
}

/* The fraction of sampled gates above 0 must equal the probability that the penalty uses, for many random numbers. */
static void test_probability_is_the_fraction_sampled(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    for (double a = -4; a <= 2; a += 1.5) {
        double open = 0, slope;
        for (uint32_t n = 0; n < DRAWS; n++)
            open += mha__gate_drawn(a, ((double)mha__philox(9, n, 0, 0, 0) + 0.5) * 0x1p-32, &slope) > 0;
        assert_true(fabs(open / DRAWS - mha__gate_open(a)) < 0.015);
    }
}

/* ---- gradients of the gates ---- */

/* Returns the loss plus the penalty of the first step after `by` is added to the parameter of gate `at`. If `gradient`
 * is not NULL, stores the gradients of all gate parameters in it. */
static double first_step(const char *folder, mha_train_gates gates, int64_t at, double by, double *gradient)
{
    mha_trainer *t = trainer_of(folder, gates);
    mha__gates *g = t->gates;
    g->value[at] += by;
    const mha_train_report r = train_on(t, B, L);
    for (int64_t n = 0; gradient && n < g->layers * g->heads; n++)
        gradient[n] = g->mean[n] / 0.1; /* the first moment of Adam is a tenth of the first gradient */
    mha_trainer_free(t);
    return r.loss + r.penalty;
}

static void check_slopes(const char *folder, mha_train_gates gates)
{
    double gradient[MOST];
    mha_trainer *t = trainer_of(folder, gates);
    const int64_t cells = t->gates->layers * t->gates->heads;
    int inside = 0;
    assert_true(cells <= MOST);
    first_step(folder, gates, 0, 0, gradient);
    for (int64_t at = 0; at < cells; at++) {
        const double step = 4e-3;
        if (!has_head(t->gates, at)) continue;
        const double slope =
            (first_step(folder, gates, at, step, NULL) - first_step(folder, gates, at, -step, NULL)) / (2 * step);
        if (fabs(slope - gradient[at]) > 2e-4 + 0.01 * fabs(slope))
            fail_msg("%s, gate %d: expected derivative %g from differences, got %g from the gradient", folder, (int)at,
                     slope, gradient[at]);
        const double open = mha__gate_open(gates.initial);
        const double pull = gates.strength * (gates.penalty == MHA_GATES_L0 ? open * (1 - open) : 1);
        /* counts the gates with a contribution of the loss to their gradient */
        inside += fabs(gradient[at] - pull) > 1e-4;
    }
    assert_true(inside >= 3);
    mha_trainer_free(t);
}

static void test_gradients_against_differences(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        check_slopes(folders[f], (mha_train_gates){MHA_GATES_L0, .strength = 0.3, .initial = -0.4});
        check_slopes(folders[f], (mha_train_gates){MHA_GATES_L1, .strength = 0.3, .initial = 0.8, .only = 1});
    }
}

static void test_penalty(void **state)
{
    (void)state;
    mha_trainer *t = trainer_of(GPT2, (mha_train_gates){MHA_GATES_L0, .strength = 0.5, .initial = 1, .ramp = 4});
    const double heads = (double)t->gates->total, open = heads * mha__gate_open(1);
    const mha_train_report r = train_on(t, B, L);
    assert_true(fabs(r.open - open) < 1e-12 && fabs(r.penalty - 0.5 / 4 * open) < 1e-12);
    mha_trainer_free(t);
    t = trainer_of(GPT2, (mha_train_gates){MHA_GATES_L1, .strength = 0.5});
    assert_true(fabs(train_on(t, B, L).penalty - 0.5 * heads) < 1e-12);
    mha_trainer_free(t);
}

/* ---- the model with gates ---- */

static void texts_of(int32_t *ids, int32_t *labels, mha_model_input *input, mha_train_batch *batch)
{
    train_texts(77, B, L, ids);
    for (int i = 0; i < B * L; i++)
        labels[i] = i % 2 ? ids[i] : MHA_IGNORE;
    *input = (mha_model_input){.size = sizeof *input, .batch = B, .length = L, .ids = ids};
    *batch = (mha_train_batch){.input = input, .labels = labels};
}

/* Sets the gates to random values: some closed, some open, and some between. */
static void scatter(mha_trainer *t)
{
    mha__gates *g = t->gates;
    for (int64_t at = 0; at < g->layers * g->heads; at++) {
        const double u = (double)mha__philox(3, (uint32_t)at, 0, 0, 0) * 0x1p-32;
        g->value[at] = g->o.penalty == MHA_GATES_L0 ? 8 * u - 4 : u < 0.3 ? 0 : 2 * u;
    }
    g->control[MHA__GATES_TAKEN] = 1;
    mha__gates_end(t);
    assert_int_equal(mha_trainer_refresh(t, NULL), MHA_OK);
}

/* The loss of the trainer must equal that of its model with the gates as inputs, and that of the saved model. */
static void check_saved(const char *folder, mha_gates_penalty penalty)
{
    int32_t ids[B * L], labels[B * L];
    double shown, gated, saved;
    float gates[MOST], spread[MOST * B];
    mha_model_input input;
    mha_train_batch batch;
    mha_error err = {0};
    const char *place = files_folder();
    mha_trainer *t = trainer_of(folder, (mha_train_gates){.penalty = penalty}), *again = NULL;
    texts_of(ids, labels, &input, &batch);
    train_on(t, B, L);
    scatter(t);
    const mha_model_loss_args args = {.size = sizeof args, .labels = labels, .loss_only = 1};
    const int64_t open = mha_trainer_gates(t, gates, NULL), heads = t->gates->heads;
    assert_true(open > 0 && open < t->gates->total);
    assert_int_equal(mha_trainer_loss(t, &batch, 1, &shown, NULL, NULL), MHA_OK);
    if (mha_trainer_save(t, place, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model *opened =
        case_model(NULL, place, &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1});
    assert_int_equal(mha_trainer_create(opened, NULL, &again, NULL), MHA_OK);
    assert_int_equal(mha_trainer_loss(again, &batch, 1, &saved, NULL, NULL), MHA_OK);
    assert_true(saved == shown);
    for (int64_t n = 0; n < t->gates->layers * B * heads; n++)
        spread[n] = gates[n / (B * heads) * heads + n % heads];
    input.gates = spread;
    assert_int_equal(mha__gates_lift(t, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_loss(t->grads, &input, &args, &gated, NULL, NULL), MHA_OK);
    if (fabs(gated - shown) > 2e-6)
        fail_msg("%s: losses must be equal (got %.9g with gates as inputs, %.9g with gates in the weights)", folder,
                 gated, shown);
    mha_model_free(opened);
    mha_trainer_free(again);
    mha_trainer_free(t);
    files_remove(place);
}

static void test_saved_model_is_the_gated_one(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        check_saved(folders[f], MHA_GATES_L0);
        check_saved(folders[f], MHA_GATES_L1);
    }
}

/* Returns the largest absolute weight of head h in the output projection of a layer. The projection is [E, heads D] or,
 * if transposed, [heads D, E]. */
static double largest_column(const mha_trainer *t, int64_t layer, int64_t head)
{
    const mha_named_tensor *w = &t->list[t->gates->layer[layer].parameter];
    const int64_t D = t->model->config.head_dim;
    const bool transposed = strstr(w->name, "c_proj") != NULL;
    double most = 0;
    for (int64_t i = 0; i < w->shape[0]; i++)
        for (int64_t j = 0; j < w->shape[1]; j++)
            if ((transposed ? i : j) / D == head)
                most = fmax(most, fabs((double)((float *)w->data)[i * w->shape[1] + j]));
    return most;
}

static void test_closed_heads_are_zeros(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        float gates[MOST];
        mha_trainer *t = trainer_of(folders[f], (mha_train_gates){.penalty = MHA_GATES_L0});
        scatter(t);
        mha_trainer_gates(t, gates, NULL);
        for (int64_t at = 0; at < t->gates->layers * t->gates->heads; at++)
            if (has_head(t->gates, at))
                assert_int_equal(gates[at] == 0, largest_column(t, at / t->gates->heads, at % t->gates->heads) == 0);
        mha_trainer_free(t);
    }
}

/* Until step gates.start, results must be bitwise identical to those without gates. */
static void test_before_the_start(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        mha_trainer *t = trainer_of(folders[f], (mha_train_gates){.penalty = MHA_GATES_L0, .start = 2});
        mha_trainer *plain = trainer_of(folders[f], (mha_train_gates){0});
        for (int step = 1; step <= 3; step++) {
            int64_t count;
            const mha_train_report a = train_on(t, B, L), b = train_on(plain, B, L);
            float *x = train_weights(t, &count), *y = train_weights(plain, &count);
            assert_int_equal(step <= 2, a.loss == b.loss);
            assert_int_equal(step <= 2, memcmp(x, y, (size_t)count * sizeof *x) == 0);
            assert_int_equal(step <= 2, a.penalty == 0);
            assert_true(b.penalty == 0 && b.open == (double)mha_trainer_gates(plain, NULL, NULL));
            double expected = 0;
            mha_trainer_gates(t, NULL, &expected);
            assert_int_equal(step <= 2, a.open == b.open);
            assert_int_equal(step <= 2, expected == b.open);
            free(x), free(y);
        }
        mha_trainer_free(t);
        mha_trainer_free(plain);
    }
}

static void write_into_output(mha_trainer *t)
{
    ((float *)t->list[t->gates->layer[0].parameter].data)[3] += 5;
    assert_int_equal(mha_trainer_refresh(t, NULL), MHA_OK);
}

/* Elements that the caller writes to an output projection must be used until the first step of the gates. After it,
 * they must be ignored, even if all gates are still 1. */
static void test_elements_written_by_the_caller(void **state)
{
    (void)state;
    const mha_train_gates gates = {MHA_GATES_L0, .rate = 1e-6, .initial = 4};
    mha_trainer *none = trainer_of(GPT2, gates), *before = trainer_of(GPT2, gates), *behind = trainer_of(GPT2, gates);
    write_into_output(before);
    const double first = train_on(none, B, L).loss;
    assert_true(train_on(before, B, L).loss != first);
    assert_true(train_on(behind, B, L).loss == first);
    write_into_output(behind);
    assert_true(train_on(behind, B, L).loss == train_on(none, B, L).loss);
    for (int64_t at = 0; at < none->gates->total; at++)
        assert_true(none->gates->shown[at] == 1);
    mha_trainer_free(none);
    mha_trainer_free(before);
    mha_trainer_free(behind);
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
    float spread[MOST * B];
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
        float gates[MOST];
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
    for (int64_t l = 0; l < t->gates->layers; l++)
        for (int64_t h = 0; h < t->gates->heads; h++)
            assert_true(largest_column(t, l, h) == 0);
    assert_memory_equal(plain->list[3].data, t->list[3].data, (size_t)t->parameter[3].count * sizeof(float));
    assert_int_equal(mha_trainer_resume(NULL, place, &other, &none, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "gates.penalty must be \"l0\", as in "));
    mha_trainer_free(t);
    mha_trainer_free(plain);
    files_remove(place);
}

/* ---- selection of heads ---- */

/* Texts that the small model was trained to repeat: token 0, then 15 different tokens twice. */
enum { TEXTS = 4, PERIOD = 15, LENGTH = 2 * PERIOD + 1, TOKENS = 63 };

static mha_train_report repeat(mha_trainer *t)
{
    int32_t ids[TEXTS * LENGTH] = {0}, labels[TEXTS * LENGTH];
    mha_train_report report;
    mha_error err = {0};
    for (int n = 0; n < TEXTS; n++) {
        uint64_t drawn = (uint64_t)(mha_trainer_step_count(t) * TEXTS + n);
        int32_t other[TOKENS], *id = ids + n * LENGTH;
        for (int i = 0; i < TOKENS; i++)
            other[i] = i + 1;
        for (int i = 0; i < PERIOD; i++) {
            const int at = i + (int)(mha__splitmix(&drawn) % (uint64_t)(TOKENS - i));
            id[1 + i] = id[1 + i + PERIOD] = other[at];
            other[at] = other[i];
        }
        for (int i = 0; i < LENGTH; i++)
            labels[n * LENGTH + i] = i > PERIOD + 1 ? id[i] : MHA_IGNORE;
    }
    const mha_model_input input = {.size = sizeof input, .batch = TEXTS, .length = LENGTH, .ids = ids};
    const mha_train_batch batch = {.input = &input, .labels = labels};
    if (mha_trainer_step(t, &batch, 1, &report, &err) != MHA_OK) fail_msg("%s", err.message);
    return report;
}

/* Returns a trainer of a model in which the output projections of two heads are noise. These heads can only increase
 * the loss, so the gates must close them. */
static mha_trainer *with_noise(mha_train_gates gates, const int noisy[2])
{
    mha_trainer *t = NULL, *changed = train_case(NULL, TINYLM, NULL);
    const mha_train_options o = {.size = sizeof o, .beta2 = 0.98, .seed = 2, .gates = gates};
    const int64_t heads = changed->model->config.heads, D = changed->model->config.head_dim;
    for (int n = 0; n < 2; n++) {
        const int64_t layer = noisy[n] / heads, first = noisy[n] % heads * D;
        const mha_named_tensor *w = NULL;
        for (int64_t p = 0; p < changed->count; p++)
            if (changed->parameter[p].role == MHA__ATTN_OUT && changed->parameter[p].layer == layer)
                w = &changed->list[p];
        uint64_t drawn = 11;
        for (int64_t e = 0; e < w->shape[0]; e++)
            for (int64_t d = first; d < first + D; d++)
                ((float *)w->data)[e * w->shape[1] + d] = (float)(mha__splitmix(&drawn) % 2001) * 1e-3F - 1;
    }
    assert_int_equal(mha_trainer_refresh(changed, NULL), MHA_OK);
    assert_int_equal(mha_trainer_create(changed->model, &o, &t, NULL), MHA_OK);
    mha_trainer_free(changed);
    return t;
}

static void test_useless_heads_close_first(void **state)
{
    (void)state;
    static const int noisy[2] = {1, 4};
    for (int penalty = MHA_GATES_L0; penalty <= MHA_GATES_L1; penalty++) {
        const mha_train_gates gates = {.penalty = (mha_gates_penalty)penalty,
                                       .rate = penalty == MHA_GATES_L1 ? 0.05 : 0,
                                       .end = 150,
                                       .heads = 6,
                                       .only = 1};
        mha_trainer *t = with_noise(gates, noisy);
        float shown[8];
        double first = 0, last = 0;
        for (int step = 1; step <= 160; step++) {
            const double loss = repeat(t).loss;
            if (step == 1) first = loss;
            if (step > 150) last += loss / 10;
        }
        assert_int_equal(mha_trainer_gates(t, shown, NULL), 6);
        for (int at = 0; at < 8; at++)
            assert_int_equal(shown[at] == 0, at == noisy[0] || at == noisy[1]);
        print_message("loss %.3f with the noise heads, %.3f without\n", first, last);
        assert_true(last < 0.5 * first);
        mha_trainer_free(t);
    }
}

/* Fails unless `heads` heads are open in total and at least one in every layer. Gates of other heads must be exactly
 * 0. */
static void expect_heads(const mha_trainer *t, int64_t heads)
{
    float shown[8];
    const int64_t open = mha_trainer_gates(t, shown, NULL);
    if (open != heads) fail_msg("step %d: got %d open heads, expected %d", (int)t->step, (int)open, (int)heads);
    for (int64_t l = 0; l < t->gates->layers; l++) {
        float most = 0;
        for (int64_t h = 0; h < t->gates->heads; h++)
            most = fmaxf(most, shown[l * t->gates->heads + h]);
        if (!(most > 0)) fail_msg("step %d: layer %d must have an open head", (int)t->step, (int)l);
    }
}

static void check_target(mha_gates_penalty penalty, int64_t heads)
{
    const mha_train_options o = {
        .size = sizeof o, .beta2 = 0.98, .gates = {.penalty = penalty, .end = 130, .heads = heads, .only = 1}};
    mha_trainer *t = train_case(NULL, TINYLM, &o);
    double expected = 0;
    mha_train_report r = {0};
    for (int step = 1; step <= 130; step++)
        r = repeat(t);
    if (penalty == MHA_GATES_L0 && fabs(r.open - (double)heads) > 0.5)
        fail_msg("got %g open heads, expected %d", r.open, (int)heads);
    mha_trainer_gates(t, NULL, &expected);
    assert_true(fabs(expected - (double)heads) < 1e-6);
    for (int step = 0; step < 10; step++) {
        expect_heads(t, heads);
        assert_true(repeat(t).penalty == 0);
    }
    expect_heads(t, heads);
    mha_trainer_free(t);
}

/* The expected number of open heads must decrease to the target and then stay at it. */
static void test_target_is_reached(void **state)
{
    (void)state;
    for (int64_t heads = 3; heads <= 6; heads += 3) {
        check_target(MHA_GATES_L0, heads);
        check_target(MHA_GATES_L1, heads);
    }
}

/* L1 gates that reach 0 within a few steps must be able to open again until they are fixed. The target number of heads
 * must then be open. */
static void test_l1_gates_at_zero_open_again(void **state)
{
    (void)state;
    static const int64_t ends[] = {12, 60}, heads[] = {2, 4, 6, 0};
    for (int n = 0; n < 8; n++) {
        const mha_train_options o = {.size = sizeof o,
                                     .gates = {MHA_GATES_L1, .end = ends[n / 4], .heads = heads[n % 4]}};
        mha_trainer *t = train_case(NULL, TINYLM, &o);
        int64_t target = heads[n % 4];
        for (int64_t step = 1; step <= ends[n / 4]; step++)
            repeat(t);
        if (!target) target = mha_trainer_gates(t, NULL, NULL);
        for (int step = 0; step < 20; step++) {
            expect_heads(t, target);
            repeat(t);
        }
        expect_heads(t, target);
        mha_trainer_free(t);
    }
}

static void test_gates_alone_leave_the_weights(void **state)
{
    (void)state;
    mha_trainer *t = trainer_of(GPT2, (mha_train_gates){MHA_GATES_L0, .only = 1}),
                *fresh = train_case(NULL, GPT2, NULL);
    int64_t moved = 0;
    for (int step = 0; step < 3; step++)
        assert_true(train_on(t, B, L).norm == 0);
    for (int64_t n = 0; n < t->count; n++)
        if (t->parameter[n].role != MHA__ATTN_OUT)
            assert_memory_equal(t->list[n].data, fresh->list[n].data, (size_t)t->parameter[n].count * sizeof(float));
    for (int64_t l = 0; l < t->gates->layers; l++) {
        const mha__gated *g = &t->gates->layer[l];
        assert_memory_equal(g->raw, fresh->list[g->parameter].data,
                            (size_t)t->parameter[g->parameter].count * sizeof(float));
        for (int64_t h = 0; h < g->heads; h++)
            moved += t->gates->value[l * t->gates->heads + h] != 2.5;
    }
    assert_true(moved == t->gates->total);
    mha_trainer_free(t);
    mha_trainer_free(fresh);
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
    mha_model *model =
        case_model(NULL, TINYLM, &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1});
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
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_hard_concrete),
        cmocka_unit_test(test_probability_is_the_fraction_sampled),
        cmocka_unit_test(test_gradients_against_differences),
        cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_saved_model_is_the_gated_one),
        cmocka_unit_test(test_closed_heads_are_zeros),
        cmocka_unit_test(test_before_the_start),
        cmocka_unit_test(test_elements_written_by_the_caller),
        cmocka_unit_test(test_bits_for_any_threads),
        cmocka_unit_test(test_resumed_gates_are_bitwise_identical),
        cmocka_unit_test(test_weights_wait_for_gates),
        cmocka_unit_test(test_gates_added_and_dropped_on_resume),
        cmocka_unit_test(test_useless_heads_close_first),
        cmocka_unit_test(test_target_is_reached),
        cmocka_unit_test(test_l1_gates_at_zero_open_again),
        cmocka_unit_test(test_gates_alone_leave_the_weights),
        cmocka_unit_test(test_a_failed_step_leaves_nothing),
        cmocka_unit_test(test_batches_without_sequences),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_rejected_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
