/* test_base_rng.c - tests properties of the random generator that the recorded values do not cover: long streams
 * (digests of the bytes that PyTorch generates), the number of random words that each call consumes, invariants and
 * errors. */
#include "base/cpu.h"
#include "math/rng_draws.h"
#include "support/check.h"
#include "support/sha256.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 100003, FEW = 159975, PERM = 30000 };

static void same_digest(const void *x, size_t bytes, const char *want)
{
    char hex[65];
    sha256_hex(x, bytes, hex);
    assert_string_equal(hex, want);
}

/* Compares several calls on one stream with PyTorch 2.13 after torch.manual_seed(7). If a call consumes too few or too
 * many random words, all later calls differ. */
static void test_stream(void **state)
{
    (void)state;
    mha_rng rng;
    float *const x = malloc(FEW * sizeof *x);
    int64_t *const whole = malloc(MANY * sizeof *whole);
    assert_true(x != NULL && whole != NULL);
    mha_rng_manual_seed(&rng, 7);
    assert_int_equal(mha_rng_rand(&rng, x, MANY, NULL), MHA_OK);
    same_digest(x, MANY * sizeof *x, "377b2523218e8f3c413e72bc5c4072d6ce11126ff9349e64498bc8560cd448e4");
    assert_int_equal(mha_rng_uniform(&rng, -0.3, 0.7, x, MANY, NULL), MHA_OK);
    same_digest(x, MANY * sizeof *x, "d11a6aad119e739c53bbe567c1c3aff0adc90aadf2cccb461dd56d40452baa7c");
    assert_int_equal(mha_rng_randn(&rng, x, MANY, NULL), MHA_OK);
    same_digest(x, MANY * sizeof *x, "b22c15167b33112ae615a7ff9449ab7ad17b95628d04cd0e5e5b60ff0a36b162");
    assert_int_equal(mha_rng_normal(&rng, -0.2, 0.05, x, MANY, NULL), MHA_OK);
    same_digest(x, MANY * sizeof *x, "ff58ea7856510df41e288cb970373839c2d924c0f1ea8f880b2ac340c4de6de9");
    int64_t n = 0;
    for (int64_t call = 0; call < 20000; n += call % 15 + 1, call++)
        assert_int_equal(mha_rng_randn(&rng, x + n, call % 15 + 1, NULL), MHA_OK);
    assert_int_equal(n, FEW);
    same_digest(x, FEW * sizeof *x, "4a774df57bdb9f9f3555041ef5c501b5c545966d0134895c0b8a4388daff2ee6");
    assert_int_equal(mha_rng_randint(&rng, -12345, 678901234567, whole, MANY, NULL), MHA_OK);
    same_digest(whole, MANY * sizeof *whole, "f1ed435a8b4b9772d1596efc9dbba221535795ff20da337e8196f89c39bc8786");
    assert_int_equal(mha_rng_randperm(&rng, whole, PERM, NULL), MHA_OK);
    same_digest(whole, PERM * sizeof *whole, "9b8a1b2fa9f091a1582a3fb8404e6fda835e3f2d9fa2449419b23e2894469a9a");
    assert_int_equal(mha_rng_exponential(&rng, x, MANY, NULL), MHA_OK);
    same_digest(x, MANY * sizeof *x, "e4438519003f4313d9bdae17bfbfe2a40074c87ed568529c7a516fb24393d9d9");
    assert_int_equal(mha_rng_bernoulli(&rng, 0.3, MHA_RNG_ROUTE_DEFAULT, (uint8_t *)x, MANY, NULL), MHA_OK);
    same_digest(x, MANY, "609ce05239a5df3534936e80f54a80b5b86ecd0947208871efc62125c8293c64");
    for (int i = 0; i < MANY; i++)
        x[i] = (float)i;
    assert_int_equal(mha_rng_dropout(&rng, 0.1, MHA_RNG_ROUTE_DEFAULT, x, x, MANY, NULL), MHA_OK);
    same_digest(x, MANY * sizeof *x, "63b08f3e490510941f046c14288e9bcfdc2127117d41eb490c641fed69d2cbe7");
    assert_int_equal(mha_rng_linear(&rng, 300, 401, x, x + 300 * 401, NULL), MHA_OK);
    same_digest(x, sizeof *x * 300 * 401, "2b94ea5bcfe23ccd8c797d429332618156be1a75166ffb19ae8931f6d3f1ce47");
    double *const wide = (double *)(void *)whole;
    assert_int_equal(mha_rng_randn_f64(&rng, wide, MANY, NULL), MHA_OK);
    same_digest(wide, MANY * sizeof *wide, "145f1fe653c405f1c9009da1367802113766d93ea45ed8913dafeb147c6a38b6");
    assert_int_equal(mha_rng_rand(&rng, x, 1, NULL), MHA_OK);
    assert_true(x[0] == 0x1.22d6ap-4F);
    free(x);
    free(whole);
}

/* The AVX2 and the portable version must give the same normal values, including those for the smallest and the largest
 * uniform value. */
static void test_both_forms(void **state)
{
    (void)state;
    mha_rng rng;
    mha_rng_manual_seed(&rng, 13);
    for (int n = 0; n < 20000 && mha__cpu_has(MHA__AVX2); n++) {
        float x[16], y[16];
        assert_int_equal(mha_rng_rand(&rng, x, 16, NULL), MHA_OK);
        x[n % 16] = n % 3 == 0 ? 0 : 1 - 0x1p-24F;
        memcpy(y, x, sizeof y);
        mha__normal_any(x, 0.5F, 1.5F);
        mha__normal_avx2(y, 0.5F, 1.5F);
        assert_memory_equal(x, y, sizeof x);
        for (int i = 0; i < 16; i++)
            assert_true(fabsf(x[i]) < 10); /* the largest normal value is 0.5 + 1.5 sqrt(2 ln 2^24) = 9.2 */
    }
}

/* A copy of the generator must continue the stream at the same position. It includes the random words, the spare normal
 * value and the kernel selection. */
static void test_copy(void **state)
{
    (void)state;
    mha_rng rng, copy;
    float first[40], again[40];
    mha_rng_manual_seed(&rng, 3);
    assert_int_equal(mha_rng_randn(&rng, first, 5, NULL), MHA_OK);
    copy = rng;
    assert_true(rng.has_spare);
    assert_int_equal(mha_rng_randn(&rng, first, 7, NULL), MHA_OK);
    assert_int_equal(mha_rng_randn(&rng, first + 7, 33, NULL), MHA_OK);
    assert_int_equal(mha_rng_randn(&copy, again, 7, NULL), MHA_OK);
    assert_int_equal(mha_rng_randn(&copy, again + 7, 33, NULL), MHA_OK);
    assert_memory_equal(first, again, sizeof first);
    mha_rng_manual_seed(&rng, 3); /* seeding must discard the spare normal value */
    assert_true(!rng.has_spare && rng.kernels == MHA_RNG_VECTOR);
}

/* mha_rng_manual_seed must use only the low 32 bits of a seed. */
static void test_seed(void **state)
{
    (void)state;
    mha_rng a, b;
    mha_rng_manual_seed(&a, (uint64_t)-1);
    mha_rng_manual_seed(&b, UINT32_MAX);
    for (int i = 0; i < 2000; i++)
        assert_true(mha_rng_next(&a) == mha_rng_next(&b));
}

static void test_integers(void **state)
{
    (void)state;
    mha_rng rng;
    int64_t x[1000];
    mha_rng_manual_seed(&rng, 1);
    assert_int_equal(mha_rng_randint(&rng, INT64_MIN, INT64_MAX, x, 1000, NULL), MHA_OK);
    int64_t negative = 0;
    for (int i = 0; i < 1000; i++)
        negative += x[i] < 0;
    assert_in_range(negative, 400, 600);
    assert_int_equal(mha_rng_randint(&rng, INT64_MAX - 1, INT64_MAX, x, 1000, NULL), MHA_OK);
    for (int i = 0; i < 1000; i++)
        assert_true(x[i] == INT64_MAX - 1);
    assert_int_equal(mha_rng_randperm(&rng, x, 1000, NULL), MHA_OK);
    int seen[1000] = {0};
    for (int i = 0; i < 1000; i++)
        seen[x[i]]++;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(seen[i], 1);
}

/* For p = 0 and p = 1, dropout must not consume random numbers, but a Bernoulli mask must. Dropout must multiply
 * dropped elements by 0, so a dropped infinity must become NaN. */
static void test_dropout(void **state)
{
    (void)state;
    const float inf = INFINITY, x[4] = {1, -2, inf, 3};
    for (int route = MHA_RNG_ROUTE_DEFAULT; route <= MHA_RNG_ROUTE_MKL; route++) {
        mha_rng rng, before;
        float y[4];
        uint8_t keep[4];
        mha_rng_manual_seed(&rng, 5);
        before = rng;
        assert_int_equal(mha_rng_dropout(&rng, 0, (mha_rng_route)route, x, y, 4, NULL), MHA_OK);
        assert_memory_equal(x, y, sizeof x);
        assert_int_equal(mha_rng_dropout(&rng, 1, (mha_rng_route)route, x, y, 4, NULL), MHA_OK);
        assert_true(y[0] == 0 && y[1] == 0 && isnan(y[2]) && y[3] == 0);
        for (int p = 0; p <= 1; p++) {
            assert_int_equal(mha_rng_dropout_mask(&rng, p, (mha_rng_route)route, keep, 4, NULL), MHA_OK);
            assert_true(keep[0] == !p && keep[1] == !p && keep[2] == !p && keep[3] == !p);
        }
        assert_int_equal(rng.used, before.used);
        assert_int_equal(mha_rng_bernoulli(&rng, 1, (mha_rng_route)route, keep, 0, NULL), MHA_OK);
        assert_int_equal(rng.used, before.used);
        assert_int_equal(mha_rng_bernoulli(&rng, 1, (mha_rng_route)route, keep, 4, NULL), MHA_OK);
        assert_int_equal(rng.used, route == MHA_RNG_ROUTE_MKL ? 1 : 8);
        assert_true(keep[0] && keep[1] && keep[2] && keep[3]);
    }
}

/* If low and high are adjacent f32 values, half of the sums round to `high`, which is outside the range. `high` must
 * never be returned. */
static void test_narrow_uniform(void **state)
{
    (void)state;
    for (int kernels = MHA_RNG_VECTOR; kernels <= MHA_RNG_SCALAR; kernels++) {
        mha_rng rng;
        float x[1000];
        mha_rng_manual_seed(&rng, 6);
        rng.kernels = (mha_rng_kernels)kernels;
        assert_int_equal(mha_rng_uniform(&rng, 1, 1 + FLT_EPSILON, x, 1000, NULL), MHA_OK);
        for (int i = 0; i < 1000; i++)
            assert_true(x[i] == 1);
    }
}

/* PyTorch uses two formulas for the bounds of the weight and the bias of a Linear. Both must give the same f32 value,
 * so that a bias generated from the same stream position equals the weight. */
static void test_linear_bound(void **state)
{
    (void)state;
    static float weight[20000], bias[1];
    mha_rng start;
    mha_rng_manual_seed(&start, 11);
    for (int64_t in = 1; in < 20000; in += 1 + in / 64) {
        mha_rng a = start;
        float weight_only;
        assert_int_equal(mha_rng_linear(&a, in, 1, weight, bias, NULL), MHA_OK);
        const float bound = (float)(1 / sqrt((double)in));
        mha_rng b = start;
        assert_int_equal(mha_rng_uniform(&b, -bound, bound, &weight_only, 1, NULL), MHA_OK);
        assert_true(weight[0] == weight_only && fabsf(bias[0]) <= bound);
    }
}

static void test_padding_row(void **state)
{
    (void)state;
    mha_rng a, b;
    float plain[6 * 5], padded[6 * 5];
    mha_rng_manual_seed(&a, 2);
    b = a;
    assert_int_equal(mha_rng_embedding(&a, 6, 5, -1, plain, NULL), MHA_OK);
    assert_int_equal(mha_rng_embedding(&b, 6, 5, 4, padded, NULL), MHA_OK);
    for (int i = 0; i < 30; i++)
        assert_true(padded[i] == (i / 5 == 4 ? 0 : plain[i]));
    assert_true(mha_rng_next(&a) == mha_rng_next(&b));
}

/* A single selection has its own code path. It must equal the first of two selections and leave the generator in the
 * same state. */
static void test_multinomial_one(void **state)
{
    (void)state;
    enum { COUNT = 700 };
    float weights[COUNT], work[COUNT];
    mha_rng rng, one, two;
    mha_rng_manual_seed(&rng, 8);
    for (int trial = 0; trial < 300; trial++) {
        int64_t x[1], want[2];
        assert_int_equal(mha_rng_rand(&rng, weights, COUNT, NULL), MHA_OK);
        /* many zero weights, with the other weights from nearly equal to very different */
        for (int i = 0; i < COUNT; i++)
            weights[i] = i % 3 == trial % 4 ? 0 : powf(weights[i], (float)(trial % 30));
        one = two = rng;
        assert_int_equal(mha_rng_multinomial(&one, weights, COUNT, trial % 2, work, x, 1, NULL), MHA_OK);
        assert_int_equal(mha_rng_multinomial(&two, weights, COUNT, 0, work, want, 2, NULL), MHA_OK);
        assert_int_equal(x[0], want[0]);
        assert_int_equal(mha_rng_next(&one), mha_rng_next(&two));
    }
}

/* An index with weight 0 must never be selected. */
static void test_multinomial_zero(void **state)
{
    (void)state;
    mha_rng rng;
    const float weights[5] = {0, 2, 0, 1, 0};
    float work[5];
    int64_t x[300];
    mha_rng_manual_seed(&rng, 8);
    assert_int_equal(mha_rng_multinomial(&rng, weights, 5, 1, work, x, 300, NULL), MHA_OK);
    for (int i = 0; i < 300; i++)
        assert_true(x[i] == 1 || x[i] == 3);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(mha_rng_multinomial(&rng, weights, 5, 0, work, x, 2, NULL), MHA_OK);
        assert_true(x[0] + x[1] == 4 && x[0] != x[1]);
    }
}

/* Generator and outputs used by the failing calls. The error message of a failed call must state the rule and the
 * values, and the call must not consume random numbers. */
static mha_rng g;
static float f[64];
static int64_t w[64];
static uint8_t m[64];
static mha_error e;

static void said(mha_status status, const char *word, const char *value)
{
    mha_rng untouched;
    assert_int_equal(status, MHA_ERR_ARG);
    assert_int_equal(e.status, MHA_ERR_ARG);
    if (!strstr(e.message, word) || !check_has_word(e.message, value))
        fail_msg("message \"%s\" must contain %s and %s", e.message, word, value);
    mha_rng_manual_seed(&untouched, 1);
    assert_int_equal(g.used, untouched.used);
    assert_memory_equal(g.state, untouched.state, sizeof g.state);
}

static void test_refusals(void **state)
{
    (void)state;
    const float bad[3] = {1, NAN, 2}, none[3] = {0}, some[3] = {1, 0, 0};
    const int64_t huge = INT64_C(1) << 40;
    mha_rng_manual_seed(&g, 1);
    said(mha_rng_rand(NULL, f, 1, &e), "mha_rng_rand", "NULL");
    said(mha_rng_rand(&g, NULL, 7, &e), "mha_rng_rand", "7");
    said(mha_rng_rand(&g, f, -1, &e), "n must be", "-1");
    said(mha_rng_randn(&g, f, -2, &e), "mha_rng_randn", "-2");
    said(mha_rng_rand_f64(&g, NULL, 1, &e), "mha_rng_rand_f64", "1");
    said(mha_rng_randn_f64(&g, NULL, 1, &e), "mha_rng_randn_f64", "1");
    said(mha_rng_exponential(&g, f, -3, &e), "mha_rng_exponential", "-3");
    said(mha_rng_uniform(&g, 2, 1, f, 1, &e), "low and high", "2");
    said(mha_rng_uniform(&g, NAN, 1, f, 1, &e), "low", "nan");
    said(mha_rng_uniform(&g, -3e38, 3e38, f, 1, &e), "low and high", "finite");
    said(mha_rng_uniform(&g, -INFINITY, 0, f, 1, &e), "low", "0");
    said(mha_rng_normal(&g, 0, -1, f, 1, &e), "std", "-1");
    said(mha_rng_normal(&g, INFINITY, 1, f, 1, &e), "mean", "inf");
    said(mha_rng_randint(&g, 4, 4, w, 1, &e), "low must be", "4");
    said(mha_rng_randint(&g, 5, -5, w, 1, &e), "(got 5)", "-5");
    said(mha_rng_randperm(&g, w, 214748364, &e), "(got 214748364)", "214748363");
    said(mha_rng_bernoulli(&g, 1.5, MHA_RNG_ROUTE_DEFAULT, m, 1, &e), "p must be", "1.5");
    said(mha_rng_bernoulli(&g, 0.5, (mha_rng_route)2, m, 1, &e), "route", "2");
    said(mha_rng_dropout_mask(&g, -0.5, MHA_RNG_ROUTE_MKL, m, 1, &e), "mha_rng_dropout_mask", "-0.5");
    said(mha_rng_dropout(&g, NAN, MHA_RNG_ROUTE_MKL, f, f, 1, &e), "mha_rng_dropout", "nan");
    said(mha_rng_dropout(&g, 0.5, MHA_RNG_ROUTE_MKL, NULL, f, 9, &e), "mha_rng_dropout", "9");
    said(mha_rng_multinomial(&g, bad, 3, 0, f, w, 1, &e), "weights[1]", "nan");
    said(mha_rng_multinomial(&g, none, 3, 1, f, w, 2, &e), "weights must", "none");
    said(mha_rng_multinomial(&g, NULL, 0, 1, f, w, 2, &e), "weights must", "none");
    said(mha_rng_multinomial(&g, some, 3, 0, f, w, 2, &e), "(got 2)", "1");
    said(mha_rng_multinomial(&g, some, 3, 0, NULL, w, 1, &e), "mha_rng_multinomial", "3");
    said(mha_rng_linear(&g, 0, 3, f, NULL, &e), "out and in must", "(got 3, 0)");
    said(mha_rng_linear(&g, huge, huge, f, NULL, &e), "mha_rng_linear", "1099511627776");
    said(mha_rng_kaiming_uniform(&g, 2, -4, 0, f, &e), "out and in must", "(got -4, 2)");
    said(mha_rng_kaiming_uniform(&g, 2, 4, NAN, f, &e), "a must be", "nan");
    said(mha_rng_xavier_uniform(&g, 2, 4, -1, f, &e), "gain", "-1");
    said(mha_rng_embedding(&g, 3, 4, 3, f, &e), "padding", "3");
    said(mha_rng_embedding(&g, 0, 4, -1, f, &e), "rows and width must", "(got 0, 4)");
    said(mha_rng_multihead(&g, 0, f, NULL, f, NULL, &e), "3 width and width must", "(got 0, 0)");
    said(mha_rng_multihead(&g, INT64_MAX / 2, f, NULL, f, NULL, &e), "width", "4611686018427387903");
    said(mha_rng_multihead(&g, 2, f, f, f, NULL, &e), "out_bias", "NULL");
    assert_int_equal(mha_rng_rand(&g, NULL, 0, &e), MHA_OK); /* n = 0 must be accepted with NULL */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_both_forms),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_linear_bound),
        cmocka_unit_test(test_narrow_uniform),
        cmocka_unit_test(test_padding_row),
        cmocka_unit_test(test_multinomial_zero),
        cmocka_unit_test(test_multinomial_one),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
