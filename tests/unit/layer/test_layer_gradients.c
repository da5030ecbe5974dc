/* test_layer_gradients.c - compares gradients of every layer in double with finite differences: for all inputs, all
 * parameters, and routers and predictors with soft gates. */
#include "support/check.h"
#include "support/model/layer_trial.h"
#include <math.h>
#include <string.h>

/* Compares dx[n] with (loss(x[n] + h) - loss(x[n] - h)) / 2h, for all elements of x or for p->samples of them. If x is
 * a parameter, the layer must be updated after each change. */
static void against_differences(trial *p, const char *what, double *x, const double *dx, int64_t count, bool parameter)
{
    const double h = p->step;
    const int64_t apart = p->samples > 0 && count > p->samples ? count / p->samples : 1;
    for (int64_t n = apart / 2; n < count; n += apart) {
        const double before = x[n];
        double side[2];
        for (int s = 0; s < 2; s++) {
            x[n] = before + (s ? h : -h);
            if (parameter) assert_int_equal(mha_variant_update(p->layer, &trial_error), MHA_OK);
            side[s] = trial_loss(p);
        }
        x[n] = before;
        const double want = (side[1] - side[0]) / (2 * h);
        if (!(fabs(dx[n] - want) <= p->limit * (1 + fabs(want))))
            fail_msg("%s: gradient of %s[%d]: got %.10g, expected %.10g by finite differences", p->name, what, (int)n,
                     dx[n], want);
    }
    if (parameter) assert_int_equal(mha_variant_update(p->layer, &trial_error), MHA_OK);
}

static void check(trial *p)
{
    static double dq[TRIAL_MAX], dk[TRIAL_MAX], dv[TRIAL_MAX], dpk[TRIAL_MAX], dpv[TRIAL_MAX];
    const mha_variant_gradient g = {.size = sizeof g,
                                    .output = p->weight,
                                    .query = dq,
                                    .key = p->in.key ? dk : NULL,
                                    .value = p->in.value ? dv : NULL,
                                    .past_key = p->in.past_len ? dpk : NULL,
                                    .past_value = p->in.past_len ? dpv : NULL};
    int64_t count;
    trial_loss(p);
    assert_int_equal(mha_variant_zero_gradients(p->layer, &trial_error), MHA_OK);
    if (mha_variant_backward(p->layer, &p->in, p->trace, &g, &trial_error) != MHA_OK)
        fail_msg("%s: %s", p->name, trial_error.message);
    against_differences(p, "query", p->query, dq, B * p->in.q_len * p->d_in, false);
    if (p->in.key) against_differences(p, "key", p->key, dk, B * LK * p->d_in, false);
    if (p->in.value) against_differences(p, "value", p->value, dv, B * LK * p->d_in, false);
    const int64_t past = B * p->in.past_len * 4; /* past tokens have two key/value heads of width 2 */
    if (p->in.past_len) against_differences(p, "past_key", p->past_key, dpk, past, false);
    if (p->in.past_len) against_differences(p, "past_value", p->past_value, dpv, past, false);
    const mha_named_tensor *list = mha_variant_parameters(p->layer, &count);
    const mha_named_tensor *grads = mha_variant_gradients(p->layer, &count);
    for (int64_t n = 0; n < count; n++)
        against_differences(p, list[n].name, list[n].data, grads[n].data, trial_elements(&list[n]), true);
}

static void test_self_attention(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        TRIAL(self_attention, 3, 4, false, .d_in = 3, .d_out = 4, .plain_matrices = plain, .qkv_bias = !plain);
        check(p);
        trial_drop(p);
    }
}

/* The dropout mask is given, so that every call drops the same attention weights. */
static void test_causal_attention(void **state)
{
    (void)state;
    TRIAL(causal_attention, 3, 4, false, .d_in = 3, .d_out = 4, .dropout = 0.25, .qkv_bias = 1);
    uint8_t keep[B * LQ * LQ];
    for (int n = 0; n < B * LQ * LQ; n++)
        keep[n] = n % 4 != 1;
    p->in.training = 1;
    p->in.dropout_keep = keep;
    check(p);
    trial_drop(p);
}

static void test_stacked_heads(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        TRIAL(stacked_heads, 3, 6, false, .d_in = 3, .d_out = 6, .num_heads = 3, .plain_matrices = plain);
        check(p);
        trial_drop(p);
    }
}

static void test_weight_split(void **state)
{
    (void)state;
    TRIAL(weight_split, 3, 4, false, .d_in = 3, .d_out = 4, .num_heads = 2, .scale_rule = MHA_SCALE_D_OUT);
    check(p);
    trial_drop(p);
}

static void test_qkv_attention(void **state)
{
    (void)state;
    TRIAL(qkv_attention, 3, 4, true, .input_dim = 3, .output_dim = 4, .num_heads = 2);
    const double blocked[LK] = {0, 1e-10, 3e-10, 0, 2e-10};
    p->in.blocked = (mha_mask){blocked, 3, {1, 1, LK}};
    check(p);
    trial_drop(p);
}

/* Without `value`, `key` must also be used as the value. `keep` masks all keys of some rows. */
static void test_standard_mha(void **state)
{
    (void)state;
    TRIAL(standard_mha, 4, 4, true, .d_model = 4, .num_heads = 2);
    uint8_t keep[B * 2 * LQ * LK];
    for (int n = 0; n < B * 2 * LQ * LK; n++)
        keep[n] = n % 3 != 1 && (n / LK) % 5 != 2;
    p->in.keep = (mha_mask){keep, 4, {B, 2, LQ, LK}};
    check(p);
    p->in.value = NULL;
    static double dq[TRIAL_MAX], dk[TRIAL_MAX];
    const mha_variant_gradient g = {.size = sizeof g, .output = p->weight, .query = dq, .key = dk};
    trial_loss(p);
    assert_int_equal(mha_variant_backward(p->layer, &p->in, p->trace, &g, &trial_error), MHA_OK);
    against_differences(p, "key as value", p->key, dk, B * LK * 4, false);
    trial_drop(p);
}

static void test_grouped_query(void **state)
{
    (void)state;
    TRIAL(grouped_query, 8, 8, true, .d_model = 8, .num_heads = 4, .num_kv_heads = 2);
    check(p);
    trial_drop(p);
}

static void test_llama_attention(void **state)
{
    (void)state;
    TRIAL(llama_attention, 8, 8, false, .hidden_size = 8, .num_heads = 4, .num_kv_heads = 2, .causal = 1);
    mha_rng rng;
    mha_rng_manual_seed(&rng, 3);
    trial_draw(&rng, p->past_key, B * 2 * 3 * 2);
    trial_draw(&rng, p->past_value, B * 2 * 3 * 2);
    p->in.past_len = 3;
    p->in.past_key = p->past_key;
    p->in.past_value = p->past_value;
    check(p);
    trial_drop(p);
}

static void test_moe_heads(void **state)
{
    (void)state;
    for (int output = MHA_EXPERT_PROJECT; output <= MHA_EXPERT_PLAIN; output++) {
        const bool plain = output == MHA_EXPERT_PLAIN;
        TRIAL(moe_heads, 4, 4, true, .d_model = 4, .num_heads = plain ? 1 : 4, .num_experts = plain ? 3 : 4, .top_k = 2,
              .expert_output = (mha_expert_output)output);
        trial_soft_gates(p);
        check(p);
        trial_drop(p);
    }
    /* Each sample uses 2 of 40 experts: the trace must not contain contexts of unused experts */
    TRIAL(moe_heads, 4, 4, true, .d_model = 4, .num_heads = 2, .num_experts = 40, .top_k = 2);
    trial_soft_gates(p);
    check(p);
    trial_drop(p);
}

/* Tests heads of width 768: a layer with a single head, as in docs/layers, and experts with one head. */
static void test_wide_heads(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        TRIAL(self_attention, 3, 768, false, .d_in = 3, .d_out = 768, .plain_matrices = plain);
        p->samples = 20;
        p->limit = 1e-6; /* a higher limit, since longer sums have larger rounding errors */
        check(p);
        trial_drop(p);
    }
    TRIAL(moe_heads, 768, 768, true, .d_model = 768, .num_heads = 1, .num_experts = 3, .top_k = 2,
          .expert_output = MHA_EXPERT_PLAIN);
    trial_soft_gates(p);
    p->samples = 4;
    check(p);
    trial_drop(p);
}

/* With hard gates, the gradients of the predictor must be 0; finite differences are then also 0, if the selection does
 * not change. */
static void test_head_pruning(void **state)
{
    (void)state;
    for (int selection = MHA_SELECTION_HARD; selection <= MHA_SELECTION_SOFT; selection++) {
        TRIAL(head_pruning, 6, 6, true, .d_model = 6, .num_heads = 3, .prune_ratio = 0.34,
              .selection = (mha_selection)selection);
        if (selection == MHA_SELECTION_SOFT) trial_soft_gates(p);
        check(p);
        trial_drop(p);
    }
}

static void test_adaptive_heads(void **state)
{
    (void)state;
    const int64_t options[] = {1, 2, 4};
    for (int selection = MHA_SELECTION_HARD; selection <= MHA_SELECTION_SOFT; selection++) {
        TRIAL(adaptive_heads, 4, 4, true, .d_model = 4, .head_options = options, .head_option_count = 3,
              .predictor_width = 5, .selection = (mha_selection)selection);
        if (selection == MHA_SELECTION_SOFT) trial_soft_gates(p);
        check(p);
        trial_drop(p);
    }
}

/* Gradients must be added up over several calls until they are set to zero. A trace of a call with another input must
 * be rejected. */
static void test_accumulation(void **state)
{
    (void)state;
    TRIAL(standard_mha, 4, 4, false, .d_model = 4, .num_heads = 2);
    const mha_variant_gradient g = {.size = sizeof g, .output = p->weight};
    int64_t count;
    trial_loss(p);
    assert_int_equal(mha_variant_backward(p->layer, &p->in, p->trace, &g, &trial_error), MHA_OK);
    const double once = *trial_gradient(p, "o_proj.bias", &count);
    assert_int_equal(mha_variant_backward(p->layer, &p->in, p->trace, &g, &trial_error), MHA_OK);
    assert_true(fabs(*trial_gradient(p, "o_proj.bias", &count) - 2 * once) < 1e-12);
    assert_int_equal(mha_variant_zero_gradients(p->layer, &trial_error), MHA_OK);
    assert_true(*trial_gradient(p, "o_proj.bias", &count) == 0);
    p->in.q_len = LQ - 1;
    assert_int_equal(mha_variant_backward(p->layer, &p->in, p->trace, &g, &trial_error), MHA_ERR_ARG);
    assert_string_equal(trial_error.message,
                        "multi-head attention: trace must be from a forward call with the same input");
    trial_drop(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self_attention), cmocka_unit_test(test_causal_attention),
        cmocka_unit_test(test_stacked_heads),  cmocka_unit_test(test_weight_split),
        cmocka_unit_test(test_qkv_attention),  cmocka_unit_test(test_standard_mha),
        cmocka_unit_test(test_grouped_query),  cmocka_unit_test(test_llama_attention),
        cmocka_unit_test(test_moe_heads),      cmocka_unit_test(test_wide_heads),
        cmocka_unit_test(test_head_pruning),   cmocka_unit_test(test_adaptive_heads),
        cmocka_unit_test(test_accumulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
