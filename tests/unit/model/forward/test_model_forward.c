/* test_model_forward.c - tests properties of forward passes: bitwise identity, masks, callbacks and failed allocations.
 * Other tests compare the values with references. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/model_case.h"
#include "support/rng.h"
#include "support/stopper.h"
#include <math.h>
#include <string.h>

#define TINY "models/bert-tiny"
enum { B = 5, L = 41, E = 48, H = 4, LAYERS = 3, VOCAB = 600 };

static mha_ctx *context(int threads)
{
    mha_ctx *ctx = NULL;
    assert_int_equal(
        mha_ctx_create(&(mha_ctx_options){.size = sizeof(mha_ctx_options), .threads = threads}, &ctx, NULL), MHA_OK);
    return ctx;
}

/* Lengths of the random sequences, which are padded to L. */
static const int64_t lengths[B] = {41, 1, 17, 40, 29};
static int32_t ids[B * L], types[B * L];
static uint8_t mask[B * L];

static void make_batch(void)
{
    rng r = rng_make(11, 1);
    for (int64_t i = 0; i < B * L; i++) {
        ids[i] = (int32_t)rng_range(&r, 0, VOCAB - 1);
        types[i] = (int32_t)rng_range(&r, 0, 1);
        mask[i] = i % L < lengths[i / L];
    }
}

static mha_model_input batch(void)
{
    return (mha_model_input){
        .size = sizeof(mha_model_input), .batch = B, .length = L, .ids = ids, .type_ids = types, .mask = mask};
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    const mha_model_input input = batch();
    case_run first;
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = context(threads);
        mha_model *model = case_model(ctx, TINY, NULL);
        case_run run;
        assert_ptr_equal(mha_model_ctx(model), ctx);
        case_forward(model, &input, 1, &run);
        if (threads == 1) {
            first = run;
        } else {
            assert_memory_equal(first.hidden, run.hidden, (size_t)((LAYERS + 1) * run.cells) * sizeof(float));
            assert_memory_equal(first.attn, run.attn, (size_t)(LAYERS * run.maps) * sizeof(float));
            assert_memory_equal(first.pooled, run.pooled, B * E * sizeof(float));
            case_run_free(&run);
        }
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    case_run_free(&first);
}

static void test_a_batch_equals_its_sequences(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, TINY, NULL);
    const mha_model_input input = batch();
    case_run all;
    case_forward(model, &input, 1, &all);
    for (int64_t b = 0; b < B; b++) {
        const int64_t n = lengths[b];
        const mha_model_input one = {
            .size = sizeof one, .batch = 1, .length = n, .ids = ids + b * L, .type_ids = types + b * L};
        case_run alone;
        case_forward(model, &one, 1, &alone);
        for (int64_t entry = 0; entry <= LAYERS; entry++)
            assert_memory_equal(alone.hidden + entry * n * E, all.hidden + entry * all.cells + b * L * E,
                                (size_t)(n * E) * sizeof(float));
        assert_memory_equal(alone.last_hidden, all.last_hidden + b * L * E, (size_t)(n * E) * sizeof(float));
        assert_memory_equal(alone.pooled, all.pooled + b * E, E * sizeof(float));
        for (int64_t map = 0; map < LAYERS * H; map++)
            for (int64_t i = 0; i < n; i++) {
                const float *row = all.attn + ((map / H * B + b) * H + map % H) * L * L + i * L;
                assert_memory_equal(alone.attn + (map * n + i) * n, row, (size_t)n * sizeof(float));
                for (int64_t j = n; j < L; j++)
                    assert_true(row[j] == 0);
            }
        case_run_free(&alone);
    }
    case_run_free(&all);
    mha_model_free(model);
}

/* With gates per sequence, packed hidden states must equal those of each sequence alone, and must differ from hidden
 * states without gates. */
static void test_packed_gates(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, TINY, NULL);
    float gates[LAYERS * B * H], own[LAYERS * H], hidden[B * L * E], plain[B * L * E], alone[L * E];
    int64_t starts[B + 1] = {0};
    int32_t packed[B * L], kinds[B * L];
    rng r = rng_make(12, 1);
    for (int64_t i = 0; i < LAYERS * B * H; i++)
        gates[i] = (float)rng_range(&r, 0, 4) / 2;
    for (int64_t b = 0; b < B; b++) {
        memcpy(packed + starts[b], ids + b * L, (size_t)lengths[b] * sizeof *ids);
        memcpy(kinds + starts[b], types + b * L, (size_t)lengths[b] * sizeof *types);
        starts[b + 1] = starts[b] + lengths[b];
    }
    mha_model_input in = {
        .size = sizeof in, .batch = B, .ids = packed, .type_ids = kinds, .starts = starts, .gates = gates};
    mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
    assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
    in.gates = NULL;
    out.last_hidden = plain;
    assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
    for (int64_t b = 0; b < B; b++) {
        const size_t bytes = (size_t)(lengths[b] * E) * sizeof(float);
        for (int64_t layer = 0; layer < LAYERS; layer++)
            memcpy(own + layer * H, gates + (layer * B + b) * H, H * sizeof *gates);
        const mha_model_input one = {.size = sizeof one,
                                     .batch = 1,
                                     .length = lengths[b],
                                     .ids = packed + starts[b],
                                     .type_ids = kinds + starts[b],
                                     .gates = own};
        out.last_hidden = alone;
        assert_int_equal(mha_model_forward(model, &one, &out, NULL), MHA_OK);
        assert_memory_equal(alone, hidden + starts[b] * E, bytes);
        assert_memory_not_equal(alone, plain + starts[b] * E, bytes);
    }
    mha_model_free(model);
}

/* Masked tokens before and between unmasked tokens must not affect the hidden states of other tokens, and rows of
 * probabilities must still sum to 1. */
static void test_mask_with_a_hole(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, TINY, NULL);
    uint8_t holes[L];
    memset(holes, 1, L);
    holes[0] = holes[7] = holes[8] = 0;
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids, .mask = holes};
    case_run a, b;
    case_forward(model, &input, 0, &a);
    const int32_t kept = ids[7];
    ids[7] = (kept + 1) % VOCAB;
    case_forward(model, &input, 0, &b);
    ids[7] = kept;
    for (int64_t i = 0; i < L; i++) {
        const size_t bytes = E * sizeof(float);
        assert_int_equal(memcmp(a.last_hidden + i * E, b.last_hidden + i * E, bytes) == 0, i != 7);
        for (int64_t map = 0; map < LAYERS * H; map++) {
            const float *row = a.attn + (map * L + i) * L;
            double sum = 0;
            for (int64_t j = 0; j < L; j++)
                sum += (double)row[j];
            assert_true(fabs(sum - 1) < 1e-5 && row[0] == 0 && row[7] == 0 && row[8] == 0);
        }
    }
    case_run_free(&a);
    case_run_free(&b);
    mha_model_free(model);
}

static void test_missing_types_are_zero(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, TINY, NULL);
    int32_t zeros[L] = {0};
    mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
    case_run a, b;
    case_forward(model, &input, 0, &a);
    input.type_ids = zeros;
    case_forward(model, &input, 0, &b);
    assert_memory_equal(a.last_hidden, b.last_hidden, L * E * sizeof(float));
    case_run_free(&a);
    case_run_free(&b);
    mha_model_free(model);
}

/* ---- callbacks ---- */

static int count_hidden(void *user, int64_t entry, const float *x)
{
    stopper *s = user;
    assert_int_equal(entry, s->calls);
    assert_true(isfinite(x[0]));
    return s->calls++ == s->stop_at;
}

static int count_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    stopper *s = user;
    assert_int_equal(layer, s->calls);
    assert_int_equal(heads, H);
    assert_true(probs[0] >= 0 && probs[0] <= 1);
    return s->calls++ == s->stop_at;
}

static void test_callbacks_stop_the_pass(void **state)
{
    (void)state;
    mha_model *model = case_model(NULL, TINY, NULL);
    const mha_model_input input = batch();
    for (int at = 0; at <= LAYERS + 1; at++) {
        stopper s = {0, at};
        const mha_model_output output = {.size = sizeof output, .on_hidden = count_hidden, .user = &s};
        assert_int_equal(mha_model_forward(model, &input, &output, NULL), at <= LAYERS ? MHA_ERR_CANCELED : MHA_OK);
        assert_int_equal(s.calls, at <= LAYERS ? at + 1 : LAYERS + 1);
    }
    for (int at = 0; at <= LAYERS; at++) {
        stopper s = {0, at};
        const mha_model_output output = {.size = sizeof output, .on_attention = count_attention, .user = &s};
        assert_int_equal(mha_model_forward(model, &input, &output, NULL), at < LAYERS ? MHA_ERR_CANCELED : MHA_OK);
        assert_int_equal(s.calls, at < LAYERS ? at + 1 : LAYERS);
    }
    mha_model_free(model);
}

/* ---- failed allocations ---- */

/* With a budget of 0, 1, 2, ... allocations, each failed forward pass or embedding must return MHA_ERR_MEMORY and free
 * its memory. The model must remain usable. */
static void test_no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&memory)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    mha_model *model = case_model(ctx, TINY, NULL);
    const mha_model_input input = batch();
    const char *text = "the train leaves at noon";
    float vector[E];
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    for (long n = 0; status != MHA_OK; n++) {
        memory.budget = memory.calls + n;
        status = mha_model_forward(model, &input, NULL, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, live);
    }
    status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        memory.budget = memory.calls + n;
        status = mha_model_embed(model, &text, 1, NULL, vector, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_int_equal(memory.live, live);
    }
    assert_true(n > 3);
    memory.budget = -1;
    const long before = memory.calls;
    assert_int_equal(mha_model_forward(model, &input, NULL, NULL), MHA_OK);
    assert_int_equal(memory.calls - before, 2); /* one allocation for the plan of all layers and one for the pass */
    mha_model_free(model);
    mha_ctx_free(ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    make_batch();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_a_batch_equals_its_sequences),
        cmocka_unit_test(test_packed_gates),
        cmocka_unit_test(test_mask_with_a_hole),
        cmocka_unit_test(test_missing_types_are_zero),
        cmocka_unit_test(test_callbacks_stop_the_pass),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
