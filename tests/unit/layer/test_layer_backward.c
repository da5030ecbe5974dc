/* test_layer_backward.c - compares gradients of linear layers and embeddings with loops in double, for f32 and f64,
 * both storage orders of a weight, and any combination of absent arguments. */
#include "layer/linear/linear.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 40 * 70 };

/* An array of f32 or f64 elements, with access functions for both types. */
typedef struct numbers {
    mha_dtype dtype;
    double wide[MAX];
    float narrow[MAX];
} numbers;

static void *raw(numbers *n)
{
    return n->dtype == MHA_F64 ? (void *)n->wide : (void *)n->narrow;
}

static double at(const numbers *n, int64_t i)
{
    return n->dtype == MHA_F64 ? n->wide[i] : (double)n->narrow[i];
}

static void draw(numbers *n, mha_dtype dtype, uint64_t stream)
{
    float *values = random_floats(99, stream, MAX, 1, 0);
    n->dtype = dtype;
    for (int64_t i = 0; i < MAX; i++)
        n->wide[i] = (double)(n->narrow[i] = values[i]);
    free(values);
}

static void near(const numbers *got, int64_t i, double want, double size, const char *what)
{
    const double limit = (got->dtype == MHA_F64 ? 0x1p-52 : 0x1p-23) * 80 * (size + 1e-30);
    if (!(fabs(at(got, i) - want) <= limit))
        fail_msg("%s[%d]: got %.9g, expected %.9g, limit %g", what, (int)i, at(got, i), want, limit);
}

typedef struct shape {
    int64_t rows, in, out;
    bool transposed;
} shape;

static int64_t weight_at(const shape *s, int64_t o, int64_t k)
{
    return s->transposed ? k * s->out + o : o * s->in + k;
}

static void check_dx(const shape *s, const numbers *w, const numbers *dy, const numbers *dx)
{
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t k = 0; k < s->in; k++) {
            double sum = 0, size = 0;
            for (int64_t o = 0; o < s->out; o++) {
                sum += at(dy, r * s->out + o) * at(w, weight_at(s, o, k));
                size += fabs(at(dy, r * s->out + o) * at(w, weight_at(s, o, k)));
            }
            near(dx, r * s->in + k, sum, size, "dx");
        }
}

/* Compares dweight and dbias with sums in double. The layer must add its gradients to the elements of `before`. */
static void check_dw(const shape *s, const numbers *x, const numbers *dy, const numbers *before, const numbers *dw,
                     const numbers *db)
{
    for (int64_t o = 0; o < s->out; o++) {
        double bias = at(before, o), bias_size = fabs(bias);
        for (int64_t r = 0; r < s->rows; r++) {
            bias += at(dy, r * s->out + o);
            bias_size += fabs(at(dy, r * s->out + o));
        }
        near(db, o, bias, bias_size, "dbias");
        for (int64_t k = 0; k < s->in; k++) {
            double sum = at(before, weight_at(s, o, k)), size = fabs(sum);
            for (int64_t r = 0; r < s->rows; r++) {
                sum += at(dy, r * s->out + o) * at(x, r * s->in + k);
                size += fabs(at(dy, r * s->out + o) * at(x, r * s->in + k));
            }
            near(dw, weight_at(s, o, k), sum, size, "dweight");
        }
    }
}

static void check_shape(mha_ctx *ctx, mha_dtype dtype, const shape *s)
{
    static numbers x, w, dy, dx, dw, db, before;
    draw(&x, dtype, 1);
    draw(&w, dtype, 2);
    draw(&dy, dtype, 3);
    draw(&dx, dtype, 4);
    draw(&before, dtype, 5);
    dw = db = before;
    const mha__linear_grad g = {.slot = {.dtype = dtype,
                                         .weight = raw(&w),
                                         .transposed = s->transposed,
                                         .dweight = raw(&dw),
                                         .dbias = raw(&db)},
                                .rows = s->rows,
                                .in = s->in,
                                .out = s->out,
                                .x = raw(&x),
                                .dy = raw(&dy),
                                .dx = raw(&dx)};
    assert_int_equal(mha__linear_backward(ctx, &g, NULL), MHA_OK);
    check_dx(s, &w, &dy, &dx);
    check_dw(s, &x, &dy, &before, &dw, &db);
}

static void test_against_double(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 3, 17, 40}, sizes[] = {1, 5, 16, 33, 70};
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 5; i++)
            for (int o = 0; o < 5; o++) {
                if (sizes[i] * sizes[o] > MAX) continue;
                const shape plain = {rows[r], sizes[i], sizes[o], false}, turned = {rows[r], sizes[i], sizes[o], true};
                check_shape(NULL, MHA_F32, &plain);
                check_shape(NULL, MHA_F32, &turned);
                check_shape(NULL, MHA_F64, &plain);
                check_shape(NULL, MHA_F64, &turned);
            }
}

/* Compares a matrix product with a reference in double. The product is so large that its operands are packed in several
 * blocks. */
static void check_product(int64_t m, int64_t n, int64_t k, bool turned)
{
    float *a = random_floats(7, 1, m * k, 1, 0), *b = random_floats(7, 2, k * n, 1, 0);
    float *c = random_floats(7, 3, m * n, 1, 0);
    const mha__matmul p = {.dtype = MHA_F32,
                           .m = m,
                           .n = n,
                           .k = k,
                           .a = a,
                           .a_row = turned ? 1 : k,
                           .a_col = turned ? m : 1,
                           .b = b,
                           .b_row = turned ? n : 1,
                           .b_col = turned ? 1 : k,
                           .c = c,
                           .c_row = n};
    assert_int_equal(mha__matmul_run(NULL, &p, NULL), MHA_OK);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (int64_t t = 0; t < k; t++) {
                const double term = (double)a[i * p.a_row + t * p.a_col] * (double)b[t * p.b_row + j * p.b_col];
                sum += term;
                size += fabs(term);
            }
            if (!(fabs((double)c[i * n + j] - sum) <= 0x1p-20 * size))
                fail_msg("c[%d, %d]: got %.9g, expected %.9g", (int)i, (int)j, (double)c[i * n + j], sum);
        }
    free(a);
    free(b);
    free(c);
}

static void test_blocks_of_operands(void **state)
{
    (void)state;
    check_product(3, 1400, 1600, false); /* k is divided into blocks of 768 */
    check_product(3, 1400, 1600, true);
    check_product(1500, 5, 800, true); /* with panels of 32 columns, rows are divided into blocks of 1312 */
}

/* Compares the backward pass of a linear layer with a reference in double. The layer computes selected parts of its
 * output from selected columns of its input. */
static void test_parts_and_inputs(void **state)
{
    (void)state;
    enum { ROWS = 7, IN = 12, OUT = 5, PARTS = 3 };
    static numbers x, w, y;
    draw(&x, MHA_F64, 1);
    draw(&w, MHA_F64, 2);
    draw(&y, MHA_F64, 3);
    mha__matrix parts[PARTS];
    for (int p = 0; p < PARTS; p++)
        parts[p] = (mha__matrix){.weight = w.wide + p * IN * OUT, .out = OUT};
    mha_linear *linear = NULL;
    assert_int_equal(mha__linear_create(NULL, MHA_F64, IN, parts, PARTS, MHA_ACT_NONE, &linear, NULL), MHA_OK);
    static const uint8_t wanted[PARTS] = {1, 0, 1};
    numbers before = y;
    mha__linear_run(linear, &(mha__linear_call){.x = x.wide,
                                                .x_stride = 20,
                                                .rows = ROWS,
                                                .y = y.wide,
                                                .parts = wanted,
                                                .first = 4,
                                                .depth = 8,
                                                .accumulate = true});
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < PARTS * OUT; c++) {
            double want = before.wide[r * PARTS * OUT + c];
            for (int64_t k = 0; wanted[c / OUT] && k < 8; k++)
                want += x.wide[r * 20 + k] * w.wide[c * IN + 4 + k];
            near(&y, r * PARTS * OUT + c, want, 10, "y");
        }
    mha_linear_free(linear);
}

static void test_public_header(void **state)
{
    (void)state;
    const float w[6] = {1, 2, 3, 4, 5, 6}, x[3] = {1, 0, -1}, dy[2] = {2, 3};
    float dx[3], dw[6] = {0}, db[2] = {10, 20};
    mha_linear_gradient g = {.size = sizeof g, .rows = 1, .in = 3, .matrix = {.weight = w, .out = 2}};
    g.x = x, g.dy = dy, g.dx = dx, g.dweight = dw, g.dbias = db;
    assert_int_equal(mha_linear_backward(NULL, &g, NULL), MHA_OK);
    const float want_dx[3] = {14, 19, 24}, want_dw[6] = {2, 0, -2, 3, 0, -3}, want_db[2] = {12, 23};
    assert_memory_equal(dx, want_dx, sizeof dx);
    assert_memory_equal(db, want_db, sizeof db);
    for (int i = 0; i < 6; i++)
        assert_true(dw[i] == want_dw[i]);
    mha_error err;
    g.rows = -1;
    assert_int_equal(mha_linear_backward(NULL, &g, &err), MHA_ERR_ARG);
    assert_non_null(
        strstr(err.message,
               "rows must be at least 0, in and matrix.out from 1 to 2^31-1, and all must fit in memory (got -1"));
    g.rows = 1, g.x = NULL;
    assert_int_equal(mha_linear_backward(NULL, &g, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "x must not be NULL with dweight"));
    g.dweight = NULL;
    assert_int_equal(mha_linear_backward(NULL, &g, NULL), MHA_OK);
    g.matrix.weight = NULL;
    assert_int_equal(mha_linear_backward(NULL, &g, &err), MHA_ERR_ARG);
    g.dx = NULL, g.rows = 0, g.dy = NULL;
    assert_int_equal(mha_linear_backward(NULL, &g, NULL), MHA_OK);
}

static void test_embedding(void **state)
{
    (void)state;
    const int32_t ids[3] = {2, 0, 2}, wrong[1] = {3};
    const float dy[6] = {1, 2, 3, 4, 5, 6};
    float dtable[6] = {100, 0, 0, 0, 0, 0};
    assert_int_equal(mha_embedding_backward("ids", dtable, 3, 2, ids, 3, dy, NULL), MHA_OK);
    const float want[6] = {103, 4, 0, 0, 6, 8};
    assert_memory_equal(dtable, want, sizeof want);
    mha_error err;
    assert_int_equal(mha_embedding_backward("ids", dtable, 3, 2, wrong, 1, dy, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "ids[0] must be from 0 to 2 (got 3)");
    assert_memory_equal(dtable, want, sizeof want);
}

/* If an allocation fails, the backward pass must return MHA_ERR_MEMORY with a message and free its memory. */
static void test_starvation(void **state)
{
    (void)state;
    counting counts = {0};
    mha_ctx *ctx = NULL;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&counts)};
    atomic_store(&counts.budget, -1);
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long live = atomic_load(&counts.live);
    atomic_store(&counts.budget, 0);
    float w[4] = {1, 2, 3, 4}, dy[2] = {1, 1}, dx[2];
    mha_linear_gradient g = {.size = sizeof g, .rows = 1, .in = 2, .matrix = {.weight = w, .out = 2}};
    g.dy = dy, g.dx = dx;
    mha_error err;
    assert_int_equal(mha_linear_backward(ctx, &g, &err), MHA_ERR_MEMORY);
    assert_int_equal(atomic_load(&counts.live), live);
    atomic_store(&counts.budget, -1);
    assert_int_equal(mha_linear_backward(ctx, &g, &err), MHA_OK);
    mha_ctx_free(ctx);
}

/* Callback: counts its calls and cancels call number *user. */
static int called;

static int between(void *user, int64_t begun, int64_t total)
{
    assert_true(begun == 1 && total == 1);
    return ++called == *(const int *)user;
}

static void test_between_products(void **state)
{
    (void)state;
    int last = 0;
    mha_ctx *ctx = NULL;
    mha_error err;
    const mha_ctx_options options = {
        .size = sizeof options, .threads = 1, .between_tiles = between, .between_tiles_user = &last};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const float w[4] = {1, 2, 3, 4}, x[2] = {1, 1}, dy[2] = {1, 1};
    float dx[2], dw[4] = {0};
    mha_linear_gradient g = {.size = sizeof g, .rows = 1, .in = 2, .matrix = {.weight = w, .out = 2}};
    g.x = x, g.dy = dy, g.dx = dx, g.dweight = dw;
    assert_int_equal(mha_linear_backward(ctx, &g, &err), MHA_OK);
    assert_int_equal(called, 2);
    last = 3;
    assert_int_equal(mha_linear_backward(ctx, &g, &err), MHA_ERR_CANCELED);
    assert_int_equal(called, 3);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_double),   cmocka_unit_test(test_blocks_of_operands),
        cmocka_unit_test(test_parts_and_inputs), cmocka_unit_test(test_public_header),
        cmocka_unit_test(test_embedding),        cmocka_unit_test(test_starvation),
        cmocka_unit_test(test_between_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
