/* test_train_gates_selection.c - tests which heads trained gates close: useless heads first, and as many as the target
 * head count requires. */
#include "math/rng_draws.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/model/train_case.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer_struct.h"
#include <math.h>

#define GPT2 "models/gpt2-tiny"
#define TINYLM "heads/tinylm"
enum { B = 3, L = 12, MAX = 256 };

static mha_trainer *trainer_of(const char *folder, mha_train_gates gates)
{
    const mha_train_options o = {.size = sizeof o, .rate = 1e-2, .decay = 0.1, .clip = 1, .seed = 5, .gates = gates};
    return train_case(NULL, folder, &o);
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
        float max = 0;
        for (int64_t h = 0; h < t->gates->heads; h++)
            max = fmaxf(max, shown[l * t->gates->heads + h]);
        if (!(max > 0)) fail_msg("step %d: layer %d must have an open head", (int)t->step, (int)l);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_useless_heads_close_first),
        cmocka_unit_test(test_target_is_reached),
        cmocka_unit_test(test_l1_gates_at_zero_open_again),
        cmocka_unit_test(test_gates_alone_leave_the_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
