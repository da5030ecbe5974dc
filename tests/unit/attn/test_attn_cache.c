/* test_attn_cache.c - tests the KV cache without the attention operator: contents, error messages and failed
 * allocations. test_attn_cache_programs.c tests random sequences of operations; tests/property tests the cache with the
 * operator. */
#include "support/alloc.h"
#include "support/attn/cached.h"
#include "support/check.h"
#include "support/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory and sharing of pages ---- */

/* For any sequence length, a cache with a window must need no more pages than its window. Once the window is full, only
 * the page table may be reallocated, by doubling. */
static void test_window_memory(void **state)
{
    (void)state;
    counting c = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
    mha_cache_desc d = cached_plain;
    mha_ctx *ctx;
    mha_error err = {0};
    d.window = 40;
    d.keep_first = 4;
    assert_int_equal(mha_ctx_create(&options, &ctx, &err), MHA_OK);
    mha_cache *cache = cached_create(ctx, &d);
    for (int64_t n = 0; n < 64; n++)
        assert_int_equal(cached_append(cache, &cached_plain, MHA_CACHE_ALL, CACHED_B, 1, NULL, n, &err), MHA_OK);
    const long calls = atomic_load(&c.calls);
    for (int64_t n = 0; n < 16 * 60; n++) {
        assert_int_equal(cached_append(cache, &cached_plain, MHA_CACHE_ALL, CACHED_B, 1, NULL, n, &err), MHA_OK);
        /* per sequence: one page for the keep_first tokens, and up to 4 pages for the 40 tokens of the window */
        assert_true(mha_cache_pages(cache) <= CACHED_B * (1 + 4));
    }
    /* the page table grows from 4 to 64 entries; the page pool grows once */
    assert_true(atomic_load(&c.calls) - calls <= 4 + 8);
    mha_cache_free(cache);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&c.live), 0);
}

static void test_sharing(void **state)
{
    (void)state;
    static cached_model m;
    mha_error err = {0};
    mha_cache *cache = cached_create(NULL, &cached_plain);
    cached_start(&m, &cached_plain);
    assert_int_equal(cached_append(cache, &cached_plain, 0, 1, 40, NULL, 100, &err), MHA_OK);
    cached_note(&m, 0, 40, 100);
    assert_int_equal(mha_cache_fork(cache, 0, 1, 40, &err), MHA_OK);
    cached_note_fork(&m, 0, 1, 40);
    assert_int_equal(mha_cache_pages(cache), 3); /* both sequences must share all 3 pages */
    assert_int_equal(
        cached_append(cache, &cached_plain, MHA_CACHE_ALL, CACHED_B, 1, (const int64_t[]){1, 1, 0}, 200, &err), MHA_OK);
    cached_note(&m, 0, 1, 200);
    cached_note(&m, 1, 1, 201);
    /* one of the two sequences must have copied the last page to append to it */
    assert_int_equal(mha_cache_pages(cache), 4);
    cached_holds(cache, &m);
    mha_cache_free(cache);
}

/* In one append, a sequence drops a page that is also the last page of another sequence, so the other sequence must
 * copy the page. The page must remain allocated until it is copied, for any order of the sequences. */
static void test_page_dropped_while_shared(void **state)
{
    (void)state;
    static const int64_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    mha_cache_desc d = cached_plain;
    mha_error err = {0};
    d.window = 16;
    for (size_t n = 0; n < sizeof orders / sizeof *orders; n++) {
        static cached_model m;
        const int64_t taker = orders[n][0], sharer = orders[n][1], dropper = orders[n][2];
        cached_start(&m, &d);
        mha_cache *cache = cached_create(NULL, &d);
        assert_int_equal(cached_append(cache, &cached_plain, sharer, 1, 32, NULL, 0, &err), MHA_OK);
        cached_note(&m, sharer, 32, 0);
        assert_int_equal(mha_cache_fork(cache, sharer, dropper, 32, &err), MHA_OK);
        cached_note_fork(&m, sharer, dropper, 32);
        assert_int_equal(mha_cache_truncate(cache, sharer, 20, &err), MHA_OK);
        cached_note_length(&m, sharer, 20);
        assert_int_equal(cached_append(cache, &cached_plain, dropper, 1, 17, NULL, 100, &err), MHA_OK);
        cached_note(&m, dropper, 17, 100);
        assert_int_equal(cached_append(cache, &cached_plain, MHA_CACHE_ALL, CACHED_B, 1, NULL, 500, &err), MHA_OK);
        for (int64_t b = 0; b < CACHED_B; b++)
            cached_note(&m, b, 1, 500 + b);
        cached_holds(cache, &m);
        assert_int_equal(m.length[taker], 1);
        mha_cache_free(cache);
    }
}

/* Returns an allocated copy of all contents of a cache that a caller can read, except the page table. Stores the size
 * of the copy in *bytes. */
static char *snapshot(const mha_cache *cache, size_t *bytes)
{
    mha_cache_tensor t[MHA_CACHE_TENSORS]; /* mha_cache_tensor is an alias of mha_named_tensor */
    mha_cache_save(cache, t);
    const size_t sizes[MHA_CACHE_TENSORS] = {
        CACHED_B * sizeof(int64_t), (size_t)(CACHED_B * t[1].shape[1]) * sizeof(int32_t),
        (size_t)(t[2].shape[0] * t[2].shape[1] * t[2].shape[2] * t[2].shape[3]) * sizeof(float),
        (size_t)(t[3].shape[0] * t[3].shape[1] * t[3].shape[2] * t[3].shape[3]) * sizeof(float)};
    char *all = malloc(sizes[0] + sizes[1] + sizes[2] + sizes[3] + 1);
    assert_non_null(all);
    *bytes = 0;
    for (int n = 0; n < MHA_CACHE_TENSORS; n++) {
        memcpy(all + *bytes, t[n].data ? t[n].data : "", t[n].data ? sizes[n] : 0);
        *bytes += sizes[n];
    }
    return all;
}

/* With a budget of 0, 1, 2, ... allocations, a failed append must return MHA_ERR_MEMORY and leave the cache unchanged.
 * The first append that succeeds ends the test. */
static void test_running_out_of_memory(void **state)
{
    (void)state;
    static cached_model m;
    counting c = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
    mha_cache_desc d = cached_plain;
    mha_ctx *ctx;
    mha_error err = {0};
    d.window = 20;
    cached_start(&m, &d);
    assert_int_equal(mha_ctx_create(&options, &ctx, &err), MHA_OK);
    mha_cache *cache = NULL;
    int failures = 0;
    for (long budget = 0; !cache; budget++) {
        const long live = atomic_load(&c.live);
        atomic_store(&c.calls, 0);
        atomic_store(&c.budget, budget);
        const mha_status status = mha_cache_create(ctx, &d, &cache, &err);
        atomic_store(&c.budget, -1);
        if (status == MHA_OK) break;
        assert_int_equal(status, MHA_ERR_MEMORY);
        assert_int_equal(atomic_load(&c.live), live);
        failures++;
    }
    assert_true(failures >= 3);
    assert_int_equal(cached_append(cache, &cached_plain, 0, 1, 70, NULL, 7, &err), MHA_OK);
    cached_note(&m, 0, 70, 7);
    assert_int_equal(mha_cache_fork(cache, 0, 2, 70, &err), MHA_OK);
    cached_note_fork(&m, 0, 2, 70);
    failures = 0;
    for (long budget = 0;; budget++) {
        size_t before_bytes, after_bytes;
        char *before = snapshot(cache, &before_bytes);
        atomic_store(&c.calls, 0);
        atomic_store(&c.budget, budget);
        const mha_status status = cached_append(cache, &cached_plain, MHA_CACHE_ALL, CACHED_B, 100, NULL, 1000, &err);
        atomic_store(&c.budget, -1);
        if (status != MHA_OK) {
            char *after = snapshot(cache, &after_bytes);
            assert_int_equal(status, MHA_ERR_MEMORY);
            assert_true(before_bytes == after_bytes && memcmp(before, after, before_bytes) == 0);
            cached_holds(cache, &m);
            free(after);
            failures++;
        }
        free(before);
        if (status == MHA_OK) break;
    }
    /* at least four of these allocations must have failed: page table, k, v, counts, stack of free pages */
    assert_true(failures >= 4);
    for (int64_t b = 0; b < CACHED_B; b++)
        cached_note(&m, b, 100, 1000 + 100 * b);
    cached_holds(cache, &m);
    mha_cache_free(cache);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&c.live), 0);
}

static void test_capacity(void **state)
{
    (void)state;
    static cached_model m;
    mha_cache_desc d = cached_plain;
    mha_error err = {0};
    d.capacity = 60; /* 60 tokens need 4 pages of 16 tokens */
    cached_start(&m, &d);
    mha_cache *cache = cached_create(NULL, &d);
    const size_t bytes = mha_cache_bytes(cache);
    assert_true(bytes >= 64 * CACHED_HKV * (CACHED_D + CACHED_DV) * sizeof(float));
    assert_int_equal(cached_append(cache, &cached_plain, 0, 1, 33, NULL, 1, &err), MHA_OK);
    cached_note(&m, 0, 33, 1);
    assert_int_equal(cached_append(cache, &cached_plain, 1, 1, 17, NULL, 50, &err), MHA_ERR_MEMORY);
    assert_true(check_has_word(err.message, "4") && check_has_word(err.message, "5"));
    cached_holds(cache, &m);
    /* the page table must not move, because bound arguments refer to it */
    mha_cache_tensor before[MHA_CACHE_TENSORS], after[MHA_CACHE_TENSORS];
    mha_cache_save(cache, before);
    assert_int_equal(cached_append(cache, &cached_plain, 0, 1, 400, NULL, 50, &err), MHA_ERR_MEMORY);
    mha_cache_save(cache, after);
    assert_true(before[1].data == after[1].data && before[1].shape[1] == after[1].shape[1]);
    assert_int_equal(cached_append(cache, &cached_plain, 1, 1, 16, NULL, 50, &err), MHA_OK);
    assert_int_equal(mha_cache_clear(cache, 0, &err), MHA_OK);
    cached_note_length(&m, 0, 0);
    cached_note(&m, 1, 16, 50);
    assert_int_equal(cached_append(cache, &cached_plain, 2, 1, 48, NULL, 90, &err), MHA_OK);
    cached_note(&m, 2, 48, 90);
    cached_holds(cache, &m);
    mha_cache_free(cache);
}

/* ---- stored types ---- */

static void test_types(void **state)
{
    (void)state;
    static const struct {
        mha_dtype stored;
        uint16_t bits; /* 1.5 in the stored type */
    } halves[] = {{MHA_BF16, 0x3FC0}, {MHA_F16, 0x3E00}};
    const float x[2] = {1.5F, 1.5F};
    for (int n = 0; n < 2; n++) {
        const mha_cache_desc d = {
            .size = sizeof d, .batch = 1, .kv_heads = 1, .head_dim = 2, .dtype = halves[n].stored};
        const mha_cache_tokens from_f32 = {
            .size = sizeof from_f32, .count = 1, .dtype = MHA_F32, .k = {x, {0}}, .v = {x, {0}}};
        const uint16_t y[2] = {halves[n].bits, halves[n].bits};
        const mha_cache_tokens as_is = {.size = sizeof as_is, .count = 1, .k = {y, {0}}, .v = {y, {0, 0, 0, 1}}};
        mha_error err = {0};
        mha_named_tensor t[MHA_CACHE_TENSORS];
        mha_cache *cache = cached_create(NULL, &d);
        assert_int_equal(mha_cache_append(cache, 0, &from_f32, &err), MHA_OK);
        assert_int_equal(mha_cache_append(cache, 0, &as_is, &err), MHA_OK);
        mha_cache_save(cache, t);
        assert_int_equal(t[2].dtype, halves[n].stored);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(((const uint16_t *)t[2].data)[i], halves[n].bits);
            assert_int_equal(((const uint16_t *)t[3].data)[i], halves[n].bits);
        }
        mha_cache_free(cache);
    }
}

/* ---- error messages ---- */

static void test_bad_descriptions(void **state)
{
    (void)state;
    static const struct {
        const char *field, *value;
        mha_cache_desc desc;
    } all[] = {
        {"size", "12", {.size = 12, .batch = 1, .kv_heads = 1, .head_dim = 1}},
        {"batch", "0", {.size = sizeof cached_plain, .batch = 0, .kv_heads = 1, .head_dim = 1}},
        {"kv_heads",
         "1099511627776",
         {.size = sizeof cached_plain, .batch = 1, .kv_heads = INT64_C(1) << 40, .head_dim = 8}},
        {"kv_heads", "-1", {.size = sizeof cached_plain, .batch = 1, .kv_heads = -1, .head_dim = 1}},
        {"head_dim", "4097", {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 4097}},
        {"v_head_dim", "-4", {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .v_head_dim = -4}},
        {"dtype", "i32", {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .dtype = MHA_I32}},
        {"page_size", "24", {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .page_size = 24}},
        {"page_size", "8", {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .page_size = 8}},
        {"page_size",
         "4611686018427387904",
         {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .page_size = INT64_C(1) << 62}},
        {"capacity", "-1", {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .capacity = -1}},
        {"window", "-1", {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .window = -1}},
        {"keep_first",
         "-1",
         {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .window = 4, .keep_first = -1}},
        {"keep_first",
         "9223372036854775807",
         {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .window = 4, .keep_first = INT64_MAX}},
        {"keep_first", "3", {.size = sizeof cached_plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .keep_first = 3}},
    };
    mha_error err = {0};
    mha_cache *cache;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        cache = (mha_cache *)&err;
        assert_int_equal(mha_cache_create(NULL, &all[n].desc, &cache, &err), MHA_ERR_ARG);
        assert_null(cache);
        if (!strstr(err.message, all[n].field) || !check_has_word(err.message, all[n].value))
            fail_msg("message must contain %s and %s (got \"%s\")", all[n].field, all[n].value, err.message);
    }
    mha_cache_desc large = cached_plain;
    large.capacity = INT64_MAX;
    assert_int_equal(mha_cache_create(NULL, &large, &cache, &err), MHA_ERR_MEMORY);
    assert_null(cache);
    assert_int_equal(mha_cache_create(NULL, NULL, &cache, &err), MHA_ERR_ARG);
    mha_cache_free(NULL);
    assert_int_equal(mha_cache_length(NULL, 0), -1);
}

static void test_bad_changes(void **state)
{
    (void)state;
    static cached_model m;
    mha_cache_desc d = cached_plain;
    mha_error err = {0};
    d.window = 10;
    mha_cache *cache = cached_create(NULL, &d);
    cached_start(&m, &d);
    for (int64_t n = 0; n < 100; n++) {
        assert_int_equal(cached_append(cache, &cached_plain, 1, 1, 1, NULL, n, &err), MHA_OK);
        cached_note(&m, 1, 1, n);
    }
    const float x[CACHED_D * CACHED_HKV] = {0};
    const mha_cache_tokens good = {.size = sizeof good, .count = 1, .k = {x, {0}}, .v = {x, {0}}};
    mha_cache_tokens bad = good;
    bad.size = 3;
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    bad = good, bad.count = -1;
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    assert_true(check_has_word(err.message, "-1"));
    bad = good, bad.count = INT64_MAX;
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    bad = good, bad.k.data = NULL;
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    bad = good, bad.dtype = MHA_F64;
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    bad = good, bad.k.data = (const char *)x + 1;
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "k.data"));
    bad = good, bad.v.data = (const char *)x + 2;
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "v.data"));
    bad = good, bad.count = 2, bad.k.stride[2] = INT64_MAX / 3, bad.k.stride[3] = 1;
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "k.stride"));
    bad = good, bad.counts = (const int64_t[]){2};
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "counts[0] must be from 0 to 1 (got 2)"));
    assert_int_equal(mha_cache_append(cache, CACHED_B, &good, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_append(cache, -2, &good, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_append(cache, 0, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_append(NULL, 0, &good, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_truncate(cache, 1, 101, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_truncate(cache, CACHED_B, 0, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_truncate(cache, 1, 50, &err), MHA_ERR_ARG); /* token 50 has left the window */
    assert_true(check_has_word(err.message, "50"));
    assert_int_equal(mha_cache_fork(cache, 1, 1, 100, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_fork(cache, 1, CACHED_B, 100, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_fork(cache, 1, 0, 50, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_clear(cache, CACHED_B, &err), MHA_ERR_ARG);
    cached_holds(cache, &m);
    assert_int_equal(mha_cache_truncate(cache, 1, 99, &err), MHA_OK);
    assert_int_equal(mha_cache_truncate(cache, 1, 0, &err), MHA_OK);
    mha_cache_free(cache);
}

/* Truncating all sequences must shorten those that are longer, and none if one of them has dropped keys that are
 * required. */
static void test_truncate_all(void **state)
{
    (void)state;
    static cached_model m;
    mha_cache_desc d = cached_plain;
    mha_error err = {0};
    d.window = 10;
    mha_cache *cache = cached_create(NULL, &d);
    cached_start(&m, &d);
    assert_int_equal(
        cached_append(cache, &cached_plain, MHA_CACHE_ALL, CACHED_B, 9, (const int64_t[]){9, 2, 6}, 0, &err), MHA_OK);
    static const int64_t lengths[] = {9, 2, 6};
    for (int64_t b = 0; b < CACHED_B; b++)
        cached_note(&m, b, lengths[b], 9 * b);
    assert_int_equal(mha_cache_truncate(cache, MHA_CACHE_ALL, -1, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_truncate(NULL, MHA_CACHE_ALL, 0, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_truncate(cache, MHA_CACHE_ALL, 100, &err), MHA_OK);
    cached_holds(cache, &m);
    assert_int_equal(mha_cache_truncate(cache, MHA_CACHE_ALL, 5, &err), MHA_OK);
    cached_note_length(&m, 0, 5);
    cached_note_length(&m, 2, 5);
    cached_holds(cache, &m);
    assert_int_equal(cached_append(cache, &cached_plain, 2, 1, 91, NULL, 100, &err), MHA_OK);
    assert_int_equal(cached_append(cache, &cached_plain, 2, 1, 4, NULL, 191, &err), MHA_OK); /* drops the first pages */
    cached_note(&m, 2, 91, 100);
    cached_note(&m, 2, 4, 191);
    assert_int_equal(mha_cache_truncate(cache, MHA_CACHE_ALL, 4, &err), MHA_ERR_ARG);
    assert_true(check_has_word(err.message, "2")); /* names the sequence */
    cached_holds(cache, &m);
    mha_cache_free(cache);
}

/* An append of values too large for q8_0 must fail with a message that names the first such element, and must leave the
 * cache unchanged. NaN and infinity must be accepted. */
static void test_too_large_for_q8(void **state)
{
    (void)state;
    const float max = 127 * 65520.0f, below = 8321039.5f;
    mha_cache_desc d = cached_plain;
    mha_cache *cache;
    mha_error err = {0};
    float k[3 * CACHED_HKV * CACHED_D] = {0}, v[3 * CACHED_HKV * CACHED_D] = {0};
    d.dtype = MHA_Q8_0;
    assert_int_equal(mha_cache_create(NULL, &d, &cache, &err), MHA_OK);
    const mha_cache_tokens tokens = {.size = sizeof tokens, .count = 3, .k = {k, {0}}, .v = {v, {0}}};
    float *const bad[] = {&k[CACHED_D + 2], &v[(CACHED_HKV - 1) * 3 * CACHED_D]};
    for (int n = 0; n < 4; n++) {
        float *x = bad[n % 2];
        *x = n < 2 ? max : -INFINITY;
        const mha_status status = mha_cache_append(cache, 1, &tokens, &err);
        assert_int_equal(status, n < 2 ? MHA_ERR_ARG : MHA_OK);
        assert_int_equal(mha_cache_length(cache, 1), n < 2 ? 0 : 3 * (n - 1));
        *x = 0;
        if (n == 0) assert_non_null(strstr(err.message, "k[0, 0, 1, 2] must be below 8.32104e+06"));
        if (n == 1) assert_non_null(strstr(err.message, "v[0, "));
    }
    k[0] = -below, k[1] = 3;
    assert_int_equal(mha_cache_append(cache, 0, &tokens, &err), MHA_OK);
    mha_named_tensor t[MHA_CACHE_TENSORS];
    mha_cache_save(cache, t);
    const int32_t page = ((const int32_t *)t[1].data)[0];
    const uint8_t *block = (const uint8_t *)t[2].data + page * t[2].shape[1] * t[2].shape[2] * t[2].shape[3];
    assert_int_equal(block[0] | block[1] << 8, 0x7BFF); /* 0x7BFF is 65504, the largest finite f16 value */
    assert_int_equal((int8_t)block[2], -127);
    mha_cache_free(cache);
}

/* ---- struct sizes and const ---- */

/* The fields after `size` bytes must be ignored: they are not part of an older caller's struct. */
static void test_tokens_of_an_older_caller(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_cache *cache = cached_create(NULL, &cached_plain);
    const mha_cache_tokens older = {.size = sizeof older.size, .count = INT64_MAX};
    assert_int_equal(mha_cache_append(cache, MHA_CACHE_ALL, &older, &err), MHA_OK);
    assert_int_equal(mha_cache_length(cache, 0), 0);
    mha_cache_free(cache);
}

/* Saving a cache must not change a call that is bound to it. */
static void test_save_after_bind(void **state)
{
    (void)state;
    mha_error err = {0};
    mha_attn_desc d = {.size = sizeof d, .heads = CACHED_HKV, .q_len = 1, .causal = 1};
    mha_attn_args a = {.size = sizeof a};
    mha_named_tensor t[MHA_CACHE_TENSORS];
    mha_cache *cache = cached_create(NULL, &cached_plain);
    assert_int_equal(cached_append(cache, &cached_plain, 0, 1, 5, NULL, 1, &err), MHA_OK);
    assert_int_equal(mha_cache_bind(cache, 0, NULL, &d, &a, &err), MHA_OK);
    assert_int_equal(cached_append(cache, &cached_plain, 0, 1, 2, NULL, 6, &err), MHA_OK);
    mha_cache_save(cache, t);
    assert_int_equal(a.kv_lens[0], 5);
    assert_int_equal(((const int64_t *)t[0].data)[0], 7);
    mha_cache_free(cache);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_window_memory),
                                              cmocka_unit_test(test_sharing),
                                              cmocka_unit_test(test_page_dropped_while_shared),
                                              cmocka_unit_test(test_running_out_of_memory),
                                              cmocka_unit_test(test_capacity),
                                              cmocka_unit_test(test_types),
                                              cmocka_unit_test(test_bad_descriptions),
                                              cmocka_unit_test(test_bad_changes),
                                              cmocka_unit_test(test_truncate_all),
                                              cmocka_unit_test(test_too_large_for_q8),
                                              cmocka_unit_test(test_tokens_of_an_older_caller),
                                              cmocka_unit_test(test_save_after_bind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
