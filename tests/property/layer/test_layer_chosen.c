/* test_layer_chosen.c - heads and experts that the router does not select for a sample must not be read, computed or
 * counted. */
#include "support/check.h"
#include "support/model/layers.h"
#include <math.h>
#include <string.h>

static void poison(const mha_variant *layer, const char *name, int64_t first, int64_t rows, int64_t row_width)
{
    float *x = layer_parameter(layer, name)->data;
    for (int64_t n = first * row_width; n < (first + rows) * row_width; n++)
        x[n] = NAN;
}

/* Sets the weights of heads that no sample keeps to NaN. The results of the forward and the backward pass must remain
 * finite. */
static void test_pruned_heads_are_unread(void **state)
{
    (void)state;
    enum { H = 6, D = E / H };
    LAYER(layer, head_pruning, .d_model = E, .num_heads = H, .prune_ratio = 0.5);
    float *score = layer_parameter(layer, "head_importance.bias")->data;
    for (int h = 0; h < H; h++)
        score[h] = h % 2 ? 100 : -100; /* every sample keeps heads 1, 3 and 5 */
    mha_variant_input in = layer_cross();
    mha_trace *trace = layer_trace();
    assert_int_equal(mha_variant_update(layer, &err), MHA_OK);
    layer_run(layer, &in, out, trace);
    for (int h = 0; h < H; h += 2) {
        poison(layer, "q_proj.weight", h * D, D, E);
        poison(layer, "k_proj.weight", h * D, D, E);
        poison(layer, "v_proj.weight", h * D, D, E);
        poison(layer, "q_proj.bias", h * D, D, 1);
        poison(layer, "v_proj.bias", h * D, D, 1);
        float *o = layer_parameter(layer, "o_proj.weight")->data;
        for (int e = 0; e < E; e++)
            for (int d = 0; d < D; d++)
                o[e * E + h * D + d] = NAN;
    }
    assert_int_equal(mha_variant_update(layer, &err), MHA_OK);
    layer_run(layer, &in, other, trace);
    assert_memory_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
    const mha_variant_gradient g = {.size = sizeof g, .output = query, .query = other, .key = other, .value = other};
    assert_int_equal(mha_variant_backward(layer, &in, trace, &g, &err), MHA_OK);
    int64_t count;
    const mha_named_tensor *grads = mha_variant_gradients(layer, &count);
    for (int64_t n = 0; n < count; n++)
        for (int64_t i = 0; i < grads[n].shape[0] * (grads[n].rank == 2 ? grads[n].shape[1] : 1); i++)
            assert_true(isfinite(((const float *)grads[n].data)[i]));
    for (int n = 0; n < B * LQ * E; n++)
        assert_true(isfinite(other[n]));
    mha_trace_free(trace);
    mha_variant_free(layer);
}

static int64_t flops_of(double ratio)
{
    LAYER(layer, head_pruning, .d_model = E, .num_heads = 6, .prune_ratio = ratio);
    mha_variant_input in = layer_cross();
    mha_trace *trace = layer_trace();
    layer_run(layer, &in, out, trace);
    const int64_t flops = mha_trace_flops(trace);
    mha_trace_free(trace);
    mha_variant_free(layer);
    return flops;
}

static void test_pruned_flops(void **state)
{
    (void)state;
    const int64_t predictor = 2 * B * E * 6, D = E / 6;
    const int64_t head = B * (2 * LQ * E * D + 2 * 2 * LK * E * D + 4 * LQ * LK * D + 2 * LQ * D * E);
    assert_int_equal(flops_of(0), predictor + 6 * head);
    assert_int_equal(flops_of(0.5), predictor + 3 * head);
    assert_int_equal(flops_of(0.7), predictor + 1 * head);
    assert_int_equal(flops_of(1), predictor);
}

static void test_other_experts_are_unread(void **state)
{
    (void)state;
    LAYER(layer, moe_heads, .d_model = E, .num_heads = 4, .num_experts = 5, .top_k = 2);
    float *bias = layer_parameter(layer, "router.bias")->data;
    bias[1] = 50, bias[3] = 60;
    mha_variant_input in = layer_cross();
    mha_trace *trace = layer_trace();
    int64_t count;
    assert_int_equal(mha_variant_update(layer, &err), MHA_OK);
    layer_run(layer, &in, out, trace);
    assert_int_equal(mha_trace_chosen(trace, 2, &count)[0], 3);
    assert_int_equal(mha_trace_chosen(trace, 2, &count)[1], 1);
    assert_null(mha_trace_chosen(trace, B, &count));
    poison(layer, "experts.0.q_proj.weight", 0, 6, E);
    poison(layer, "experts.2.v_proj.bias", 0, 6, 1);
    poison(layer, "experts.4.o_proj.weight", 0, E, 6);
    assert_int_equal(mha_variant_update(layer, &err), MHA_OK);
    layer_run(layer, &in, other, trace);
    assert_memory_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
    mha_trace_free(trace);
    mha_variant_free(layer);
}

/* The router must select experts by descending logit, with NaN first and the lower index first among equal logits.
 * Tests hundreds of logits, many of them equal. */
static void test_order_of_choice(void **state)
{
    (void)state;
    enum { EXPERTS = 500, TAKEN = 200 };
    LAYER(layer, moe_heads, .d_model = E, .num_heads = E, .num_experts = EXPERTS, .top_k = TAKEN);
    mha_variant_input in = layer_cross();
    mha_trace *trace = layer_trace();
    float *logit = layer_parameter(layer, "router.bias")->data;
    memset(layer_parameter(layer, "router.weight")->data, 0, EXPERTS * E * sizeof *logit);
    for (int e = 0; e < EXPERTS; e++)
        logit[e] = e == 77 || e == 300 ? NAN : (float)(e * 37 % 101) / 10;
    assert_int_equal(mha_variant_update(layer, &err), MHA_OK);
    layer_run(layer, &in, out, trace);
    bool taken[EXPERTS] = {0};
    int64_t count;
    const int32_t *chosen = mha_trace_chosen(trace, 1, &count);
    assert_int_equal(count, TAKEN);
    for (int i = 0; i < TAKEN; i++) {
        assert_false(taken[chosen[i]]);
        taken[chosen[i]] = true;
    }
    assert_true(chosen[0] == 77 && chosen[1] == 300);
    for (int i = 3; i < TAKEN; i++) {
        const float before = logit[chosen[i - 1]], after = logit[chosen[i]];
        assert_true(before > after || (before == after && chosen[i - 1] < chosen[i]));
    }
    const int32_t last = chosen[TAKEN - 1];
    for (int e = 0; e < EXPERTS; e++)
        assert_true(taken[e] || logit[e] < logit[last] || (logit[e] == logit[last] && e > last));
    mha_trace_free(trace);
    mha_variant_free(layer);
}

/* A trace must contain copies of all data that it returns, so that it remains valid after its layer is freed. */
static void test_trace_without_its_layer(void **state)
{
    (void)state;
    const int64_t options[] = {2, 3};
    LAYER(layer, adaptive_heads, .d_model = E, .head_options = options, .head_option_count = 2);
    mha_variant_input in = layer_cross();
    in.want_weights = 1;
    mha_trace *trace = layer_trace();
    mha_step_view q, weights, view;
    int64_t heads[B], count;
    layer_run(layer, &in, out, trace);
    assert_true(mha_trace_step(trace, MHA_STEP_Q, &q) && mha_trace_step(trace, MHA_STEP_WEIGHTS, &weights));
    for (int b = 0; b < B; b++) {
        heads[b] = mha_trace_heads(trace, b);
        assert_int_equal(heads[b], options[*mha_trace_chosen(trace, b, NULL)]);
    }
    const int64_t flops = mha_trace_flops(trace);
    mha_variant_free(layer);
    for (mha_step step = MHA_STEP_Q; step <= MHA_STEP_GATES; step++)
        assert_int_equal(mha_trace_step(trace, step, &view), step != MHA_STEP_SCORES && step != MHA_STEP_MIXED);
    assert_false(mha_trace_step(trace, (mha_step)(MHA_STEP_GATES + 1), &view));
    assert_true(mha_trace_step(trace, MHA_STEP_Q, &view) && view.data == q.data && view.shape[3] == E);
    assert_true(mha_trace_step(trace, MHA_STEP_WEIGHTS, &view) && view.data == weights.data && view.shape[1] == 3);
    for (int b = 0; b < B; b++) {
        assert_int_equal(mha_trace_heads(trace, b), heads[b]);
        assert_int_equal(options[*mha_trace_chosen(trace, b, &count)], heads[b]);
        assert_int_equal(count, 1);
    }
    assert_int_equal(mha_trace_flops(trace), flops);
    mha_trace_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pruned_heads_are_unread),  cmocka_unit_test(test_pruned_flops),
        cmocka_unit_test(test_other_experts_are_unread), cmocka_unit_test(test_order_of_choice),
        cmocka_unit_test(test_trace_without_its_layer),
    };
    return cmocka_run_group_tests(tests, layer_inputs, NULL);
}
