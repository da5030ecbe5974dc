/* test_train_gates.c - tests trainable head gates: formulas, gradients, and the model with gates. */
#include "math/rng_draws.h"
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
enum { B = 3, L = 12, MAX = 256 };
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
        assert_true(fabs(mha__gate_sampled(want[n].a, want[n].u, &slope) - want[n].gate) < 1e-13);
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
            open += mha__gate_sampled(a, ((double)mha__philox(9, n, 0, 0, 0) + 0.5) * 0x1p-32, &slope) > 0;
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
    double gradient[MAX];
    mha_trainer *t = trainer_of(folder, gates);
    const int64_t cells = t->gates->layers * t->gates->heads;
    int inside = 0;
    assert_true(cells <= MAX);
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
    float gates[MAX], spread[MAX * B];
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
    mha_model *opened = case_open(NULL, place);
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
    double max = 0;
    for (int64_t i = 0; i < w->shape[0]; i++)
        for (int64_t j = 0; j < w->shape[1]; j++)
            if ((transposed ? i : j) / D == head)
                max = fmax(max, fabs((double)((float *)w->data)[i * w->shape[1] + j]));
    return max;
}

static void test_closed_heads_are_zeros(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        float gates[MAX];
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
