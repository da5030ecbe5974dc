/* test_int8_tiles.c - tests which int8 products run on tiles, and how many tiles they load. The choice must depend on
 * the shape alone. test_kernel_int8_tiles tests the results. */
#include "kernel/table.h"
#include "tiles/tiles.h"

/* Returns the instructions of one product. */
static tiles_counts counts(int64_t m, int64_t n, int64_t k)
{
    const mha__kernels *kernels = mha__kernels_f32(MHA__AMX);
    const mha__dense *d = kernels->dense[MHA__Q8];
    const int64_t row = mha__dense_left(d, k);
    assert_string_equal(kernels->isa, "amx");
    float *x = calloc((size_t)(m * k), sizeof *x), *w = calloc((size_t)(n * k), sizeof *w);
    float *c = calloc((size_t)(m * n), sizeof *c);
    char *panels = aligned_alloc(64, (size_t)(mha__ceil_div(n, kernels->nr) * mha__dense_panel(d, k) + 63) / 64 * 64);
    char *left = calloc((size_t)(mha__round_up(m, d->rows) * row), (size_t)d->left_size);
    assert_true(x && w && c && panels && left);
    d->pack(n, k, w, k, 1, panels);
    d->left(m, k, x, k, left);
    tiles_counted = (tiles_counts){0};
    d->open();
    d->product(m, n, k, left, row, panels, NULL, 0, c, n);
    d->close();
    free(x), free(w), free(c), free(panels), free(left);
    return tiles_counted;
}

static void check(int64_t m, int64_t n, int64_t k, int64_t products, int64_t loads, int64_t stores)
{
    const tiles_counts counted = counts(m, n, k);
    if (counted.products != products || counted.loads != loads || counted.stores != stores)
        fail_msg("%lldx%lldx%lld: got %lld products, %lld loads and %lld stores; expected %lld, %lld and %lld",
                 (long long)m, (long long)n, (long long)k, (long long)counted.products, (long long)counted.loads,
                 (long long)counted.stores, (long long)products, (long long)loads, (long long)stores);
}

/* A block of 32 x 32 loads one tile per product, and stores four per group of 128. */
static void test_loads_per_product(void **state)
{
    (void)state;
    check(32, 32, 128, 8, 8, 4);
    check(32, 32, 64, 4, 4, 4);
    check(16, 32, 128, 4, 6, 2);
    check(32, 32, 1024, 64, 64, 32);
    check(128, 768, 768, 4L * 24 * 48, 4L * 24 * 48, 4L * 24 * 24);
}

static void test_few_rows(void **state)
{
    (void)state;
    for (int64_t m = 1; m < 8; m++)
        check(m, 64, 256, 0, 0, 0);
    check(8, 32, 128, 4, 6, 2);
    check(23, 32, 128, 4, 6, 2); /* 16 rows on tiles, 7 in vectors */
    check(24, 32, 128, 8, 8, 4);
    check(39, 32, 128, 8, 8, 4);
}

/* The last group runs on tiles if it consists of whole steps of 64 elements. */
static void test_last_group(void **state)
{
    (void)state;
    check(32, 32, 63, 0, 0, 0);
    check(32, 32, 100, 0, 0, 0);
    check(32, 32, 128 + 100, 8, 8, 4);
    check(32, 32, 128 + 64, 12, 12, 8);
    check(32, 33, 128, 16, 16, 8);
}

/* Without AMX-INT8, the ISA multiplies bf16 in tiles, and int8 in vectors. */
static void test_tiles_without_int8(void **state)
{
    (void)state;
    const mha__kernels *with = mha__kernels_f32(MHA__AMX);
    tiles_have_int8 = false;
    const mha__kernels *without = mha__kernels_f32(MHA__AMX), *vnni = mha__kernels_f32(MHA__AVX512VNNI);
    tiles_have_int8 = true;
    assert_string_equal(without->isa, "amx");
    assert_ptr_equal(without->dense[MHA__BF16], with->dense[MHA__BF16]);
    assert_ptr_equal(without->pairs, with->pairs);
    assert_ptr_equal(without->dense[MHA__Q8], vnni->dense[MHA__Q8]);
    assert_ptr_not_equal(without->dense[MHA__Q8], with->dense[MHA__Q8]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads_per_product),
        cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_last_group),
        cmocka_unit_test(test_tiles_without_int8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
