/* test_attn_cache.c - the KV cache as a container: what it holds after any sequence of changes, what it refuses, and
 * what happens when memory runs out. The laws that tie it to the operator are in tests/property. */
#include "mha/cache.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 3, HKV = 2, D = 5, DV = 3, MOST = 400 };

static const mha_cache_desc plain = {
    .size = sizeof plain, .batch = B, .kv_heads = HKV, .head_dim = D, .v_head_dim = DV, .page_size = 16};

static mha_cache *create(mha_ctx *ctx, const mha_cache_desc *desc)
{
    mha_cache *cache;
    mha_error err = {0};
    if (mha_cache_create(ctx, desc, &cache, &err) != MHA_OK) fail_msg("create: %s", err.message);
    return cache;
}

/* ---- tokens: number d of head g of token `id` says which one it is ---- */

static float number(int64_t id, int64_t g, int64_t d, bool value)
{
    return (float)((id * HKV + g) * 8 + d) + (value ? 0.5F : 0);
}

/* [n][count][HKV][D] in memory, so strides are not contiguous; entry m begins with id first + m * count. */
static mha_status append(mha_cache *cache, int64_t sequence, int64_t n, int64_t count, const int64_t *counts,
                         int64_t first, mha_error *err)
{
    float *k = malloc((size_t)(n * count * HKV * D + 1) * sizeof *k);
    float *v = malloc((size_t)(n * count * HKV * DV + 1) * sizeof *v);
    assert_true(k && v);
    for (int64_t t = 0; t < n * count; t++)
        for (int64_t g = 0; g < HKV; g++) {
            for (int64_t d = 0; d < D; d++)
                k[(t * HKV + g) * D + d] = number(first + t, g, d, false);
            for (int64_t d = 0; d < DV; d++)
                v[(t * HKV + g) * DV + d] = number(first + t, g, d, true);
        }
    const mha_cache_tokens tokens = {.size = sizeof tokens,
                                     .count = count,
                                     .counts = counts,
                                     .k = {k, {count * HKV * D, D, HKV * D, 1}},
                                     .v = {v, {count * HKV * DV, DV, HKV * DV, 1}}};
    const mha_status status = mha_cache_append(cache, sequence, &tokens, err);
    free(k);
    free(v);
    return status;
}

/* What the cache should hold: the ids of each sequence's tokens. */
typedef struct model {
    int64_t length[B], id[B][MOST];
} model;

static void model_append(model *m, int64_t b, int64_t count, int64_t first)
{
    for (int64_t t = 0; t < count; t++)
        m->id[b][m->length[b]++] = first + t;
}

static void check_token(const mha_cache_tensor *t, int32_t page, int64_t slot, int64_t id)
{
    const int64_t size = t[2].shape[2];
    const float *k = t[2].data, *v = t[3].data;
    for (int64_t g = 0; g < HKV; g++) {
        for (int64_t d = 0; d < D; d++)
            assert_true(k[((page * HKV + g) * size + slot) * D + d] == number(id, g, d, false));
        for (int64_t d = 0; d < DV; d++)
            assert_true(v[((page * HKV + g) * size + slot) * DV + d] == number(id, g, d, true));
    }
}

/* Every token is where the table says, unless its page was given back, which only pages behind `window` may be; no page
 * is held without need. */
static void check_holds(const mha_cache *cache, const model *m, int64_t window, int64_t keep_first)
{
    mha_cache_tensor t[MHA_CACHE_TENSORS];
    mha_cache_save(cache, t);
    bool *used = calloc((size_t)t[2].shape[0] + 1, sizeof *used);
    assert_non_null(used);
    const int64_t size = t[2].shape[2], width = t[1].shape[1];
    int64_t pages = 0;
    for (int64_t b = 0; b < B; b++) {
        assert_int_equal(mha_cache_length(cache, b), m->length[b]);
        for (int64_t n = 0; n < width; n++) {
            const int32_t page = ((const int32_t *)t[1].data)[b * width + n];
            assert_true(page >= -1 && page < t[2].shape[0]);
            if (n * size >= m->length[b]) assert_int_equal(page, -1);
            if (page < 0 || used[page]) continue;
            used[page] = true;
            pages++;
        }
        for (int64_t j = 0; j < m->length[b]; j++) {
            const int32_t page = ((const int32_t *)t[1].data)[b * width + j / size];
            if (page >= 0)
                check_token(t, page, j % size, m->id[b][j]);
            else
                assert_true(window > 0 && j >= keep_first && j < m->length[b] - window + 1);
        }
    }
    assert_int_equal(mha_cache_pages(cache), pages);
    free(used);
}

/* ---- any sequence of changes ---- */

static void random_change(mha_cache *cache, model *m, rng *r, int64_t *next_id, const mha_cache_desc *desc)
{
    mha_error err = {0};
    const int64_t b = rng_range(r, 0, B - 1), other = (b + rng_range(r, 1, B - 1)) % B;
    const int64_t length = rng_range(r, 0, m->length[b]), kind = rng_range(r, 0, 9);
    if (kind < 4 && m->length[b] + 40 < MOST) {
        const int64_t count = rng_range(r, 0, 40);
        assert_int_equal(append(cache, b, 1, count, NULL, *next_id, &err), MHA_OK);
        model_append(m, b, count, *next_id);
        *next_id += count;
    } else if (kind < 7) {
        int64_t counts[B];
        for (int64_t n = 0; n < B; n++)
            counts[n] = m->length[n] + 20 < MOST ? rng_range(r, 0, 20) : 0;
        assert_int_equal(append(cache, MHA_CACHE_ALL, B, 20, counts, *next_id, &err), MHA_OK);
        for (int64_t n = 0; n < B; n++)
            model_append(m, n, counts[n], *next_id + 20 * n);
        *next_id += (int64_t)B * 20;
    } else if (kind == 7) {
        const mha_status status = mha_cache_truncate(cache, b, length, &err);
        if (status == MHA_OK) m->length[b] = length;
        if (desc->window == 0) assert_int_equal(status, MHA_OK);
    } else if (kind == 8) {
        const mha_status status = mha_cache_fork(cache, b, other, length, &err);
        if (desc->window == 0) assert_int_equal(status, MHA_OK);
        if (status != MHA_OK) return;
        memcpy(m->id[other], m->id[b], sizeof m->id[b]);
        m->length[other] = length;
    } else if (rng_chance(r, 0.3)) {
        assert_int_equal(mha_cache_clear(cache, b, &err), MHA_OK);
        m->length[b] = 0;
    }
}

static void check_random(const mha_cache_desc *desc, uint64_t seed)
{
    static model m;
    counting c = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
    mha_ctx *ctx;
    mha_error err = {0};
    rng r = rng_make(seed, 0);
    int64_t next_id = 1;
    assert_int_equal(mha_ctx_create(&options, &ctx, &err), MHA_OK);
    mha_cache *cache = create(ctx, desc);
    memset(&m, 0, sizeof m);
    for (int n = 0; n < 300; n++) {
        random_change(cache, &m, &r, &next_id, desc);
        check_holds(cache, &m, desc->window, desc->keep_first);
    }
    assert_int_equal(mha_cache_clear(cache, MHA_CACHE_ALL, &err), MHA_OK);
    assert_int_equal(mha_cache_pages(cache), 0);
    mha_cache_free(cache);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&c.live), 0);
}

static void test_random_changes(void **state)
{
    (void)state;
    mha_cache_desc reserved = plain, windowed = plain, streaming = plain, narrow = plain;
    reserved.capacity = (int64_t)B * MOST * 2;
    windowed.window = 50;
    streaming.window = 30;
    streaming.keep_first = 20;
    narrow.window = 1;
    const mha_cache_desc *const all[] = {&plain, &reserved, &windowed, &streaming, &narrow};
    for (uint64_t seed = 0; seed < 50; seed++)
        check_random(all[seed % 5], seed);
}

/* ---- memory ---- */

/* A window costs its pages, however long the sequence; in the steady state nothing is allocated but the table, which
 * doubles. */
static void test_window_memory(void **state)
{
    (void)state;
    counting c = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
    mha_cache_desc d = plain;
    mha_ctx *ctx;
    mha_error err = {0};
    d.window = 40;
    d.keep_first = 4;
    assert_int_equal(mha_ctx_create(&options, &ctx, &err), MHA_OK);
    mha_cache *cache = create(ctx, &d);
    for (int64_t n = 0; n < 64; n++)
        assert_int_equal(append(cache, MHA_CACHE_ALL, B, 1, NULL, n, &err), MHA_OK);
    const long calls = atomic_load(&c.calls);
    for (int64_t n = 0; n < 16 * 60; n++) {
        assert_int_equal(append(cache, MHA_CACHE_ALL, B, 1, NULL, n, &err), MHA_OK);
        assert_true(mha_cache_pages(cache) <= B * (1 + 4)); /* keep_first, and 40 keys in up to 4 pages */
    }
    assert_true(atomic_load(&c.calls) - calls <= 4 + 8); /* 4 to 64 entries, and one growth of the pool */
    mha_cache_free(cache);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&c.live), 0);
}

static void test_sharing(void **state)
{
    (void)state;
    static model m;
    mha_error err = {0};
    mha_cache *cache = create(NULL, &plain);
    memset(&m, 0, sizeof m);
    assert_int_equal(append(cache, 0, 1, 40, NULL, 100, &err), MHA_OK);
    model_append(&m, 0, 40, 100);
    assert_int_equal(mha_cache_fork(cache, 0, 1, 40, &err), MHA_OK);
    memcpy(m.id[1], m.id[0], sizeof m.id[0]);
    m.length[1] = 40;
    assert_int_equal(mha_cache_pages(cache), 3); /* all shared */
    assert_int_equal(append(cache, MHA_CACHE_ALL, B, 1, (const int64_t[]){1, 1, 0}, 200, &err), MHA_OK);
    model_append(&m, 0, 1, 200);
    model_append(&m, 1, 1, 201);
    assert_int_equal(mha_cache_pages(cache), 4); /* one of the two copied the last page */
    check_holds(cache, &m, 0, 0);
    mha_cache_free(cache);
}

/* All that can be seen of a cache, as one piece of memory. */
static char *snapshot(const mha_cache *cache, size_t *bytes)
{
    mha_cache_tensor t[MHA_CACHE_TENSORS];
    mha_cache_save(cache, t);
    const size_t sizes[MHA_CACHE_TENSORS] = {
        B * sizeof(int64_t), (size_t)(B * t[1].shape[1]) * sizeof(int32_t),
        (size_t)(t[2].shape[0] * t[2].shape[1] * t[2].shape[2] * t[2].shape[3]) * sizeof(float),
        (size_t)(t[3].shape[0] * t[3].shape[1] * t[3].shape[2] * t[3].shape[3]) * sizeof(float)};
    char *all = malloc(sizes[0] + sizes[1] + sizes[2] + sizes[3] + 1);
    assert_non_null(all);
    *bytes = 0;
    for (int n = 0; n < MHA_CACHE_TENSORS; n++) {
        if (n == 1) continue; /* its width may have grown; check_holds looks at it */
        memcpy(all + *bytes, t[n].data ? t[n].data : "", t[n].data ? sizes[n] : 0);
        *bytes += sizes[n];
    }
    return all;
}

/* Appends with a budget of 0, 1, 2 ... allocations until one succeeds: a failure is MHA_ERR_MEMORY and changes
 * nothing. */
static void test_starving(void **state)
{
    (void)state;
    static model m;
    counting c = {.budget = -1};
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
    mha_cache_desc d = plain;
    mha_ctx *ctx;
    mha_error err = {0};
    d.window = 20;
    memset(&m, 0, sizeof m);
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
    assert_int_equal(append(cache, 0, 1, 70, NULL, 7, &err), MHA_OK);
    model_append(&m, 0, 70, 7);
    assert_int_equal(mha_cache_fork(cache, 0, 2, 70, &err), MHA_OK);
    memcpy(m.id[2], m.id[0], sizeof m.id[0]);
    m.length[2] = 70;
    failures = 0;
    for (long budget = 0;; budget++) {
        size_t before_bytes, after_bytes;
        char *before = snapshot(cache, &before_bytes);
        atomic_store(&c.calls, 0);
        atomic_store(&c.budget, budget);
        const mha_status status = append(cache, MHA_CACHE_ALL, B, 100, NULL, 1000, &err);
        atomic_store(&c.budget, -1);
        if (status != MHA_OK) {
            char *after = snapshot(cache, &after_bytes);
            assert_int_equal(status, MHA_ERR_MEMORY);
            assert_true(before_bytes == after_bytes && memcmp(before, after, before_bytes) == 0);
            check_holds(cache, &m, d.window, 0);
            free(after);
            failures++;
        }
        free(before);
        if (status == MHA_OK) break;
    }
    assert_true(failures >= 4); /* table, k, v, counts, stack */
    for (int64_t b = 0; b < B; b++)
        model_append(&m, b, 100, 1000 + 100 * b);
    check_holds(cache, &m, d.window, 0);
    mha_cache_free(cache);
    mha_ctx_free(ctx);
    assert_int_equal(atomic_load(&c.live), 0);
}

static void test_capacity(void **state)
{
    (void)state;
    static model m;
    mha_cache_desc d = plain;
    mha_error err = {0};
    d.capacity = 60; /* 4 pages */
    memset(&m, 0, sizeof m);
    mha_cache *cache = create(NULL, &d);
    const size_t bytes = mha_cache_bytes(cache);
    assert_true(bytes >= 64 * HKV * (D + DV) * sizeof(float));
    assert_int_equal(append(cache, 0, 1, 33, NULL, 1, &err), MHA_OK);
    model_append(&m, 0, 33, 1);
    assert_int_equal(append(cache, 1, 1, 17, NULL, 50, &err), MHA_ERR_MEMORY);
    assert_true(check_has_word(err.message, "4") && check_has_word(err.message, "1"));
    check_holds(cache, &m, 0, 0);
    assert_int_equal(append(cache, 1, 1, 16, NULL, 50, &err), MHA_OK);
    assert_int_equal(mha_cache_clear(cache, 0, &err), MHA_OK);
    m.length[0] = 0;
    model_append(&m, 1, 16, 50);
    assert_int_equal(append(cache, 2, 1, 48, NULL, 90, &err), MHA_OK);
    model_append(&m, 2, 48, 90);
    check_holds(cache, &m, 0, 0);
    mha_cache_free(cache);
}

/* ---- types ---- */

static void test_types(void **state)
{
    (void)state;
    static const struct {
        mha_dtype stored;
        uint16_t bits; /* of 1.5 */
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
        mha_cache_tensor t[MHA_CACHE_TENSORS];
        mha_cache *cache = create(NULL, &d);
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

/* ---- keeping ---- */

static void test_save_and_load(void **state)
{
    (void)state;
    static model m;
    mha_cache_desc d = plain;
    mha_error err = {0};
    rng r = rng_make(5, 5);
    int64_t next_id = 1;
    d.window = 60;
    d.keep_first = 3;
    mha_cache *cache = create(NULL, &d);
    memset(&m, 0, sizeof m);
    for (int n = 0; n < 60; n++) {
        mha_cache_tensor t[MHA_CACHE_TENSORS];
        mha_cache *copy = create(NULL, &d);
        random_change(cache, &m, &r, &next_id, &d);
        assert_int_equal(append(copy, 1, 1, 5, NULL, 77, &err), MHA_OK); /* is replaced */
        mha_cache_save(cache, t);
        if (mha_cache_load(copy, t, MHA_CACHE_TENSORS, &err) != MHA_OK) fail_msg("load: %s", err.message);
        check_holds(copy, &m, d.window, d.keep_first);
        mha_cache_free(cache);
        cache = copy; /* life goes on with what came back */
    }
    mha_cache_free(cache);
}

typedef struct spoiled {
    int tensor;
    void (*spoil)(mha_cache_tensor *t, int64_t *lengths, int32_t *pages);
    const char *word;
} spoiled;

static void no_name(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->name = "other";
}
static void wrong_dtype(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->dtype = MHA_BF16;
}
static void wrong_rank(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->rank++;
}
static void wrong_shape(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->shape[t->rank - 1]++;
}
static void huge_shape(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->shape[0] = INT64_MAX;
}
static void fewer_pages(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->shape[0]--;
}
static void negative_length(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)pages;
    lengths[1] = -1;
}
static void long_length(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)pages;
    lengths[1] = INT64_MAX;
}
static void longer_length(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)pages;
    lengths[0] += 16;
}
static void far_page(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)lengths;
    pages[0] = 1000000;
}
static void missing_page(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)lengths;
    pages[1] = -1;
}
static void low_page(mha_cache_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)lengths;
    pages[0] = INT32_MIN;
}

static void test_spoiled_tensors(void **state)
{
    (void)state;
    static const spoiled all[] = {
        {0, no_name, "lengths"},    {1, no_name, "pages"},       {2, no_name, "k"},           {3, no_name, "v"},
        {0, wrong_dtype, "i64"},    {2, wrong_dtype, "bf16"},    {1, wrong_rank, "3"},        {3, wrong_rank, "5"},
        {0, wrong_shape, "4"},      {2, wrong_shape, "6"},       {2, huge_shape, "k"},        {3, fewer_pages, "v"},
        {0, negative_length, "-1"}, {0, long_length, "lengths"}, {0, longer_length, "pages"}, {1, far_page, "1000000"},
        {1, missing_page, "-1"},    {1, low_page, "-2147483648"}};
    static model m;
    mha_error err = {0};
    mha_cache *cache = create(NULL, &plain);
    memset(&m, 0, sizeof m);
    assert_int_equal(append(cache, MHA_CACHE_ALL, B, 40, NULL, 3, &err), MHA_OK);
    for (int64_t b = 0; b < B; b++)
        model_append(&m, b, 40, 3 + 40 * b);
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        mha_cache_tensor t[MHA_CACHE_TENSORS];
        int64_t lengths[B];
        int32_t pages[256];
        mha_cache_save(cache, t);
        const size_t table = (size_t)(B * t[1].shape[1]) * sizeof *pages;
        assert_true(table <= sizeof pages);
        memcpy(lengths, t[0].data, sizeof lengths);
        memcpy(pages, t[1].data, table);
        t[0].data = lengths;
        t[1].data = pages;
        all[n].spoil(&t[all[n].tensor], lengths, pages);
        err = (mha_error){0};
        const mha_status status = mha_cache_load(cache, t, MHA_CACHE_TENSORS, &err);
        if (status != MHA_ERR_FORMAT || !strstr(err.message, all[n].word))
            fail_msg("%zu (%s): %s: %s", n, all[n].word, mha_status_text(status), err.message);
        check_holds(cache, &m, 0, 0);
    }
    mha_cache_free(cache);
}

/* ---- refusals ---- */

static void test_bad_descriptions(void **state)
{
    (void)state;
    static const struct {
        const char *field, *value;
        mha_cache_desc desc;
    } all[] = {
        {"size", "8", {.size = 8, .batch = 1, .kv_heads = 1, .head_dim = 1}},
        {"batch", "0", {.size = sizeof plain, .batch = 0, .kv_heads = 1, .head_dim = 1}},
        {"kv_heads", "-1", {.size = sizeof plain, .batch = 1, .kv_heads = -1, .head_dim = 1}},
        {"head_dim", "513", {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 513}},
        {"v_head_dim", "-4", {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .v_head_dim = -4}},
        {"dtype", "i32", {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .dtype = MHA_I32}},
        {"page_size", "24", {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .page_size = 24}},
        {"page_size", "8", {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .page_size = 8}},
        {"page",
         "4611686018427387904",
         {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .page_size = INT64_C(1) << 62}},
        {"capacity", "-1", {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .capacity = -1}},
        {"window", "-1", {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .window = -1}},
        {"keep_first",
         "-1",
         {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .window = 4, .keep_first = -1}},
        {"keep_first", "3", {.size = sizeof plain, .batch = 1, .kv_heads = 1, .head_dim = 1, .keep_first = 3}},
    };
    mha_error err = {0};
    mha_cache *cache;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        cache = (mha_cache *)&err;
        assert_int_equal(mha_cache_create(NULL, &all[n].desc, &cache, &err), MHA_ERR_ARG);
        assert_null(cache);
        if (!strstr(err.message, all[n].field) || !check_has_word(err.message, all[n].value))
            fail_msg("%s = %s: %s", all[n].field, all[n].value, err.message);
    }
    mha_cache_desc large = plain;
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
    static model m;
    mha_cache_desc d = plain;
    mha_error err = {0};
    d.window = 10;
    mha_cache *cache = create(NULL, &d);
    memset(&m, 0, sizeof m);
    for (int64_t n = 0; n < 100; n++)
        assert_int_equal(append(cache, 1, 1, 1, NULL, n, &err), MHA_OK);
    model_append(&m, 1, 100, 0);
    const float x[D * HKV] = {0};
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
    bad = good, bad.counts = (const int64_t[]){2};
    assert_int_equal(mha_cache_append(cache, 0, &bad, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "counts[0] = 2"));
    assert_int_equal(mha_cache_append(cache, B, &good, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_append(cache, -2, &good, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_append(cache, 0, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_append(NULL, 0, &good, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_truncate(cache, 1, 101, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_truncate(cache, MHA_CACHE_ALL, 0, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_truncate(cache, 1, 50, &err), MHA_ERR_ARG); /* behind the window */
    assert_true(check_has_word(err.message, "50"));
    assert_int_equal(mha_cache_fork(cache, 1, 1, 100, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_fork(cache, 1, B, 100, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_fork(cache, 1, 0, 50, &err), MHA_ERR_ARG);
    assert_int_equal(mha_cache_clear(cache, B, &err), MHA_ERR_ARG);
    check_holds(cache, &m, d.window, 0);
    assert_int_equal(mha_cache_truncate(cache, 1, 99, &err), MHA_OK);
    assert_int_equal(mha_cache_truncate(cache, 1, 0, &err), MHA_OK);
    mha_cache_free(cache);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_changes),   cmocka_unit_test(test_window_memory),
        cmocka_unit_test(test_sharing),          cmocka_unit_test(test_starving),
        cmocka_unit_test(test_capacity),         cmocka_unit_test(test_types),
        cmocka_unit_test(test_save_and_load),    cmocka_unit_test(test_spoiled_tensors),
        cmocka_unit_test(test_bad_descriptions), cmocka_unit_test(test_bad_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
