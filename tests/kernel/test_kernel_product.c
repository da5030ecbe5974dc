/* test_kernel_product.c - compares matrix products computed in register tiles with formulas in double, at every edge of
 * a tile. An element must be bitwise identical in every product with the same row of A, column of W and inner
 * length. */
#include "kernel/table.h"

typedef struct dense {
    int64_t m, n, k, lda, ldc;
    array a, w, panels, c;
} dense;

/* Makes A [m][k], W [n][k] packed in panels, and C [m][n]. A and C have gaps between their rows, which are guards. */
static dense dense_make(const mha__kernels *t, int64_t m, int64_t n, int64_t k, rng *r)
{
    dense d = {m, n, k, k + 3, n + 5, {0}, {0}, {0}, {0}};
    const int64_t panels = (n + t->nr - 1) / t->nr;
    d.a = array_make(t, (m - 1) * d.lda + k, (int)rng_range(r, 0, 3), INPUT);
    d.w = array_make(t, n * k, (int)rng_range(r, 0, 3), INPUT);
    d.panels = array_make(t, panels * k * t->nr, 0, OUTPUT);
    d.c = array_make(t, (m - 1) * d.ldc + n, (int)rng_range(r, 0, 3), OUTPUT);
    fill_rows(&d.a, m, k, d.lda, r);
    fill(&d.w, r);
    t->pack_rows(n, k, d.w.data, k, 1, d.panels.data);
    assert_true(guards_intact(&d.panels));
    return d;
}

static void dense_free(dense *d)
{
    array_free(&d->a);
    array_free(&d->w);
    array_free(&d->panels);
    array_free(&d->c);
}

static void run(const mha__kernels *t, dense *d, const void *from, int64_t from_row)
{
    t->product(d->m, d->n, d->k, d->a.data, d->lda, d->panels.data, d->k * t->nr, from, from_row, d->c.data, d->ldc);
}

/* Compares C with begin + A W^T. The error of an element must be at most (k + 2) * u * (|begin| + sum |a w|), the bound
 * of a chain of k additions with unit roundoff u. Gaps between rows of C must be unchanged. */
static void check_dense(const mha__kernels *t, const dense *d, double begin)
{
    for (int64_t i = 0; i < d->m; i++)
        for (int64_t j = 0; j < d->ldc && i * d->ldc + j < d->c.n; j++) {
            const double got = get(&d->c, i * d->ldc + j);
            if (j >= d->n) {
                assert_true(got == OUTPUT);
                continue;
            }
            double truth = begin, size = fabs(begin);
            for (int64_t k = 0; k < d->k; k++) {
                const double term = get(&d->a, i * d->lda + k) * get(&d->w, j * d->k + k);
                truth += term;
                size += fabs(term);
            }
            if (!(fabs(got - truth) <= ((double)d->k + 2) * rounding(t) * size))
                fail_msg("%s %s: %lldx%lldx%lld, c[%lld][%lld]: got %.9g, expected %.9g", t->isa, type_of(t),
                         (long long)d->m, (long long)d->n, (long long)d->k, (long long)i, (long long)j, got, truth);
        }
    assert_true(guards_intact(&d->c));
}

static void test_dense_at_every_edge(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(1, 1);
    for (int n = tables(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        for (int64_t m = 1; m <= 2 * t->mr + 1; m++)
            for (int64_t columns = 1; columns <= 2 * t->nr + 1; columns += columns < t->nr ? 1 : 3) {
                dense d = dense_make(t, m, columns, rng_range(&r, 1, 20), &r);
                run(t, &d, NULL, 0);
                check_dense(t, &d, 0);
                dense_free(&d);
            }
    }
}

/* Tests inner lengths around the block length of the product, at which the chain of additions continues in the next
 * block. For an inner length of 0, C must be 0. */
static void test_dense_lengths(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    const int64_t lengths[] = {1, 2, 63, 64, 65, 767, 768, 769, 1537, 3075};
    rng r = rng_make(1, 2);
    for (int n = tables(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            dense d = dense_make(t, t->mr + 1, t->nr + 1, lengths[i], &r);
            run(t, &d, NULL, 0);
            check_dense(t, &d, 0);
            dense_free(&d);
        }
        dense d = dense_make(t, 3, 5, 1, &r);
        t->product(3, 5, 0, d.a.data, d.lda, d.panels.data, 0, NULL, 0, d.c.data, d.ldc);
        for (int64_t i = 0; i < 3; i++)
            for (int64_t j = 0; j < 5; j++)
                assert_true(get(&d.c, i * d.ldc + j) == 0);
        dense_free(&d);
    }
}

static void test_dense_accumulates(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(1, 3);
    for (int n = tables(list); n-- > 0;) {
        dense d = dense_make(list[n], list[n]->mr + 2, list[n]->nr + 3, 33, &r);
        for (int64_t i = 0; i < d.m; i++)
            for (int64_t j = 0; j < d.n; j++)
                put(&d.c, i * d.ldc + j, 0.75);
        run(list[n], &d, d.c.data, d.ldc);
        check_dense(list[n], &d, 0.75);
        dense_free(&d);
    }
}

/* The sums of every row begin with a bias, whose guards are NaN. Tests one and several blocks of k. */
static void test_dense_begins_with_a_bias(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(1, 6);
    for (int n = tables(list); n-- > 0;)
        for (int64_t k = 33; k <= 1650; k += 1617) {
            const mha__kernels *t = list[n];
            dense d = dense_make(t, t->mr + 2, 2 * t->nr + 3, k, &r), whole = d;
            array bias = array_make(t, d.n, 1, INPUT);
            whole.c = array_make(t, d.c.n, 0, OUTPUT);
            fill(&bias, &r);
            for (int64_t i = 0; i < d.m * d.n; i++)
                put(&whole.c, i / d.n * d.ldc + i % d.n, get(&bias, i % d.n));
            run(t, &whole, whole.c.data, whole.ldc);
            run(t, &d, bias.data, 0);
            assert_true(same_bits(&d.c, &whole.c));
            assert_true(guards_intact(&d.c));
            array_free(&bias);
            array_free(&whole.c);
            dense_free(&d);
        }
}

/* An element of C must be bitwise identical whether its rows, columns and inner length are computed in one call or in
 * several. */
static void test_bits_do_not_depend_on_the_division(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(1, 4);
    for (int n = tables(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        dense whole = dense_make(t, 2 * t->mr + 3, 2 * t->nr + 5, 1700, &r);
        run(t, &whole, NULL, 0);
        array pieces = array_make(t, whole.c.n, 0, OUTPUT);
        for (int64_t i = 0; i < whole.m; i += 5)
            for (int64_t j = 0; j < whole.n; j += t->nr)
                for (int64_t k = 0; k < whole.k; k += 611) {
                    const int64_t rows = whole.m - i < 5 ? whole.m - i : 5;
                    const int64_t columns = whole.n - j < t->nr ? whole.n - j : t->nr;
                    const int64_t length = whole.k - k < 611 ? whole.k - k : 611;
                    void *c = at_number(&pieces, i * whole.ldc + j);
                    t->product(rows, columns, length, at_number(&whole.a, i * whole.lda + k), whole.lda,
                               at_number(&whole.panels, j * whole.k + k * t->nr), 0, k > 0 ? c : NULL, whole.ldc, c,
                               whole.ldc);
                }
        assert_true(same_bits(&whole.c, &pieces));
        array_free(&pieces);
        dense_free(&whole);
    }
}

/* Checks scores = scale * K Q^T and the maximum of each lane, for row-major and column-major K. */
static void test_scores(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(1, 5);
    for (int n = tables(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        for (int64_t lanes = 1; lanes <= t->nr; lanes++) {
            const int64_t keys = rng_range(&r, 1, MHA__KEY_BLOCK), d = rng_range(&r, 1, 70);
            const bool transposed = rng_chance(&r, 0.3);
            const int64_t row = transposed ? 1 : d + 2, col = transposed ? keys + 1 : 1;
            array k = array_make(t, (keys - 1) * row + (d - 1) * col + 1, 1, INPUT),
                  q = array_make(t, lanes * d, 2, INPUT);
            array panel = array_make(t, d * t->nr, 0, OUTPUT), s = array_make(t, keys * t->nr, 0, OUTPUT);
            array top = array_make(t, t->nr, 0, OUTPUT);
            for (int64_t j = 0; j < keys; j++)
                for (int64_t i = 0; i < d; i++)
                    put(&k, j * row + i * col, rng_normal(&r));
            fill(&q, &r);
            t->pack_rows(lanes, d, q.data, d, 1, panel.data);
            t->scores(keys, d, k.data, row, col, panel.data, lanes, -0.3, s.data, top.data, NULL);
            for (int64_t i = 0; i < lanes; i++) {
                double max = -INFINITY;
                for (int64_t j = 0; j < keys; j++) {
                    double truth = 0, size = 0;
                    for (int64_t x = 0; x < d; x++) {
                        truth += get(&k, j * row + x * col) * get(&q, i * d + x);
                        size += fabs(get(&k, j * row + x * col) * get(&q, i * d + x));
                    }
                    const double got = get(&s, j * t->nr + i);
                    assert_true(fabs(got - -0.3 * truth) <= ((double)d + 3) * rounding(t) * 0.3 * size);
                    max = fmax(max, got);
                }
                assert_true(get(&top, i) == max);
            }
            assert_true(guards_intact(&s) && guards_intact(&top));
            array_free(&k), array_free(&q), array_free(&panel), array_free(&s), array_free(&top);
        }
    }
}

/* Checks o = alpha * o + P V with V packed in panels and V read in place. If V is finite, values_masked must give a
 * bitwise identical o. */
static void test_values(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(1, 6);
    for (int n = tables(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        for (int64_t rows = 1; rows <= t->nr; rows++) {
            const int64_t keys = rng_range(&r, 1, MHA__KEY_BLOCK), dv = rng_range(&r, 1, 5 * t->vl);
            const int64_t wide = mha__round_up(dv, t->vl); /* whole vectors of V in place are read */
            const int64_t stride = (dv + t->nr - 1) / t->nr * t->nr;
            array v = array_make(t, keys * wide, 0, INPUT), panels = array_make(t, keys * stride, 0, OUTPUT);
            array p = array_make(t, keys * t->nr, 0, INPUT), alpha = array_make(t, t->nr, 0, INPUT);
            array mask = array_make(t, keys * t->nr, 0, 0), begin = array_make(t, rows * stride, 0, OUTPUT);
            array o[3];
            fill(&v, &r), fill(&p, &r), fill(&alpha, &r);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t c = 0; c < dv; c++)
                    put(&begin, i * stride + c, rng_normal(&r));
            for (int64_t i = 0; i < keys * t->nr; i++)
                if (rng_chance(&r, 0.3)) put(&mask, i, -INFINITY), put(&p, i, 0);
            for (int i = 0; i < 3; i++) {
                o[i] = array_make(t, rows * stride, 0, OUTPUT);
                memcpy(o[i].data, begin.data, (size_t)(rows * stride) * t->real_size);
            }
            t->pack_cols(keys, dv, v.data, wide, 1, panels.data);
            t->values(rows, dv, keys, p.data, panels.data, t->nr, keys * t->nr, alpha.data, o[0].data, stride, NULL);
            t->values(rows, dv, keys, p.data, v.data, wide, t->nr, alpha.data, o[1].data, stride, NULL);
            t->values_masked(rows, dv, keys, p.data, mask.data, v.data, wide, t->nr, alpha.data, o[2].data, stride);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t c = 0; c < dv; c++) {
                    const double first = get(&begin, i * stride + c) * get(&alpha, i);
                    double truth = first, size = fabs(first);
                    for (int64_t j = 0; j < keys; j++) {
                        truth += get(&p, j * t->nr + i) * get(&v, j * wide + c);
                        size += fabs(get(&p, j * t->nr + i) * get(&v, j * wide + c));
                    }
                    assert_true(fabs(get(&o[0], i * stride + c) - truth) <= ((double)keys + 3) * rounding(t) * size);
                    assert_true(get(&o[1], i * stride + c) == get(&o[0], i * stride + c));
                    assert_true(get(&o[2], i * stride + c) == get(&o[0], i * stride + c));
                }
            for (int i = 0; i < 3; i++) {
                assert_true(guards_intact(&o[i]));
                array_free(&o[i]);
            }
            array_free(&v), array_free(&panels), array_free(&p), array_free(&alpha), array_free(&mask),
                array_free(&begin);
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_at_every_edge),
        cmocka_unit_test(test_dense_lengths),
        cmocka_unit_test(test_dense_accumulates),
        cmocka_unit_test(test_dense_begins_with_a_bias),
        cmocka_unit_test(test_bits_do_not_depend_on_the_division),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
