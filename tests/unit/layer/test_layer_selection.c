/* test_layer_selection.c - tests straight-through gates. Outputs and gradients of projections must equal those with
 * hard gates; gradients of the predictor must equal values derived by hand. */
#include "support/check.h"
#include "support/model/layer_trial.h"
#include <math.h>

/* Fails unless the output and the gradients of the projections are bitwise identical with hard and with
 * straight-through gates. The gradients of the predictor must be 0 with hard gates and not 0 with straight-through
 * gates. */
static void compare_straight_through(trial *hard, trial *through, const char *predictor)
{
    static double dq[2][TRIAL_MAX];
    const char *same[] = {"q_proj.weight", "k_proj.bias", "v_proj.weight", "o_proj.weight", "o_proj.bias"};
    trial *const both[] = {hard, through};
    for (int n = 0; n < 2; n++) {
        const mha_variant_gradient g = {.size = sizeof g, .output = both[n]->weight, .query = dq[n]};
        trial_loss(both[n]);
        assert_int_equal(mha_variant_zero_gradients(both[n]->layer, &trial_error), MHA_OK);
        assert_int_equal(mha_variant_backward(both[n]->layer, &both[n]->in, both[n]->trace, &g, &trial_error), MHA_OK);
    }
    assert_memory_equal(hard->output, through->output, (size_t)(B * LQ * hard->d_out) * sizeof(double));
    int64_t count;
    for (size_t n = 0; n < sizeof same / sizeof *same; n++) {
        const double *a = trial_gradient(hard, same[n], &count), *b = trial_gradient(through, same[n], &count);
        assert_memory_equal(a, b, (size_t)count * sizeof *a);
    }
    double sum[2] = {0, 0};
    for (int p = 0; p < 2; p++) {
        const double *g = trial_gradient(both[p], predictor, &count);
        for (int64_t n = 0; n < count; n++)
            sum[p] += fabs(g[n]);
    }
    assert_true(sum[0] == 0 && sum[1] > 1e-6);
}

/* The loss is linear in the gates, so its derivative with respect to the gate of head h is the head's contribution to
 * the loss. If one of two heads is kept, the contribution is sum((output - bias of o_proj) * output gradient). The
 * derivative with respect to the score is s (1 - s) times the contribution, with s = sigmoid(score). */
static void test_straight_through_pruning(void **state)
{
    (void)state;
    trial *trials[2];
    for (int n = 0; n < 2; n++) {
        TRIAL(head_pruning, 6, 6, true, .d_model = 6, .num_heads = 2, .prune_ratio = 0.5,
              .selection = n ? MHA_SELECTION_STRAIGHT_THROUGH : MHA_SELECTION_HARD);
        trials[n] = p;
    }
    compare_straight_through(trials[0], trials[1], "head_importance.bias");
    trial *p = trials[1];
    int64_t count, chosen;
    const mha_named_tensor *list = mha_variant_parameters(p->layer, &count);
    const double *bias = list[count - 1].data, *got = trial_gradient(p, "head_importance.bias", &count);
    double want[2] = {0, 0};
    mha_step_view logits;
    assert_true(mha_trace_step(p->trace, MHA_STEP_LOGITS, &logits));
    for (int b = 0; b < B; b++) {
        const int32_t h = *mha_trace_chosen(p->trace, b, &chosen);
        const double score = ((const double *)logits.data)[2 * b + h], s = 1 / (1 + exp(-score));
        for (int64_t n = 0; n < LQ * 6; n++)
            want[h] += s * (1 - s) * (p->output[b * LQ * 6 + n] - bias[n % 6]) * p->weight[b * LQ * 6 + n];
    }
    for (int h = 0; h < 2; h++)
        assert_true(fabs(want[h] - got[h]) <= 1e-12 * (1 + fabs(want[h])));
    trial_drop(trials[0]);
    trial_drop(trials[1]);
}

static void test_straight_through_adaptive(void **state)
{
    (void)state;
    const int64_t options[] = {1, 2, 4};
    trial *trials[2];
    for (int n = 0; n < 2; n++) {
        TRIAL(adaptive_heads, 4, 4, true, .d_model = 4, .head_options = options, .head_option_count = 3,
              .selection = n ? MHA_SELECTION_STRAIGHT_THROUGH : MHA_SELECTION_HARD);
        trials[n] = p;
    }
    compare_straight_through(trials[0], trials[1], "head_predictor.2.bias");
    trial *p = trials[1];
    int64_t count, chosen;
    const mha_named_tensor *list = mha_variant_parameters(p->layer, &count);
    const double *bias = list[count - 1].data, *got = trial_gradient(p, "head_predictor.2.bias", &count);
    double want[3] = {0, 0, 0};
    mha_step_view logits;
    assert_true(mha_trace_step(p->trace, MHA_STEP_LOGITS, &logits));
    for (int b = 0; b < B; b++) {
        const int32_t choice = *mha_trace_chosen(p->trace, b, &chosen);
        const double *x = (const double *)logits.data + 3 * b;
        const double sum = exp(x[0]) + exp(x[1]) + exp(x[2]);
        double dgate = 0;
        for (int64_t n = 0; n < LQ * 4; n++)
            dgate += (p->output[b * LQ * 4 + n] - bias[n % 4]) * p->weight[b * LQ * 4 + n];
        for (int o = 0; o < 3; o++)
            want[o] += dgate * exp(x[choice]) / sum * ((o == choice) - exp(x[o]) / sum);
    }
    for (int o = 0; o < 3; o++)
        assert_true(fabs(want[o] - got[o]) <= 1e-12 * (1 + fabs(want[o])));
    trial_drop(trials[0]);
    trial_drop(trials[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_straight_through_pruning),
        cmocka_unit_test(test_straight_through_adaptive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
