/* test_layer_cached.c - an attention layer that runs token by token with a cache must be bitwise identical to one pass
 * over all tokens, whether the cache has a fixed capacity or grows. */
#include "mha/layer.h"
#include "support/check.h"
#include "support/rng.h"
#include <string.h>

enum { B = 2, L = 70, E = 12, H = 4, HKV = 2, D = 3, PAGE = 16 };

static float x[B * L * E], whole[B * L * E], weights[4][E * E], zeros[E];

static mha_attn_layer *make_layer(int64_t window)
{
    mha_attn_layer_options o = {
        .size = sizeof o, .hidden = E, .heads = H, .kv_heads = HKV, .head_dim = D, .causal = 1, .window = {.on = 1}};
    rng r = rng_make(7, 0);
    for (int n = 0; n < B * L * E; n++)
        x[n] = (float)rng_uniform(&r) - 0.5F;
    for (int n = 0; n < 4 * E * E; n++)
        weights[n / (E * E)][n % (E * E)] = (float)rng_uniform(&r) - 0.5F;
    o.window.left = window > 0 ? window - 1 : L;
    o.q = (mha_matrix){.weight = weights[0], .bias = zeros}, o.k = (mha_matrix){.weight = weights[1], .bias = zeros};
    o.v = (mha_matrix){.weight = weights[2], .bias = zeros}, o.o = (mha_matrix){.weight = weights[3], .bias = zeros};
    mha_attn_layer *layer = NULL;
    assert_int_equal(mha_attn_layer_create(NULL, &o, &layer, NULL), MHA_OK);
    return layer;
}

static mha_cache *make_cache(int64_t capacity, int64_t window)
{
    const mha_cache_desc d = {.size = sizeof d,
                              .batch = B,
                              .kv_heads = HKV,
                              .head_dim = D,
                              .page_size = PAGE,
                              .capacity = capacity,
                              .window = window};
    mha_cache *cache = NULL;
    assert_int_equal(mha_cache_create(NULL, &d, &cache, NULL), MHA_OK);
    return cache;
}

/* Runs `count` tokens of all sequences, from position `at`, and compares their outputs with those of the whole pass. */
static void step(const mha_attn_layer *layer, mha_cache *cache, int64_t at, int64_t count)
{
    static float part[B * L * E], y[B * L * E];
    const mha_layer_input in = {.size = sizeof in, .batch = B, .length = count, .cache = cache};
    mha_error err = {0};
    for (int64_t b = 0; b < B; b++)
        memcpy(part + b * count * E, x + (b * L + at) * E, (size_t)(count * E) * sizeof *x);
    if (mha_attn_layer_forward(layer, &in, part, y, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t b = 0; b < B; b++)
        assert_memory_equal(y + b * count * E, whole + (b * L + at) * E, (size_t)(count * E) * sizeof *y);
}

static void test_bits_of_one_pass(void **state)
{
    (void)state;
    static const int64_t capacities[] = {B * (L + PAGE), 0}, windows[] = {0, 9};
    for (int n = 0; n < 4; n++) {
        mha_attn_layer *layer = make_layer(windows[n / 2]);
        mha_cache *cache = make_cache(capacities[n % 2], windows[n / 2]);
        const mha_layer_input in = {.size = sizeof in, .batch = B, .length = L};
        assert_int_equal(mha_attn_layer_forward(layer, &in, x, whole, NULL), MHA_OK);
        for (int64_t at = 0, count = 1; at < L; at += count, count = count % 4 + 1)
            step(layer, cache, at, count = count < L - at ? count : L - at);
        mha_cache_free(cache);
        mha_attn_layer_free(layer);
    }
}

/* Sequences that share pages must remain independent of each other. */
static void test_bits_after_a_fork(void **state)
{
    (void)state;
    mha_attn_layer *layer = make_layer(0);
    mha_cache *cache = make_cache(0, 0);
    const mha_layer_input in = {.size = sizeof in, .batch = B, .length = L};
    memcpy(x + (size_t)L * E, x, (size_t)(20 * E) * sizeof *x); /* the sequences differ after 20 tokens */
    assert_int_equal(mha_attn_layer_forward(layer, &in, x, whole, NULL), MHA_OK);
    const mha_layer_input first = {.size = sizeof first, .batch = 1, .length = 20, .cache = cache};
    static float y[20 * E];
    assert_int_equal(mha_attn_layer_forward(layer, &first, x, y, NULL), MHA_OK);
    assert_int_equal(mha_cache_fork(cache, 0, 1, 20, NULL), MHA_OK);
    for (int64_t at = 20; at < L; at += 5)
        step(layer, cache, at, 5);
    mha_cache_free(cache);
    mha_attn_layer_free(layer);
}

/* A full cache must be named by the error, and must be unchanged. */
static void test_full_cache(void **state)
{
    (void)state;
    mha_attn_layer *layer = make_layer(0);
    mha_cache *cache = make_cache(B * PAGE, 0);
    const mha_layer_input in = {.size = sizeof in, .batch = B, .length = PAGE + 1, .cache = cache};
    static float y[B * L * E];
    mha_error err = {0};
    assert_int_equal(mha_attn_layer_forward(layer, &in, x, y, &err), MHA_ERR_MEMORY);
    assert_non_null(strstr(err.message, "capacity must be at least 4 pages of 16 keys (got 2)"));
    assert_int_equal(mha_cache_length(cache, 0), 0);
    mha_cache_free(cache);
    mha_attn_layer_free(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits_of_one_pass),
                                       cmocka_unit_test(test_bits_after_a_fork), cmocka_unit_test(test_full_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
