/* test_kernel_int8.c - tests the dense product with q8_0 weights on every ISA.
 *
 * The expected value is computed from definitions in plain C: weights and rows are quantized in groups of 128, the
 * products of a group are summed in 64-bit integers, and the sums of the groups are added as kernel.h specifies, with
 * fmaf or, on ISAs without fused multiply-adds, with separate operations. Results must be bitwise identical. If all
 * scales are 1, results are the exact integers on every ISA. */
#include "kernel/table.h"
#include "math/half.h"

enum { GROUP = 128, PAD = 3 };

typedef struct problem {
    const mha__kernels *k;
    const mha__dense *d;
    int64_t m, n, depth, lda, ldc;
    array a, w, bias, c;
    char *panels, *left;
} problem;

/* Fills k elements of x, `step` apart, with normally distributed elements of a different magnitude in each group. */
static void fill_row(array *x, int64_t first, int64_t k, int64_t step, rng *r)
{
    double size = 1;
    for (int64_t i = 0; i < k; i++) {
        if (i % GROUP == 0) size = pow(2, (double)rng_range(r, -4, 4));
        put(x, first + i * step, size * rng_normal(r));
    }
}

static void pack(problem *p, bool transposed)
{
    const int64_t bytes = (p->n + p->k->nr - 1) / p->k->nr * mha__dense_panel(p->d, p->depth);
    free(p->panels);
    p->panels = aligned_alloc(64, (size_t)(bytes + 128) / 64 * 64);
    assert_non_null(p->panels);
    memset(p->panels, 0x5a, (size_t)bytes + 1);
    p->d->pack(p->n, p->depth, (const float *)(const void *)p->w.data, transposed ? 1 : p->depth, transposed ? p->n : 1,
               p->panels);
    assert_int_equal(p->panels[bytes], 0x5a);
}

static void quantize_rows(problem *p)
{
    const int64_t row = mha__dense_left(p->d, p->depth) * p->d->left_size, bytes = p->m * row;
    const int64_t all = mha__round_up(p->m, p->d->rows) * row; /* rows from m on have any content */
    free(p->left);
    p->left = malloc((size_t)all + 1);
    assert_non_null(p->left);
    memset(p->left + bytes, 0x5a, (size_t)(all - bytes) + 1);
    p->d->left(p->m, p->depth, (const float *)(const void *)p->a.data, p->lda, p->left);
    assert_int_equal(p->left[bytes], 0x5a);
}

static problem problem_make(const mha__kernels *k, int64_t m, int64_t n, int64_t depth, rng *r)
{
    problem p = {k, k->dense[MHA__Q8], m, n, depth, depth + PAD, n + PAD + 2, .panels = NULL};
    p.a = array_make(k, (m - 1) * p.lda + depth, (int)rng_range(r, 0, 3), INPUT);
    p.w = array_make(k, n * depth, (int)rng_range(r, 0, 3), INPUT);
    p.bias = array_make(k, n, (int)rng_range(r, 0, 3), INPUT);
    p.c = array_make(k, (m - 1) * p.ldc + n, (int)rng_range(r, 0, 3), OUTPUT);
    for (int64_t i = 0; i < m; i++)
        fill_row(&p.a, i * p.lda, depth, 1, r);
    for (int64_t j = 0; j < n; j++)
        fill_row(&p.w, j * depth, depth, 1, r);
    fill(&p.bias, r);
    pack(&p, false);
    quantize_rows(&p);
    return p;
}

static void problem_free(problem *p)
{
    array_free(&p->a), array_free(&p->w), array_free(&p->bias), array_free(&p->c);
    free(p->panels), free(p->left);
}

/* Computes rows [first, first + m) and columns [column, column + n) of c = bias + product. */
static void run_part(problem *p, array *c, int64_t first, int64_t m, int64_t column, int64_t n)
{
    const int64_t row = mha__dense_left(p->d, p->depth);
    if (p->d->open) p->d->open();
    p->d->product(m, n, p->depth, p->left + first * row * p->d->left_size, row,
                  p->panels + column / p->k->nr * mha__dense_panel(p->d, p->depth), at_number(&p->bias, column), 0,
                  at_number(c, first * p->ldc + column), p->ldc);
    if (p->d->close) p->d->close();
}

/* Adds the complete product to c. */
static void run_in_place(problem *p, array *c)
{
    if (p->d->open) p->d->open();
    p->d->product(p->m, p->n, p->depth, p->left, mha__dense_left(p->d, p->depth), p->panels, at_number(c, 0), p->ldc,
                  at_number(c, 0), p->ldc);
    if (p->d->close) p->d->close();
}

/* ---- the definition ---- */

/* Quantizes n <= 128 elements of x, `step` apart. Weights have a scale in f16 and are divided by it, ties away from
 * zero; rows are multiplied by the reciprocal, ties to even. */
static float quantize(const array *x, int64_t first, int64_t step, int64_t n, bool weights, int q[GROUP])
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf((float)get(x, first + i * step)));
    float scale = largest / 127;
    if (weights) scale = mha__f16_to_f32(mha__f32_to_f16(scale));
    for (int64_t i = 0; i < n; i++) {
        const float number = (float)get(x, first + i * step);
        const float to = scale == 0 ? 0 : weights ? number / scale : number * (127 / largest);
        q[i] = (int)(weights ? roundf(to) : rintf(to));
        if (abs(q[i]) > 127) q[i] = q[i] > 0 ? 127 : -127;
    }
    return scale;
}

static bool fused(const mha__kernels *k)
{
    return strcmp(k->isa, "scalar") != 0 && strcmp(k->isa, "wasm128") != 0;
}

/* The integers and scales of the rows of A or of the weights. */
typedef struct quantized {
    int64_t depth, groups;
    int *q;
    float *scale;
} quantized;

static quantized quantize_all(const problem *p, bool weights)
{
    const int64_t rows = weights ? p->n : p->m, stride = weights ? p->depth : p->lda;
    quantized x = {p->depth, (p->depth + GROUP - 1) / GROUP, NULL, NULL};
    x.q = malloc((size_t)(rows * x.groups * GROUP) * sizeof *x.q);
    x.scale = malloc((size_t)(rows * x.groups) * sizeof *x.scale);
    assert_true(x.q && x.scale);
    for (int64_t i = 0; i < rows * x.groups; i++) {
        const int64_t from = i % x.groups * GROUP, n = p->depth - from < GROUP ? p->depth - from : GROUP;
        x.scale[i] = quantize(weights ? &p->w : &p->a, i / x.groups * stride + from, 1, n, weights, x.q + i * GROUP);
    }
    return x;
}

static float expected(const problem *p, const quantized *a, const quantized *w, int64_t i, int64_t j)
{
    float total = (float)get(&p->bias, j);
    for (int64_t g = 0; g < a->groups; g++) {
        const int64_t row = i * a->groups + g, column = j * a->groups + g;
        int64_t sum = 0;
        for (int64_t k = 0; k < GROUP && g * GROUP + k < a->depth; k++)
            sum += (int64_t)a->q[row * GROUP + k] * w->q[column * GROUP + k];
        const float scaled = (float)sum * w->scale[column];
        const float product = scaled * a->scale[row];
        total = fused(p->k) ? fmaf(scaled, a->scale[row], total) : total + product;
    }
    return total;
}

static void check(const problem *p)
{
    quantized a = quantize_all(p, false), w = quantize_all(p, true);
    for (int64_t at = 0; at < p->c.n; at++) {
        const int64_t i = at / p->ldc, j = at % p->ldc;
        const double want = j < p->n ? (double)expected(p, &a, &w, i, j) : OUTPUT, got = get(&p->c, at);
        if (got != want)
            fail_msg("%s: %lldx%lldx%lld, c[%lld][%lld]: got %.9g, expected %.9g", p->k->isa, (long long)p->m,
                     (long long)p->n, (long long)p->depth, (long long)i, (long long)j, got, want);
    }
    assert_true(guards_intact(&p->c));
    free(a.q), free(a.scale), free(w.q), free(w.scale);
}

/* ---- tests ---- */

static void for_each(void (*body)(const mha__kernels *k, rng *r), uint64_t seed)
{
    const mha__kernels *list[TABLES];
    rng r = rng_make(seed, 1);
    for (int n = tables(list); n-- > 1;)
        body(list[n], &r);
}

static void edges(const mha__kernels *k, rng *r)
{
    for (int64_t m = 1; m <= 48; m += m < 13 ? 1 : 7)
        for (int64_t n = 1; n <= 2 * k->nr + 1; n += n < k->nr - 1 && k->nr > 8 ? 5 : 1) {
            problem p = problem_make(k, m, n, m % 2 ? rng_range(r, 1, 300) : 64 * rng_range(r, 1, 4), r);
            run_part(&p, &p.c, 0, m, 0, n);
            check(&p);
            problem_free(&p);
        }
}

static void lengths(const mha__kernels *k, rng *r)
{
    static const int64_t depths[] = {1,   2,   3,   4,   5,   15,  17,  31,  33,  63,  64,   127,  128,
                                     129, 131, 192, 255, 256, 257, 512, 513, 576, 640, 1024, 1055, 1152};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++)
        for (int64_t m = 1; m <= 34; m = m < 4 ? m + 1 : m + 10) {
            problem p = problem_make(k, m, k->nr + 1, depths[i], r);
            run_part(&p, &p.c, 0, m, 0, p.n);
            check(&p);
            problem_free(&p);
        }
}

/* C computed in pieces of a few rows and one panel must be bitwise identical to C computed in one call, also if C
 * itself contains the initial values. */
static void divisions(const mha__kernels *k, rng *r)
{
    problem p = problem_make(k, 37, 3 * k->nr - 3, 333, r);
    run_part(&p, &p.c, 0, p.m, 0, p.n);
    for (int64_t rows = 1; rows <= 9; rows += 4) {
        array c = array_make(k, p.c.n, 0, OUTPUT);
        for (int64_t i = 0; i < p.m; i += rows)
            for (int64_t j = 0; j < p.n; j += k->nr)
                run_part(&p, &c, i, p.m - i < rows ? p.m - i : rows, j, p.n - j < k->nr ? p.n - j : k->nr);
        assert_true(same_bits(&p.c, &c));
        for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = 0; j < p.n; j++)
                put(&c, i * p.ldc + j, get(&p.bias, j));
        run_in_place(&p, &c);
        assert_true(same_bits(&p.c, &c));
        array_free(&c);
    }
    problem_free(&p);
}

/* With integers up to 127 and a 127 in each group, all scales are 1, and sums are the exact integers on every ISA. The
 * largest possible sums of a group, of both signs, are included: rows and columns 0 and 1 are constant. */
static void integers_of(const mha__kernels *k, int64_t m, int64_t depth, rng *r)
{
    problem p = problem_make(k, m, k->nr + 3, depth, r);
    for (int64_t i = 0; i < p.m + p.n; i++)
        for (int64_t c = 0; c < p.depth; c++) {
            const int64_t line = i < p.m ? i : i - p.m;
            const double x = line < 2 ? (line ? -127 : 127) : c % GROUP == 5 ? 127 : (double)rng_range(r, -127, 127);
            put(i < p.m ? &p.a : &p.w, i < p.m ? i * p.lda + c : line * p.depth + c, x);
        }
    for (int64_t j = 0; j < p.n; j++)
        put(&p.bias, j, 0);
    pack(&p, false), quantize_rows(&p);
    run_part(&p, &p.c, 0, p.m, 0, p.n);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            double sum = 0;
            for (int64_t c = 0; c < p.depth; c++)
                sum += get(&p.a, i * p.lda + c) * get(&p.w, j * p.depth + c);
            assert_true(get(&p.c, i * p.ldc + j) == sum);
        }
    problem_free(&p);
}

static void integers(const mha__kernels *k, rng *r)
{
    integers_of(k, 15, 200, r);
    integers_of(k, 47, 640, r);
}

/* Returns C of a random problem that depends on the sizes only. */
static array product_of(const mha__kernels *k, int64_t m, int64_t n, int64_t depth)
{
    rng r = rng_make((uint64_t)(m * n * depth), 2);
    problem p = problem_make(k, m, n, depth, &r);
    run_part(&p, &p.c, 0, m, 0, n);
    assert_true(guards_intact(&p.c));
    array c = p.c;
    p.c.memory = NULL;
    problem_free(&p);
    return c;
}

/* ISAs with fused multiply-adds must compute bitwise identical results. */
static void test_isas(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    const int count = tables(list);
    rng r = rng_make(7, 1);
    for (int test = 0; test < 60; test++) {
        const int64_t m = rng_range(&r, 1, 80), n = rng_range(&r, 1, 100);
        const int64_t depth = test % 3 ? 64 * rng_range(&r, 1, 20) : rng_range(&r, 1, 1200);
        array last = product_of(list[count - 1], m, n, depth);
        for (int isa = 1; isa < count - 1; isa++) {
            if (!fused(list[isa])) continue;
            array c = product_of(list[isa], m, n, depth);
            if (!same_bits(&c, &last))
                fail_msg("%s: %lldx%lldx%lld differs", list[isa]->isa, (long long)m, (long long)n, (long long)depth);
            array_free(&c);
        }
        array_free(&last);
    }
}

static void transposed(const mha__kernels *k, rng *r)
{
    problem p = problem_make(k, 1, 2 * k->nr + 3, 177, r);
    const int64_t bytes = 3 * mha__dense_panel(p.d, p.depth);
    char *panels = p.panels;
    array w = p.w;
    p.panels = NULL;
    p.w = array_make(k, p.n * p.depth, 1, INPUT);
    for (int64_t j = 0; j < p.n; j++)
        for (int64_t i = 0; i < p.depth; i++)
            put(&p.w, i * p.n + j, get(&w, j * p.depth + i));
    pack(&p, true);
    assert_memory_equal(panels, p.panels, (size_t)bytes);
    free(panels), array_free(&w), problem_free(&p);
}

/* A NaN or an Inf in a row of A must affect only this row of C, and an infinite weight only its column. Rows and
 * columns of zeros, and rows of elements whose reciprocal would overflow, add nothing to the bias. */
static void special_values(const mha__kernels *k, rng *r)
{
    problem p = problem_make(k, 19, k->nr + 2, 140, r);
    put(&p.a, 7 * p.lda + 39, NAN);
    put(&p.a, 9 * p.lda + 139, -INFINITY);
    put(&p.w, 3 * p.depth + 1, INFINITY);
    for (int64_t i = 0; i < p.depth; i++)
        put(&p.a, 2 * p.lda + i, 0), put(&p.a, 4 * p.lda + i, 1e-38), put(&p.w, 5 * p.depth + i, 0);
    pack(&p, false), quantize_rows(&p);
    run_part(&p, &p.c, 0, p.m, 0, p.n);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            const double c = get(&p.c, i * p.ldc + j);
            const bool valid = i != 7 && i != 9 && j != 3;
            assert_true(isfinite(c) == valid);
            if (valid && (i == 2 || i == 4 || j == 5)) assert_true(c == get(&p.bias, j));
        }
    problem_free(&p);
}

#define TEST(name, body, seed)     \
    static void name(void **state) \
    {                              \
        (void)state;               \
        for_each(body, seed);      \
    }
TEST(test_edges, edges, 1)
TEST(test_lengths, lengths, 2)
TEST(test_bits_do_not_depend_on_the_division, divisions, 3)
TEST(test_sums_are_exact_integers, integers, 4)
TEST(test_transposed_weights, transposed, 5)
TEST(test_special_values, special_values, 6)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_bits_do_not_depend_on_the_division),
        cmocka_unit_test(test_sums_are_exact_integers),
        cmocka_unit_test(test_transposed_weights),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_isas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
