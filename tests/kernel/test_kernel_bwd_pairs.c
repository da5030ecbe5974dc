/* test_kernel_bwd_pairs.c - compares the kernels of the backward pass on bf16 pairs with formulas in double.
 *
 * Weights are written both in rows of keys and in rows of queries, padded with zeros to whole steps. Products are added
 * to a matrix; its elements outside the product must stay unchanged. */
#include "kernel/table.h"
#include "math/half.h"
#include <stdio.h>

enum { STRIDE = 144, NAN16 = 0x7FC0 };

static const int64_t some_lanes[] = {1, 3, 15, 16, 17, 31, 32};
static const int64_t cuts[][2] = {{0, 1}, {0, 31}, {0, 32}, {31, 33}, {33, 128}, {5, 77}, {96, 128}, {0, 128}};
#define COUNT(list) (sizeof list / sizeof *list)

/* The weights of one panel, stored within the weights of a tile. Elements that the kernel has not written are NaN. */
typedef struct weights {
    uint16_t memory[3][MHA__KEY_BLOCK * STRIDE];
    mha__pair_weights to;
} weights;

static weights *weights_make(void)
{
    weights *w = malloc(sizeof *w);
    assert_non_null(w);
    for (int n = 0; n < 3; n++)
        for (int64_t i = 0; i < MHA__KEY_BLOCK * STRIDE; i++)
            w->memory[n][i] = NAN16;
    w->to = (mha__pair_weights){w->memory[0], w->memory[1], w->memory[2], STRIDE};
    return w;
}

static double bf16(uint16_t bits)
{
    return (double)mha__bf16_to_f32(bits);
}

/* Fails unless `got` equals `want` within one rounding to bf16 and a few f32 rounding errors of terms of magnitude
 * `size`. */
static void assert_rounded(uint16_t got, double want, double size)
{
    const double limit = 0x1p-8 * fabs(want) + 0x1p-19 * size;
    if (!(fabs(bf16(got) - want) <= limit)) fail_msg("got %.9g, expected %.9g", bf16(got), want);
}

static bool is_written(int64_t key, int64_t first, int64_t end)
{
    return key >= first / 32 * 32 && key < (end + 31) / 32 * 32;
}

/* Compares the weights of a panel [key][32] with want_w and want_ds. `size` is the magnitude of the terms whose
 * difference is ds. */
static void check_weights(const weights *w, int64_t first, int64_t end, int64_t lanes, const double *want_w,
                          const double *want_ds, double size)
{
    for (int64_t key = 0; key < MHA__KEY_BLOCK; key++)
        for (int64_t lane = 0; lane < STRIDE; lane++) {
            const uint16_t p = w->memory[0][key * STRIDE + lane], ds = w->memory[1][key * STRIDE + lane];
            if (!is_written(key, first, end) || lane >= 32) {
                assert_true(p == NAN16 && ds == NAN16);
                continue;
            }
            const bool used = key >= first && key < end && lane < lanes;
            assert_true(w->memory[2][lane * STRIDE + key] == ds);
            if (!used) assert_true(p == 0 && ds == 0);
            if (!used) continue;
            assert_rounded(p, want_w[key * 32 + lane], want_w[key * 32 + lane]);
            assert_rounded(ds, want_ds[key * 32 + lane], want_w[key * 32 + lane] * size);
        }
}

/* Returns an array whose elements are NaN, between finite guards. */
static array unwritten(const mha__kernels *k, int64_t n)
{
    array a = array_make(k, n, 0, OUTPUT);
    for (int64_t i = 0; i < n; i++)
        put(&a, i, (double)NAN);
    return a;
}

static void softmax_back_of(const mha__kernels *k, int64_t first, int64_t end, int64_t lanes, rng *r)
{
    static double want_w[MHA__KEY_BLOCK * 32], want_ds[MHA__KEY_BLOCK * 32];
    array s = unwritten(k, MHA__KEY_BLOCK * k->nr), dp = unwritten(k, MHA__KEY_BLOCK * k->nr);
    array lse = array_make(k, k->nr, 0, INPUT), inverse = array_make(k, k->nr, 0, INPUT);
    array delta = array_make(k, k->nr, 0, INPUT);
    weights *w = weights_make();
    for (int64_t lane = 0; lane < lanes; lane++)
        put(&lse, lane, lane == 2 ? -INFINITY : rng_normal(r)), put(&inverse, lane, lane == 2 ? 0 : 0.75),
            put(&delta, lane, rng_normal(r));
    for (int64_t i = first * 32; i < end * 32; i++) {
        const int64_t lane = i % 32;
        if (lane >= lanes) continue;
        const bool masked = lane == 2 || rng_chance(r, 0.2);
        put(&s, i, masked ? -INFINITY : 3 * rng_normal(r));
        put(&dp, i, masked ? (double)NAN : rng_normal(r));
        const double below = fmin(0, get(&s, i) - get(&lse, lane));
        want_w[i] = masked ? 0 : exp(below) * get(&inverse, lane);
        want_ds[i] = masked ? 0 : want_w[i] * (get(&dp, i) - get(&delta, lane));
    }
    const mha__softmax_back x = {.s = s.data,
                                 .dp = dp.data,
                                 .lse = lse.data,
                                 .inverse = inverse.data,
                                 .delta = delta.data,
                                 .factor = 1,
                                 .gate = 1};
    k->pairs_back->softmax_back(first, end, lanes, &x, &w->to);
    check_weights(w, first, end, lanes, want_w, want_ds, 8);
    assert_true(guards_intact(&s) && guards_intact(&dp));
    free(w);
    array_free(&s), array_free(&dp), array_free(&lse), array_free(&inverse), array_free(&delta);
}

static void round_of(const mha__kernels *k, int64_t first, int64_t end, int64_t lanes, rng *r)
{
    static double want_w[MHA__KEY_BLOCK * 32], want_ds[MHA__KEY_BLOCK * 32];
    array p = unwritten(k, MHA__KEY_BLOCK * STRIDE), ds = unwritten(k, MHA__KEY_BLOCK * STRIDE);
    weights *w = weights_make();
    for (int64_t i = first * 32; i < end * 32; i++) {
        if (i % 32 >= lanes) continue;
        put(&p, i / 32 * STRIDE + i % 32, rng_normal(r));
        put(&ds, i / 32 * STRIDE + i % 32, rng_normal(r));
        want_w[i] = 1.5 * get(&p, i / 32 * STRIDE + i % 32);
        want_ds[i] = get(&ds, i / 32 * STRIDE + i % 32);
    }
    const mha__softmax_back x = {.gate = 1.5, .w = p.data, .ds = ds.data, .stride = STRIDE};
    k->pairs_back->round(first, end, lanes, &x, &w->to);
    check_weights(w, first, end, lanes, want_w, want_ds, 0);
    assert_true(guards_intact(&p) && guards_intact(&ds));
    free(w);
    array_free(&p), array_free(&ds);
}

/* A NaN of any bit pattern must affect only the lane and the key that contain it. */
static void nan_of(const mha__kernels *k)
{
    const uint32_t all_ones = UINT32_MAX;
    array s = array_make(k, MHA__KEY_BLOCK * k->nr, 0, 0), dp = array_make(k, MHA__KEY_BLOCK * k->nr, 0, 1);
    array zeros = array_make(k, k->nr, 0, 0), ones = array_make(k, k->nr, 0, 1);
    weights *w = weights_make();
    memcpy(s.data + (3 * k->nr + 5) * (int64_t)sizeof(float), &all_ones, sizeof all_ones);
    const mha__softmax_back x = {
        .s = s.data, .dp = dp.data, .lse = zeros.data, .inverse = ones.data, .delta = zeros.data, .gate = 1};
    k->pairs_back->softmax_back(0, 32, 32, &x, &w->to);
    for (int64_t key = 0; key < 32; key++)
        for (int64_t lane = 0; lane < 32; lane++) {
            const bool is_nan = key == 3 && lane == 5;
            assert_true((bool)isnan(bf16(w->memory[0][key * STRIDE + lane])) == is_nan);
            assert_true((bool)isnan(bf16(w->memory[1][key * STRIDE + lane])) == is_nan);
            assert_true((bool)isnan(bf16(w->memory[2][lane * STRIDE + key])) == is_nan);
        }
    free(w);
    array_free(&s), array_free(&dp), array_free(&zeros), array_free(&ones);
}

static void check_weights_of(const mha__kernels *k)
{
    rng r = rng_make(51, 0);
    for (size_t n = 0; n < COUNT(cuts) * COUNT(some_lanes); n++) {
        const int64_t *cut = cuts[n % COUNT(cuts)], lanes = some_lanes[n / COUNT(cuts)];
        softmax_back_of(k, cut[0], cut[1], lanes, &r);
        round_of(k, cut[0], cut[1], lanes, &r);
    }
    nan_of(k);
}

/* ---- sums over keys or queries ---- */

typedef struct operands {
    int64_t m, n, steps, c_row;
    uint16_t *a, *b; /* a: [m rounded up to 16][32 * steps], b: [32 * steps][n] */
    array panels, c;
} operands;

static operands operands_make(const mha__kernels *k, int64_t m, int64_t n, int64_t steps, rng *r)
{
    const int64_t inner = 32 * steps, rows = (m + 15) / 16 * 16, columns = (n + k->nr - 1) / k->nr;
    operands o = {.m = m, .n = n, .steps = steps, .c_row = columns * k->nr + 16};
    o.a = malloc((size_t)(rows * inner) * 2);
    o.b = malloc((size_t)(inner * n) * 2);
    assert_true(o.a && o.b);
    for (int64_t i = 0; i < rows * inner; i++)
        o.a[i] = i < m * inner ? mha__f32_to_bf16((float)rng_normal(r)) : NAN16;
    for (int64_t i = 0; i < inner * n; i++)
        o.b[i] = mha__f32_to_bf16((float)rng_normal(r));
    o.panels = array_make(k, columns * inner / 2 * k->nr, 0, OUTPUT);
    o.c = array_make(k, m * o.c_row, 0, OUTPUT);
    k->pairs->pack_values(inner, n, o.b, n, 1, false, inner / 2 * k->nr, o.panels.data);
    for (int64_t i = 0; i < m * o.c_row; i++)
        if (i % o.c_row < columns * k->nr) put(&o.c, i, rng_normal(r));
    return o;
}

static void operands_free(operands *o)
{
    free(o->a);
    free(o->b);
    array_free(&o->panels), array_free(&o->c);
}

static void add_steps(const mha__kernels *k, operands *o, int64_t from, int64_t to)
{
    k->pairs_back->add_product(o->m, o->n, to - from, o->a + 32 * from, 32 * o->steps,
                               at_number(&o->panels, 16 * from * k->nr), 16 * o->steps * k->nr, o->c.data, o->c_row);
}

static void check_sums(const mha__kernels *k, int64_t m, int64_t n, int64_t steps, rng *r)
{
    operands o = operands_make(k, m, n, steps, r);
    array before = array_make(k, m * o.c_row, 0, OUTPUT);
    memcpy(before.data, o.c.data, (size_t)(m * o.c_row) * k->real_size);
    k->pairs->open();
    add_steps(k, &o, 0, steps);
    for (int64_t i = 0; i < m * o.c_row; i++) {
        const int64_t row = i / o.c_row, column = i % o.c_row;
        double want = get(&before, i), terms = fabs(want);
        for (int64_t at = 0; at < 32 * steps && column < n; at++) {
            const double term = bf16(o.a[row * 32 * steps + at]) * bf16(o.b[at * n + column]);
            want += term;
            terms += fabs(term);
        }
        if (!(fabs(get(&o.c, i) - want) <= 64 * (double)steps * rounding(k) * terms))
            fail_msg("%s: %d x %d, %d steps: C[%d][%d]: got %.9g, expected %.9g", k->isa, (int)m, (int)n, (int)steps,
                     (int)row, (int)column, get(&o.c, i), want);
    }
    assert_true(guards_intact(&o.c) && guards_intact(&o.panels));
    array whole = o.c;
    o.c = before; /* two calls with half of the steps each must be bitwise identical to one call */
    add_steps(k, &o, 0, steps / 2);
    add_steps(k, &o, steps / 2, steps);
    k->pairs->close();
    assert_true(same_bits(&whole, &o.c));
    array_free(&whole);
    operands_free(&o);
}

static void check_sums_of(const mha__kernels *k)
{
    static const int64_t rows[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 100, 128}, widths[] = {1, 31, 32, 33, 64, 96};
    rng r = rng_make(52, 0);
    for (size_t n = 0; n < COUNT(rows) * COUNT(widths); n++)
        for (int64_t steps = 1; steps <= 4; steps++)
            check_sums(k, rows[n % COUNT(rows)], widths[n / COUNT(rows)], steps, &r);
}

static int with_pairs(void (*test)(const mha__kernels *))
{
    const mha__kernels *list[TABLES];
    int found = 0;
    for (int n = tables(list); --n > 0;) {
        found += list[n]->pairs_back != NULL;
        if (test && list[n]->pairs_back) test(list[n]);
    }
    return found;
}

static void test_weights(void **state)
{
    (void)state;
    with_pairs(check_weights_of);
}

static void test_sums(void **state)
{
    (void)state;
    with_pairs(check_sums_of);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights), cmocka_unit_test(test_sums)};
    if (with_pairs(NULL) > 0) return cmocka_run_group_tests(tests, NULL, NULL);
    printf("skipped: no ISA of this CPU supports bf16 pairs in the backward pass\n");
    return 77;
}
