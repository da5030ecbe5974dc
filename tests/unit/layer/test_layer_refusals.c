/* test_layer_refusals.c - tests attention layers: the error message of an invalid call must name the field and its
 * value, and unusual calls must succeed. test_layer_constructors.c tests the constructors. */
#include "mha/mha.h"
#include "support/alloc.h"
#include "support/check.h"
#include <stdio.h>
#include <string.h>

static mha_error err;

static float x[4 * 8 * 8], y[4 * 8 * 8];

static mha_variant *standard(int64_t d_model, int64_t heads)
{
    mha_variant *layer = NULL;
    mha_rng rng;
    const mha_standard_mha_options o = {.size = sizeof o, .d_model = d_model, .num_heads = heads};
    mha_rng_manual_seed(&rng, 1);
    assert_int_equal(mha_standard_mha_create(NULL, &o, &layer, &err), MHA_OK);
    assert_int_equal(mha_variant_init(layer, &rng, &err), MHA_OK);
    return layer;
}

static mha_variant *causal(void)
{
    mha_variant *layer = NULL;
    mha_rng rng;
    const mha_causal_attention_options o = {.size = sizeof o, .d_in = 4, .d_out = 4, .context_length = 5};
    mha_rng_manual_seed(&rng, 1);
    assert_int_equal(mha_causal_attention_create(NULL, &o, &layer, &err), MHA_OK);
    assert_int_equal(mha_variant_init(layer, &rng, &err), MHA_OK);
    return layer;
}

static void call_refused(const mha_variant *layer, const mha_variant_input *in, const char *sentence)
{
    assert_int_equal(mha_variant_forward(layer, in, y, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, sentence);
}

static void test_too_many_tokens(void **state)
{
    (void)state;
    mha_variant *layer = causal();
    mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = 6, .query = x};
    call_refused(layer, &in, "causal attention: number of tokens must be at most context_length = 5 (got 6)");
    in.q_len = 5;
    assert_int_equal(mha_variant_forward(layer, &in, y, NULL, &err), MHA_OK);
    in.key = x;
    call_refused(layer, &in, "causal attention: key must be NULL, since the layer reads only query");
    in.key = NULL, in.past_len = 1;
    call_refused(layer, &in, "causal attention: number of tokens must be at most context_length = 5 (got 6)");
    in.q_len = 4;
    call_refused(layer, &in, "causal attention: past_len must be 0, since the layer does not accept past tokens");
    in.past_len = 0, in.positions = (const int64_t *)x;
    call_refused(layer, &in, "causal attention: positions must be NULL for a layer without rotation");
    in.positions = NULL, in.query = NULL;
    call_refused(layer, &in, "causal attention: query must not be NULL");
    in.batch = INT64_MAX / 8;
    call_refused(layer, &in, "causal attention: batch and length must fit in memory (got 1152921504606846975, 8)");
    mha_variant_free(layer);
}

static void test_sizes(void **state)
{
    (void)state;
    mha_variant *layer = standard(8, 2);
    mha_variant_input in = {.size = sizeof in, .q_len = 3, .query = x};
    call_refused(layer, &in, "multi-head attention: batch must be at least 1 (got 0)");
    in.batch = 1, in.q_len = 0;
    call_refused(layer, &in, "multi-head attention: q_len must be from 1 to 2147483647 (got 0)");
    in.q_len = 3, in.kv_len = -1;
    call_refused(layer, &in, "multi-head attention: kv_len must be from 1 to 2147483647 (got -1)");
    in.kv_len = 3, in.past_len = -2;
    call_refused(layer, &in, "multi-head attention: past_len must be from 0 to 2147483647 (got -2)");
    in.past_len = 0, in.past_value = x;
    call_refused(layer, &in,
                 "multi-head attention: past_value must be NULL, since the layer does not accept past tokens");
    in.past_key = x;
    call_refused(layer, &in,
                 "multi-head attention: past_key must be NULL, since the layer does not accept past tokens");
    mha_variant_free(layer);
}

/* Dropout arguments must be rejected for a layer without dropout, and so must two sources of the same dropout mask. */
static void test_dropout(void **state)
{
    (void)state;
    static const uint8_t keep[9] = {1};
    mha_variant *layers[] = {standard(4, 1), causal()}, *dropping = NULL;
    mha_rng rng;
    mha_rng_manual_seed(&rng, 1);
    mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = 3, .query = x, .training = 1, .rng = &rng};
    call_refused(layers[0], &in, "multi-head attention: rng must be NULL for a layer without dropout");
    /* rng must be accepted, because the layer supports dropout and its probability is 0 */
    assert_int_equal(mha_variant_forward(layers[1], &in, y, NULL, &err), MHA_OK);
    in.rng = NULL, in.dropout_keep = keep;
    call_refused(layers[0], &in, "multi-head attention: dropout_keep must be NULL for a layer without dropout");
    call_refused(layers[1], &in, "causal attention: dropout_keep must be NULL with dropout = 0");
    const mha_causal_attention_options o = {.size = sizeof o, .d_in = 4, .d_out = 4, .dropout = 0.5};
    assert_int_equal(mha_causal_attention_create(NULL, &o, &dropping, &err), MHA_OK);
    assert_int_equal(mha_variant_init(dropping, &rng, &err), MHA_OK);
    in.rng = &rng;
    call_refused(dropping, &in, "causal attention: dropout_keep must be NULL with rng");
    in.training = 0;
    assert_int_equal(mha_variant_forward(layers[0], &in, y, NULL, &err), MHA_OK);
    assert_int_equal(mha_variant_forward(dropping, &in, y, NULL, &err), MHA_OK);
    for (int n = 0; n < 2; n++)
        mha_variant_free(layers[n]);
    mha_variant_free(dropping);
}

/* mha_variant_init without a generator must set all parameters to 0, even after a random initialization. */
static void test_init_without_a_generator(void **state)
{
    (void)state;
    mha_variant *layer = standard(8, 2);
    int64_t count;
    const mha_named_tensor *list = mha_variant_parameters(layer, &count);
    assert_true(*(const float *)list[0].data != 0);
    assert_int_equal(mha_variant_init(layer, NULL, &err), MHA_OK);
    for (int64_t n = 0; n < count; n++)
        for (int64_t i = 0; i < list[n].shape[0] * (list[n].rank == 2 ? list[n].shape[1] : 1); i++)
            assert_true(((const float *)list[n].data)[i] == 0);
    mha_variant_free(layer);
}

static void test_mask_shapes(void **state)
{
    (void)state;
    static const uint8_t keep[512] = {1};
    static const struct {
        mha_mask mask;
        const char *shape; /* the shape that the error message must contain; NULL = the mask must be accepted */
    } masks[] = {
        {{keep, 2, {3, 5}}, NULL},
        {{keep, 2, {1, 5}}, NULL},
        {{keep, 3, {2, 3, 5}}, NULL},
        {{keep, 3, {1, 3, 5}}, NULL},
        {{keep, 3, {2, 1, 5}}, NULL},
        {{keep, 4, {2, 4, 3, 5}}, NULL},
        {{keep, 4, {1, 4, 1, 5}}, NULL},
        {{keep, 4, {2, 1, 3, 5}}, NULL},
        {{keep, 2, {3, 4}}, "[3, 4]"},
        {{keep, 2, {5, 3}}, "[5, 3]"},
        {{keep, 3, {4, 3, 5}}, "[4, 3, 5]"},
        {{keep, 3, {2, 3, 1}}, "[2, 3, 1]"},
        {{keep, 4, {2, 2, 3, 5}}, "[2, 2, 3, 5]"},
    };
    mha_variant *layer = standard(8, 4);
    mha_variant_input in = {.size = sizeof in, .batch = 2, .q_len = 3, .kv_len = 5, .query = x, .key = x, .value = x};
    for (size_t n = 0; n < sizeof masks / sizeof *masks; n++) {
        char sentence[300];
        in.keep = masks[n].mask;
        const mha_status status = mha_variant_forward(layer, &in, y, NULL, &err);
        assert_int_equal(status, masks[n].shape ? MHA_ERR_ARG : MHA_OK);
        snprintf(sentence, sizeof sentence,
                 "multi-head attention: shape of keep must be [q, k], [batch, q, k] or [batch, heads, q, k] with "
                 "batch = 2, heads = 4, q = 3 and k = 5, where batch, heads and q may also be 1 (got %s)",
                 masks[n].shape ? masks[n].shape : "");
        if (masks[n].shape) assert_string_equal(err.message, sentence);
    }
    in.keep = (mha_mask){keep, 1, {5}};
    call_refused(layer, &in, "multi-head attention: rank of keep must be from 2 to 4 (got 1)");
    in.keep = (mha_mask){0};
    in.batch = 1, in.q_len = in.kv_len = INT32_MAX; /* q_len * kv_len scores would not fit in memory */
    call_refused(layer, &in, "multi-head attention: batch and length must fit in memory (got 1, 4294967294)");
    in.batch = 2, in.q_len = 3, in.kv_len = 5;
    in.additive = in.blocked = (mha_mask){x, 2, {3, 5}};
    call_refused(layer, &in, "multi-head attention: blocked must be NULL with additive");
    in.additive = (mha_mask){0};
    in.blocked = (mha_mask){x, 3, {2, 1, 4}};
    call_refused(layer, &in,
                 "multi-head attention: shape of blocked must be [q, k], [batch, q, k] or [batch, heads, q, k] with "
                 "batch = 2, heads = 4, q = 3 and k = 5, where batch, heads and q may also be 1 (got [2, 1, 4])");
    in.blocked = (mha_mask){0};
    in.additive = (mha_mask){x, 4, {2, 3, 3, 5}};
    call_refused(layer, &in,
                 "multi-head attention: shape of additive must be [q, k], [batch, q, k] or [batch, heads, q, k] with "
                 "batch = 2, heads = 4, q = 3 and k = 5, where batch, heads and q may also be 1 (got [2, 3, 3, 5])");
    mha_variant_free(layer);
}

/* If the head count may differ between samples, per-head masks must be rejected, and a mask for all heads accepted. */
static void test_mask_of_adaptive_heads(void **state)
{
    (void)state;
    static const uint8_t keep[2 * 2 * 3 * 3] = {1};
    const int64_t head_options[] = {2};
    const mha_adaptive_heads_options o = {
        .size = sizeof o, .d_model = 8, .head_options = head_options, .head_option_count = 1};
    mha_variant *layer = NULL;
    mha_rng rng;
    mha_rng_manual_seed(&rng, 1);
    mha_variant_input in = {.size = sizeof in, .batch = 2, .q_len = 3, .query = x, .keep = {keep, 4, {2, 2, 3, 3}}};
    assert_int_equal(mha_adaptive_heads_create(NULL, &o, &layer, &err), MHA_OK);
    assert_int_equal(mha_variant_init(layer, &rng, &err), MHA_OK);
    call_refused(layer, &in,
                 "adaptive heads: shape of keep must be [q, k], [batch, q, k] or [batch, heads, q, k] with batch = 2, "
                 "heads = 1, q = 3 and k = 3, where batch, heads and q may also be 1 (got [2, 2, 3, 3])");
    in.keep.shape[1] = 1;
    assert_int_equal(mha_variant_forward(layer, &in, y, NULL, &err), MHA_OK);
    mha_variant_free(layer);
}

static void test_before_init(void **state)
{
    (void)state;
    mha_variant *layer = NULL;
    const mha_standard_mha_options o = {.size = sizeof o, .d_model = 4100, .num_heads = 1};
    const mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = 1, .query = x};
    assert_int_equal(mha_standard_mha_create(NULL, &o, &layer, &err), MHA_OK);
    assert_int_equal(mha_variant_parameter_count(layer), 4 * 4100 * 4100 + 4 * 4100);
    call_refused(
        layer, &in,
        "multi-head attention: parameters must be initialized (mha_variant_init) or packed (mha_variant_update) first");
    assert_int_equal(mha_variant_update(layer, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "multi-head attention: mha_variant_init must be called before mha_variant_update");
    assert_int_equal(mha_variant_init(layer, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "multi-head attention: head width must be at most 4096 (got 4100)");
    mha_variant_free(layer);
    mha_variant_free(NULL);
}

/* If no head is kept, the call must succeed, and the output must be the bias of o_proj. */
static void test_no_head_left(void **state)
{
    (void)state;
    mha_variant *layer = NULL;
    mha_trace *trace = NULL;
    mha_rng rng;
    int64_t count, chosen = -1;
    const mha_head_pruning_options o = {.size = sizeof o, .d_model = 8, .num_heads = 4, .prune_ratio = 0.9};
    const mha_variant_input in = {.size = sizeof in, .batch = 2, .q_len = 3, .query = x, .want_weights = 1};
    mha_rng_manual_seed(&rng, 1);
    assert_int_equal(mha_head_pruning_create(NULL, &o, &layer, &err), MHA_OK);
    assert_int_equal(mha_variant_init(layer, &rng, &err), MHA_OK);
    assert_int_equal(mha_trace_create(NULL, &trace, &err), MHA_OK);
    assert_int_equal(mha_variant_forward(layer, &in, y, trace, &err), MHA_OK);
    mha_trace_chosen(trace, 0, &chosen);
    assert_int_equal(chosen, 0);
    const mha_named_tensor *list = mha_variant_parameters(layer, &count);
    assert_string_equal(list[count - 1].name, "o_proj.bias");
    for (int row = 0; row < 6; row++)
        assert_memory_equal(y + row * 8, list[count - 1].data, 8 * sizeof *y);
    mha_trace_free(trace);
    mha_variant_free(layer);
}

/* A request for the gradient of an input that was absent in the forward pass must fail. Otherwise, the buffer would be
 * left unchanged without an error. */
static void test_gradient_of_nothing(void **state)
{
    (void)state;
    mha_variant *layer = NULL;
    mha_trace *trace = NULL;
    mha_rng rng;
    float dx[48];
    const mha_standard_mha_options o = {.size = sizeof o, .d_model = 8, .num_heads = 2};
    const mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = 3, .query = x};
    const mha_variant_gradient key = {.size = sizeof key, .output = y, .key = dx};
    const mha_variant_gradient value = {.size = sizeof value, .output = y, .value = dx};
    mha_rng_manual_seed(&rng, 1);
    assert_int_equal(mha_standard_mha_create(NULL, &o, &layer, &err), MHA_OK);
    assert_int_equal(mha_variant_init(layer, &rng, &err), MHA_OK);
    assert_int_equal(mha_trace_create(NULL, &trace, &err), MHA_OK);
    assert_int_equal(mha_variant_forward(layer, &in, y, trace, &err), MHA_OK);
    assert_int_equal(mha_variant_backward(layer, &in, trace, &key, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "multi-head attention: gradient of key must be NULL if key of the input is NULL");
    assert_int_equal(mha_variant_backward(layer, &in, trace, &value, &err), MHA_ERR_ARG);
    assert_string_equal(err.message,
                        "multi-head attention: gradient of value must be NULL if value of the input is NULL");
    const mha_variant_gradient past = {.size = sizeof past, .output = y, .past_key = dx};
    assert_int_equal(mha_variant_backward(layer, &in, trace, &past, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "multi-head attention: gradient of past_key must be NULL without past tokens");
    mha_trace_free(trace);
    mha_variant_free(layer);
}

/* With a budget of 0, 1, 2, ... allocations, each failed call must return MHA_ERR_MEMORY with a message and free its
 * memory. */
static void test_starvation(void **state)
{
    (void)state;
    counting counts = {0};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&counts)};
    atomic_store(&counts.budget, -1);
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long live = atomic_load(&counts.live);
    const int64_t head_options[] = {2, 4};
    const mha_adaptive_heads_options o = {
        .size = sizeof o, .d_model = 8, .head_options = head_options, .head_option_count = 2};
    static const uint8_t keep[15] = {0};
    const mha_variant_input in = {
        .size = sizeof in, .batch = 2, .q_len = 3, .kv_len = 5, .query = x, .key = x, .keep = {keep, 2, {3, 5}}};
    bool done = false;
    int refused = 0;
    for (long budget = 0; !done; budget++) {
        mha_variant *layer = NULL;
        mha_trace *trace = NULL;
        mha_rng rng;
        mha_rng_manual_seed(&rng, 1);
        atomic_store(&counts.calls, 0);
        atomic_store(&counts.budget, budget);
        mha_status status = mha_adaptive_heads_create(ctx, &o, &layer, &err);
        if (status == MHA_OK) status = mha_variant_init(layer, &rng, &err);
        if (status == MHA_OK) status = mha_trace_create(ctx, &trace, &err);
        if (status == MHA_OK) status = mha_variant_forward(layer, &in, y, trace, &err);
        done = status == MHA_OK;
        if (!done) {
            assert_int_equal(status, MHA_ERR_MEMORY);
            assert_non_null(strstr(err.message, "out of memory"));
            refused++;
        }
        mha_trace_free(trace);
        mha_variant_free(layer);
        assert_int_equal(atomic_load(&counts.live), live);
    }
    assert_true(refused > 8);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_many_tokens),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_init_without_a_generator),
        cmocka_unit_test(test_mask_shapes),
        cmocka_unit_test(test_mask_of_adaptive_heads),
        cmocka_unit_test(test_before_init),
        cmocka_unit_test(test_no_head_left),
        cmocka_unit_test(test_gradient_of_nothing),
        cmocka_unit_test(test_starvation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
