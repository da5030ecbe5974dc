/* test_kernel_adamw.c - compares the AdamW kernels of every f32 table with double, and tests the rounding of moments in
 * bf16. Results must be bitwise identical on every ISA. */
#include "kernel/table.h"
#include "math/half.h"

enum { MAX = 200, ROOM = GUARD + MAX + GUARD };

static const mha__adamw_factors factors = {.scale = 0.5F,
                                           .toward = 0.1F,
                                           .keep = 0.999F,
                                           .add = 0.001F,
                                           .shrink = 0.9999F,
                                           .size = 0.01F,
                                           .root = 0.25F,
                                           .eps = 1e-6F};

/* Parameters between guards; moments in both types. */
typedef struct row {
    float weight[ROOM], gradient[ROOM], mean[ROOM], square[ROOM];
    uint16_t mean16[ROOM], square16[ROOM];
} row;

static row row_make(int64_t n)
{
    row r;
    rng draw = rng_make(7, (uint64_t)n);
    for (int64_t i = 0; i < ROOM; i++) {
        const bool inside = i >= GUARD && i < GUARD + n;
        r.weight[i] = r.gradient[i] = (float)OUTPUT;
        r.mean16[i] = r.square16[i] = 0x4321;
        if (inside) {
            r.weight[i] = (float)rng_normal(&draw);
            r.gradient[i] = rng_chance(&draw, 0.1) ? 0 : (float)rng_normal(&draw);
            r.mean16[i] = mha__f32_to_bf16((float)rng_normal(&draw));
            r.square16[i] = rng_chance(&draw, 0.1) ? 0 : mha__f32_to_bf16((float)rng_uniform(&draw));
        }
        r.mean[i] = mha__bf16_to_f32(r.mean16[i]);
        r.square[i] = mha__bf16_to_f32(r.square16[i]);
    }
    return r;
}

static void run(const mha__kernels *k, int64_t n, row *r)
{
    k->adamw(&factors, n, r->weight + GUARD, r->gradient + GUARD, r->mean + GUARD, r->square + GUARD);
}

static void run_bf16(const mha__kernels *k, uint64_t key, int64_t n, row *r)
{
    k->adamw_bf16(&factors, key, n, r->weight + GUARD, r->gradient + GUARD, r->mean16 + GUARD, r->square16 + GUARD);
}

static void expect_near_doubles(const mha__kernels *k, int64_t n, const row *before, const row *after)
{
    for (int64_t i = GUARD; i < GUARD + n; i++) {
        const double g = 0.5 * (double)before->gradient[i], m0 = (double)before->mean[i];
        const double m = m0 + (double)factors.toward * (g - m0);
        const double v = (double)before->square[i] * (double)factors.keep + (double)factors.add * g * g;
        const double step = (double)factors.size * m / (sqrt(v) / 0.25 + (double)factors.eps);
        const double w = (double)before->weight[i] * (double)factors.shrink - step;
        const double unit = rounding(k);
        if (fabs((double)after->mean[i] - m) > 3 * unit * (fabs(m0) + fabs(g)) ||
            fabs((double)after->square[i] - v) > 3 * unit * v ||
            fabs((double)after->weight[i] - w) >
                2 * unit * fabs(w) + 9 * unit * fabs(step) * (1 + (fabs(m0) + fabs(g)) / (fabs(m) + 1e-30)))
            fail_msg("%s, n = %d: element %d is too far from double", k->isa, (int)n, (int)i - GUARD);
        assert_true(after->gradient[i] == 0);
    }
}

static void expect_guards(int64_t n, const row *r)
{
    for (int64_t i = 0; i < ROOM; i++)
        if (i < GUARD || i >= GUARD + n)
            assert_true(r->weight[i] == (float)OUTPUT && r->gradient[i] == (float)OUTPUT && r->mean16[i] == 0x4321 &&
                        r->square16[i] == 0x4321 && r->mean[i] == r->square[i] &&
                        r->mean[i] == mha__bf16_to_f32(0x4321));
}

/* Fails unless `got` is x rounded to bf16 in either direction; a representable x must stay. */
static void expect_neighbor(float x, uint16_t got)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t low = bits >> 16, high = low + ((bits & 0xFFFF) != 0);
    assert_true(got == low || got == high);
}

static void test_steps(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    static row first[MAX + 1];
    const int count = tables(list);
    for (int t = 1; t < count; t++)
        for (int64_t n = 0; n <= MAX; n++) {
            const row before = row_make(n);
            row r = before;
            run(list[t], n, &r);
            expect_near_doubles(list[t], n, &before, &r);
            const row wide = r;
            memcpy(r.weight, before.weight, sizeof r.weight);
            memcpy(r.gradient, before.gradient, sizeof r.gradient);
            run_bf16(list[t], 99 + (uint64_t)n, n, &r);
            /* the weights must be those of unrounded moments */
            assert_memory_equal(r.weight, wide.weight, sizeof r.weight);
            assert_memory_equal(r.gradient, wide.gradient, sizeof r.gradient);
            for (int64_t i = GUARD; i < GUARD + n; i++) {
                expect_neighbor(wide.mean[i], r.mean16[i]);
                expect_neighbor(wide.square[i], r.square16[i]);
            }
            expect_guards(n, &r);
            if (t == 1) first[n] = r;
            assert_memory_equal(&first[n], &r, sizeof r); /* on every ISA */
        }
}

/* ---- random rounding ---- */

enum { N = 48, KEYS = 20000 };

static double remainder_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0xFFFF) * 0x1p-16;
}

static bool rounded_up(float x, uint16_t stored)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return stored != bits >> 16;
}

/* Fails unless `count` of KEYS independent events of probability p is plausible. */
static void expect_count(const char *what, int i, int count, double p)
{
    const double limit = 5 * sqrt(KEYS * p * (1 - p)) + 1e-9;
    if (fabs(count - KEYS * p) > limit) fail_msg("%s of element %d: %d, expected %g", what, i, count, KEYS * p);
}

/* A moment must be rounded up with the probability for which the expected value is the f32 number. The roundings of two
 * moments, and of two elements, must be independent. */
static void test_rounding_has_no_bias(void **state)
{
    (void)state;
    const mha__kernels *k = mha__kernels_f32(MHA__ISAS - 1);
    static int means[N], squares[N], both[N], neighbors[N];
    const row before = row_make(N);
    rng draw = rng_make(8, 1);
    row wide = before;
    run(k, N, &wide);
    for (int key = 0; key < KEYS; key++) {
        row r = before;
        bool last = false;
        run_bf16(k, rng_next(&draw), N, &r);
        for (int i = 0; i < N; i++) {
            const bool mean = rounded_up(wide.mean[GUARD + i], r.mean16[GUARD + i]);
            const bool square = rounded_up(wide.square[GUARD + i], r.square16[GUARD + i]);
            means[i] += mean;
            squares[i] += square;
            both[i] += mean && square;
            neighbors[i] += mean && last;
            last = mean;
        }
    }
    for (int i = 0; i < N; i++) {
        const double mean = remainder_of(wide.mean[GUARD + i]), square = remainder_of(wide.square[GUARD + i]);
        expect_count("mean", i, means[i], mean);
        expect_count("square", i, squares[i], square);
        expect_count("both moments", i, both[i], mean * square);
        if (i) expect_count("neighbors", i, neighbors[i], mean * remainder_of(wide.mean[GUARD + i - 1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_rounding_has_no_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
