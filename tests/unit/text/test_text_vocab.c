/* test_text_vocab.c - tests the hash table of the vocabulary: lookup, longest match, prefixes and colliding keys. */
#include "text/vocabulary/vocab.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void add(mha__vocab *v, const char *key, int32_t value)
{
    assert_int_equal(mha__vocab_add(v, key, strlen(key), value, NULL, NULL), MHA_OK);
}

static void test_find(void **state)
{
    (void)state;
    enum { KEYS = 5000 };
    mha__vocab v;
    char key[16];
    assert_int_equal(mha__vocab_create(NULL, KEYS, KEYS * 8, NULL, &v, NULL), MHA_OK);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        add(&v, key, 3 * i);
    }
    for (int i = 0; i < 2 * KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(mha__vocab_find(&v, key, strlen(key)), i < KEYS ? 3 * i : -1);
    }
    assert_int_equal(mha__vocab_find(&v, "k1x", 2), 3);
    assert_int_equal(mha__vocab_find(&v, "", 0), -1);
    assert_int_equal(v.count, KEYS);
    mha__vocab_free(&v);
}

static void test_empty(void **state)
{
    (void)state;
    mha__vocab v = {0};
    size_t length;
    assert_int_equal(mha__vocab_find(&v, "a", 1), -1);
    assert_int_equal(mha__vocab_longest(&v, &mha__vocab_no_prefix, "a", 1, &length), -1);
    mha__vocab_free(&v);
    assert_int_equal(mha__vocab_create(NULL, 0, 0, NULL, &v, NULL), MHA_OK);
    assert_int_equal(mha__vocab_find(&v, "a", 1), -1);
    assert_int_equal(mha__vocab_find(&v, "", 0), -1);
    mha__vocab_free(&v);
    assert_int_equal(mha__vocab_create(NULL, SIZE_MAX, 1, NULL, &v, NULL), MHA_ERR_UNSUPPORTED);
    assert_int_equal(mha__vocab_create(NULL, 1, SIZE_MAX, NULL, &v, NULL), MHA_ERR_UNSUPPORTED);
}

/* If a key is added twice, the first value must be kept. NUL must be a byte like any other. */
static void test_duplicate_keys_and_nul(void **state)
{
    (void)state;
    mha__vocab v;
    const mha__vocab_entry *entry;
    assert_int_equal(mha__vocab_create(NULL, 3, 9, NULL, &v, NULL), MHA_OK);
    add(&v, "abc", 1);
    assert_int_equal(mha__vocab_add(&v, "abc", 3, 2, &entry, NULL), MHA_OK);
    assert_int_equal(entry->value, 1);
    assert_int_equal(mha__vocab_add(&v, "a\0c", 3, 2, NULL, NULL), MHA_OK);
    assert_int_equal(mha__vocab_find(&v, "abc", 3), 1);
    assert_int_equal(mha__vocab_find(&v, "a\0c", 3), 2);
    assert_int_equal(mha__vocab_find(&v, "a", 1), -1);
    mha__vocab_free(&v);
}

static void check_longest(const mha__vocab *v, const char *prefix, const char *text, int32_t value, size_t want)
{
    mha__vocab_prefix p = mha__vocab_prefix_of(prefix, strlen(prefix));
    size_t length = 0;
    assert_int_equal(mha__vocab_longest(v, &p, text, strlen(text), &length), value);
    assert_int_equal(length, want);
}

static void test_longest(void **state)
{
    (void)state;
    static const char *const keys[] = {"a", "ab", "abcd", "##", "##b", "##bcd", "é", "éé"};
    mha__vocab v;
    assert_int_equal(mha__vocab_create(NULL, 8, 64, NULL, &v, NULL), MHA_OK);
    for (int i = 0; i < 8; i++)
        add(&v, keys[i], i);
    check_longest(&v, "", "abcx", 1, 2);
    check_longest(&v, "", "abcdabcd", 2, 4);
    check_longest(&v, "", "xab", -1, 0);
    check_longest(&v, "", "", -1, 0);
    check_longest(&v, "##", "bc", 4, 1);
    check_longest(&v, "##", "bcd", 5, 3);
    check_longest(&v, "##", "x", -1, 0); /* the prefix "##" must not match by itself */
    check_longest(&v, "", "ééé", 7, 4);
    check_longest(&v, "a much longer prefix than any key", "b", -1, 0);
    mha__vocab_free(&v);
}

/* Returns the slot of a key as vocab.c computes it (folded FNV-1a), in order to find keys with the same slot. */
static uint32_t slot_of(const char *key, uint32_t mask)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 0x00000100000001B3u;
    return (uint32_t)(hash ^ hash >> 32) & mask;
}

static void test_collisions_are_refused(void **state)
{
    (void)state;
    enum { KEYS = 1000, SLOTS = 2048 };
    mha__vocab v;
    mha_error err = {0};
    mha_status status = MHA_OK;
    int added = 0;
    assert_int_equal(mha__vocab_create(NULL, KEYS, KEYS * 12, NULL, &v, NULL), MHA_OK);
    assert_int_equal(v.mask, SLOTS - 1);
    for (int i = 0; added < KEYS && status == MHA_OK; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        if (slot_of(key, SLOTS - 1) != 7) continue;
        status = mha__vocab_add(&v, key, strlen(key), i, NULL, &err);
        added += status == MHA_OK;
    }
    assert_int_equal(status, MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "same hash"));
    assert_true(added > 50 && added < 200); /* must be rejected once n (n - 1) / 2 probes exceed 16 n + 1024 */
    mha__vocab_free(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_duplicate_keys_and_nul),
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_collisions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
