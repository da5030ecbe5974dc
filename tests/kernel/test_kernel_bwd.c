/* test_kernel_bwd.c - compares the kernels of the backward pass in every kernel table with formulas in double. */
#include "kernel/table.h"

enum { STRIDE = 144 }; /* row stride of strided matrices */

/* ---- operations on rows ---- */

static void check_rows(const mha__kernels *t, int64_t rows, int64_t n, rng *r)
{
    const int64_t width = n + rng_range(r, 0, 5), stride = width + rng_range(r, 0, 3), col = rng_range(r, 1, 3);
    array from = array_make(t, rows * n * col + 1, 1, INPUT), to = array_make(t, rows * stride, 2, OUTPUT);
    array other = array_make(t, rows * stride, 1, INPUT), dots = array_make(t, rows, 0, OUTPUT);
    fill(&from, r);
    fill(&other, r);
    if (rows * n > 0) put(&other, 0, 0); /* row_dots skips element 0, where `to` becomes NaN */
    t->gather(rows, n, from.data, n * col, col, to.data, stride, width);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < stride; c++) {
            const double want = c < n ? get(&from, (i * n + c) * col) : c < width ? 0 : OUTPUT;
            assert_true(get(&to, i * stride + c) == want);
        }
    assert_true(guards_intact(&to) && t->finite(rows, n, to.data, stride));
    if (rows * n > 0) put(&to, 0, NAN);
    t->row_dots(rows, n, to.data, stride, other.data, stride, dots.data);
    for (int64_t i = 0; i < rows; i++) {
        double want = 0, size = 0;
        for (int64_t c = i == 0; c < n; c++) {
            want += get(&to, i * stride + c) * get(&other, i * stride + c);
            size += fabs(get(&to, i * stride + c) * get(&other, i * stride + c));
        }
        assert_true(fabs(get(&dots, i) - want) <= (double)(n + 1) * rounding(t) * size);
    }
    assert_true(guards_intact(&dots));
    for (int64_t at = 0; at < rows * n; at += 1 + rows * n / 5) { /* sets one element to Inf or NaN */
        const int64_t place = at / n * stride + at % n;
        put(&to, 0, 1);
        put(&to, place, at % 2 ? INFINITY : NAN);
        assert_false(t->finite(rows, n, to.data, stride));
        put(&to, place, 1);
    }
    array_free(&from), array_free(&to), array_free(&other), array_free(&dots);
}

static void check_vectors(const mha__kernels *t, int64_t n, rng *r)
{
    array from = array_make(t, n, 1, INPUT), to = array_make(t, n, 3, OUTPUT);
    fill(&from, r);
    t->fill(n, 0.5, to.data);
    t->add(n, from.data, to.data);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(get(&to, i) - (get(&from, i) + 0.5)) <= rounding(t) * (fabs(get(&from, i)) + 0.5));
    assert_true(guards_intact(&to));
    array_free(&from), array_free(&to);
}

static void test_rows(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(71, 0);
    for (int n = tables(list) - 1; n >= 0; n--)
        for (int64_t width = 0; width <= 2 * list[n]->vl + 1; width++) {
            for (int64_t rows = 0; rows <= 3; rows++)
                check_rows(list[n], rows, width, &r);
            check_vectors(list[n], width, &r);
        }
}

/* Tests lse values within, far above and far below the limit, and a row without keys (lse = -inf). */
static void test_anchor(void **state)
{
    (void)state;
    static const double lse[] = {1, -INFINITY, 33, -40, 31};
    const mha__kernels *list[TABLES];
    for (int n = tables(list) - 1; n >= 0; n--)
        for (int64_t rows = 1; rows <= 5; rows++) {
            const mha__kernels *t = list[n];
            array l = array_make(t, rows, 0, OUTPUT), dl = array_make(t, rows, 0, INPUT);
            array inverse = array_make(t, rows, 0, OUTPUT), delta = array_make(t, rows, 0, OUTPUT);
            array max = array_make(t, rows, 0, INPUT), exact = array_make(t, rows, 0, INPUT);
            for (int64_t i = 0; i < rows; i++) {
                put(&l, i, lse[i]), put(&delta, i, 2), put(&max, i, 100), put(&exact, i, 0.25);
                put(&dl, i, i == 1 ? NAN : 0.5);
            }
            assert_true(t->anchor(rows, l.data, dl.data, 32, inverse.data, delta.data) == (rows > 2));
            for (int64_t i = 0; i < rows; i++)
                assert_true(get(&inverse, i) == (i != 1) && get(&delta, i) == (i == 1 ? 2 : 1.5));
            assert_true(t->anchor(rows, l.data, NULL, 1000, inverse.data, delta.data) == false);
            t->anchor_again(rows, 32, max.data, exact.data, l.data, inverse.data);
            for (int64_t i = 0; i < rows; i++) {
                const bool far = i == 2 || i == 3;
                assert_true(get(&l, i) == (far ? 100 : lse[i]) && get(&inverse, i) == (far ? 0.25 : i != 1));
            }
            assert_true(guards_intact(&l) && guards_intact(&inverse) && guards_intact(&delta));
            array_free(&l), array_free(&dl), array_free(&inverse), array_free(&delta);
            array_free(&max), array_free(&exact);
        }
}

/* ---- probabilities P and score gradients dS ---- */

/* The operands of softmax_back for one panel of queries. dp is NaN for masked entries; dropout removes some entries. */
typedef struct panel {
    int64_t keys, lanes;
    array s, dp, dropped, lse, inverse, delta, dots, w, ds;
} panel;

static panel panel_make(const mha__kernels *t, int64_t lanes, rng *r)
{
    panel p = {.keys = rng_range(r, 1, 40), .lanes = lanes};
    const int64_t n = p.keys * t->nr;
    array *panels[] = {&p.s, &p.dp, &p.dropped}, *rows[] = {&p.lse, &p.inverse, &p.delta, &p.dots};
    for (int i = 0; i < 3; i++)
        fill((*panels[i] = array_make(t, n, i, INPUT), panels[i]), r);
    for (int i = 0; i < 4; i++)
        fill((*rows[i] = array_make(t, t->nr, i, INPUT), rows[i]), r);
    p.w = array_make(t, p.keys * STRIDE, 1, OUTPUT), p.ds = array_make(t, p.keys * STRIDE, 2, OUTPUT);
    for (int64_t i = 0; i < t->nr; i++) {
        put(&p.lse, i, 2 + fabs(get(&p.lse, i)));
        put(&p.inverse, i, i % 5 == 4 ? 0.5 : 1);
        for (int64_t j = 0; j < p.keys; j++) {
            put(&p.dropped, j * t->nr + i, rng_chance(r, 0.3) ? -INFINITY : 0);
            if (!rng_chance(r, 0.3)) continue;
            put(&p.s, j * t->nr + i, -INFINITY);
            put(&p.dp, j * t->nr + i, NAN);
        }
    }
    return p;
}

static void panel_free(panel *p)
{
    array *all[] = {&p->s, &p->dp, &p->dropped, &p->lse, &p->inverse, &p->delta, &p->dots, &p->w, &p->ds};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        array_free(all[n]);
}

static void check_back(const mha__kernels *t, int64_t lanes, bool drops, bool gates, rng *r)
{
    panel p = panel_make(t, lanes, r);
    double dots[64];
    for (int64_t i = 0; i < lanes; i++)
        dots[i] = get(&p.dots, i);
    const mha__softmax_back x = {.s = p.s.data,
                                 .dp = p.dp.data,
                                 .dropped = drops ? p.dropped.data : NULL,
                                 .lse = p.lse.data,
                                 .inverse = p.inverse.data,
                                 .delta = p.delta.data,
                                 .dots = gates ? p.dots.data : NULL,
                                 .factor = 1.25,
                                 .gate = -0.5,
                                 .w = p.w.data,
                                 .ds = p.ds.data,
                                 .stride = STRIDE};
    array taylor = array_make(t, t->nr, 3, OUTPUT);
    double sums[64];
    for (int64_t i = 0; i < lanes; i++)
        put(&taylor, i, sums[i] = (double)i);
    t->taylor_back(p.keys, lanes, &x, taylor.data);
    t->softmax_back(p.keys, lanes, &x);
    for (int64_t i = 0; i < lanes; i++) {
        for (int64_t j = 0; j < p.keys; j++) {
            const double s = get(&p.s, j * t->nr + i), dp = get(&p.dp, j * t->nr + i), D = get(&p.delta, i);
            const double w = get(&p.w, j * STRIDE + i), ds = get(&p.ds, j * STRIDE + i);
            if (s == -INFINITY) {
                assert_true(w == 0 && ds == 0);
                continue;
            }
            const double prob = exp(fmin(s - get(&p.lse, i), 0)) * get(&p.inverse, i);
            const double f = drops && get(&p.dropped, j * t->nr + i) == -INFINITY ? 0 : 1.25;
            const double size = prob * (fabs(f * dp) + fabs(D));
            assert_true(fabs(w - prob * f) <= 16 * rounding(t) * prob);
            assert_true(fabs(ds - prob * (-0.5 * f * dp - D)) <= 16 * rounding(t) * size);
            dots[i] += w * dp;
            sums[i] += fabs(prob * -0.5 * f * dp);
        }
        assert_true(fabs(get(&taylor, i) - sums[i]) <= 100 * rounding(t) * (1 + sums[i]));
        if (gates) assert_true(fabs(get(&p.dots, i) - dots[i]) <= 100 * rounding(t) * (1 + fabs(dots[i])));
    }
    for (int64_t j = 0; j < p.keys; j++) /* the kernel must write whole vectors and nothing after them */
        for (int64_t i = (lanes + t->vl - 1) / t->vl * t->vl; i < STRIDE; i++)
            assert_true(get(&p.w, j * STRIDE + i) == OUTPUT && get(&p.ds, j * STRIDE + i) == OUTPUT);
    assert_true(guards_intact(&taylor));
    array_free(&taylor);
    panel_free(&p);
}

static void test_softmax_back(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(72, 0);
    for (int n = tables(list) - 1; n >= 0; n--)
        for (int64_t lanes = 1; lanes <= list[n]->nr; lanes++)
            for (int flags = 0; flags < 4; flags++)
                check_back(list[n], lanes, flags & 1, flags & 2, &r);
}

static void check_undone(const mha__kernels *t, int64_t lanes, rng *r)
{
    const int64_t keys = rng_range(r, 1, 40), position = rng_range(r, -200, 200), first = rng_range(r, 0, 100);
    array ds = array_make(t, keys * STRIDE, 0, OUTPUT), before = array_make(t, keys * STRIDE, 0, OUTPUT);
    array capped = array_make(t, keys * t->nr, 1, INPUT), sums = array_make(t, t->nr, 0, OUTPUT);
    double *wide = calloc((size_t)(keys * STRIDE), sizeof *wide);
    fill(&ds, r);
    fill(&capped, r);
    t->fill(t->nr, 1, sums.data);
    put(&ds, 0, 0);
    put(&capped, 0, NAN); /* a masked key, whose score gradient is 0 */
    memcpy(before.data, ds.data, (size_t)ds.n * t->real_size);
    t->alibi_back(keys, lanes, position, first, ds.data, STRIDE, sums.data);
    t->softcap_back(keys, lanes, 4, capped.data, ds.data, STRIDE);
    t->add_wide(keys, lanes, before.data, STRIDE, wide, STRIDE);
    t->add_wide(keys, lanes, before.data, STRIDE, wide, STRIDE);
    for (int64_t i = 0; i < lanes; i++) {
        double sum = 1, size = 1;
        for (int64_t j = 0; j < keys; j++) {
            const double x = get(&before, j * STRIDE + i), u = get(&capped, j * t->nr + i) / 4;
            const double far = fabs((double)(position + i - first - j)), want = x == 0 ? 0 : x * (1 - u * u);
            sum -= far * x;
            size += fabs(far * x);
            assert_true(fabs(get(&ds, j * STRIDE + i) - want) <= 8 * rounding(t) * fabs(x) * (1 + u * u) || x == 0);
            assert_true(x != 0 || get(&ds, j * STRIDE + i) == 0);
            assert_true(wide[j * STRIDE + i] == 2 * x);
        }
        assert_true(fabs(get(&sums, i) - sum) <= (double)(keys + 2) * rounding(t) * size);
    }
    assert_true(guards_intact(&sums) && guards_intact(&ds));
    free(wide);
    array_free(&ds), array_free(&before), array_free(&capped), array_free(&sums);
}

static void test_undo(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(73, 0);
    for (int n = tables(list) - 1; n >= 0; n--)
        for (int64_t lanes = 1; lanes <= list[n]->nr; lanes++)
            check_undone(list[n], lanes, &r);
}

/* ---- products ---- */

/* Checks C += A B with A row-major or column-major and B in panels. The masked product must give the same C if masked
 * elements of A are 0. */
static void check_product(const mha__kernels *t, int64_t m, int64_t n, int64_t k, bool across, rng *r)
{
    const int64_t c_row = (n + t->nr - 1) / t->nr * t->nr, panel = k * t->nr + 7, b_panels = c_row / t->nr;
    const int64_t a_row = across ? 1 : STRIDE, a_col = across ? STRIDE : 1, spread = (m > k ? m : k) * STRIDE;
    array a = array_make(t, spread, 1, INPUT), mask = array_make(t, spread, 1, INPUT);
    array b = array_make(t, b_panels * panel, 0, 0), c = array_make(t, m * c_row, 0, OUTPUT);
    array masked = array_make(t, m * c_row, 0, OUTPUT), before = array_make(t, m * c_row, 0, OUTPUT);
    fill(&a, r), fill(&b, r), fill(&c, r);
    for (int64_t i = 0; i < m * k; i++) {
        const bool hidden = rng_chance(r, 0.2);
        put(&mask, i / k * a_row + i % k * a_col, hidden ? -INFINITY : 0);
        if (hidden) put(&a, i / k * a_row + i % k * a_col, 0);
    }
    memcpy(before.data, c.data, (size_t)c.n * t->real_size);
    memcpy(masked.data, c.data, (size_t)c.n * t->real_size);
    t->add_product(m, n, k, a.data, a_row, a_col, b.data, t->nr, panel, c.data, c_row);
    t->add_product_masked(m, n, k, a.data, mask.data, a_row, a_col, b.data, t->nr, panel, masked.data, c_row);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double want = 0, size = fabs(get(&before, i * c_row + j));
            for (int64_t e = 0; e < k; e++) {
                const double x = get(&a, i * a_row + e * a_col) * get(&b, j / t->nr * panel + e * t->nr + j % t->nr);
                want += x;
                size += fabs(x);
            }
            const double got = get(&c, i * c_row + j);
            assert_true(fabs(got - want - get(&before, i * c_row + j)) <= (double)(k + 2) * rounding(t) * size);
            assert_true(got == get(&masked, i * c_row + j));
        }
    assert_true(guards_intact(&c) && guards_intact(&masked));
    array_free(&a), array_free(&mask), array_free(&b), array_free(&c), array_free(&masked), array_free(&before);
}

/* A row of B must be skipped if its key is masked, even if it is NaN, and must be read if its key is visible. */
static void check_hidden(const mha__kernels *t)
{
    array a = array_make(t, 2, 0, INPUT), mask = array_make(t, 2, 0, INPUT), b = array_make(t, 2 * t->nr, 0, NAN);
    array c = array_make(t, t->nr, 0, OUTPUT);
    for (int64_t i = 0; i < t->nr; i++)
        put(&b, i, 3), put(&c, i, 1);
    put(&a, 0, 2), put(&a, 1, 0), put(&mask, 0, 0), put(&mask, 1, -INFINITY);
    t->add_product_masked(1, t->nr, 2, a.data, mask.data, 1, 1, b.data, t->nr, 0, c.data, t->nr);
    assert_true(get(&c, 0) == 7 && get(&c, t->nr - 1) == 7);
    put(&mask, 1, 0);
    t->add_product_masked(1, t->nr, 2, a.data, mask.data, 1, 1, b.data, t->nr, 0, c.data, t->nr);
    assert_true(isnan(get(&c, 0)));
    array_free(&a), array_free(&mask), array_free(&b), array_free(&c);
}

static void test_products(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 7, 12, 13, 31, 33, 64, 128};
    const mha__kernels *list[TABLES];
    rng r = rng_make(74, 0);
    for (int n = tables(list) - 1; n >= 0; n--) {
        for (size_t m = 0; m < sizeof sizes / sizeof *sizes; m++)
            for (int across = 0; across < 2; across++)
                check_product(list[n], sizes[m], rng_range(&r, 1, 70), rng_range(&r, 1, 128), across, &r);
        check_hidden(list[n]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_anchor),
                                              cmocka_unit_test(test_softmax_back), cmocka_unit_test(test_undo),
                                              cmocka_unit_test(test_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
