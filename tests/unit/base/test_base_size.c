/* test_base_size.c - computations of sizes from external values must detect every overflow. */
#include "base/size.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void products_and_sums_detect_overflow(void **state)
{
    size_t out = 0;
    (void)state;
    assert_true(mha__mul(SIZE_MAX / 2, 2, &out) && out == SIZE_MAX - 1);
    assert_false(mha__mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_true(mha__mul(0, SIZE_MAX, &out) && out == 0);
    assert_true(mha__mul(SIZE_MAX, 1, &out) && out == SIZE_MAX);
    assert_false(mha__mul(SIZE_MAX, SIZE_MAX, &out));
    assert_true(mha__add(SIZE_MAX, 0, &out) && out == SIZE_MAX);
    assert_false(mha__add(SIZE_MAX, 1, &out));
    assert_true(mha__add(SIZE_MAX / 2, SIZE_MAX / 2, &out) && out == SIZE_MAX - 1);
}

static void bytes_of_a_shape(void **state)
{
    size_t out = 0;
    (void)state;
    assert_true(mha__bytes((const int64_t[]){2, 3, 5}, 3, 4, &out) && out == 120);
    assert_true(mha__bytes(NULL, 0, 8, &out) && out == 8); /* without dimensions, there is one element */
    assert_true(mha__bytes((const int64_t[]){7, 0, 9}, 3, 4, &out) && out == 0);
    assert_false(mha__bytes((const int64_t[]){3, -1}, 2, 4, &out));
    assert_false(mha__bytes((const int64_t[]){INT64_MIN}, 1, 1, &out));
    assert_false(mha__bytes((const int64_t[]){INT64_C(1) << 40, INT64_C(1) << 40}, 2, 4, &out));
    assert_false(mha__bytes((const int64_t[]){INT64_C(1) << 62}, 1, 4, &out));
    assert_true(mha__bytes((const int64_t[]){INT64_C(1) << 62}, 1, 2, &out) && out == (size_t)1 << 63);
    /* Products are computed from left to right: a dimension of 0 prevents an overflow only if it comes first. */
    assert_false(mha__bytes((const int64_t[]){INT64_C(1) << 40, INT64_C(1) << 40, 0}, 3, 1, &out));
    assert_true(mha__bytes((const int64_t[]){0, INT64_C(1) << 40, INT64_C(1) << 40}, 3, 1, &out) && out == 0);
}

static void small_helpers(void **state)
{
    (void)state;
    assert_true(mha__min64(-3, 2) == -3 && mha__min64(2, -3) == -3);
    assert_true(mha__max64(-3, 2) == 2 && mha__max64(2, -3) == 2);
    assert_true(mha__ceil_div(0, 5) == 0 && mha__ceil_div(1, 5) == 1 && mha__ceil_div(5, 5) == 1);
    assert_true(mha__ceil_div(6, 5) == 2);
    assert_true(mha__ceil_div(INT64_MAX, 2) == INT64_MAX / 2 + 1); /* the computation must not overflow at INT64_MAX */
    assert_true(mha__is_power_of_two(1) && mha__is_power_of_two(64) && mha__is_power_of_two(INT64_C(1) << 62));
    assert_false(mha__is_power_of_two(0) || mha__is_power_of_two(-4) || mha__is_power_of_two(INT64_MIN));
    assert_false(mha__is_power_of_two(6) || mha__is_power_of_two(INT64_MAX));
    assert_true(mha__round_up(0, 16) == 0 && mha__round_up(1, 16) == 16 && mha__round_up(32, 16) == 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_and_sums_detect_overflow),
        cmocka_unit_test(bytes_of_a_shape),
        cmocka_unit_test(small_helpers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
