/* test_ablation_tinylm.c - compares the ablation of single heads and pairs of heads of a small causal model with
 * reference values (float64, PyTorch). Removing one of its four induction heads increases the loss slightly; removing
 * all four increases it strongly. */
#include "mha/importance.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, H = 4, N = LAYERS * H, TEXTS = 4, LENGTH = 31, TOKENS = TEXTS * LENGTH, VOCAB = 64 };

static mha_error err;

static mha_model *open_model(mha_ctx *ctx)
{
    return case_open(ctx, "heads/tinylm");
}

static mha_head_data *open_data(const mha_model *model)
{
    mha_file *file = case_file("heads/tinylm-golden.safetensors");
    int32_t *ids = case_ints(file, "input_ids");
    int64_t starts[TEXTS + 1];
    mha_head_data *data = NULL;
    for (int t = 0; t <= TEXTS; t++)
        starts[t] = t * LENGTH;
    if (mha_head_data_of_ids(model, ids, starts, TEXTS, NULL, &data, &err) != MHA_OK) fail_msg("%s", err.message);
    free(ids);
    mha_file_free(file);
    return data;
}

static mha_importance *measure(const mha_model *model, const mha_head_data *data, mha_importance_score by,
                               int64_t batch_texts)
{
    const mha_importance_options o = {.size = sizeof o, .by = by, .batch_texts = batch_texts};
    mha_importance *i = NULL;
    err = (mha_error){0};
    if (mha_importance_measure(model, data, &o, &i, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(err.status, MHA_OK); /* callbacks that stop early must not make the pass fail */
    return i;
}

/* Returns the mean next-token loss of a text, from the logits of a forward pass with these gates and fills. */
static double loss_of(const mha_model *model, const int32_t *ids, const float *gates, const float *fills)
{
    float *logits = malloc((size_t)(LENGTH * VOCAB) * sizeof *logits);
    const mha_model_input in = {
        .size = sizeof in, .batch = 1, .length = LENGTH, .ids = ids, .gates = gates, .fills = fills};
    const mha_model_output out = {.size = sizeof out, .logits = logits};
    double loss = 0;
    if (mha_model_forward(model, &in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int t = 0; t + 1 < LENGTH; t++) {
        double sum = 0;
        for (int c = 0; c < VOCAB; c++)
            sum += exp((double)logits[t * VOCAB + c]);
        loss += log(sum) - (double)logits[t * VOCAB + ids[t + 1]];
    }
    free(logits);
    return loss / (LENGTH - 1);
}

/* ---- recorded values ---- */

static void one_head_off(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_head_data *data = open_data(model);
    mha_file *file = case_file("heads/tinylm-golden.safetensors");
    float *want = case_floats(file, "loo_loss"), *loss = case_floats(file, "loss");
    mha_importance *i = measure(model, data, MHA_IMPORTANCE_LOO_LOSS, 0);
    for (int n = 0; n < N; n++) {
        const double got = mha_importance_value(i, n / H, n % H);
        if (!(fabs(got - (double)want[n]) <= 4.5e-6))
            fail_msg("head %d: got %.9g, expected %.9g", n, got, (double)want[n]);
        assert_true(mha_importance_low(i, n / H, n % H) < got && got < mha_importance_high(i, n / H, n % H));
    }
    assert_true(fabs(mha_importance_loss(i) - (double)*loss) <= 2.2e-6);
    assert_int_equal(mha_importance_texts_used(i), TEXTS);
    mha_importance_free(i);
    free(want);
    free(loss);
    mha_file_free(file);
    mha_head_data_free(data);
    mha_model_free(model);
}

static void two_heads_off(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_head_data *data = open_data(model);
    mha_file *file = case_file("heads/tinylm-golden.safetensors");
    float *want = case_floats(file, "loo_pair_loss");
    const mha_importance_options o = {.size = sizeof o};
    double got[N * N];
    if (mha_importance_pairs(model, data, &o, got, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int n = 0; n < N * N; n++) {
        if (!(fabs(got[n] - (double)want[n]) <= 5.7e-6))
            fail_msg("pair %d %d: got %.9g, expected %.9g", n / N, n % N, got[n], (double)want[n]);
        assert_true(got[n] == got[n % N * N + n / N]);
    }
    free(want);
    mha_file_free(file);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* Removing all heads of layer 1 must increase the loss by 3.56; removing one of the four, by 0.06 to 0.13. */
static void a_layer_off(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_file *file = case_file("heads/tinylm-golden.safetensors");
    float *want = case_floats(file, "loss_without_layer1_heads");
    int32_t *ids = case_ints(file, "input_ids");
    static const float gates[N] = {1, 1, 1, 1, 0, 0, 0, 0};
    double loss = 0;
    for (int t = 0; t < TEXTS; t++)
        loss += loss_of(model, ids + t * LENGTH, gates, NULL) / TEXTS;
    if (!(fabs(loss - (double)*want) <= 6.9e-6)) fail_msg("got %.9g, expected %.9g", loss, (double)*want);
    free(want);
    free(ids);
    mha_file_free(file);
    mha_model_free(model);
}

/* ---- comparison with explicit gates and fills ---- */

typedef struct means {
    double sum[N * 64];
} means;

static int add_context(void *user, const mha_model_activations *a)
{
    means *m = user;
    const int64_t wide = a->heads * a->head_dim;
    assert_true(a->heads == H && a->head_dim <= 64);
    for (int64_t n = 0; n < a->rows * wide; n++)
        m->sum[a->layer * wide + n % wide] += (double)a->context[n] / TOKENS;
    return 0;
}

static float *mean_contexts(const mha_model *model, const mha_head_data *data)
{
    const int64_t cells = N * mha_model_describe(model)->head_dim;
    float *fills = malloc((size_t)cells * sizeof *fills);
    means m = {{0}};
    for (int t = 0; t < TEXTS; t++) {
        int64_t length;
        const int32_t *ids = mha_head_data_ids(data, t, &length);
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = length, .ids = ids};
        const mha_model_output out = {.size = sizeof out, .on_activations = add_context, .user = &m};
        assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_OK);
    }
    for (int64_t n = 0; n < cells; n++)
        fills[n] = (float)m.sum[n];
    return fills;
}

/* Returns the loss without head n, from a forward pass with a gate of 0 and `fill` (or NULL) as the head's output. */
static double by_hand(const mha_model *model, const mha_head_data *data, int n, const float *all)
{
    const int64_t D = mha_model_describe(model)->head_dim;
    float gates[N], *fills = calloc((size_t)(N * D), sizeof *fills);
    double loss = 0;
    for (int k = 0; k < N; k++)
        gates[k] = k != n;
    if (all) memcpy(fills + n * D, all + n * D, (size_t)D * sizeof *fills);
    for (int t = 0; t < TEXTS; t++) {
        int64_t length;
        const int32_t *ids = mha_head_data_ids(data, t, &length);
        loss += (loss_of(model, ids, gates, fills) - loss_of(model, ids, NULL, NULL)) / TEXTS;
    }
    free(fills);
    return loss;
}

/* Ablation with zeros and with means must give the losses of forward passes with gates and fills, for any batch
 * size. */
static void scores_are_those_of_gates(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_head_data *data = open_data(model);
    float *fills = mean_contexts(model, data);
    for (int mean = 0; mean < 2; mean++)
        for (int64_t batch = 1; batch <= TEXTS; batch += 3) {
            mha_importance *i =
                measure(model, data, mean ? MHA_IMPORTANCE_LOO_MEAN_LOSS : MHA_IMPORTANCE_LOO_LOSS, batch);
            for (int n = 0; n < N; n++) {
                const double got = mha_importance_value(i, n / H, n % H);
                const double want = by_hand(model, data, n, mean ? fills : NULL);
                if (!(fabs(got - want) <= 3e-6)) fail_msg("head %d: got %.9g, expected %.9g", n, got, want);
            }
            mha_importance_free(i);
        }
    free(fills);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- threads, failed allocations, rejected arguments ---- */

static void threads_change_no_bit(void **state)
{
    (void)state;
    static const mha_importance_score scores[] = {MHA_IMPORTANCE_LOO, MHA_IMPORTANCE_LOO_LOSS,
                                                  MHA_IMPORTANCE_LOO_MEAN_LOSS};
    double first[3][N], first_pairs[N * N];
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options o = {.size = sizeof o, .threads = threads};
        const mha_importance_options of_pairs = {.size = sizeof of_pairs, .by = MHA_IMPORTANCE_LOO_MEAN};
        assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
        mha_model *model = open_model(ctx);
        mha_head_data *data = open_data(model);
        double pairs[N * N];
        for (int s = 0; s < 3; s++) {
            mha_importance *i = measure(model, data, scores[s], 0);
            const double *values = mha_importance_values(i, NULL);
            if (threads == 1) memcpy(first[s], values, sizeof first[s]);
            assert_memory_equal(first[s], values, sizeof first[s]);
            mha_importance_free(i);
        }
        assert_int_equal(mha_importance_pairs(model, data, &of_pairs, pairs, &err), MHA_OK);
        if (threads == 1) memcpy(first_pairs, pairs, sizeof pairs);
        assert_memory_equal(first_pairs, pairs, sizeof pairs);
        mha_head_data_free(data);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
}

static void memory_ends(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    const mha_importance_options ablation = {.size = sizeof ablation, .by = MHA_IMPORTANCE_LOO_MEAN_LOSS};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
    mha_model *model = open_model(ctx);
    mha_head_data *data = open_data(model);
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    for (long n = 0; status != MHA_OK; n += 1 + n / 8) {
        mha_importance *i = NULL;
        memory.budget = memory.calls + n;
        status = mha_importance_measure(model, data, &ablation, &i, &err);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        mha_importance_free(i);
        assert_int_equal(memory.live, live);
    }
    status = MHA_ERR_MEMORY;
    for (long n = 0; status != MHA_OK; n += 1 + n / 4) {
        double pairs[N * N];
        memory.budget = memory.calls + n;
        status = mha_importance_pairs(model, data, &ablation, pairs, &err);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, live);
    }
    mha_head_data_free(data);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

static void what_cannot_be_asked_for(void **state)
{
    (void)state;
    mha_model *model = open_model(NULL);
    mha_head_data *data = open_data(model);
    int32_t labels[TOKENS];
    double pairs[N * N];
    for (int t = 0; t < TOKENS; t++)
        labels[t] = -100;
    const mha_importance_options none = {.size = sizeof none, .by = MHA_IMPORTANCE_LOO_LOSS, .labels = labels};
    mha_importance *i = NULL;
    assert_int_equal(mha_importance_measure(model, data, &none, &i, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "texts 1 to 4 of 4: a batch must have at least one token in the loss");
    assert_int_equal(mha_importance_pairs(model, data, &none, pairs, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "texts 1 to 4 of 4: a batch must have at least one token in the loss");
    assert_int_equal(mha_importance_pairs(model, data, &none, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "out must not be NULL");
    mha_head_data_free(data);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_head_off),
        cmocka_unit_test(two_heads_off),
        cmocka_unit_test(a_layer_off),
        cmocka_unit_test(scores_are_those_of_gates),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(memory_ends),
        cmocka_unit_test(what_cannot_be_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
