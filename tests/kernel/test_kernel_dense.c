/* test_kernel_dense.c - tests the dense product with bf16 and f16 weights; test_kernel_int8.c tests q8_0.
 *
 * The expected value is computed in f32: the product of test_kernel_product.c with the rounded weights, or sums of
 * pairs by fmaf in the order that kernel.h specifies. Results must be bitwise identical, except where the CPU chooses
 * the order of additions; there they must agree within rounding. Sizes cover every edge of tiles and blocks. NaN
 * surrounds the inputs, and a canary value surrounds the outputs. */
#include "kernel/table.h"
#include "math/half.h"

enum { TYPES = MHA__HALVES, PAD = 3 };
static const char *const type_names[TYPES] = {"bf16", "f16"};

typedef enum begin { BEGIN_ZERO, BEGIN_BIAS, BEGIN_C, BEGINS } begin;

typedef struct problem {
    const mha__kernels *k;
    const mha__dense *d;
    int type;
    int64_t m, n, depth, lda, ldc;
    array a, w, rounded, bias, c;
    void *panels;
    uint16_t *left; /* rows of A in bf16; NULL if the kernel reads A itself */
} problem;

static int64_t blocks_of(const problem *p)
{
    return (p->depth + p->d->block - 1) / p->d->block;
}

/* Rounds one row of weights to `type` and converts it back to f32. */
static void round_row(int type, int64_t n, const float *from, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] =
            type == MHA__BF16 ? mha__bf16_to_f32(mha__f32_to_bf16(from[i])) : mha__f16_to_f32(mha__f32_to_f16(from[i]));
}

static void *panels_make(const problem *p, bool transposed)
{
    const int64_t panels = (p->n + p->k->nr - 1) / p->k->nr, bytes = panels * blocks_of(p) * p->d->block_bytes;
    char *memory = aligned_alloc(64, (size_t)(bytes + 128) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0x5a, (size_t)bytes + 1);
    array w = p->w;
    if (transposed) {
        w = array_make(p->k, p->n * p->depth, 1, INPUT);
        for (int64_t j = 0; j < p->n; j++)
            for (int64_t i = 0; i < p->depth; i++)
                put(&w, i * p->n + j, get(&p->w, j * p->depth + i));
    }
    p->d->pack(p->n, p->depth, (const float *)(const void *)w.data, transposed ? 1 : p->depth, transposed ? p->n : 1,
               memory);
    assert_int_equal(memory[bytes], 0x5a);
    if (transposed) array_free(&w);
    return memory;
}

/* Returns the left operand of the product: NULL if the kernel reads A, else the rows of A in bf16, followed by NaN. */
static uint16_t *left_make(const problem *p)
{
    if (!p->d->left) return NULL;
    /* A call that begins at the last row reads d->rows rows. */
    const int64_t row = blocks_of(p) * p->d->block, rows = p->m + p->d->rows - 1;
    uint16_t *left = malloc((size_t)(rows * row + 1) * sizeof *left);
    assert_non_null(left);
    for (int64_t i = 0; i <= rows * row; i++)
        left[i] = 0x7fc0;
    p->d->left(p->m, p->depth, (const float *)(const void *)p->a.data, p->lda, left);
    assert_true(rows == p->m || left[p->m * row] == 0x7fc0);
    return left;
}

static problem problem_make(const mha__kernels *k, int type, int64_t m, int64_t n, int64_t depth, rng *r)
{
    problem p = {k, k->dense[type], type, m, n, depth, depth + PAD, n + PAD + 2, .panels = NULL};
    p.a = array_make(k, (m - 1) * p.lda + depth, (int)rng_range(r, 0, 3), INPUT);
    p.w = array_make(k, n * depth, (int)rng_range(r, 0, 3), INPUT);
    p.rounded = array_make(k, n * depth, 0, INPUT);
    p.bias = array_make(k, n, (int)rng_range(r, 0, 3), INPUT);
    p.c = array_make(k, (m - 1) * p.ldc + n, (int)rng_range(r, 0, 3), OUTPUT);
    fill_rows(&p.a, m, depth, p.lda, r);
    fill(&p.w, r), fill(&p.bias, r);
    for (int64_t j = 0; j < n; j++)
        round_row(type, depth, (const float *)at_number(&p.w, j * depth), (float *)at_number(&p.rounded, j * depth));
    p.panels = panels_make(&p, false);
    p.left = left_make(&p);
    return p;
}

static void problem_free(problem *p)
{
    array_free(&p->a), array_free(&p->w), array_free(&p->rounded), array_free(&p->bias), array_free(&p->c);
    free(p->panels);
    free(p->left);
}

/* Computes rows [first, first + m) and columns [column, column + n) of p->c. */
static void run_part(problem *p, begin from, int64_t first, int64_t m, int64_t column, int64_t n)
{
    const int64_t row = p->left ? blocks_of(p) * p->d->block : p->lda;
    const void *a = p->left ? (const void *)(p->left + first * row) : at_number(&p->a, first * row);
    const char *panels = (const char *)p->panels + column / p->k->nr * blocks_of(p) * p->d->block_bytes;
    float *c = at_number(&p->c, first * p->ldc + column), *bias = at_number(&p->bias, column);
    if (p->d->open) p->d->open();
    p->d->product(m, n, p->depth, a, row, panels,
                  from == BEGIN_C      ? c
                  : from == BEGIN_BIAS ? bias
                                       : NULL,
                  from == BEGIN_C ? p->ldc : 0, c, p->ldc);
    if (p->d->close) p->d->close();
}

static void run(problem *p, begin from)
{
    for (int64_t i = 0; i < p->m && from == BEGIN_C; i++)
        for (int64_t j = 0; j < p->n; j++)
            put(&p->c, i * p->ldc + j, get(&p->bias, j));
    run_part(p, from, 0, p->m, 0, p->n);
}

static float left_number(const problem *p, int64_t i, int64_t kk)
{
    const float x = (float)get(&p->a, i * p->lda + kk);
    return p->left ? mha__bf16_to_f32(mha__f32_to_bf16(x)) : x;
}

/* Returns true if the kernels use tile registers, which add products in steps. */
static bool by_steps(const problem *p)
{
    return strcmp(p->k->isa, "amx") == 0;
}

/* Returns the expected C[i][j] of a product of bf16 pairs. For kernels that add in steps, it is total + (even + odd),
 * and *slack is 0. For vectors of pairs, the CPU chooses the order of the two additions and whether it rounds in
 * between. The result is then the exact sum, and *slack its tolerance. */
static double in_pairs(const problem *p, int64_t i, int64_t j, float begin, double *slack)
{
    float total = begin;
    double exact = (double)begin, sizes = fabs((double)begin);
    for (int64_t from = 0; from < p->depth; from += p->d->block) {
        float sum[2] = {0, 0};
        for (int64_t kk = from; kk < from + p->d->block && kk < p->depth; kk++) {
            const float x = left_number(p, i, kk), y = (float)get(&p->rounded, j * p->depth + kk);
            sum[kk % 2] = fmaf(x, y, sum[kk % 2]);
            exact += (double)x * (double)y;
            sizes += fabs((double)x * (double)y);
        }
        total += sum[0] + sum[1];
    }
    *slack = by_steps(p) ? 0 : 0x1p-24 * (double)p->depth * sizes;
    return by_steps(p) ? (double)total : exact;
}

/* Returns the expected C: the f32 product of A and the rounded weights. */
static array in_reals(const problem *p, begin from)
{
    const int64_t panels = (p->n + p->k->nr - 1) / p->k->nr;
    array packed = array_make(p->k, panels * p->depth * p->k->nr, 0, OUTPUT);
    array c = array_make(p->k, p->c.n, 0, OUTPUT);
    p->k->pack_rows(p->n, p->depth, p->rounded.data, p->depth, 1, packed.data);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++)
            put(&c, i * p->ldc + j, from == BEGIN_ZERO ? 0 : get(&p->bias, j));
    p->k->product(p->m, p->n, p->depth, p->a.data, p->lda, packed.data, p->depth * p->k->nr, c.data, p->ldc, c.data,
                  p->ldc);
    array_free(&packed);
    return c;
}

static void check_number(const problem *p, begin from, int64_t at, double truth, double slack)
{
    const double c = get(&p->c, at);
    if (!(c == truth || fabs(c - truth) <= slack))
        fail_msg("%s %s: %lldx%lldx%lld, begin %d, c[%lld][%lld]: got %.9g, expected %.9g", p->k->isa,
                 type_names[p->type], (long long)p->m, (long long)p->n, (long long)p->depth, (int)from,
                 (long long)(at / p->ldc), (long long)(at % p->ldc), c, truth);
}

static void check(const problem *p, begin from)
{
    array truth = in_reals(p, from);
    for (int64_t at = 0; at < p->c.n; at++) {
        const int64_t i = at / p->ldc, j = at % p->ldc;
        double want = get(&truth, at), slack = 0;
        if (p->left && i < p->m && j < p->n)
            want = in_pairs(p, i, j, from == BEGIN_ZERO ? 0 : (float)get(&p->bias, j), &slack);
        check_number(p, from, at, want, slack);
    }
    assert_true(guards_intact(&p->c));
    array_free(&truth);
}

/* Calls `body` for every f32 table and every weight type. */
static void for_each(void (*body)(const mha__kernels *k, int type, rng *r), uint64_t seed)
{
    const mha__kernels *list[TABLES];
    rng r = rng_make(seed, 1);
    for (int n = tables(list); n-- > 1;)
        for (int type = 0; type < TYPES; type++)
            body(list[n], type, &r);
}

static void edges(const mha__kernels *k, int type, rng *r)
{
    for (int64_t m = 1; m <= 49; m += m < 6 ? 1 : 1 + m % 5)
        for (int64_t n = 1; n <= 2 * k->nr + 1; n += n < k->nr - 1 && k->nr > 8 ? 5 : 1) {
            problem p = problem_make(k, type, m, n, rng_range(r, 1, 70), r);
            const begin from = (begin)rng_range(r, 0, BEGINS - 1);
            run(&p, from);
            check(&p, from);
            problem_free(&p);
        }
}

static void lengths(const mha__kernels *k, int type, rng *r)
{
    static const int64_t depths[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1024, 1055};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++)
        for (int64_t m = 1; m <= 33; m += 16)
            for (begin from = 0; from < BEGINS; from++) {
                problem p = problem_make(k, type, m, k->nr + 1, depths[i], r);
                run(&p, from);
                check(&p, from);
                problem_free(&p);
            }
}

/* More rows and columns than a block of any kernel has, in one chunk of k and in several; k = 0 only initializes C. */
static void blocks(const mha__kernels *k, int type, rng *r)
{
    static const int64_t sizes[][3] = {{33, 70, 0}, {69, 300, 33}, {33, 70, 545}}; /* m, n, k */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (begin from = 0; from < BEGINS; from++) {
            problem p = problem_make(k, type, sizes[i][0], sizes[i][1], sizes[i][2], r);
            run(&p, from);
            check(&p, from);
            problem_free(&p);
        }
}

/* C computed in pieces of a few rows and one panel must be bitwise identical to C computed in one call. */
static void cuts_of(const mha__kernels *k, int type, int64_t m, int64_t columns, int64_t depth, rng *r)
{
    problem p = problem_make(k, type, m, columns, depth, r);
    run(&p, BEGIN_BIAS);
    array whole = p.c;
    for (int64_t rows = 1; rows <= 5; rows += 2) {
        p.c = array_make(k, whole.n, 0, OUTPUT);
        for (int64_t i = 0; i < p.m; i += rows)
            for (int64_t j = 0; j < p.n; j += k->nr)
                run_part(&p, BEGIN_BIAS, i, p.m - i < rows ? p.m - i : rows, j, p.n - j < k->nr ? p.n - j : k->nr);
        assert_true(same_bits(&whole, &p.c));
        array_free(&p.c);
    }
    p.c = whole;
    problem_free(&p);
}

/* With tiles, a strip has 256 columns, rows form blocks of 32, and k is divided into chunks of 256 if it exceeds 384;
 * here, the last chunks have 1 and 2 steps. */
static void cuts(const mha__kernels *k, int type, rng *r)
{
    cuts_of(k, type, 37, 3 * k->nr - 3, 333, r);
    cuts_of(k, type, 69, 300, 60, r);
    cuts_of(k, type, 37, 549, 545, r);
    cuts_of(k, type, 37, 300, 801, r);
}

static void transposed(const mha__kernels *k, int type, rng *r)
{
    problem p = problem_make(k, type, 1, 2 * k->nr + 3, 77, r);
    void *panels = panels_make(&p, true);
    const int64_t bytes = 3 * blocks_of(&p) * p.d->block_bytes;
    assert_memory_equal(panels, p.panels, (size_t)bytes);
    free(panels);
    problem_free(&p);
}

/* A NaN in row 7 of A must affect only row 7 of C. An infinite weight of column 3 must affect only column 3. */
static void poison(const mha__kernels *k, int type, rng *r)
{
    problem p = problem_make(k, type, 19, k->nr + 2, 40, r);
    put(&p.a, 7 * p.lda + 39, NAN);
    put(&p.w, 3 * p.depth + 1, INFINITY);
    free(p.panels), free(p.left);
    p.panels = panels_make(&p, false);
    p.left = left_make(&p);
    run(&p, BEGIN_BIAS);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++)
            assert_true(isfinite(get(&p.c, i * p.ldc + j)) == (i != 7 && j != 3));
    problem_free(&p);
}

static void test_edges(void **state)
{
    (void)state;
    for_each(edges, 1);
}

static void test_lengths(void **state)
{
    (void)state;
    for_each(lengths, 2);
}

static void test_blocks(void **state)
{
    (void)state;
    for_each(blocks, 6);
}

static void test_bits_do_not_depend_on_the_division(void **state)
{
    (void)state;
    for_each(cuts, 3);
}

static void test_transposed_weights(void **state)
{
    (void)state;
    for_each(transposed, 4);
}

static void test_poison_stays_in_its_row(void **state)
{
    (void)state;
    for_each(poison, 5);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_bits_do_not_depend_on_the_division),
        cmocka_unit_test(test_transposed_weights),
        cmocka_unit_test(test_poison_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
