/* test_kernel_single_block.c - tests the kernel for a panel of queries and one block of keys.
 *
 * For any sizes, strides and intervals, the result must be bitwise identical to that of the separate kernels. Elements
 * that must not be read are NaN. */
#include "base/size.h"
#include "kernel/table.h"

/* A matrix in an array, row-major or column-major, with gaps between its rows or columns. */
typedef struct matrix {
    array a;
    int64_t row, col;
} matrix;

static matrix matrix_make(const mha__kernels *t, int64_t rows, int64_t cols, double guard, rng *r)
{
    const bool across = rng_chance(r, 0.7);
    const int64_t gap = rng_range(r, 0, 3);
    matrix m = {.row = across ? cols + gap : 1, .col = across ? 1 : rows + gap};
    const int64_t reach = mha__max64(rows - 1, 0) * m.row + mha__max64(cols - 1, 0) * m.col + 1;
    m.a = array_make(t, reach, (int)rng_range(r, 0, 3), guard);
    return m;
}

static void matrix_fill(matrix *m, int64_t rows, int64_t cols, rng *r)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            put(&m->a, i * m->row + j * m->col, rng_normal(r));
}

typedef struct one {
    const mha__kernels *t;
    mha__single_block x;
    matrix q, k, v;
    int64_t lo[64], hi[64];
} one;

/* Makes a case with random sizes and random intervals [lo, hi) of keys per row, some of them empty. Keys outside all
 * intervals are NaN. */
static one one_make(const mha__kernels *t, rng *r)
{
    one p = {.t = t,
             .x = {.rows = rng_range(r, 1, t->nr),
                   .keys = rng_chance(r, 0.1) ? 0 : rng_range(r, 1, rng_chance(r, 0.5) ? 20 : MHA__KEY_BLOCK),
                   .d = rng_range(r, 1, 3 * t->vl + 2),
                   .dv = rng_range(r, 1, 3 * t->vl + 2),
                   .scale = 0.4,
                   .first = rng_range(r, 0, 1000)}};
    mha__single_block *x = &p.x;
    const bool cut = rng_chance(r, 0.6);
    p.q = matrix_make(t, x->rows, x->d, INPUT, r);
    p.k = matrix_make(t, x->keys, x->d, INPUT, r);
    p.v = matrix_make(t, x->keys, x->dv, INPUT, r);
    matrix_fill(&p.q, x->rows, x->d, r);
    matrix_fill(&p.k, x->keys, x->d, r);
    matrix_fill(&p.v, x->keys, x->dv, r);
    for (int64_t i = 0; i < x->rows; i++) {
        const int64_t a = rng_range(r, -5, x->keys + 5), b = rng_range(r, -5, x->keys + 5);
        p.lo[i] = cut ? x->first + mha__min64(a, b) : x->first;
        p.hi[i] = cut ? x->first + mha__max64(a, b) : x->first + x->keys;
    }
    x->q = p.q.a.data, x->q_row = p.q.row, x->q_col = p.q.col;
    x->k = p.k.a.data, x->k_row = p.k.row, x->k_col = p.k.col;
    x->v = p.v.a.data, x->v_row = p.v.row, x->v_col = p.v.col;
    return p;
}

static void one_free(one *p)
{
    array_free(&p->q.a), array_free(&p->k.a), array_free(&p->v.a);
}

static bool sees(const one *p, int64_t row, int64_t key)
{
    return p->lo[row] <= p->x.first + key && p->x.first + key < p->hi[row];
}

/* Computes the expected result with the separate kernels: out [rows][dv], then lse [rows]. */
static array step_by_step(const one *p)
{
    const mha__kernels *t = p->t;
    const mha__single_block *x = &p->x;
    const int64_t nr = t->nr, wide = mha__round_up(x->dv, nr), keys = mha__max64(x->keys, 1);
    array q = array_make(t, x->d * nr, 0, 0), s = array_make(t, keys * nr, 0, 0), mask = array_make(t, keys * nr, 0, 0);
    array v = array_make(t, keys * wide, 0, 0), o = array_make(t, nr * wide, 0, 0);
    array top = array_make(t, nr, 0, 0), max = array_make(t, nr, 0, 0), sum = array_make(t, nr, 0, 0);
    array alpha = array_make(t, nr, 0, 0), result = array_make(t, x->rows * (x->dv + 1), 0, OUTPUT);
    const mha__partial partial = {max.data, sum.data, o.data};
    t->pack_rows(x->rows, x->d, x->q, x->q_row, x->q_col, q.data);
    t->pack_cols(x->keys, x->dv, x->v, x->v_row, x->v_col, v.data);
    t->scores(x->keys, x->d, x->k, x->k_row, x->k_col, q.data, x->rows, x->scale, s.data, top.data, NULL);
    t->interval(x->keys, x->rows, x->first, p->lo, p->hi, s.data);
    t->interval(x->keys, x->rows, x->first, p->lo, p->hi, mask.data);
    t->top(x->keys, x->rows, s.data, top.data);
    t->clear(x->rows, wide, &partial);
    t->softmax(x->keys, x->rows, top.data, s.data, max.data, sum.data, alpha.data);
    t->values_masked(x->rows, x->dv, x->keys, s.data, mask.data, v.data, nr, x->keys * nr, alpha.data, o.data, wide);
    t->totals(x->rows, max.data, sum.data, alpha.data, at_number(&result, x->rows * x->dv), 1);
    t->output(x->rows, x->dv, o.data, wide, alpha.data, result.data, x->dv, 1);
    array *const all[] = {&q, &s, &mask, &v, &o, &top, &max, &sum, &alpha};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        array_free(all[n]);
    return result;
}

/* Returns true if x and y are bitwise identical or both NaN, since the bits of a NaN result are unspecified. */
static bool same_number(const mha__kernels *t, const void *x, const void *y)
{
    return memcmp(x, y, t->real_size) == 0 || (isnan(get_at(t, x, 0)) && isnan(get_at(t, y, 0)));
}

/* Compares the kernel with step_by_step. out is separate strided memory or, if over_q is true, the memory of q. */
static void check(one *p, bool over_q, rng *r)
{
    const mha__kernels *t = p->t;
    mha__single_block x = p->x;
    array want = step_by_step(p);
    matrix out = matrix_make(t, x.rows, x.dv, OUTPUT, r);
    array lse = array_make(t, 2 * x.rows, 0, OUTPUT);
    array memory = array_make(t, (x.d + x.keys + x.dv) * t->nr, 0, OUTPUT);
    for (int64_t i = 0; i < memory.n; i++)
        put(&memory, i, (double)NAN);
    bool all = true;
    for (int64_t i = 0; i < x.rows; i++)
        for (int64_t j = 0; j < x.keys; j++)
            all = all && sees(p, i, j);
    x.lo = all && rng_chance(r, 0.8) ? NULL : p->lo;
    x.hi = p->hi;
    x.out = over_q ? p->q.a.data : out.a.data;
    x.out_row = over_q ? p->q.row : out.row;
    x.out_col = over_q ? p->q.col : out.col;
    x.lse = lse.data, x.lse_row = 2;
    x.memory = memory.data;
    t->single_block(&x);
    for (int64_t i = 0; i < x.rows; i++) {
        for (int64_t c = 0; c < x.dv; c++)
            assert_true(same_number(t, (char *)x.out + (i * x.out_row + c * x.out_col) * (int64_t)t->real_size,
                                    at_number(&want, i * x.dv + c)));
        assert_true(same_number(t, at_number(&lse, 2 * i), at_number(&want, x.rows * x.dv + i)));
        assert_true(i + 1 == x.rows || get(&lse, 2 * i + 1) == OUTPUT);
    }
    assert_true(guards_intact(&out.a) && guards_intact(&lse) && guards_intact(&memory));
    array_free(&out.a), array_free(&lse), array_free(&memory), array_free(&want);
}

static void for_tables(void (*run)(const mha__kernels *, rng *), int cases)
{
    const mha__kernels *list[TABLES];
    rng r = rng_make(31, 1);
    for (int n = tables(list); n-- > 0;)
        for (int i = 0; i < cases; i++)
            run(list[n], &r);
}

static void run_any(const mha__kernels *t, rng *r)
{
    one p = one_make(t, r);
    check(&p, false, r);
    one_free(&p);
}

static void test_any(void **state)
{
    (void)state;
    for_tables(run_any, 400);
}

static void run_over_q(const mha__kernels *t, rng *r)
{
    one p = one_make(t, r);
    p.x.d = p.x.dv = mha__min64(p.x.d, p.x.dv);
    check(&p, true, r);
    one_free(&p);
}

static void test_out_is_q(void **state)
{
    (void)state;
    for_tables(run_over_q, 100);
}

/* Keys to which no row attends become NaN or Inf and must not affect the result. One element of one key, to which some
 * rows may attend, becomes Inf and must affect only these rows. */
static void run_poison(const mha__kernels *t, rng *r)
{
    one p = one_make(t, r);
    bool seen[MHA__KEY_BLOCK] = {false};
    for (int64_t i = 0; i < p.x.rows; i++)
        for (int64_t j = 0; j < p.x.keys; j++)
            seen[j] = seen[j] || sees(&p, i, j);
    for (int64_t j = 0; j < p.x.keys; j++) {
        if (seen[j]) continue;
        for (int64_t c = 0; c < p.x.d; c++)
            put(&p.k.a, j * p.k.row + c * p.k.col, (double)NAN);
        for (int64_t c = 0; c < p.x.dv; c++)
            put(&p.v.a, j * p.v.row + c * p.v.col, rng_chance(r, 0.5) ? (double)NAN : (double)INFINITY);
    }
    if (p.x.keys > 0) /* one element of one key becomes Inf */
        put(&p.v.a, rng_range(r, 0, p.x.keys - 1) * p.v.row, (double)INFINITY);
    check(&p, false, r);
    one_free(&p);
}

static void test_poison(void **state)
{
    (void)state;
    for_tables(run_poison, 300);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_any), cmocka_unit_test(test_out_is_q),
                                              cmocka_unit_test(test_poison)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
