/* test_attn_cache_values.c - tests caches whose values are parts of their keys (v_from_k): results must be bitwise
 * identical to those of a cache that stores the same values, after growing, copying, saving and loading. */
#include "mha/cache.h"
#include "support/check.h"
#include <stdlib.h>
#include <string.h>

enum { B = 2, HKV = 2, H = 6, D = 96, DV = 64, N = 70, Q = 3 };

static void fill(float *x, int64_t count, int64_t seed)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((i * 7919 + seed * 104729) % 2003) / 1001 - 1;
}

static mha_cache *create(mha_dtype dtype, int v_from_k)
{
    mha_cache *cache = NULL;
    mha_error err = {0};
    const mha_cache_desc desc = {.size = sizeof desc,
                                 .batch = B,
                                 .kv_heads = HKV,
                                 .head_dim = D,
                                 .v_head_dim = DV,
                                 .dtype = dtype,
                                 .page_size = 16,
                                 .v_from_k = v_from_k};
    if (mha_cache_create(NULL, &desc, &cache, &err) != MHA_OK) fail_msg("%s", err.message);
    return cache;
}

/* Appends `count` tokens; the values are the first DV elements of the keys. */
static void append(mha_cache *cache, int64_t sequence, int64_t count, int64_t seed, int v_from_k)
{
    const int64_t n = sequence == MHA_CACHE_ALL ? B : 1;
    float *k = malloc((size_t)(n * HKV * count * D) * sizeof *k);
    mha_error err = {0};
    fill(k, n * HKV * count * D, seed);
    const mha_cache_tokens t = {.size = sizeof t,
                                .count = count,
                                .dtype = MHA_F32,
                                .k.data = k,
                                .v = {v_from_k ? NULL : k, {HKV * count * D, count * D, D, 1}}};
    if (mha_cache_append(cache, sequence, &t, &err) != MHA_OK) fail_msg("%s", err.message);
    free(k);
}

static void attend(mha_cache *cache, float *out)
{
    static float q[B * H * Q * D];
    mha_error err = {0};
    fill(q, B * H * Q * D, 5);
    mha_attn_desc d = {.size = sizeof d, .heads = H, .q_len = Q, .causal = 1, .dtype = MHA_F32};
    mha_attn_args a = {.size = sizeof a, .q.data = q, .out.data = out};
    if (mha_cache_bind(cache, MHA_CACHE_ALL, NULL, &d, &a, &err) != MHA_OK ||
        mha_attention(NULL, &d, &a, &err) != MHA_OK)
        fail_msg("%s", err.message);
}

static void test_values_are_keys(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0, MHA_Q4_0, MHA_F8_E4M3};
    static float out[3][B * H * Q * DV];
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        mha_cache *caches[3];
        for (int c = 0; c < 2; c++) {
            caches[c] = create(types[n], c);
            append(caches[c], MHA_CACHE_ALL, N, 1, c);
            append(caches[c], 0, 5, 2, c); /* grows */
            assert_int_equal(mha_cache_fork(caches[c], 0, 1, N + 3, NULL), MHA_OK);
            append(caches[c], 1, 4, 3, c); /* copies a shared page */
            attend(caches[c], out[c]);
        }
        assert_memory_equal(out[0], out[1], sizeof *out);
        assert_true(mha_cache_bytes(caches[1]) < mha_cache_bytes(caches[0]) * 2 / 3);
        mha_named_tensor t[MHA_CACHE_TENSORS];
        mha_cache_save(caches[1], t);
        assert_int_equal(t[3].shape[3], 0);
        caches[2] = create(types[n], 1);
        mha_error err = {0};
        if (mha_cache_load(caches[2], t, MHA_CACHE_TENSORS, &err) != MHA_OK) fail_msg("%s", err.message);
        attend(caches[2], out[2]);
        assert_memory_equal(out[0], out[2], sizeof *out);
        assert_int_equal(mha_cache_load(caches[0], t, MHA_CACHE_TENSORS, &err), MHA_ERR_FORMAT);
        for (int c = 0; c < 3; c++)
            mha_cache_free(caches[c]);
    }
}

static void test_width(void **state)
{
    (void)state;
    mha_cache *cache = NULL;
    mha_error err = {0};
    mha_cache_desc desc = {
        .size = sizeof desc, .batch = 1, .kv_heads = 1, .head_dim = 8, .v_head_dim = 9, .v_from_k = 1};
    assert_int_equal(mha_cache_create(NULL, &desc, &cache, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "v_head_dim must be at most head_dim = 8 with v_from_k (got 9)"));
    desc.v_head_dim = 8, desc.v_from_k = 2;
    assert_int_equal(mha_cache_create(NULL, &desc, &cache, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "v_from_k must be 0 or 1 (got 2)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values_are_keys), cmocka_unit_test(test_width)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
