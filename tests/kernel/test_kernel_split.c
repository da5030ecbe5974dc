/* test_kernel_split.c - tests product_split, the f32 product of tile registers. Results must be bitwise identical to a
 * model in scalar f32: six products of bf16 parts per step of 32 elements, each summed from 0 in two chains. NaN
 * surrounds the inputs, and a canary value surrounds the outputs. tests/tiles runs this test with emulated tiles on
 * every CPU. */
#include "kernel/table.h"
#include <stdio.h>

enum { STEP = 32 };

typedef struct problem {
    const mha__kernels *t;
    int64_t m, n, k, lda, ldc;
    array a, w, panels, bias, c;
} problem;

static problem problem_make(const mha__kernels *t, int64_t m, int64_t n, int64_t k, rng *r)
{
    problem p = {.t = t, .m = m, .n = n, .k = k, .lda = k + 3, .ldc = n + 5};
    p.a = array_make(t, (m - 1) * p.lda + k, (int)rng_range(r, 0, 3), INPUT);
    p.w = array_make(t, n * k, 0, INPUT);
    p.panels = array_make(t, (n + t->nr - 1) / t->nr * k * t->nr, (int)rng_range(r, 0, 3), INPUT);
    p.bias = array_make(t, n, (int)rng_range(r, 0, 3), INPUT);
    p.c = array_make(t, (m - 1) * p.ldc + n, (int)rng_range(r, 0, 3), OUTPUT);
    fill_rows(&p.a, m, k, p.lda, r);
    fill(&p.w, r), fill(&p.bias, r);
    return p;
}

static void problem_free(problem *p)
{
    array_free(&p->a), array_free(&p->w), array_free(&p->panels), array_free(&p->bias), array_free(&p->c);
}

/* Computes C = `from` + A W^T. */
static void run_from(problem *p, bool split, const array *from, int64_t from_row)
{
    p->t->pack_rows(p->n, p->k, p->w.data, p->k, 1, p->panels.data);
    (split ? p->t->product_split : p->t->product)(p->m, p->n, p->k, p->a.data, p->lda, p->panels.data, p->k * p->t->nr,
                                                  from->data, from_row, p->c.data, p->ldc);
    for (int64_t i = 0; i < p->c.n; i++)
        assert_true(i % p->ldc < p->n || get(&p->c, i) == OUTPUT);
    assert_true(guards_intact(&p->c));
}

/* Begins with the bias. */
static void run(problem *p, bool split)
{
    run_from(p, split, &p->bias, 0);
}

/* Accumulates in C, which begins with zeros. */
static void accumulate(problem *p, bool split)
{
    for (int64_t i = 0; i < p->m * p->n; i++)
        put(&p->c, i / p->n * p->ldc + i % p->n, 0);
    run_from(p, split, &p->c, p->ldc);
}

/* Returns x without its last 16 bits, a bf16 number. */
static float leading(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xffff0000;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static float part_of(float x, int part)
{
    for (; part > 0; part--)
        x -= leading(x);
    return leading(x);
}

static float expected(const problem *p, int64_t i, int64_t j)
{
    static const int order[][2] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}}; /* parts of A and W */
    float total = (float)get(&p->bias, j);
    for (int64_t from = 0; from < p->k; from += STEP)
        for (size_t n = 0; n < sizeof order / sizeof *order; n++) {
            float sum[2] = {0, 0};
            for (int64_t kk = from; kk < from + STEP && kk < p->k; kk++)
                sum[kk % 2] = fmaf(part_of((float)get(&p->a, i * p->lda + kk), order[n][0]),
                                   part_of((float)get(&p->w, j * p->k + kk), order[n][1]), sum[kk % 2]);
            total += sum[0] + sum[1];
        }
    return total;
}

/* Returns the number of tables that have the function. */
static int tables_with_split(const mha__kernels *list[TABLES])
{
    int n = tables(list), kept = 0;
    for (int i = 0; i < n; i++)
        if (list[i]->product_split) list[kept++] = list[i];
    if (kept == 0) printf("skipped: this CPU has no tile registers\n");
    return kept;
}

static void test_bits_of_the_model(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 32, 31},   {3, 33, 32},   {16, 31, 33},   {17, 64, 127},
                                       {31, 7, 128}, {32, 32, 129}, {33, 65, 300}, {127, 40, 160}, {129, 97, 260}};
    rng r = rng_make(2, 1);
    for (int n = tables_with_split(list); n-- > 0;)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            problem p = problem_make(list[n], sizes[s][0], sizes[s][1], sizes[s][2], &r);
            run(&p, true);
            for (int64_t i = 0; i < p.m; i++)
                for (int64_t j = 0; j < p.n; j++) {
                    const double got = get(&p.c, i * p.ldc + j), want = (double)expected(&p, i, j);
                    if (got != want)
                        fail_msg("%lldx%lldx%lld, c[%lld][%lld]: got %.9g, expected %.9g", (long long)p.m,
                                 (long long)p.n, (long long)p.k, (long long)i, (long long)j, got, want);
                }
            problem_free(&p);
        }
}

/* Rows and panels in separate calls, with sums that begin with C, must be bitwise identical. */
static void test_bits_do_not_depend_on_the_division(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(2, 2);
    for (int n = tables_with_split(list); n-- > 0;) {
        const mha__kernels *t = list[n];
        problem p = problem_make(t, 143, 2 * t->nr + 5, 300, &r);
        run(&p, true);
        array pieces = array_make(t, p.c.n, 0, OUTPUT);
        for (int64_t i = 0; i < p.m; i += 37)
            for (int64_t j = 0; j < p.n; j += t->nr) {
                const int64_t rows = p.m - i < 37 ? p.m - i : 37, columns = p.n - j < t->nr ? p.n - j : t->nr;
                void *c = at_number(&pieces, i * p.ldc + j);
                for (int64_t e = 0; e < rows * columns; e++)
                    put(&pieces, (i + e / columns) * p.ldc + j + e % columns, get(&p.bias, j + e % columns));
                t->product_split(rows, columns, p.k, at_number(&p.a, i * p.lda), p.lda, at_number(&p.panels, j * p.k),
                                 p.k * t->nr, c, p.ldc, c, p.ldc);
            }
        assert_true(same_bits(&p.c, &pieces));
        array_free(&pieces);
        problem_free(&p);
    }
}

/* The sum of squared errors must be smaller than that of a chain of multiply-adds. */
static void test_error_is_below_that_of_a_chain(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(2, 3);
    for (int n = tables_with_split(list); n-- > 0;)
        for (int64_t k = 256; k <= 2048; k *= 2) {
            problem p = problem_make(list[n], 24, 40, k, &r);
            double error[2] = {0, 0};
            for (int split = 0; split < 2; split++) {
                run(&p, split);
                for (int64_t i = 0; i < p.m; i++)
                    for (int64_t j = 0; j < p.n; j++) {
                        double exact = get(&p.bias, j);
                        for (int64_t kk = 0; kk < k; kk++)
                            exact += get(&p.a, i * p.lda + kk) * get(&p.w, j * k + kk);
                        error[split] += pow(get(&p.c, i * p.ldc + j) - exact, 2);
                    }
            }
            assert_true(error[0] > 0 && error[1] < error[0]);
            problem_free(&p);
        }
}

/* Puts Inf into two chunks of a row of A or W, or fills the row with a small value; the other operand is large then.
 * Results of this row or column must be those of a chain, and all others those without this value. */
static void check_special(const mha__kernels *t, double value, bool in_a, rng *r)
{
    enum { ROW = 18, LENGTH = 300 };
    problem p = problem_make(t, 40, t->nr + 6, LENGTH, r);
    array *with = in_a ? &p.a : &p.w, *other = in_a ? &p.w : &p.a;
    for (int64_t i = 0; i < other->n; i++)
        put(other, i, get(other, i) * (fabs(value) < 1 ? 0x1p60 : 1));
    array without = array_make(t, p.c.n, 0, OUTPUT), chain = array_make(t, p.c.n, 0, OUTPUT);
    accumulate(&p, true);
    memcpy(without.data, p.c.data, (size_t)p.c.n * t->real_size);
    for (int64_t kk = 0; kk < LENGTH; kk++)
        if (kk == 70 || kk == 200 || fabs(value) < 1) put(with, ROW * (in_a ? p.lda : p.k) + kk, value);
    accumulate(&p, false);
    memcpy(chain.data, p.c.data, (size_t)p.c.n * t->real_size);
    accumulate(&p, true);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            const array *from = (in_a ? i : j) == ROW ? &chain : &without;
            const double got = get(&p.c, i * p.ldc + j), want = get(from, i * p.ldc + j);
            assert_true(got == want || (isnan(got) && isnan(want)));
        }
    array_free(&without), array_free(&chain);
    problem_free(&p);
}

static void test_special_values(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    static const double values[] = {(double)INFINITY, -(double)INFINITY, 0x1.234568p-110, 0x1p-149};
    rng r = rng_make(2, 4);
    for (int n = tables_with_split(list); n-- > 0;)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            check_special(list[n], values[v], true, &r), check_special(list[n], values[v], false, &r);
}

static void test_nan_stays_in_its_row(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(2, 5);
    for (int n = tables_with_split(list); n-- > 0;) {
        problem p = problem_make(list[n], 35, 40, 200, &r);
        put(&p.a, 20 * p.lda + 150, (double)NAN);
        put(&p.w, 33 * p.k + 7, (double)NAN);
        run(&p, true);
        for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = 0; j < p.n; j++)
                assert_true(isnan(get(&p.c, i * p.ldc + j)) == (i == 20 || j == 33));
        problem_free(&p);
    }
}

int main(void)
{
    const mha__kernels *list[TABLES];
    if (tables_with_split(list) == 0) return 77; /* skipped */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_the_model),
        cmocka_unit_test(test_bits_do_not_depend_on_the_division),
        cmocka_unit_test(test_error_is_below_that_of_a_chain),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_nan_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
