/* test_kernel_math.c - compares exp (in probs), tanh and erfc (in GELU) with libm in double, within the error bounds
 * stated in vector_math.inc. Also tests the activations and norms, which process rows of a layer. */
#include "kernel/table.h"
#include <float.h>

enum { COUNT = 4096 };
static float x[COUNT], y[COUNT];

/* Returns the error of `got`, in units in the last place of `truth`. */
static double ulps(double got, double truth)
{
    int exponent;
    if (got == truth) return 0;
    frexp(truth, &exponent);
    return fabs(got - truth) / ldexp(1, exponent - 24);
}

/* Sets y = exp(x) for the first `count` elements, computed as probabilities with a maximum of 0 and a sum of 1. */
static void take_exp(const mha__kernels *t, int64_t count)
{
    static const float zeros[MHA__KEY_BLOCK];
    float ones[MHA__KEY_BLOCK];
    for (int i = 0; i < MHA__KEY_BLOCK; i++)
        ones[i] = 1;
    memcpy(y, x, sizeof y);
    for (int64_t i = 0; i < count; i += t->nr)
        t->probs(1, t->nr, zeros, ones, y + i);
}

static void take_tanh(const mha__kernels *t, int64_t count)
{
    memcpy(y, x, sizeof y);
    t->map[MHA__TANH](y, count);
}

static void take_gelu(const mha__kernels *t, int64_t count)
{
    memcpy(y, x, sizeof y);
    t->map[MHA__GELU_ERF](y, count);
}

typedef void (*function)(const mha__kernels *t, int64_t count);

/* For each f32 table, fills x with evenly spaced values and with random values from `low` to `high`, calls `take`,
 * which computes y from x, and calls `check`. */
static void for_numbers(double low, double high, function take, void (*check)(const mha__kernels *t))
{
    const mha__kernels *list[TABLES];
    for (int n = tables(list); n-- > 1;) {
        rng r = rng_make(3, 1);
        for (int round = 0; round < 40; round++) {
            for (int i = 0; i < COUNT; i++)
                x[i] = (float)(low + (high - low) * (round == 0 ? (double)i / (COUNT - 1) : rng_uniform(&r)));
            take(list[n], COUNT);
            check(list[n]);
        }
    }
}

/* Returns true for the x86 kernels, which store ln 2 as one float, with a relative error of 2.7e-9. */
static bool has_table(const mha__kernels *t)
{
    return strcmp(t->isa, "scalar") != 0 && strcmp(t->isa, "neon") != 0 && strcmp(t->isa, "wasm128") != 0;
}

static void check_exp(const mha__kernels *t)
{
    for (int i = 0; i < COUNT; i++) {
        const double truth = exp((double)x[i]);
        const double max = 1.5 + (has_table(t) ? 2.7e-9 * 0x1p24 * fabs((double)x[i]) : 0);
        if (truth < FLT_MIN ? y[i] != 0 && ulps((double)y[i], truth) > max : ulps((double)y[i], truth) > max)
            fail_msg("%s: exp(%.9g): got %.9g, expected %.9g", t->isa, (double)x[i], (double)y[i], truth);
        assert_true(y[i] == 0 || y[i] >= FLT_MIN);
    }
}

static void test_exp(void **state)
{
    (void)state;
    for_numbers(-110, 0, take_exp, check_exp);
    for_numbers(-1, 0, take_exp, check_exp);
    for_numbers(-1e-6, 0, take_exp, check_exp);
}

static void check_tanh(const mha__kernels *t)
{
    for (int i = 0; i < COUNT; i++)
        if (ulps((double)y[i], tanh((double)x[i])) > 2.5)
            fail_msg("%s: tanh(%.9g): got %.9g, expected %.9g", t->isa, (double)x[i], (double)y[i], tanh((double)x[i]));
}

static void test_tanh(void **state)
{
    (void)state;
    for_numbers(-12, 12, take_tanh, check_tanh);
    for_numbers(-1, 1, take_tanh, check_tanh);
    for_numbers(-1e-3, 1e-3, take_tanh, check_tanh);
}

/* Returns the error bound of erfc(u). Without a fused multiply-add, the rounding error of u^2 (see vector_math.inc)
 * increases it; with the ln 2 of the x86 kernels, the error of exp(-u^2) increases it. */
static double erfc_error(const mha__kernels *t, double u)
{
    return 5e-7 + (strcmp(t->isa, "scalar") == 0 ? 6e-8 : has_table(t) ? 2.7e-9 : 0) * u * u;
}

/* Checks erfc through gelu(x) = x / 2 * erfc(-x / sqrt(2)): for x < 0, the relative error of gelu is that of erfc. */
static void check_erfc(const mha__kernels *t)
{
    for (int i = 0; i < COUNT; i++) {
        const double u = -(double)x[i] * sqrt(0.5), truth = 0.5 * (double)x[i] * erfc(u);
        if (!(fabs((double)y[i] - truth) <= (2e-7 + erfc_error(t, u)) * fabs(truth) + 1e-35))
            fail_msg("%s: gelu(%.9g): got %.9g, expected %.9g", t->isa, (double)x[i], (double)y[i], truth);
    }
}

static void test_erfc(void **state)
{
    (void)state;
    for_numbers(-13, 0, take_gelu, check_erfc);
    for_numbers(-1, 0, take_gelu, check_erfc);
}

static void test_special_values(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    const float in[] = {0.0f, -0.0f, -INFINITY, INFINITY, NAN, -87.4f, -1e30f, 30.0f, -30.0f};
    for (int n = tables(list); n-- > 1;) {
        memset(x, 0, sizeof x);
        memcpy(x, in, sizeof in);
        take_exp(list[n], 9);
        assert_true(y[0] == 1 && y[1] == 1 && y[2] == 0 && y[5] == 0 && y[6] == 0 && isnan(y[4]));
        take_tanh(list[n], 9);
        assert_true(y[0] == 0 && y[1] == 0 && signbit(y[1]) && y[2] == -1 && y[3] == 1 && isnan(y[4]));
        assert_true(y[7] == 1 && y[8] == -1);
        take_gelu(list[n], 9);
        assert_true(y[0] == 0 && y[3] == INFINITY && isnan(y[4]) && y[7] == 30 && y[8] == 0);
    }
}

/* Tests both forms of GELU at every length up to three vectors; elements after the end must stay unchanged. GELU must
 * keep its relative accuracy for negative x, where 1 + erf(x / sqrt(2)) would lose it by cancellation. */
static void test_gelu(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(3, 2);
    for (int n = tables(list); n-- > 1;) {
        const mha__kernels *t = list[n];
        for (int64_t count = 0; count <= 3 * t->vl + 1; count++) {
            array a = array_make(t, count, 1, OUTPUT), b = array_make(t, count, 2, OUTPUT);
            double in[64];
            for (int64_t i = 0; i < count; i++) {
                in[i] = (double)(float)(4 * rng_normal(&r));
                put(&a, i, in[i]);
                put(&b, i, in[i]);
            }
            t->map[MHA__GELU_ERF]((float *)a.data, count);
            t->map[MHA__GELU_TANH]((float *)b.data, count);
            for (int64_t i = 0; i < count; i++) {
                const double exact = 0.5 * in[i] * erfc(-in[i] * sqrt(0.5));
                const double y = sqrt(2 / acos(-1)) * (in[i] + 0.044715 * in[i] * in[i] * in[i]);
                const double approximate = in[i] / (1 + exp(-2 * y));
                assert_true(fabs(get(&a, i) - exact) <=
                            (2e-7 + erfc_error(t, in[i] * sqrt(0.5))) * fabs(exact) + 1e-36);
                assert_true(fabs(get(&b, i) - approximate) <= fabs(approximate) * (4e-7 + 4e-7 * fabs(y)) + 1e-37);
            }
            assert_true(guards_intact(&a) && guards_intact(&b));
            array_free(&a);
            array_free(&b);
        }
    }
}

/* The results of an activation and of its derivative must be the same for an element at any position in a row. */
static void check_map(const mha__kernels *t, int map, int64_t n, rng *r)
{
    array y = array_make(t, n, 1, OUTPUT), x = array_make(t, n, 2, INPUT), dy = array_make(t, n, 3, INPUT);
    array dx = array_make(t, n, 0, OUTPUT);
    fill(&x, r), fill(&dy, r);
    for (int64_t i = 0; i < n; i++)
        put(&y, i, get(&x, i));
    t->map[map]((float *)y.data, n);
    t->map_back[map]((const float *)x.data, (const float *)dy.data, n, (float *)dx.data);
    for (int64_t i = 0; i < n; i++) {
        float one = (float)get(&x, i), slope;
        const float upper = (float)get(&dy, i);
        t->map_back[map](&one, &upper, 1, &slope);
        t->map[map](&one, 1);
        assert_true((double)one == get(&y, i) && (double)slope == get(&dx, i));
    }
    assert_true(guards_intact(&y) && guards_intact(&dx));
    array_free(&y), array_free(&x), array_free(&dy), array_free(&dx);
}

static void test_maps(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(3, 4);
    for (int n = tables(list); n-- > 1;)
        for (int map = 0; map < MHA__MAPS; map++)
            for (int64_t count = 0; count <= 3 * list[n]->vl + 1; count++)
                check_map(list[n], map, count, &r);
}

static void check_layer_norm(const mha__kernels *t, int64_t n, rng *r)
{
    array in = array_make(t, n, (int)rng_range(r, 0, 3), INPUT), w = array_make(t, n, 1, INPUT);
    array b = array_make(t, n, 2, INPUT), y = array_make(t, n, 3, OUTPUT);
    const double shift = rng_normal(r), eps = 1e-5;
    double mean = 0, variance = 0;
    fill(&in, r), fill(&w, r), fill(&b, r);
    for (int64_t i = 0; i < n; i++)
        put(&in, i, get(&in, i) + shift);
    for (int64_t i = 0; i < n; i++)
        mean += get(&in, i) / (double)n;
    for (int64_t i = 0; i < n; i++)
        variance += (get(&in, i) - mean) * (get(&in, i) - mean) / (double)n;
    t->layer_norm((float *)in.data, n, (float *)w.data, (float *)b.data, (float)eps, (float *)y.data);
    for (int64_t i = 0; i < n; i++) {
        const double scale = 1 / sqrt(variance + (double)(float)eps);
        const double z = (get(&in, i) - mean) * scale * get(&w, i), truth = z + get(&b, i);
        const double floor = 1e-6 * (fabs(z) + fabs(get(&b, i)) + scale * fabs(get(&w, i)) * (1 + fabs(mean)));
        assert_true(fabs(get(&y, i) - truth) <= floor);
    }
    assert_true(guards_intact(&y));
    /* the result must be bitwise identical if it is computed in place */
    t->layer_norm((float *)in.data, n, (float *)w.data, (float *)b.data, (float)eps, (float *)in.data);
    assert_true(same_bits(&in, &y));
    array_free(&in), array_free(&w), array_free(&b), array_free(&y);
}

static void check_rms_norm(const mha__kernels *t, int64_t n, rng *r)
{
    array in = array_make(t, n, (int)rng_range(r, 0, 3), INPUT), w = array_make(t, n, 1, INPUT);
    array y = array_make(t, n, 3, OUTPUT);
    double square = 0;
    fill(&in, r), fill(&w, r);
    for (int64_t i = 0; i < n; i++)
        square += get(&in, i) * get(&in, i) / (double)n;
    t->rms_norm((float *)in.data, n, (float *)w.data, 1e-5f, (float *)y.data);
    for (int64_t i = 0; i < n; i++) {
        const double truth = get(&in, i) / sqrt(square + (double)1e-5f) * get(&w, i);
        assert_true(fabs(get(&y, i) - truth) <= 1e-6 * fabs(truth) + 1e-30);
    }
    assert_true(guards_intact(&y));
    /* the result must be bitwise identical if it is computed in place */
    t->rms_norm((float *)in.data, n, (float *)w.data, 1e-5f, (float *)in.data);
    assert_true(same_bits(&in, &y));
    array_free(&in), array_free(&w), array_free(&y);
}

/* Compares the backward pass of the norm with its formula. Overwriting dy and adding to dx must give the same
 * values. */
static void check_norm_back(const mha__kernels *t, int64_t n, bool centred, rng *r)
{
    array in = array_make(t, n, (int)rng_range(r, 0, 3), INPUT), w = array_make(t, n, 1, INPUT);
    array dy = array_make(t, n, 2, INPUT), dx = array_make(t, n, 3, OUTPUT), sum = array_make(t, n, 1, OUTPUT);
    double mean = 0, square = 0, g = 0, gz = 0, size = 0;
    fill(&in, r), fill(&w, r), fill(&dy, r);
    for (int64_t i = 0; centred && i < n; i++)
        mean += get(&in, i) / (double)n;
    for (int64_t i = 0; i < n; i++)
        square += (get(&in, i) - mean) * (get(&in, i) - mean) / (double)n;
    const double scale = 1 / sqrt(square + 1e-5);
    for (int64_t i = 0; i < n; i++) {
        const double one = get(&w, i) * get(&dy, i), z = (get(&in, i) - mean) * scale;
        g += centred ? one / (double)n : 0;
        gz += one * z / (double)n;
        size += (fabs(one) + fabs(one * z)) / (double)n;
    }
    const mha__norm_terms terms = t->norm_terms((float *)in.data, n, 1e-5f, centred);
    assert_true(fabs((double)terms.mean - mean) < 1e-6 && fabs((double)terms.scale - scale) < 2e-6 * scale);
    float *const x = (float *)in.data, *const weight = (float *)w.data;
    t->norm_back(x, (float *)dy.data, n, weight, terms, centred, false, (float *)dx.data);
    for (int64_t i = 0; i < n; i++) {
        const double z = (get(&in, i) - mean) * scale, one = get(&w, i) * get(&dy, i);
        const double truth = (one - g - z * gz) * scale;
        assert_true(fabs(get(&dx, i) - truth) <= 3e-6 * scale * (fabs(one) + size * (1 + fabs(z))));
        put(&sum, i, 1);
    }
    assert_true(guards_intact(&dx));
    t->norm_back(x, (float *)dy.data, n, weight, terms, centred, true, (float *)sum.data);
    for (int64_t i = 0; i < n; i++)
        assert_true(((float *)sum.data)[i] == 1 + ((float *)dx.data)[i]);
    t->norm_back(x, (float *)dy.data, n, weight, terms, centred, false, (float *)dy.data);
    assert_true(same_bits(&dy, &dx));
    array_free(&in), array_free(&w), array_free(&dy), array_free(&dx), array_free(&sum);
}

static void test_norms(void **state)
{
    (void)state;
    const mha__kernels *list[TABLES];
    rng r = rng_make(3, 3);
    for (int n = tables(list); n-- > 1;)
        for (int64_t width = 2; width <= 2 * list[n]->vl + 2; width++) {
            check_layer_norm(list[n], width, &r);
            check_layer_norm(list[n], 384 + width, &r);
            check_rms_norm(list[n], width, &r);
            check_rms_norm(list[n], 384 + width, &r);
            for (int centred = 0; centred < 2; centred++) {
                check_norm_back(list[n], width, centred, &r);
                check_norm_back(list[n], 384 + width, centred, &r);
            }
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),   cmocka_unit_test(test_tanh), cmocka_unit_test(test_erfc),
        cmocka_unit_test(test_gelu),  cmocka_unit_test(test_maps), cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
