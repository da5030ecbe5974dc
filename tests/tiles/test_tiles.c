/* test_tiles.c - tests the emulation of tile instructions against the operation and exception sections of the Intel
 * SDM: results of each instruction in tiles that are not full, rounding and denormals, and every fault. */
#include "math/half.h"
#include "support/check.h"
#include "support/rng.h"
#include "tiles/tiles.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { C, A, B, NARROW, UNUSED, ROWS = 5, COLUMNS = 7, STEPS = 3 };

/* Configures C [5][7], A [5][3] and B [3][7] in dwords, and a tile of one row of 6 bytes. */
static tiles_config shapes(void)
{
    tiles_config c = {.palette = 1};
    c.rows[C] = ROWS, c.colsb[C] = 4 * COLUMNS;
    c.rows[A] = ROWS, c.colsb[A] = 4 * STEPS;
    c.rows[B] = STEPS, c.colsb[B] = 4 * COLUMNS;
    c.rows[NARROW] = 1, c.colsb[NARROW] = 6;
    return c;
}

static int setup(void **state)
{
    (void)state;
    const tiles_config c = shapes();
    tiles_configure(&c);
    return 0;
}

static uint32_t dword(const uint8_t *from, int i)
{
    uint32_t x;
    memcpy(&x, from + 4 * i, sizeof x);
    return x;
}

static void fill(uint8_t *bytes, size_t count, uint64_t seed)
{
    rng r = rng_make(seed, 1);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)rng_range(&r, 0, 255);
}

/* Loads and stores access only the rows and columns of a tile, at any stride. */
static void test_memory(void **state)
{
    (void)state;
    uint8_t from[ROWS * 40], to[ROWS * 50], same[4 * COLUMNS];
    fill(from, sizeof from, 1);
    memset(to, 0x5a, sizeof to);
    tiles_load(C, from, 40);
    tiles_store(C, to, 50);
    for (int r = 0; r < ROWS; r++) {
        assert_memory_equal(to + r * 50, from + r * 40, 4 * COLUMNS);
        for (int i = 4 * COLUMNS; i < 50; i++)
            assert_int_equal(to[r * 50 + i], 0x5a);
    }
    tiles_load(C, from, 0);
    tiles_store(C, to, 50);
    for (int r = 0; r < ROWS; r++)
        assert_memory_equal(to + r * 50, from, 4 * COLUMNS);
    tiles_store(C, same, 0);
    assert_memory_equal(same, from, sizeof same);
    tiles_zero(C);
    tiles_store(C, to, 50);
    assert_int_equal(dword(to, 0) | dword(to + 4 * 50, COLUMNS - 1), 0);
}

/* Returns one sum of a product of bytes, computed in 64 bits and reduced modulo 2^32. */
static uint32_t expected_bytes(uint32_t sum, const uint8_t *a, const uint8_t *b, bool a_signed)
{
    int64_t total = sum;
    for (int k = 0; k < STEPS; k++)
        for (int i = 0; i < 4; i++)
            total += (a_signed ? (int64_t)(int8_t)a[4 * k + i] : a[4 * k + i]) * (int8_t)b[k * 4 * COLUMNS + i];
    return (uint32_t)total;
}

static void check_bytes(bool a_signed)
{
    uint8_t a[ROWS * 4 * STEPS], b[STEPS * 4 * COLUMNS], c[ROWS * 4 * COLUMNS], result[sizeof c];
    fill(a, sizeof a, 2), fill(b, sizeof b, 3), fill(c, sizeof c, 4);
    tiles_load(A, a, 4 * STEPS), tiles_load(B, b, 4 * COLUMNS), tiles_load(C, c, 4 * COLUMNS);
    (a_signed ? tiles_dpbssd : tiles_dpbusd)(C, A, B);
    tiles_store(C, result, 4 * COLUMNS);
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < COLUMNS; n++)
            assert_int_equal(dword(result + m * 4 * COLUMNS, n),
                             expected_bytes(dword(c + m * 4 * COLUMNS, n), a + m * 4 * STEPS, b + 4 * n, a_signed));
}

static void test_products_of_bytes(void **state)
{
    (void)state;
    check_bytes(false);
    check_bytes(true);
}

static void test_sums_wrap_around(void **state)
{
    (void)state;
    int32_t c[COLUMNS] = {INT32_MAX, INT32_MIN};
    uint8_t a[4 * STEPS] = {255}, b[STEPS * 4 * COLUMNS] = {0};
    b[0] = 1, b[4] = (uint8_t)-128;
    tiles_load(A, a, 0), tiles_load(B, b, 4 * COLUMNS), tiles_load(C, c, 0);
    tiles_dpbusd(C, A, B);
    tiles_store(C, c, 0);
    assert_int_equal(c[0], (int32_t)((uint32_t)INT32_MAX + 255));
    assert_int_equal(c[1], (int32_t)((uint32_t)INT32_MIN - 255 * 128));
    assert_int_equal(c[2], 0);
}

/* Computes the product of a row of A and column 0 of B, added to `total`. */
static float bf16_product(const float a[2 * STEPS], const float b[2 * STEPS], float total)
{
    uint16_t left[2 * STEPS], right[STEPS][2 * COLUMNS] = {{0}};
    float c[COLUMNS] = {total};
    for (int k = 0; k < 2 * STEPS; k++) {
        left[k] = mha__f32_to_bf16(a[k]);
        right[k / 2][k % 2] = mha__f32_to_bf16(b[k]);
    }
    tiles_load(A, left, 0), tiles_load(B, right, sizeof right[0]), tiles_load(C, c, 0);
    tiles_dpbf16ps(C, A, B);
    tiles_store(C, c, 0);
    return c[0];
}

/* The even and the odd elements are chains from 0, and only their sum is added to the total. */
static void test_order_of_sums(void **state)
{
    (void)state;
    const float one[2 * STEPS] = {1, 1, 1, 1, 1, 1}, big = 0x1p24F;
    assert_true(bf16_product(one, (float[]){big, 1, 1, 1, -big, 1}, 0) == 3); /* even: 2^24 + 1 rounds to 2^24 */
    assert_true(bf16_product(one, (float[]){big, 0, -big, 0, 1, 0}, 0) == 1);
    assert_true(bf16_product(one, (float[]){1, 0, 0, 1, 0, 0}, big) == big + 2); /* not 2^24 + 1 + 1 */
    assert_true(bf16_product(one, (float[]){3, 0, 0, 0, 0, 0}, big) == big + 4); /* ties to even */
    const float a[] = {0x1.02p0F, 0, 0x1.02p0F, 0, 0, 0}, b[] = {0x1.02p0F, 0, -0x1.02p0F, 0, 0, 0};
    assert_true(bf16_product(a, b, 0) == 0);
}

/* Denormal elements and totals count as 0, and denormal results become 0, with the sign of the result. */
static void test_denormals(void **state)
{
    (void)state;
    const float min = FLT_MIN, zeros[2 * STEPS] = {0};
    assert_true(bf16_product((float[]){min / 2, 0, 0, 0, 0, 0}, (float[]){0x1p100F, 0, 0, 0, 0, 0}, 0) == 0);
    assert_true(bf16_product(zeros, zeros, min / 2) == 0);
    assert_true(bf16_product(zeros, zeros, min) == min);
    assert_true(bf16_product((float[]){min, 0, 0, 0, 0, 0}, (float[]){0.5F, 0, 0, 0, 0, 0}, 1) == 1);
    assert_true(bf16_product((float[]){min, 0, min, 0, 0, 0}, (float[]){1.5F, 0, -1, 0, 0, 0}, 0) == 0);
    const float two[] = {min, min, 0, 0, 0, 0}, halves[] = {0.5F, 0.5F, 0, 0, 0, 0};
    assert_true(bf16_product(two, halves, 0) == 0); /* each chain is flushed before they are added */
}

/* 2^-126 - 2^-150 has 24 bits, so it is denormal, although the nearest denormal element of f32 is 2^-126. */
static void test_denormal_after_rounding(void **state)
{
    (void)state;
    const float a[] = {FLT_MIN, 0, 0x1p-75F, 0, 0, 0};
    assert_true(bf16_product(a, (float[]){1, 0, -0x1p-75F, 0, 0, 0}, 0) == 0);
    assert_true(bf16_product(a, (float[]){1, 0, -0x1p-76F, 0, 0, 0}, 0) == FLT_MIN); /* 25 bits: rounds to 2^-126 */
}

static void test_not_finite(void **state)
{
    (void)state;
    const float one[2 * STEPS] = {1, 1, 1, 1, 1, 1};
    assert_true(isnan(bf16_product(one, (float[]){NAN, 0, 0, 0, 0, 0}, 0)));
    assert_true(isnan(bf16_product(one, (float[]){INFINITY, -INFINITY, 0, 0, 0, 0}, 0)));
    assert_true(bf16_product(one, (float[]){INFINITY, 1, 0, 0, 0, 0}, 0) == INFINITY);
}

/* ---- faults ---- */

/* Requires that the configuration is refused after `byte` is set to `value`. */
static void refuses(int byte, uint8_t value)
{
    uint8_t bytes[sizeof(tiles_config)];
    const tiles_config c = shapes();
    memcpy(bytes, &c, sizeof c);
    tiles_configure(bytes);
    bytes[byte] = value;
    expect_assert_failure(tiles_configure(bytes));
}

static void test_invalid_configurations(void **state)
{
    refuses(0, 2); /* palette */
    for (int reserved = 2; reserved < 16; reserved++)
        refuses(reserved, 1);
    for (int reserved = 32; reserved < 48; reserved++)
        refuses(reserved, 1);
    for (int reserved = 56; reserved < 64; reserved++)
        refuses(reserved, 1);
    refuses(48 + A, 17);     /* rows */
    refuses(16 + 2 * A, 65); /* bytes per row */
    refuses(48 + A, 0);      /* only one of rows and bytes per row */
    refuses(48 + UNUSED, 1);
    setup(state);
}

static void test_missing_configuration(void **state)
{
    uint8_t memory[TILES_ROWS * TILES_BYTES] = {0};
    expect_assert_failure(tiles_load(UNUSED, memory, TILES_BYTES));
    expect_assert_failure(tiles_zero(UNUSED));
    expect_assert_failure(tiles_dpbusd(C, A, UNUSED));
    tiles_release();
    expect_assert_failure(tiles_load(C, memory, TILES_BYTES));
    expect_assert_failure(tiles_store(C, memory, TILES_BYTES));
    expect_assert_failure(tiles_dpbf16ps(C, A, B));
    setup(state);
    tiles_configure(&(tiles_config){.palette = 0});
    expect_assert_failure(tiles_zero(C));
    setup(state);
}

/* Requires that a product is refused after the shape of a tile is changed. */
static void refuses_product(int tile, int rows, int colsb)
{
    tiles_config c = shapes();
    c.rows[tile] = (uint8_t)rows, c.colsb[tile] = (uint16_t)colsb;
    tiles_configure(&c);
    expect_assert_failure(tiles_dpbusd(C, A, B));
    expect_assert_failure(tiles_dpbssd(C, A, B));
    expect_assert_failure(tiles_dpbf16ps(C, A, B));
}

static void test_shapes_of_products(void **state)
{
    refuses_product(C, ROWS + 1, 4 * COLUMNS);
    refuses_product(C, ROWS, 4 * COLUMNS + 4);
    refuses_product(A, ROWS, 4 * STEPS + 4);
    refuses_product(A, ROWS, 4 * STEPS + 1); /* not whole dwords */
    refuses_product(B, STEPS - 1, 4 * COLUMNS);
    refuses_product(B, STEPS, 4 * COLUMNS - 4);
    setup(state);
    expect_assert_failure(tiles_dpbusd(C, A, A));
    expect_assert_failure(tiles_dpbusd(C, C, B));
    expect_assert_failure(tiles_dpbusd(C, A, C));
}

static void test_counts(void **state)
{
    (void)state;
    uint8_t memory[TILES_ROWS * TILES_BYTES] = {0};
    tiles_counted = (tiles_counts){0};
    tiles_load(A, memory, TILES_BYTES), tiles_load(B, memory, TILES_BYTES), tiles_zero(C);
    tiles_dpbusd(C, A, B);
    tiles_store(C, memory, TILES_BYTES);
    assert_int_equal(tiles_counted.loads, 2);
    assert_int_equal(tiles_counted.products, 1);
    assert_int_equal(tiles_counted.stores, 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_products_of_bytes),
        cmocka_unit_test(test_sums_wrap_around),
        cmocka_unit_test(test_order_of_sums),
        cmocka_unit_test(test_denormals),
        cmocka_unit_test(test_denormal_after_rounding),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_invalid_configurations),
        cmocka_unit_test(test_missing_configuration),
        cmocka_unit_test(test_shapes_of_products),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
