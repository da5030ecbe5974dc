/* test_importance_losses.c - compares importance scores based on a loss with separately computed losses: gradients and
 * differences of the mean loss of next tokens, masked words and pairs of texts. */
#include "mha/importance.h"
#include "mha/model_grads.h"
#include "support/check.h"
#include "support/text/some_texts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the mean loss of all texts, computed as one batch. `gates` and `dgates` have the shape [layers, SOME_TEXTS,
 * H] and may be NULL. test_model_grads.c tests the gradients. */
static double mean_loss(const mha_model *model, const int32_t *labels, const float *gates, float *dgates)
{
    mha_model_grads *grads = NULL;
    const mha_model_input input = {
        .size = sizeof input, .batch = SOME_TEXTS, .ids = some_ids, .starts = some_starts, .gates = gates};
    const mha_model_loss_args args = {.size = sizeof args, .labels = labels, .dgates = dgates};
    double loss = 0;
    assert_int_equal(mha_model_grads_create(model, NULL, &grads, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_loss(grads, &input, &args, &loss, NULL, NULL), MHA_OK);
    mha_model_grads_free(grads);
    return loss;
}

static void check_gates(const mha_importance *gate, const mha_importance *batch, int64_t total, int64_t H,
                        const float *dgates)
{
    for (int64_t n = 0; n < total; n++) {
        double all = 0, together = 0;
        for (int64_t b = 0; b < SOME_TEXTS; b++) {
            const double one = (double)dgates[(n / H * SOME_TEXTS + b) * H + n % H];
            all += fabs(one);
            together += one;
        }
        assert_true(fabs(mha_importance_value(gate, n / H, n % H) - all) < 1e-6 * (1 + all));
        assert_true(fabs(mha_importance_value(batch, n / H, n % H) - fabs(together)) < 1e-6 * (1 + all));
        assert_true(mha_importance_value(gate, n / H, n % H) >= mha_importance_value(batch, n / H, n % H) - 1e-12);
        assert_true(mha_importance_low(gate, n / H, n % H) < mha_importance_value(gate, n / H, n % H));
    }
}

static void gates_of(const char *folder, mha_head_loss loss, const int32_t *labels)
{
    mha_model *model = some_model(NULL, folder);
    mha_head_data *data = some_data(model);
    const mha_model_info *info = mha_model_describe(model);
    const int64_t H = info->heads, total = info->layers * H;
    float *dgates = calloc((size_t)(total * SOME_TEXTS), sizeof *dgates);
    const double want = mean_loss(model, labels, NULL, dgates);
    const mha_importance_options o = {.loss = loss, .labels = labels};
    mha_importance_options by[] = {o, o, o};
    by[0].by = MHA_IMPORTANCE_GATE, by[1].by = MHA_IMPORTANCE_GATE_BATCH, by[2].by = MHA_IMPORTANCE_GRADMAG;
    mha_importance *gate = some_importance(model, data, by[0]), *batch = some_importance(model, data, by[1]),
                   *magnitude = some_importance(model, data, by[2]);
    assert_true(fabs(mha_importance_loss(gate) - want) < 1e-6);
    check_gates(gate, batch, total, H, dgates);
    for (int64_t n = 0; n < total; n++)
        assert_true(mha_importance_value(magnitude, n / H, n % H) > 0);
    assert_true(mha_importance_identity(magnitude) < 1e-4 && mha_importance_identity(gate) < 1e-4);
    mha_importance_free(gate);
    mha_importance_free(batch);
    mha_importance_free(magnitude);
    free(dgates);
    mha_head_data_free(data);
    mha_model_free(model);
}

static void gates_are_gradients_of_the_mean_loss(void **state)
{
    (void)state;
    static const char *const folders[] = {"models/gpt2-tiny", "heads/tinylm", "models/gemma2-tiny"};
    for (int f = 0; f < 3; f++)
        gates_of(folders[f], MHA_LOSS_AUTO, NULL);
}

/* ---- masked words ---- */

/* Sets a label for every third token and MHA_IGNORE for all other tokens. */
static void ask_for_tokens(int32_t *labels, int32_t vocab)
{
    for (int n = 0; n < SOME_TEXTS * SOME_LONGEST; n++)
        labels[n] = n % 3 == 1 ? (7 * n + 3) % vocab : MHA_IGNORE;
}

static const char mlm[] = "models/bert-mlm-tiny";

static void gates_of_masked_words(void **state)
{
    (void)state;
    static int32_t labels[SOME_TEXTS * SOME_LONGEST];
    ask_for_tokens(labels, 50);
    gates_of(mlm, MHA_LOSS_MLM, labels);
    gates_of(mlm, MHA_LOSS_AUTO, labels);
}

/* The leave-one-out score of a head must equal the loss with a gate of 0 for that head, minus the loss of the whole
 * model. */
static void masked_words_without_a_head(void **state)
{
    (void)state;
    int32_t labels[SOME_TEXTS * SOME_LONGEST];
    mha_model *model = some_model(NULL, mlm);
    mha_head_data *data = some_data(model);
    const mha_model_info *info = mha_model_describe(model);
    const int64_t H = info->heads, total = info->layers * H;
    float *gates = calloc((size_t)(total * SOME_TEXTS), sizeof *gates);
    ask_for_tokens(labels, 50);
    mha_importance *loo = some_importance(
        model, data, (mha_importance_options){.by = MHA_IMPORTANCE_LOO_LOSS, .loss = MHA_LOSS_MLM, .labels = labels});
    const double whole = mean_loss(model, labels, NULL, NULL);
    assert_true(fabs(mha_importance_loss(loo) - whole) < 1e-6);
    for (int64_t n = 0; n < total; n++) {
        for (int64_t g = 0; g < total * SOME_TEXTS; g++)
            gates[g] = g / (SOME_TEXTS * H) == n / H && g % H == n % H ? 0 : 1;
        const double want = mean_loss(model, labels, gates, NULL) - whole;
        assert_true(fabs(want) > 1e-6);
        assert_true(fabs(mha_importance_value(loo, n / H, n % H) - want) < 2e-6);
    }
    mha_importance_free(loo);
    free(gates);
    mha_head_data_free(data);
    mha_model_free(model);
}

/* ---- pairs of texts ---- */

/* Returns the mean last hidden state of each text, L2-normalized, [SOME_TEXTS, width]. */
static double *vectors_of(const mha_model *model, const float *gates)
{
    const int64_t width = mha_model_describe(model)->hidden;
    float *hidden = calloc((size_t)(some_starts[SOME_TEXTS] * width), sizeof *hidden);
    double *e = calloc((size_t)(SOME_TEXTS * width), sizeof *e);
    const mha_model_input input = {
        .size = sizeof input, .batch = SOME_TEXTS, .ids = some_ids, .starts = some_starts, .gates = gates};
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
    for (int t = 0; t < SOME_TEXTS; t++) {
        double square = 0, *v = e + t * width;
        for (int64_t n = some_starts[t] * width; n < some_starts[t + 1] * width; n++)
            v[n % width] += (double)hidden[n];
        for (int64_t d = 0; d < width; d++)
            square += v[d] * v[d];
        for (int64_t d = 0; d < width; d++)
            v[d] /= sqrt(square);
    }
    free(hidden);
    return e;
}

/* Returns (CE(S) + CE(S^T)) / 2 for S = 5 Ea Eb^T, the scaled similarities of all pairs of texts. CE is the mean
 * cross-entropy of the rows, with the diagonal element of each row as its label. */
static double pairs_loss(const mha_model *model, const float *gates)
{
    enum { HALF = SOME_TEXTS / 2 };
    const int64_t width = mha_model_describe(model)->hidden;
    double *e = vectors_of(model, gates), s[HALF][HALF] = {{0}}, loss = 0;
    for (int64_t n = 0; n < HALF * HALF * width; n++) {
        const int64_t a = n / width / HALF, b = n / width % HALF, d = n % width;
        s[a][b] += 5 * e[a * width + d] * e[(HALF + b) * width + d];
    }
    for (int a = 0; a < HALF; a++) {
        double row = 0, column = 0;
        for (int b = 0; b < HALF; b++)
            row += exp(s[a][b]), column += exp(s[b][a]);
        loss += (log(row) + log(column) - 2 * s[a][a]) / (2 * HALF);
    }
    free(e);
    return loss;
}

/* Sets gates [layers, SOME_TEXTS, H] to 0 for heads a and b and to 1 for all other heads. */
static void without(float *gates, int64_t layers, int64_t H, int64_t a, int64_t b)
{
    for (int64_t g = 0; g < layers * SOME_TEXTS * H; g++) {
        const int64_t head = g / (SOME_TEXTS * H) * H + g % H;
        gates[g] = head == a || head == b ? 0 : 1;
    }
}

static void two_heads_by_the_loss_of_pairs(void **state)
{
    (void)state;
    mha_model *model = some_model(NULL, "models/bert-tiny");
    mha_head_data *data = some_data(model);
    const mha_model_info *info = mha_model_describe(model);
    const int64_t H = info->heads, N = info->layers * H;
    const mha_importance_options o = {.size = sizeof o, .loss = MHA_LOSS_PAIRS},
                                 one = {.by = MHA_IMPORTANCE_LOO_LOSS, .loss = MHA_LOSS_PAIRS};
    float *gates = calloc((size_t)(N * SOME_TEXTS), sizeof *gates);
    double *pairs = calloc((size_t)(N * N), sizeof *pairs), max = 0;
    mha_error err = {0};
    if (mha_importance_pairs(model, data, &o, pairs, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_importance *alone = some_importance(model, data, one);
    const double whole = pairs_loss(model, NULL);
    assert_true(fabs(mha_importance_loss(alone) - whole) < 1e-6);
    for (int64_t n = 0; n < N * N; n++) {
        without(gates, info->layers, H, n / N, n % N);
        const double want = pairs_loss(model, gates) - whole;
        max = fmax(max, fabs(want));
        assert_true(fabs(pairs[n] - want) < 2e-6);
        assert_true(pairs[n] == pairs[n % N * N + n / N]);
        if (n / N == n % N) assert_true(fabs(mha_importance_value(alone, n / N / H, n % N % H) - want) < 2e-6);
    }
    assert_true(max > 1e-3);
    mha_importance_free(alone);
    free(pairs);
    free(gates);
    mha_head_data_free(data);
    mha_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gates_are_gradients_of_the_mean_loss),
        cmocka_unit_test(gates_of_masked_words),
        cmocka_unit_test(masked_words_without_a_head),
        cmocka_unit_test(two_heads_by_the_loss_of_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
