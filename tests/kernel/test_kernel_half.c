/* test_kernel_half.c - compares the conversion of 16-bit floats to f32 and back with math/half.h: every bit pattern,
 * every rounding boundary, and any strides and tails. */
#include "kernel/table.h"
#include "math/half.h"
#include <fenv.h>

enum { PATTERNS = 1 << 16, CANARY = 0x5A5A };

static float widened(int type, uint16_t bits)
{
    return type == MHA__BF16 ? mha__bf16_to_f32(bits) : mha__f16_to_f32(bits);
}

static uint16_t narrowed(int type, float value)
{
    return type == MHA__BF16 ? mha__f32_to_bf16(value) : mha__f32_to_f16(value);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void check_widen(const mha__kernels *t, int type)
{
    uint16_t *from = malloc(PATTERNS * sizeof *from);
    float *to = malloc(PATTERNS * sizeof *to);
    assert_true(from && to);
    for (int i = 0; i < PATTERNS; i++)
        from[i] = (uint16_t)i;
    t->widen[type](1, PATTERNS, from, 0, 1, to, 0);
    for (int i = 0; i < PATTERNS; i++)
        if (bits_of(to[i]) != bits_of(widened(type, (uint16_t)i)))
            fail_msg("%s: pattern %04x converted to f32: got %08x, expected %08x", t->isa, i, bits_of(to[i]),
                     bits_of(widened(type, (uint16_t)i)));
    free(from);
    free(to);
}

/* Tests three values around every 16-bit float (the float itself and the midpoints to both neighbors), and the two f32
 * neighbors of each value. */
static void check_narrow(const mha__kernels *t, int type)
{
    enum { AROUND = 6 };
    float *from = malloc(PATTERNS * AROUND * sizeof *from);
    uint16_t *to = malloc(PATTERNS * AROUND * sizeof *to);
    assert_true(from && to);
    for (int i = 0; i < PATTERNS; i++) {
        const uint32_t low = bits_of(widened(type, (uint16_t)i)), high = bits_of(widened(type, (uint16_t)(i + 1)));
        const uint32_t middle = low + (high - low) / 2;
        const uint32_t around[AROUND] = {low - 1, low, low + 1, middle - 1, middle, middle + 1};
        for (int n = 0; n < AROUND; n++)
            from[i * AROUND + n] = float_of(around[n]);
    }
    t->narrow[type](1, PATTERNS * AROUND, from, 0, to, 0, 1);
    for (int i = 0; i < PATTERNS * AROUND; i++)
        if (to[i] != narrowed(type, from[i]))
            fail_msg("%s: %08x converted to 16 bits: got %04x, expected %04x", t->isa, bits_of(from[i]), to[i],
                     narrowed(type, from[i]));
    free(from);
    free(to);
}

static void test_patterns(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    for (int n = tables(list); --n > 0;)
        for (int type = 0; type < MHA__HALVES; type++) {
            check_widen(list[n], type);
            check_narrow(list[n], type);
            fesetround(FE_UPWARD);
            check_narrow(list[n], type);
            fesetround(FE_TONEAREST);
        }
}

/* Converts a strided matrix [rows][n] to f32 and back. The elements between its rows must stay unchanged. */
static void check_strides(const mha__kernels *t, int type, int64_t n, rng *r)
{
    enum { ROWS = 3, ROOM = 1024 };
    uint16_t from[ROOM], back[ROOM];
    const int64_t col = rng_range(r, 1, 3), row = n * col + rng_range(r, 0, 2), wide = n + rng_range(r, 0, 2);
    array real = array_make(t, ROWS * wide, (int)rng_range(r, 0, 3), OUTPUT);
    for (int i = 0; i < ROOM; i++) {
        from[i] = narrowed(type, (float)rng_normal(r));
        back[i] = CANARY;
    }
    t->widen[type](ROWS, n, from, row, col, real.data, wide);
    t->narrow[type](ROWS, n, real.data, wide, back, row, col);
    assert_true(guards_intact(&real));
    for (int64_t i = 0; i < ROWS * wide; i++)
        assert_true(get(&real, i) ==
                    (i % wide < n ? (double)widened(type, from[i / wide * row + i % wide * col]) : OUTPUT));
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t c = 0; c < n; c++) {
            assert_int_equal(back[i * row + c * col], from[i * row + c * col]);
            back[i * row + c * col] = CANARY;
        }
    for (int i = 0; i < ROOM; i++)
        assert_int_equal(back[i], CANARY);
    array_free(&real);
}

static void test_strides(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(3, 1);
    for (int t = tables(list); --t > 0;)
        for (int64_t n = 1; n <= 3 * list[t]->vl + 1; n++)
            for (int type = 0; type < MHA__HALVES; type++)
                check_strides(list[t], type, n, &r);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_patterns), cmocka_unit_test(test_strides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
