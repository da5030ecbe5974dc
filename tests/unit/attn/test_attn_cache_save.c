/* test_attn_cache_save.c - loading a KV cache from invalid tensors must fail. test_attn_cache_programs.c tests that a
 * cache is restored completely from valid tensors. */
#include "support/attn/cached.h"
#include "support/check.h"
#include <string.h>

typedef struct spoiled {
    int tensor;
    void (*spoil)(mha_named_tensor *t, int64_t *lengths, int32_t *pages);
    const char *word;
} spoiled;

static void no_name(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->name = "other";
}
static void wrong_dtype(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->dtype = MHA_BF16;
}
static void wrong_rank(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->rank++;
}
static void wrong_shape(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->shape[t->rank - 1]++;
}
static void huge_shape(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->shape[0] = INT64_MAX;
}
static void fewer_pages(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)lengths, (void)pages;
    t->shape[0]--;
}
static void negative_length(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)pages;
    lengths[1] = -1;
}
static void long_length(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)pages;
    lengths[1] = INT64_MAX;
}
static void longer_length(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)pages;
    lengths[0] += 16;
}
static void far_page(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)lengths;
    pages[0] = 1000000;
}
static void missing_page(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)lengths;
    pages[1] = -1;
}
static void low_page(mha_named_tensor *t, int64_t *lengths, int32_t *pages)
{
    (void)t, (void)lengths;
    pages[0] = INT32_MIN;
}

static void test_corrupted_tensors(void **state)
{
    (void)state;
    static const spoiled all[] = {
        {0, no_name, "lengths"},    {1, no_name, "pages"},       {2, no_name, "k"},           {3, no_name, "v"},
        {0, wrong_dtype, "i64"},    {2, wrong_dtype, "bf16"},    {1, wrong_rank, "3"},        {3, wrong_rank, "5"},
        {0, wrong_shape, "4"},      {2, wrong_shape, "6"},       {2, huge_shape, "k"},        {3, fewer_pages, "v"},
        {0, negative_length, "-1"}, {0, long_length, "lengths"}, {0, longer_length, "pages"}, {1, far_page, "1000000"},
        {1, missing_page, "-1"},    {1, low_page, "-2147483648"}};
    static cached_model m;
    mha_error err = {0};
    mha_cache *cache = cached_create(NULL, &cached_plain);
    cached_start(&m, &cached_plain);
    assert_int_equal(cached_append(cache, &cached_plain, MHA_CACHE_ALL, CACHED_B, 40, NULL, 3, &err), MHA_OK);
    for (int64_t b = 0; b < CACHED_B; b++)
        cached_note(&m, b, 40, 3 + 40 * b);
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        mha_named_tensor t[MHA_CACHE_TENSORS];
        int64_t lengths[CACHED_B];
        int32_t pages[256];
        mha_cache_save(cache, t);
        const size_t table = (size_t)(CACHED_B * t[1].shape[1]) * sizeof *pages;
        assert_true(table <= sizeof pages);
        memcpy(lengths, t[0].data, sizeof lengths);
        memcpy(pages, t[1].data, table);
        t[0].data = lengths;
        t[1].data = pages;
        all[n].spoil(&t[all[n].tensor], lengths, pages);
        err = (mha_error){0};
        const mha_status status = mha_cache_load(cache, t, MHA_CACHE_TENSORS, &err);
        if (status != MHA_ERR_FORMAT || !strstr(err.message, all[n].word))
            fail_msg("case %zu: message must contain \"%s\" (got %s: %s)", n, all[n].word, mha_status_text(status),
                     err.message);
        cached_holds(cache, &m);
    }
    mha_cache_free(cache);
}

/* Rows of the two types have the same size in bytes: a cache must not load the tensors of the other one. */
static void test_other_type(void **state)
{
    (void)state;
    static const struct {
        mha_dtype dtype[2];
        int64_t head_dim[2];
    } all[] = {
        {{MHA_Q8_0, MHA_F8_E4M3}, {32, 34}}, {{MHA_Q4_0, MHA_F8_E4M3}, {32, 18}}, {{MHA_Q8_0, MHA_Q4_0}, {288, 544}}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        for (int from = 0; from < 2; from++) {
            mha_cache *caches[2];
            mha_named_tensor t[MHA_CACHE_TENSORS];
            mha_error err = {0};
            for (int c = 0; c < 2; c++) {
                const mha_cache_desc desc = {.size = sizeof desc,
                                             .batch = 1,
                                             .kv_heads = 1,
                                             .head_dim = all[n].head_dim[c],
                                             .dtype = all[n].dtype[c]};
                assert_int_equal(mha_cache_create(NULL, &desc, &caches[c], &err), MHA_OK);
            }
            mha_cache_save(caches[from], t);
            assert_int_equal(mha_cache_load(caches[from], t, MHA_CACHE_TENSORS, &err), MHA_OK);
            mha_cache_save(caches[from], t);
            assert_int_equal(mha_cache_load(caches[!from], t, MHA_CACHE_TENSORS, &err), MHA_ERR_FORMAT);
            assert_non_null(strstr(err.message, "tensor \"k\": dtype must be"));
            mha_cache_free(caches[0]);
            mha_cache_free(caches[1]);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_corrupted_tensors),
                                              cmocka_unit_test(test_other_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
