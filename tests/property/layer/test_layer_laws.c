/* test_layer_laws.c - tests invariants of layers with any weights. Samples must be independent, decoding must equal the
 * full sequence, and shared key/value heads must equal copied heads. Parameters must be unchanged by saving and
 * loading, and layers must remain usable after failed allocations. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/layers.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bitwise identical results ---- */

/* The output of sample b and the gradients of its inputs must be bitwise identical if it is computed alone or in a
 * batch, with any number of threads. */
static void check_bits(mha_variant *(*make)(mha_ctx *ctx))
{
    static float dq[LAYER_MAX], alone[LAYER_MAX];
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options options = {.size = sizeof options, .threads = threads};
        assert_int_equal(mha_ctx_create(&options, &ctx, &err), MHA_OK);
        mha_variant *layer = make(ctx);
        mha_trace *trace = NULL;
        mha_variant_input in = layer_cross();
        assert_int_equal(mha_trace_create(ctx, &trace, &err), MHA_OK);
        mha_variant_gradient g = {.size = sizeof g, .output = value, .query = threads == 1 ? dq : alone};
        layer_run(layer, &in, threads == 1 ? out : other, trace);
        assert_int_equal(mha_variant_backward(layer, &in, trace, &g, &err), MHA_OK);
        if (threads > 1) assert_memory_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
        if (threads > 1) assert_memory_equal(dq, alone, (size_t)(B * LQ * E) * sizeof *out);
        in.batch = 1;
        g.query = alone;
        for (int b = 0; b < B; b++) {
            in.query = query + b * LQ * E;
            in.key = key + b * LK * E;
            in.value = value + b * LK * E;
            g.output = value + b * LQ * E;
            layer_run(layer, &in, other, trace);
            assert_int_equal(mha_variant_backward(layer, &in, trace, &g, &err), MHA_OK);
            assert_memory_equal(out + b * LQ * E, other, (size_t)(LQ * E) * sizeof *out);
            assert_memory_equal(dq + b * LQ * E, alone, (size_t)(LQ * E) * sizeof *out);
        }
        mha_trace_free(trace);
        mha_variant_free(layer);
        mha_ctx_free(ctx);
    }
}

static mha_variant *standard_in(mha_ctx *ctx)
{
    mha_variant *layer = NULL;
    const mha_standard_mha_options o = {.size = sizeof o, .d_model = E, .num_heads = 4};
    return layer_drawn(mha_standard_mha_create(ctx, &o, &layer, &err), &layer);
}

static mha_variant *moe_in(mha_ctx *ctx)
{
    mha_variant *layer = NULL;
    const mha_moe_heads_options o = {.size = sizeof o, .d_model = E, .num_heads = 4};
    return layer_drawn(mha_moe_heads_create(ctx, &o, &layer, &err), &layer);
}

static mha_variant *adaptive_in(mha_ctx *ctx)
{
    static const int64_t options[] = {2, 4, 8};
    mha_variant *layer = NULL;
    const mha_adaptive_heads_options o = {.size = sizeof o,
                                          .d_model = E,
                                          .head_options = options,
                                          .head_option_count = 3,
                                          .selection = MHA_SELECTION_SOFT};
    return layer_drawn(mha_adaptive_heads_create(ctx, &o, &layer, &err), &layer);
}

static void test_bits(void **state)
{
    (void)state;
    check_bits(standard_in);
    check_bits(moe_in);
    check_bits(adaptive_in);
}

/* ---- cached keys and values ---- */

/* Returns a contiguous copy of the result of a step, [B, H, L, D]. The caller must free it. */
static float *flat(const mha_trace *trace, mha_step step)
{
    mha_step_view v;
    assert_true(mha_trace_step(trace, step, &v));
    float *copy = malloc((size_t)(v.shape[0] * v.shape[1] * v.shape[2] * v.shape[3]) * sizeof *copy), *at = copy;
    for (int64_t b = 0; b < v.shape[0]; b++)
        for (int64_t h = 0; h < v.shape[1]; h++)
            for (int64_t i = 0; i < v.shape[2]; i++, at += v.shape[3])
                memcpy(at, (const float *)v.data + b * v.stride[0] + h * v.stride[1] + i * v.stride[2],
                       (size_t)v.shape[3] * sizeof *at);
    return copy;
}

/* Decoding token by token with cached keys and values must be bitwise identical to one pass over the whole sequence. */
static void test_past_equals_whole(void **state)
{
    (void)state;
    LAYER(layer, llama_attention, .hidden_size = E, .num_heads = 4, .num_kv_heads = 2, .causal = 1, .rotary = 1);
    mha_trace *trace = layer_trace();
    mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = LK, .query = query};
    layer_run(layer, &in, out, trace);
    float *k = NULL, *v = NULL;
    for (int64_t done = 0, step = 1; done < LK; done += step, step = 3 - step) {
        if (step > LK - done) step = LK - done;
        in.query = query + done * E;
        in.q_len = step;
        in.past_len = done;
        in.past_key = k;
        in.past_value = v;
        layer_run(layer, &in, other, trace);
        assert_memory_equal(other, out + done * E, (size_t)(step * E) * sizeof *out);
        free(k);
        free(v);
        k = flat(trace, MHA_STEP_K);
        v = flat(trace, MHA_STEP_V);
    }
    free(k);
    free(v);
    mha_trace_free(trace);
    mha_variant_free(layer);
}

/* ---- shared key/value heads ---- */

/* A grouped-query layer must be bitwise identical to a multi-head layer in which each key/value head is copied for all
 * query heads of its group. */
static void test_sharing_equals_repeating(void **state)
{
    (void)state;
    enum { H = 4, GROUP = 2, D = E / H };
    LAYER(shared, grouped_query, .d_model = E, .num_heads = H, .kv_groups = GROUP);
    LAYER(repeated, standard_mha, .d_model = E, .num_heads = H);
    static const char *const names[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    for (int n = 0; n < 4; n++)
        for (int bias = 0; bias < 2; bias++) {
            char name[32];
            snprintf(name, sizeof name, "%s.%s", names[n], bias ? "bias" : "weight");
            const int width = D * (bias ? 1 : E), group = n == 1 || n == 2 ? GROUP : 1;
            for (int h = 0; h < H; h++)
                memcpy((float *)layer_parameter(repeated, name)->data + h * width,
                       (const float *)layer_parameter(shared, name)->data + h / group * width,
                       (size_t)width * sizeof(float));
        }
    assert_int_equal(mha_variant_update(repeated, &err), MHA_OK);
    const mha_variant_input in = layer_cross();
    layer_run(shared, &in, out, NULL);
    layer_run(repeated, &in, other, NULL);
    assert_memory_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
    assert_int_equal(mha_variant_parameter_count(repeated) - mha_variant_parameter_count(shared),
                     2 * (E * E / 2 + E / 2));
    mha_variant_free(shared);
    mha_variant_free(repeated);
}

/* ---- saving, loading, and reuse of traces ---- */

static void test_through_a_file(void **state)
{
    (void)state;
    const char *folder = files_folder(), *path = files_path(folder, "layer.safetensors");
    LAYER(layer, moe_heads, .d_model = E, .num_heads = 4);
    int64_t count;
    const mha_variant_input in = layer_cross();
    layer_run(layer, &in, out, NULL);
    const mha_named_tensor *list = mha_variant_parameters(layer, &count);
    assert_int_equal(mha_tensors_write(NULL, path, list, count, 0, &err), MHA_OK);
    mha_variant *again = NULL;
    const mha_moe_heads_options o = {.size = sizeof o, .d_model = E, .num_heads = 4};
    mha_file *file = NULL;
    assert_int_equal(mha_moe_heads_create(NULL, &o, &again, &err), MHA_OK);
    assert_int_equal(mha_variant_init(again, NULL, &err), MHA_OK);
    assert_int_equal(mha_file_open(NULL, path, NULL, &file, &err), MHA_OK);
    list = mha_variant_parameters(again, &count);
    assert_int_equal(mha_tensors_read(file, list, count, &err), MHA_OK);
    assert_int_equal(mha_variant_update(again, &err), MHA_OK);
    layer_run(again, &in, other, NULL);
    assert_memory_equal(out, other, (size_t)(B * LQ * E) * sizeof *out);
    mha_file_free(file);
    mha_variant_free(again);
    mha_variant_free(layer);
    files_remove(folder);
}

/* A trace must be reusable for another layer and shape. Results that the last call did not compute must be absent from
 * it. */
static void test_trace_again(void **state)
{
    (void)state;
    mha_trace *trace = layer_trace();
    mha_step_view view;
    LAYER(moe, moe_heads, .d_model = E, .num_heads = 4);
    LAYER(standard, standard_mha, .d_model = E, .num_heads = 4);
    mha_variant_input in = layer_cross();
    assert_false(mha_trace_step(trace, MHA_STEP_Q, &view));
    layer_run(moe, &in, out, trace);
    assert_true(mha_trace_step(trace, MHA_STEP_MIXED, &view));
    in.batch = 1;
    in.want_weights = 1;
    layer_run(standard, &in, out, trace);
    assert_false(mha_trace_step(trace, MHA_STEP_MIXED, &view));
    assert_false(mha_trace_step(trace, MHA_STEP_SCORES, &view));
    assert_true(mha_trace_step(trace, MHA_STEP_WEIGHTS, &view));
    for (int64_t row = 0; row < 4 * LQ; row++) {
        double sum = 0;
        for (int j = 0; j < LK; j++)
            sum += (double)((const float *)view.data)[row * LK + j];
        assert_true(fabs(sum - 1) < 1e-6);
    }
    in.query = NULL;
    assert_int_equal(mha_variant_forward(standard, &in, out, trace, &err), MHA_ERR_ARG);
    assert_false(mha_trace_step(trace, MHA_STEP_WEIGHTS, &view)); /* a failed call must leave an empty trace */
    assert_int_equal(mha_trace_flops(trace), 0);
    mha_trace_free(trace);
    mha_variant_free(moe);
    mha_variant_free(standard);
}

/* With a budget of 0, 1, 2, ... allocations, a backward pass must return MHA_ERR_MEMORY until it succeeds. */
static void test_starved_backward(void **state)
{
    (void)state;
    counting counts = {0};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&counts)};
    atomic_store(&counts.budget, -1);
    assert_int_equal(mha_ctx_create(&options, &ctx, &err), MHA_OK);
    mha_variant *layer = moe_in(ctx);
    mha_trace *trace = NULL;
    const mha_variant_input in = layer_cross();
    assert_int_equal(mha_trace_create(ctx, &trace, &err), MHA_OK);
    layer_run(layer, &in, out, trace);
    const mha_variant_gradient g = {.size = sizeof g, .output = value, .query = other};
    const long live = atomic_load(&counts.live);
    mha_status status = MHA_ERR_MEMORY;
    int refused = 0;
    for (long budget = 0; status != MHA_OK; budget++) {
        atomic_store(&counts.calls, 0);
        atomic_store(&counts.budget, budget);
        status = mha_variant_backward(layer, &in, trace, &g, &err);
        refused += status == MHA_ERR_MEMORY;
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        /* live + 1, because the call may keep the memory of the gradients */
        assert_true(atomic_load(&counts.live) <= live + 1);
    }
    assert_true(refused > 5);
    mha_trace_free(trace);
    mha_variant_free(layer);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&counts.live), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_past_equals_whole),
        cmocka_unit_test(test_sharing_equals_repeating),
        cmocka_unit_test(test_through_a_file),
        cmocka_unit_test(test_trace_again),
        cmocka_unit_test(test_starved_backward),
    };
    return cmocka_run_group_tests(tests, layer_inputs, NULL);
}
