/* test_base_hash.c - tests the hash that identifies the data of state files. It must return the published values of
 * splitmix64 and depend on every bit, on the length and on the order of the data. */
#include "math/hash.h"
#include "support/check.h"
#include <string.h>

static void test_is_splitmix(void **state)
{
    (void)state;
    const char zeros[8] = {0};
    char hex[24];
    assert_true(mha__hash(0, zeros, 8) == UINT64_C(0xE220A8397B1DCDAF)); /* the first published value for seed 0 */
    assert_true(mha__hash(17, zeros, 0) == 17);
    mha__hash_print(hex, UINT64_C(0x0123456789ABCDEF));
    assert_string_equal(hex, "0123456789abcdef");
}

static void test_every_bit_counts(void **state)
{
    (void)state;
    char data[21], changed[21];
    for (int i = 0; i < 21; i++)
        data[i] = (char)(7 * i);
    for (size_t n = 1; n <= sizeof data; n++) {
        const uint64_t whole = mha__hash(1, data, n);
        assert_true(whole != mha__hash(2, data, n) && whole != mha__hash(1, data, n - 1));
        for (size_t bit = 0; bit < 8 * n; bit++) {
            memcpy(changed, data, sizeof data);
            changed[bit / 8] = (char)(changed[bit / 8] ^ 1 << bit % 8);
            assert_true(whole != mha__hash(1, changed, n));
        }
    }
}

/* The hash must change if a zero is appended or the data is reordered. */
static void test_length_and_order(void **state)
{
    (void)state;
    const char zeros[16] = {0};
    const double x[] = {1, 2}, y[] = {2, 1};
    for (size_t n = 0; n < sizeof zeros; n++)
        assert_true(mha__hash(0, zeros, n) != mha__hash(0, zeros, n + 1));
    assert_true(mha__hash(0, x, sizeof x) != mha__hash(0, y, sizeof y));
    /* hashing whole words in two calls must give the result of one call */
    assert_true(mha__hash(mha__hash(0, x, 8), x + 1, 8) == mha__hash(0, x, 16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_splitmix),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_length_and_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
