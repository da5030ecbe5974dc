/* test_torch_rng.c - compares the random generator with values recorded from PyTorch (data/torch-rng.json). All values
 * must be bitwise identical: every entry of the file, for its four seeds, both kinds of kernels, and both masks. */
#include "mha/rng.h"
#include "support/check.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 256, NAMES = 3 };
static json_t *recorded;
static int64_t compared; /* number of compared elements */

/* A kind of entry. `draw` generates the elements of all named tensors in sequence, as doubles, which represent each
 * float and integer in the file exactly; `n` is the number of recorded elements. */
typedef struct kind {
    const char *key;
    void (*draw)(mha_rng *rng, const json_t *entry, int64_t n, double *out);
    const char *tensors[NAMES];
} kind;

static void widen(const float *x, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i];
}

static double number(const json_t *entry, const char *key)
{
    const json_t *value = json_object_get(entry, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void draw_rand(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    float x[MAX];
    assert_int_equal(mha_rng_rand(rng, x, n, NULL), MHA_OK);
    widen(x, n, out);
}

static void draw_rand_f64(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    assert_int_equal(mha_rng_rand_f64(rng, out, n, NULL), MHA_OK);
}

static void draw_uniform(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    float x[MAX];
    assert_int_equal(mha_rng_uniform(rng, number(entry, "lo"), number(entry, "hi"), x, n, NULL), MHA_OK);
    widen(x, n, out);
}

static void draw_randn(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    float x[MAX];
    assert_int_equal(mha_rng_randn(rng, x, n, NULL), MHA_OK);
    widen(x, n, out);
}

static void draw_randn_f64(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    assert_int_equal(mha_rng_randn_f64(rng, out, n, NULL), MHA_OK);
}

static void draw_normal(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    float x[MAX];
    assert_int_equal(mha_rng_normal(rng, 0.1, 0.02, x, n, NULL), MHA_OK);
    widen(x, n, out);
}

static void draw_mixture(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    assert_int_equal(n, 5 + 3 + 2 + 16 + 2);
    draw_randn(rng, entry, 5, out);
    draw_randn(rng, entry, 3, out + 5);
    draw_rand(rng, entry, 2, out + 8);
    draw_randn(rng, entry, 16, out + 10);
    draw_randn(rng, entry, 2, out + 26);
}

static void draw_linear(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    float weight[12], bias[4];
    assert_int_equal(n, 12 + 4);
    assert_int_equal(mha_rng_linear(rng, 3, 4, weight, bias, NULL), MHA_OK);
    widen(weight, 12, out);
    widen(bias, 4, out + 12);
}

static void draw_two_linear(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    float weight[30], next[10], bias[2];
    assert_int_equal(n, 30 + 10 + 2);
    assert_int_equal(mha_rng_linear(rng, 6, 5, weight, NULL, NULL), MHA_OK);
    assert_int_equal(mha_rng_linear(rng, 5, 2, next, bias, NULL), MHA_OK);
    widen(weight, 30, out);
    widen(next, 10, out + 30);
    widen(bias, 2, out + 40);
}

static void draw_embedding(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    float weight[20];
    assert_int_equal(n, 20);
    assert_int_equal(mha_rng_embedding(rng, 5, 4, -1, weight, NULL), MHA_OK);
    widen(weight, n, out);
}

static void draw_multihead(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    float in[48], in_bias[12], outer[16], out_bias[4];
    assert_int_equal(n, 48 + 16);
    assert_int_equal(mha_rng_multihead(rng, 4, in, in_bias, outer, out_bias, NULL), MHA_OK);
    widen(in, 48, out);
    widen(outer, 16, out + 48);
    for (int i = 0; i < 12; i++)
        assert_true(in_bias[i] == 0 && out_bias[i % 4] == 0);
}

static void draw_bernoulli(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    uint8_t x[MAX];
    assert_int_equal(mha_rng_bernoulli(rng, number(entry, "p"), MHA_RNG_ROUTE_DEFAULT, x, n, NULL), MHA_OK);
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i];
}

static void draw_bernoulli_mkl(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    uint8_t x[MAX];
    assert_int_equal(mha_rng_bernoulli(rng, number(entry, "p"), MHA_RNG_ROUTE_MKL, x, n, NULL), MHA_OK);
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i];
}

/* The dropout mask alone must contain the same information as the dropped values. */
static void draw_dropout(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    float x[MAX];
    uint8_t keep[MAX];
    const double p = number(entry, "p");
    mha_rng same = *rng;
    for (int64_t i = 0; i < n; i++)
        x[i] = 1;
    assert_int_equal(mha_rng_dropout(rng, p, MHA_RNG_ROUTE_DEFAULT, x, x, n, NULL), MHA_OK);
    assert_int_equal(mha_rng_dropout_mask(&same, p, MHA_RNG_ROUTE_DEFAULT, keep, n, NULL), MHA_OK);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(keep[i], x[i] != 0);
    assert_int_equal(same.used, rng->used);
    widen(x, n, out);
}

static void draw_exponential(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    float x[MAX];
    assert_int_equal(mha_rng_exponential(rng, x, n, NULL), MHA_OK);
    widen(x, n, out);
}

static void draw_randint(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    int64_t x[MAX];
    const int64_t low = (int64_t)number(entry, "lo"), high = (int64_t)number(entry, "hi");
    assert_int_equal(mha_rng_randint(rng, low, high, x, n, NULL), MHA_OK);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)x[i];
}

static void draw_randperm(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    (void)entry;
    int64_t x[MAX];
    assert_int_equal(mha_rng_randperm(rng, x, n, NULL), MHA_OK);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)x[i];
}

static void draw_multinomial(mha_rng *rng, const json_t *entry, int64_t n, double *out)
{
    float weights[MAX], work[MAX];
    int64_t x[MAX];
    const json_t *const list = json_object_get(entry, "weights");
    const size_t count = json_array_size(list);
    assert_in_range(count, 1, MAX);
    for (size_t i = 0; i < count; i++)
        weights[i] = (float)json_number_value(json_array_get(list, i));
    const int again = json_is_true(json_object_get(entry, "replacement"));
    assert_int_equal(mha_rng_multinomial(rng, weights, (int64_t)count, again, work, x, n, NULL), MHA_OK);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)x[i];
}

static const kind KINDS[] = {
    {"rand", draw_rand, {"values"}},
    {"rand_f64", draw_rand_f64, {"values"}},
    {"uniform", draw_uniform, {"values"}},
    {"randn", draw_randn, {"values"}},
    {"randn_f64", draw_randn_f64, {"values"}},
    {"normal_mean0.1_std0.02", draw_normal, {"values"}},
    {"randn_5_then_3_then_rand_2_then_randn_16_then_2", draw_mixture, {"values"}},
    {"linear_3_to_4", draw_linear, {"weight", "bias"}},
    {"linear_6_to_5_nobias_then_linear_5_to_2", draw_two_linear, {"weight0", "weight1", "bias1"}},
    {"embedding_5x4", draw_embedding, {"weight"}},
    {"multihead_attention_width4", draw_multihead, {"in_proj_weight", "out_proj.weight"}},
    {"bernoulli", draw_bernoulli, {"values"}},
    {"dropout_of_ones", draw_dropout, {"values"}},
    {"exponential", draw_exponential, {"values"}},
    {"randint", draw_randint, {"values"}},
    {"randperm", draw_randperm, {"values"}},
    {"multinomial", draw_multinomial, {"values"}},
};
static const kind MKL = {"bernoulli_vsl", draw_bernoulli_mkl, {"values"}};

static double recorded_number(const json_t *value)
{
    return json_is_string(value) ? strtod(json_string_value(value), NULL) : json_number_value(value);
}

/* Appends the values of a list; returns the total count. */
static int64_t append(const json_t *list, double *numbers, int64_t n)
{
    assert_true(json_is_array(list));
    const size_t more = json_array_size(list);
    assert_true(n + (int64_t)more <= MAX);
    for (size_t i = 0; i < more; i++)
        numbers[n++] = recorded_number(json_array_get(list, i));
    return n;
}

static void check_entry(const kind *k, const char *seed, mha_rng_kernels kernels, const json_t *entry)
{
    double want[MAX], got[MAX];
    int64_t n = 0;
    for (int t = 0; t < NAMES && k->tensors[t]; t++)
        n = append(json_object_get(entry, k->tensors[t]), want, n);
    mha_rng rng;
    mha_rng_manual_seed(&rng, strtoull(seed, NULL, 10));
    rng.kernels = kernels;
    k->draw(&rng, entry, n, got);
    const json_t *const then = json_object_get(entry, "then_rand");
    if (then) {
        draw_rand(&rng, NULL, 1, got + n);
        n = append(then, want, n);
    }
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("seed %s, %s kernels, %s, element %d of %d: got %a, expected %a", seed,
                     kernels ? "scalar" : "vector", k->key, (int)i, (int)n, got[i], want[i]);
    compared += n;
}

/* Checks an entry, a list of entries, or an object that maps sizes to entries. */
static void check_entries(const kind *k, const char *seed, mha_rng_kernels kernels, json_t *entries)
{
    const char *size;
    json_t *entry;
    size_t i;
    if (json_object_get(entries, k->tensors[0])) {
        check_entry(k, seed, kernels, entries);
    } else if (json_is_array(entries)) {
        assert_true(json_array_size(entries) > 0);
        json_array_foreach(entries, i, entry) check_entry(k, seed, kernels, entry);
    } else {
        assert_true(json_object_size(entries) > 0);
        json_object_foreach(entries, size, entry) check_entry(k, seed, kernels, entry);
    }
}

static const kind *find(const char *key)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(KINDS[i].key, key) == 0) return &KINDS[i];
    fail_msg("%s must be a known kind of entry", key);
    return NULL;
}

static void check_section(const char *section, mha_rng_kernels kernels)
{
    const char *seed, *key;
    json_t *entries, *entry;
    compared = 0;
    json_object_foreach(json_object_get(recorded, section), seed, entries)
    {
        json_object_foreach(entries, key, entry) check_entries(find(key), seed, kernels, entry);
    }
    printf("%s: %d numbers\n", section, (int)compared);
}

static void test_vector(void **state)
{
    (void)state;
    check_section("seeds", MHA_RNG_VECTOR);
    assert_int_equal(compared, 4872);
}

static void test_scalar(void **state)
{
    (void)state;
    check_section("scalar_kernels", MHA_RNG_SCALAR);
    assert_int_equal(compared, 1944);
}

static void test_mkl(void **state)
{
    (void)state;
    const char *seed;
    json_t *entries;
    compared = 0;
    json_object_foreach(json_object_get(recorded, "bernoulli_vsl"), seed, entries)
        check_entries(&MKL, seed, MHA_RNG_VECTOR, entries);
    assert_int_equal(compared, 4 * (25 + 36 + 100));
}

static void test_engine(void **state)
{
    (void)state;
    const char *seed;
    json_t *draws;
    json_object_foreach(json_object_get(recorded, "mt19937"), seed, draws)
    {
        uint32_t x[1250];
        mha_rng rng;
        mha_rng_manual_seed(&rng, strtoull(seed, NULL, 10));
        for (int i = 0; i < 1250; i++)
            x[i] = mha_rng_next(&rng);
        const json_t *const first = json_object_get(draws, "draw_0_to_9");
        assert_int_equal(json_array_size(first), 10);
        for (size_t i = 0; i < 10; i++)
            assert_int_equal(x[i], json_integer_value(json_array_get(first, i)));
        assert_int_equal(x[623], json_integer_value(json_object_get(draws, "draw_623")));
        assert_int_equal(x[624], json_integer_value(json_object_get(draws, "draw_624")));
        assert_int_equal(x[1249], json_integer_value(json_object_get(draws, "draw_1249")));
    }
}

static int load(void **state)
{
    (void)state;
    json_error_t e;
    recorded = json_load_file(MHA_TEST_DATA "/torch-rng.json", 0, &e);
    if (!recorded) printf("torch-rng.json: %s\n", e.text);
    return recorded ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    json_decref(recorded);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_engine), cmocka_unit_test(test_vector),
                                              cmocka_unit_test(test_scalar), cmocka_unit_test(test_mkl)};
    return cmocka_run_group_tests(tests, load, drop);
}
