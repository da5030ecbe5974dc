/* test_layer_gradients.c - the gradients of every layer against differences of its outputs, in double: of all inputs,
 * all parameters, and of selectors in their trainable forms; and that straight-through changes no output. */
#include "mha/mha.h"
#include "support/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, LQ = 4, LK = 5, MOST = 4096 };

static mha_error err;

/* A layer with its input and a weight for each number of its output: the loss is their product. */
typedef struct problem {
    const char *name;
    mha_variant *layer;
    mha_variant_input in;
    int64_t d_in, d_out;
    double query[MOST], key[MOST], value[MOST], past_key[MOST], past_value[MOST], output[MOST], weight[MOST];
    mha_trace *trace;
    double step, limit; /* of differences */
} problem;

static void draw(mha_rng *rng, double *x, int64_t n)
{
    assert_int_equal(mha_rng_randn_f64(rng, x, n, &err), MHA_OK);
}

/* Takes the layer; `cross` gives key and value of their own. */
static problem *make(const char *name, mha_status status, mha_variant *layer, int64_t d_in, int64_t d_out, bool cross)
{
    mha_rng rng;
    problem *p = calloc(1, sizeof *p);
    if (status != MHA_OK) fail_msg("%s: %s", name, err.message);
    *p = (problem){.name = name, .layer = layer, .d_in = d_in, .d_out = d_out, .step = 1e-5, .limit = 2e-8};
    p->in = (mha_variant_input){.size = sizeof p->in, .batch = B, .q_len = LQ, .query = p->query};
    mha_rng_manual_seed(&rng, 7);
    assert_int_equal(mha_variant_init(layer, &rng, &err), MHA_OK);
    draw(&rng, p->query, B * LQ * d_in);
    draw(&rng, p->key, B * LK * d_in);
    draw(&rng, p->value, B * LK * d_in);
    draw(&rng, p->weight, B * LQ * d_out);
    if (cross) {
        p->in.key = p->key;
        p->in.value = p->value;
        p->in.kv_len = LK;
    }
    assert_int_equal(mha_trace_create(NULL, &p->trace, &err), MHA_OK);
    return p;
}

static void drop(problem *p)
{
    mha_trace_free(p->trace);
    mha_variant_free(p->layer);
    free(p);
}

/* Gates are f32 in the operator: differences must be wider than their rounding. */
static void has_soft_gates(problem *p)
{
    p->step = 1e-2;
    p->limit = 3e-4;
}

static double loss(problem *p)
{
    double sum = 0;
    if (mha_variant_forward(p->layer, &p->in, p->output, p->trace, &err) != MHA_OK)
        fail_msg("%s: %s", p->name, err.message);
    for (int64_t n = 0; n < B * p->in.q_len * p->d_out; n++)
        sum += p->output[n] * p->weight[n];
    return sum;
}

/* dx against (loss(x + h) - loss(x - h)) / 2h for each number of x; `parameter` repacks the layer. */
static void against_differences(problem *p, const char *what, double *x, const double *dx, int64_t count,
                                bool parameter)
{
    const double h = p->step;
    for (int64_t n = 0; n < count; n++) {
        const double before = x[n];
        double side[2];
        for (int s = 0; s < 2; s++) {
            x[n] = before + (s ? h : -h);
            if (parameter) assert_int_equal(mha_variant_update(p->layer, &err), MHA_OK);
            side[s] = loss(p);
        }
        x[n] = before;
        const double want = (side[1] - side[0]) / (2 * h);
        if (!(fabs(dx[n] - want) <= p->limit * (1 + fabs(want))))
            fail_msg("%s: gradient of %s[%d] is %.10g, differences say %.10g", p->name, what, (int)n, dx[n], want);
    }
    if (parameter) assert_int_equal(mha_variant_update(p->layer, &err), MHA_OK);
}

static int64_t elements(const mha_named_tensor *t)
{
    int64_t count = 1;
    for (int n = 0; n < t->rank; n++)
        count *= t->shape[n];
    return count;
}

static void check(problem *p)
{
    static double dq[MOST], dk[MOST], dv[MOST], dpk[MOST], dpv[MOST];
    const mha_variant_gradient g = {
        .size = sizeof g, .output = p->weight, .query = dq, .key = dk, .value = dv, .past_key = dpk, .past_value = dpv};
    int64_t count;
    loss(p);
    assert_int_equal(mha_variant_zero_gradients(p->layer, &err), MHA_OK);
    if (mha_variant_backward(p->layer, &p->in, p->trace, &g, &err) != MHA_OK) fail_msg("%s: %s", p->name, err.message);
    against_differences(p, "query", p->query, dq, B * p->in.q_len * p->d_in, false);
    if (p->in.key) against_differences(p, "key", p->key, dk, B * LK * p->d_in, false);
    if (p->in.value) against_differences(p, "value", p->value, dv, B * LK * p->d_in, false);
    const int64_t past = B * p->in.past_len * 4; /* of two key/value heads, two wide */
    if (p->in.past_len) against_differences(p, "past_key", p->past_key, dpk, past, false);
    if (p->in.past_len) against_differences(p, "past_value", p->past_value, dpv, past, false);
    const mha_named_tensor *list = mha_variant_parameters(p->layer, &count);
    const mha_named_tensor *grads = mha_variant_gradients(p->layer, &count);
    for (int64_t n = 0; n < count; n++)
        against_differences(p, list[n].name, list[n].data, grads[n].data, elements(&list[n]), true);
}

#define MAKE(kind, d_in, d_out, cross, ...)                                           \
    mha_variant *layer = NULL;                                                        \
    const mha_##kind##_options o = {.size = sizeof o, .dtype = MHA_F64, __VA_ARGS__}; \
    const mha_status status = mha_##kind##_create(NULL, &o, &layer, &err);            \
    problem *p = make(#kind, status, layer, d_in, d_out, cross)

static void test_self_attention(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        MAKE(self_attention, 3, 4, false, .d_in = 3, .d_out = 4, .plain_matrices = plain, .qkv_bias = !plain);
        check(p);
        drop(p);
    }
}

/* With a mask of dropout that is given, so that every call drops the same weights. */
static void test_causal_attention(void **state)
{
    (void)state;
    MAKE(causal_attention, 3, 4, false, .d_in = 3, .d_out = 4, .dropout = 0.25, .qkv_bias = 1);
    uint8_t keep[B * LQ * LQ];
    for (int n = 0; n < B * LQ * LQ; n++)
        keep[n] = n % 4 != 1;
    p->in.training = 1;
    p->in.dropout_keep = keep;
    check(p);
    drop(p);
}

static void test_stacked_heads(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        MAKE(stacked_heads, 3, 6, false, .d_in = 3, .d_out = 6, .num_heads = 3, .plain_matrices = plain);
        check(p);
        drop(p);
    }
}

static void test_weight_split(void **state)
{
    (void)state;
    MAKE(weight_split, 3, 4, false, .d_in = 3, .d_out = 4, .num_heads = 2, .scale_rule = MHA_SCALE_D_OUT);
    check(p);
    drop(p);
}

static void test_qkv_attention(void **state)
{
    (void)state;
    MAKE(qkv_attention, 3, 4, true, .input_dim = 3, .output_dim = 4, .num_heads = 2);
    const double blocked[LK] = {0, 1e-10, 3e-10, 0, 2e-10};
    p->in.blocked = (mha_mask){blocked, 3, {1, 1, LK}};
    check(p);
    drop(p);
}

/* Key alone given: value stands for it too. And a row that keep leaves without a key. */
static void test_standard_mha(void **state)
{
    (void)state;
    MAKE(standard_mha, 4, 4, true, .d_model = 4, .num_heads = 2);
    uint8_t keep[B * 2 * LQ * LK];
    for (int n = 0; n < B * 2 * LQ * LK; n++)
        keep[n] = n % 3 != 1 && (n / LK) % 5 != 2;
    p->in.keep = (mha_mask){keep, 4, {B, 2, LQ, LK}};
    check(p);
    p->in.value = NULL;
    static double dq[MOST], dk[MOST];
    const mha_variant_gradient g = {.size = sizeof g, .output = p->weight, .query = dq, .key = dk};
    loss(p);
    assert_int_equal(mha_variant_backward(p->layer, &p->in, p->trace, &g, &err), MHA_OK);
    against_differences(p, "key as value", p->key, dk, B * LK * 4, false);
    drop(p);
}

static void test_grouped_query(void **state)
{
    (void)state;
    MAKE(grouped_query, 8, 8, true, .d_model = 8, .num_heads = 4, .num_kv_heads = 2);
    check(p);
    drop(p);
}

static void test_llama_attention(void **state)
{
    (void)state;
    MAKE(llama_attention, 8, 8, false, .hidden_size = 8, .num_heads = 4, .num_kv_heads = 2, .causal = 1);
    mha_rng rng;
    mha_rng_manual_seed(&rng, 3);
    draw(&rng, p->past_key, B * 2 * 3 * 2);
    draw(&rng, p->past_value, B * 2 * 3 * 2);
    p->in.past_len = 3;
    p->in.past_key = p->past_key;
    p->in.past_value = p->past_value;
    check(p);
    drop(p);
}

static void test_moe_heads(void **state)
{
    (void)state;
    for (int output = MHA_EXPERT_PROJECT; output <= MHA_EXPERT_PLAIN; output++) {
        const bool plain = output == MHA_EXPERT_PLAIN;
        MAKE(moe_heads, 4, 4, true, .d_model = 4, .num_heads = plain ? 1 : 4, .num_experts = plain ? 3 : 4, .top_k = 2,
             .expert_output = (mha_expert_output)output);
        has_soft_gates(p);
        check(p);
        drop(p);
    }
}

/* The published form has no gradient for the predictor; differences agree as long as the choice stays the same. */
static void test_head_pruning(void **state)
{
    (void)state;
    for (int selection = MHA_SELECTION_HARD; selection <= MHA_SELECTION_SOFT; selection++) {
        MAKE(head_pruning, 6, 6, true, .d_model = 6, .num_heads = 3, .prune_ratio = 0.34,
             .selection = (mha_selection)selection);
        if (selection == MHA_SELECTION_SOFT) has_soft_gates(p);
        check(p);
        drop(p);
    }
}

static void test_adaptive_heads(void **state)
{
    (void)state;
    const int64_t options[] = {1, 2, 4};
    for (int selection = MHA_SELECTION_HARD; selection <= MHA_SELECTION_SOFT; selection++) {
        MAKE(adaptive_heads, 4, 4, true, .d_model = 4, .head_options = options, .head_option_count = 3,
             .predictor_width = 5, .selection = (mha_selection)selection);
        if (selection == MHA_SELECTION_SOFT) has_soft_gates(p);
        check(p);
        drop(p);
    }
}

/* ---- straight-through ---- */

static const double *gradient_of(const problem *p, const char *name, int64_t *count)
{
    int64_t n;
    const mha_named_tensor *list = mha_variant_gradients(p->layer, &n);
    *count = 0;
    while (n-- > 0)
        if (strcmp(list[n].name, name) == 0) return *count = elements(&list[n]), list[n].data;
    fail_msg("no parameter %s", name);
    return NULL;
}

/* Output as of the hard form, to the bit; gradients of the projections too. The predictor's are those that the gate
 * would have at 1: with loss linear in the gates, d loss / d gate = the loss that this head's share of the output
 * makes. */
static void compare_straight_through(problem *hard, problem *through, const char *predictor)
{
    static double dq[2][MOST];
    const char *same[] = {"q_proj.weight", "k_proj.bias", "v_proj.weight", "o_proj.weight", "o_proj.bias"};
    problem *const both[] = {hard, through};
    for (int n = 0; n < 2; n++) {
        const mha_variant_gradient g = {.size = sizeof g, .output = both[n]->weight, .query = dq[n]};
        loss(both[n]);
        assert_int_equal(mha_variant_zero_gradients(both[n]->layer, &err), MHA_OK);
        assert_int_equal(mha_variant_backward(both[n]->layer, &both[n]->in, both[n]->trace, &g, &err), MHA_OK);
    }
    assert_memory_equal(hard->output, through->output, (size_t)(B * LQ * hard->d_out) * sizeof(double));
    int64_t count;
    for (size_t n = 0; n < sizeof same / sizeof *same; n++) {
        const double *a = gradient_of(hard, same[n], &count), *b = gradient_of(through, same[n], &count);
        assert_memory_equal(a, b, (size_t)count * sizeof *a);
    }
    double sum[2] = {0, 0};
    for (int p = 0; p < 2; p++) {
        const double *g = gradient_of(both[p], predictor, &count);
        for (int64_t n = 0; n < count; n++)
            sum[p] += fabs(g[n]);
    }
    assert_true(sum[0] == 0 && sum[1] > 1e-6);
}

/* d loss / d score of head h = sigmoid' times what h adds to the loss: the loss with h kept less the loss of o_proj's
 * bias and the other heads. With one head kept of two that is loss - bias. */
static void test_straight_through_pruning(void **state)
{
    (void)state;
    problem *problems[2];
    for (int n = 0; n < 2; n++) {
        MAKE(head_pruning, 6, 6, true, .d_model = 6, .num_heads = 2, .prune_ratio = 0.5,
             .selection = n ? MHA_SELECTION_STRAIGHT_THROUGH : MHA_SELECTION_HARD);
        problems[n] = p;
    }
    compare_straight_through(problems[0], problems[1], "head_importance.bias");
    problem *p = problems[1];
    int64_t count, chosen;
    const mha_named_tensor *list = mha_variant_parameters(p->layer, &count);
    const double *bias = list[count - 1].data, *got = gradient_of(p, "head_importance.bias", &count);
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
    drop(problems[0]);
    drop(problems[1]);
}

static void test_straight_through_adaptive(void **state)
{
    (void)state;
    const int64_t options[] = {1, 2, 4};
    problem *problems[2];
    for (int n = 0; n < 2; n++) {
        MAKE(adaptive_heads, 4, 4, true, .d_model = 4, .head_options = options, .head_option_count = 3,
             .selection = n ? MHA_SELECTION_STRAIGHT_THROUGH : MHA_SELECTION_HARD);
        problems[n] = p;
    }
    compare_straight_through(problems[0], problems[1], "head_predictor.2.bias");
    problem *p = problems[1];
    int64_t count, chosen;
    const mha_named_tensor *list = mha_variant_parameters(p->layer, &count);
    const double *bias = list[count - 1].data, *got = gradient_of(p, "head_predictor.2.bias", &count);
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
    drop(problems[0]);
    drop(problems[1]);
}

/* Gradients add up from call to call until they are cleared, and a trace of another call is refused. */
static void test_accumulation(void **state)
{
    (void)state;
    MAKE(standard_mha, 4, 4, false, .d_model = 4, .num_heads = 2);
    const mha_variant_gradient g = {.size = sizeof g, .output = p->weight};
    int64_t count;
    loss(p);
    assert_int_equal(mha_variant_backward(p->layer, &p->in, p->trace, &g, &err), MHA_OK);
    const double once = *gradient_of(p, "o_proj.bias", &count);
    assert_int_equal(mha_variant_backward(p->layer, &p->in, p->trace, &g, &err), MHA_OK);
    assert_true(fabs(*gradient_of(p, "o_proj.bias", &count) - 2 * once) < 1e-12);
    assert_int_equal(mha_variant_zero_gradients(p->layer, &err), MHA_OK);
    assert_true(*gradient_of(p, "o_proj.bias", &count) == 0);
    p->in.q_len = LQ - 1;
    assert_int_equal(mha_variant_backward(p->layer, &p->in, p->trace, &g, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "multi-head attention: the trace is not that of a forward call with this input");
    drop(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self_attention),
        cmocka_unit_test(test_causal_attention),
        cmocka_unit_test(test_stacked_heads),
        cmocka_unit_test(test_weight_split),
        cmocka_unit_test(test_qkv_attention),
        cmocka_unit_test(test_standard_mha),
        cmocka_unit_test(test_grouped_query),
        cmocka_unit_test(test_llama_attention),
        cmocka_unit_test(test_moe_heads),
        cmocka_unit_test(test_head_pruning),
        cmocka_unit_test(test_adaptive_heads),
        cmocka_unit_test(test_straight_through_pruning),
        cmocka_unit_test(test_straight_through_adaptive),
        cmocka_unit_test(test_accumulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
