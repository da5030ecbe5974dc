/* test_kernel_pack.c - tests the kernels that copy rows to panels and back, for every tail and any stride. They must
 * not read or write elements outside the rows. */
#include "kernel/table.h"

/* A matrix [rows][cols] in an array, row-major or column-major, with positive or negative strides. */
typedef struct matrix {
    array a;
    int64_t rows, cols, row, col, first;
} matrix;

static matrix matrix_make(const mha__kernels *t, int64_t rows, int64_t cols, double guard, rng *r)
{
    matrix m = {{0}, rows, cols, 1, 1, 0};
    const bool across = rng_chance(r, 0.6);
    const int64_t gap = rng_range(r, 0, 3);
    m.row = across ? cols + gap : 1;
    m.col = across ? 1 : rows + gap;
    if (rng_chance(r, 0.2)) m.row = -m.row;
    if (rng_chance(r, 0.2)) m.col = -m.col;
    const int64_t reach = (rows - 1) * llabs(m.row) + (cols - 1) * llabs(m.col) + 1;
    m.a = array_make(t, reach, (int)rng_range(r, 0, 3), guard);
    m.first = (m.row < 0 ? (rows - 1) * -m.row : 0) + (m.col < 0 ? (cols - 1) * -m.col : 0);
    return m;
}

static int64_t place(const matrix *m, int64_t i, int64_t j)
{
    return m->first + i * m->row + j * m->col;
}

static void matrix_fill(matrix *m, rng *r)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++)
            put(&m->a, place(m, i, j), rng_normal(r));
}

static void check_pack_rows(const mha__kernels *t, int64_t n, int64_t k, rng *r)
{
    matrix src = matrix_make(t, n, k, INPUT, r);
    array panels = array_make(t, (n + t->nr - 1) / t->nr * t->nr * k, 0, OUTPUT);
    matrix_fill(&src, r);
    t->pack_rows(n, k, at_number(&src.a, src.first), src.row, src.col, panels.data);
    for (int64_t j = 0; j < (n + t->nr - 1) / t->nr * t->nr; j++)
        for (int64_t kk = 0; kk < k; kk++) {
            const double want = j < n ? get(&src.a, place(&src, j, kk)) : 0;
            assert_true(get(&panels, j / t->nr * k * t->nr + kk * t->nr + j % t->nr) == want);
        }
    assert_true(guards_intact(&panels));
    array_free(&src.a);
    array_free(&panels);
}

static void check_pack_cols(const mha__kernels *t, int64_t k, int64_t n, rng *r)
{
    matrix src = matrix_make(t, k, n, INPUT, r);
    array panels = array_make(t, (n + t->nr - 1) / t->nr * t->nr * k, 0, OUTPUT);
    matrix_fill(&src, r);
    t->pack_cols(k, n, at_number(&src.a, src.first), src.row, src.col, panels.data);
    for (int64_t c = 0; c < (n + t->nr - 1) / t->nr * t->nr; c++)
        for (int64_t kk = 0; kk < k; kk++) {
            const double want = c < n ? get(&src.a, place(&src, kk, c)) : 0;
            assert_true(get(&panels, c / t->nr * k * t->nr + kk * t->nr + c % t->nr) == want);
        }
    assert_true(guards_intact(&panels));
    array_free(&src.a);
    array_free(&panels);
}

static void check_unpack(const mha__kernels *t, int64_t lanes, int64_t keys, rng *r)
{
    array panel = array_make(t, keys * t->nr, 0, INPUT);
    matrix dst = matrix_make(t, lanes, keys, OUTPUT, r);
    int64_t written = 0;
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < lanes; i++)
            put(&panel, j * t->nr + i, rng_normal(r));
    t->unpack(lanes, keys, panel.data, at_number(&dst.a, dst.first), dst.row, dst.col);
    for (int64_t i = 0; i < lanes; i++)
        for (int64_t j = 0; j < keys; j++)
            assert_true(get(&dst.a, place(&dst, i, j)) == get(&panel, j * t->nr + i));
    for (int64_t i = 0; i < dst.a.n; i++)
        written += get(&dst.a, i) != OUTPUT;
    assert_true(written == lanes * keys && guards_intact(&dst.a));
    array_free(&panel);
    array_free(&dst.a);
}

/* Checks the panel that pack_keep makes from a mask of bytes. The mask is allocated at its exact size, so the address
 * sanitizer detects reads after its end. */
static void check_pack_keep(const mha__kernels *t, int64_t lanes, int64_t keys, rng *r)
{
    const bool broadcast = rng_chance(r, 0.3), across = rng_chance(r, 0.7);
    const int64_t row = broadcast ? 0 : across ? keys : 1, col = broadcast || across ? 1 : lanes;
    const size_t bytes = (size_t)(broadcast ? keys : lanes * keys);
    uint8_t *keep = malloc(bytes);
    assert_non_null(keep);
    for (size_t i = 0; i < bytes; i++)
        keep[i] = (uint8_t)(rng_chance(r, 0.4) ? 0 : rng_range(r, 1, 255));
    array panel = array_make(t, keys * t->nr, 0, OUTPUT);
    t->pack_keep(lanes, keys, keep, row, col, panel.data);
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < lanes; i++)
            assert_true(get(&panel, j * t->nr + i) == (keep[i * row + j * col] ? 0 : -INFINITY));
    assert_true(guards_intact(&panel));
    array_free(&panel);
    free(keep);
}

static void for_shapes(void (*check)(const mha__kernels *, int64_t, int64_t, rng *), bool lanes_only)
{
    const mha__kernels *list[TABLES];
    rng r = rng_make(2, 1);
    for (int n = tables(list); n-- > 0;)
        for (int64_t i = 1; i <= (lanes_only ? list[n]->nr : 2 * list[n]->nr + 1); i++)
            for (int64_t j = 1; j <= 2 * list[n]->vl + 2; j++)
                check(list[n], i, j, &r);
}

static void test_pack_rows(void **state)
{
    (void)state;
    for_shapes(check_pack_rows, false);
}

static void test_pack_cols(void **state)
{
    (void)state;
    for_shapes(check_pack_cols, false);
}

static void test_unpack(void **state)
{
    (void)state;
    for_shapes(check_unpack, true);
}

static void test_pack_keep(void **state)
{
    (void)state;
    for_shapes(check_pack_keep, true);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_pack_rows), cmocka_unit_test(test_pack_cols),
                                              cmocka_unit_test(test_unpack), cmocka_unit_test(test_pack_keep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
