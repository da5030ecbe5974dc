/* test_kernel_rounded.c - tests the activations of linear layers on small weights (mha__dense.map) against their
 * definitions in double, and products whose results are rounded to bf16 against the separate steps. */
#include "kernel/table.h"
#include "math/half.h"
#include <float.h>

/* Calls `body` for each dense table of each f32 table. */
static void for_each(void (*body)(const mha__kernels *k, const mha__dense *d))
{
    static const mha__half types[] = {MHA__BF16, MHA__F16, MHA__Q8};
    const mha__kernels *list[TABLES];
    for (int n = tables(list); n-- > 1;)
        for (size_t type = 0; type < sizeof types / sizeof *types; type++)
            body(list[n], list[n]->dense[types[type]]);
}

/* ---- activations ---- */

static double exact(int map, double x)
{
    const double cubic = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
    return map == MHA__GELU_ERF ? 0.5 * x * erfc(-x * sqrt(0.5)) : x / (1 + exp(-2 * cubic));
}

/* Checks the bound of kernel_dense.h. */
static void check_number(const mha__kernels *k, int map, float x, float y)
{
    const double truth = exact(map, (double)x), error = fabs((double)y - truth);
    if (!(error <= (x >= -5.5f ? 0x1p-15 * fabs(truth) : 1e-8)))
        fail_msg("%s: map %d (%.9g): got %.9g, expected %.9g", k->isa, map, (double)x, (double)y, truth);
}

static void accuracy(const mha__kernels *k, const mha__dense *d)
{
    enum { COUNT = 1 << 15 };
    static float x[COUNT], y[COUNT];
    for (int map = 0; map < MHA__MAPS; map++) {
        if (!d->map[map]) continue;
        for (int i = 0; i < COUNT; i++) /* evenly spaced, then ever smaller numbers of both signs */
            x[i] = (float)(i < COUNT / 2 ? -16 + 32.0 * i / (COUNT / 2) : ldexp(i % 2 ? -1 : 1, -i % 120));
        memcpy(y, x, sizeof y);
        d->map[map](y, COUNT);
        for (int i = 0; i < COUNT; i++)
            check_number(k, map, x[i], y[i]);
    }
}

static void special_values(const mha__kernels *k, const mha__dense *d)
{
    (void)k;
    for (int map = 0; map < MHA__MAPS; map++) {
        float y[] = {0.0f, -0.0f, INFINITY, NAN, 1e30f, -1e30f, -INFINITY};
        if (!d->map[map]) continue;
        d->map[map](y, sizeof y / sizeof *y);
        assert_true(y[0] == 0 && y[1] == 0 && y[2] == INFINITY && isnan(y[3]) && y[4] == 1e30f);
        assert_true(fabsf(y[5]) <= 1e-8f && fabsf(y[6]) <= 1e-8f);
    }
}

/* An element must have the same result at any position, and elements after the end must stay unchanged. */
static void positions(const mha__kernels *k, const mha__dense *d)
{
    rng r = rng_make(41, 1);
    for (int map = 0; map < MHA__MAPS; map++)
        for (int64_t n = 0; d->map[map] && n <= 3 * k->vl + 1; n++) {
            array y = array_make(k, n, (int)(n % 3), OUTPUT), x = array_make(k, n, 0, INPUT);
            fill(&x, &r);
            for (int64_t i = 0; i < n; i++)
                put(&y, i, get(&x, i));
            d->map[map]((float *)(void *)y.data, n);
            for (int64_t i = 0; i < n; i++) {
                float one = (float)get(&x, i);
                d->map[map](&one, 1);
                assert_true((double)one == get(&y, i));
            }
            assert_true(guards_intact(&y));
            array_free(&y), array_free(&x);
        }
}

/* ---- products rounded to bf16 ---- */

enum { MAX = 70, WIDTH = 300, STRIDE = WIDTH + 5, DEPTH = 545 };
static float a[MAX * DEPTH], w[WIDTH * DEPTH], bias[WIDTH], sums[MAX * STRIDE];
static uint16_t got[MAX * STRIDE], want[MAX * STRIDE];
static _Alignas(64) uint16_t left[(MAX + 16) * (DEPTH + 32)], panels[(WIDTH + 64) * (DEPTH + 32)];

/* GELU of column 3 is subnormal. Column 5 is NaN and column 7 Inf. */
static void fill_operands(int64_t depth, rng *r)
{
    for (int64_t i = 0; i < MAX * depth; i++)
        a[i] = (float)rng_normal(r);
    for (int64_t i = 0; i < WIDTH * depth; i++)
        w[i] = i / depth == 3 ? 0 : (float)rng_normal(r);
    for (int64_t i = 0; i < WIDTH; i++)
        bias[i] = i == 3 ? 1.5f * FLT_MIN : i == 5 ? NAN : i == 7 ? INFINITY : (float)rng_normal(r);
}

/* Compares product_bf16 with product, map and narrow; elements outside the results must stay unchanged. */
static void check_rounded(const mha__kernels *k, const mha__dense *d, int64_t m, int64_t n, int64_t depth,
                          mha__row_fn map)
{
    const int64_t row = mha__dense_left(d, depth);
    memset(got, 0x5a, sizeof got);
    memset(want, 0x5a, sizeof want);
    d->left(m, depth, a, depth, left);
    d->pack(n, depth, w, depth, 1, panels);
    d->open();
    d->product(m, n, depth, left, row, panels, bias, 0, sums, STRIDE);
    d->product_bf16(m, n, depth, left, row, panels, bias, map, got, STRIDE);
    d->close();
    for (int64_t i = 0; map && i < m; i++)
        map(sums + i * STRIDE, n);
    k->narrow[MHA__BF16](m, n, sums, STRIDE, want, STRIDE, 1);
    assert_memory_equal(got, want, sizeof got);
}

static void rounded(const mha__kernels *k, const mha__dense *d)
{
    static const int64_t rows[] = {1, 15, 16, 17, 31, 32, 33, MAX}, depths[] = {31, 384, 385, DEPTH};
    static const int64_t widths[] = {1, 31, 32, 33, 64, 65, 256, 257, WIDTH};
    rng r = rng_make(42, 1);
    for (size_t depth = 0; d->product_bf16 && depth < sizeof depths / sizeof *depths; depth++) {
        fill_operands(depths[depth], &r);
        const mha__row_fn maps[] = {NULL, d->map[MHA__GELU_ERF], d->map[MHA__GELU_TANH], k->map[MHA__RELU]};
        for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
            for (size_t n = 0; n < sizeof widths / sizeof *widths; n++)
                for (size_t map = 0; map < sizeof maps / sizeof *maps; map++)
                    check_rounded(k, d, rows[m], widths[n], depths[depth], maps[map]);
    }
}

/* The left operand of bf16 products contains the same bits as rows that were rounded before, subnormals included. */
static void left_operand(const mha__kernels *k, const mha__dense *d)
{
    enum { N = 75, PADDED = 96 };
    static const uint32_t special[] = {0x007fffff, 0x007f8000, 0x807fc000, 0x00000001, 0x00018000,
                                       0x7f800001, 0xffc12345, 0x7f800000, 0x7f7fffff, 0x80000000};
    float x[N];
    uint16_t to[PADDED], rounded[PADDED] = {0};
    if (!d->left || d->group) return;
    for (int shift = 0; shift < N; shift++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)i - 37.3f;
        for (int i = 0; i < (int)(sizeof special / sizeof *special) && shift + i < N; i++)
            memcpy(x + shift + i, special + i, sizeof *x);
        d->left(1, N, x, N, to);
        k->narrow[MHA__BF16](1, N, x, N, rounded, N, 1);
        assert_memory_equal(to, rounded, (size_t)mha__dense_left(d, N) * sizeof *to);
    }
}

static void test_accuracy(void **state)
{
    (void)state;
    for_each(accuracy);
}

static void test_special_values(void **state)
{
    (void)state;
    for_each(special_values);
}

static void test_positions(void **state)
{
    (void)state;
    for_each(positions);
}

static void test_rounded_products(void **state)
{
    (void)state;
    for_each(rounded);
}

static void test_left_operand(void **state)
{
    (void)state;
    for_each(left_operand);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),     cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_positions),    cmocka_unit_test(test_rounded_products),
        cmocka_unit_test(test_left_operand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
