/* test_activations.c - compares every activation and its gradient with PyTorch in double (data/ops/activations): for
 * ordinary values, the smallest and largest values, infinities and NaN. */
#include "mha/io.h"
#include "mha/layer.h"
#include "support/check.h"
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 512, FINITE = 252 }; /* the last three elements are inf, -inf and NaN */

static const struct {
    const char *name;
    mha_activation activation;
} functions[] = {{"gelu", MHA_ACT_GELU},
                 {"gelu_new", MHA_ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", MHA_ACT_GELU_TANH},
                 {"quick_gelu", MHA_ACT_QUICK_GELU},
                 {"silu", MHA_ACT_SILU},
                 {"relu", MHA_ACT_RELU},
                 {"tanh", MHA_ACT_TANH},
                 {"sigmoid", MHA_ACT_SIGMOID},
                 {"softplus", MHA_ACT_SOFTPLUS}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static mha_file *file;
static json_t *index_json;

static int load(void **state)
{
    (void)state;
    index_json = json_load_file(MHA_TEST_DATA "/ops/activations.json", 0, NULL);
    const char *const path = MHA_TEST_DATA "/ops/activations.safetensors";
    return index_json && mha_file_open(NULL, path, NULL, &file, NULL) == MHA_OK ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    json_decref(index_json);
    mha_file_free(file);
    return 0;
}

static const float *numbers(const char *prefix, const char *name, int64_t *count)
{
    char path[64];
    snprintf(path, sizeof path, "%s%s", prefix, name);
    const mha_tensor *const t = mha_file_find(file, path);
    assert_true(t != NULL && t->dtype == MHA_F32 && t->rank == 1 && t->shape[0] <= MAX);
    *count = t->shape[0];
    return t->data;
}

/* Returns the tolerance: twice the largest error of PyTorch in float32, plus the rounding of the result. */
static double limit_of(const char *name, double want)
{
    const json_t *const err = json_object_get(json_object_get(index_json, "float32_err"), name);
    assert_true(json_is_number(err));
    return 2 * json_number_value(err) + 0x1p-22 * fabs(want) + FLT_MIN;
}

static void compare(const char *prefix, const char *name, const float *x, const float *got, int64_t count)
{
    int64_t n;
    const float *const want = numbers(prefix, name, &n);
    double worst = 0;
    assert_int_equal(n, count);
    for (int64_t i = 0; i < FINITE; i++) {
        const double off = fabs((double)got[i] - (double)want[i]);
        worst = off > worst && fabs((double)x[i]) < 100 ? off : worst;
        if (!(off <= limit_of(name, (double)want[i])))
            fail_msg("%s%s(%.9g): got %.9g, expected %.9g", prefix, name, (double)x[i], (double)got[i],
                     (double)want[i]);
    }
    printf("%s%s: largest error %.2g\n", prefix, name, worst);
}

static void test_forward(void **state)
{
    (void)state;
    for (int f = 0; f < FUNCTIONS; f++) {
        float y[MAX];
        int64_t count;
        const float *const x = numbers("", "x", &count);
        memcpy(y, x, (size_t)count * sizeof *y);
        assert_int_equal(mha_activation_forward(NULL, functions[f].activation, 1, count, y, NULL), MHA_OK);
        compare("", functions[f].name, x, y, count);
        assert_true(isnan(y[count - 1]));
    }
}

/* Tests the gradient for dy = 1, and in place: overwriting dy (= 2) and overwriting x. */
static void test_backward(void **state)
{
    (void)state;
    for (int f = 0; f < FUNCTIONS; f++) {
        const mha_activation activation = functions[f].activation;
        float dy[MAX], dx[MAX], in_dy[MAX], in_x[MAX];
        int64_t count;
        const float *const x = numbers("", "x", &count);
        for (int64_t i = 0; i < count; i++)
            dy[i] = 1, in_dy[i] = 2, in_x[i] = x[i];
        assert_int_equal(mha_activation_backward(NULL, activation, 1, count, x, dy, dx, NULL), MHA_OK);
        compare("d_", functions[f].name, x, dx, count);
        assert_int_equal(mha_activation_backward(NULL, activation, 1, count, x, in_dy, in_dy, NULL), MHA_OK);
        assert_int_equal(mha_activation_backward(NULL, activation, count, 1, in_x, dy, in_x, NULL), MHA_OK);
        for (int64_t i = 0; i < count - 3; i++)
            assert_true(in_dy[i] == 2 * dx[i] && in_x[i] == dx[i]);
    }
}

/* At the infinities, results must be the limits of PyTorch's functions, where the limits exist. */
static void test_infinities(void **state)
{
    (void)state;
    for (int f = 0; f < FUNCTIONS; f++) {
        float y[2] = {INFINITY, -INFINITY};
        const mha_activation activation = functions[f].activation;
        const bool bounded = activation == MHA_ACT_TANH || activation == MHA_ACT_SIGMOID;
        assert_int_equal(mha_activation_forward(NULL, activation, 2, 1, y, NULL), MHA_OK);
        assert_true(bounded ? y[0] == 1 : y[0] == INFINITY);
        if (activation == MHA_ACT_TANH) assert_true(y[1] == -1);
        if (activation == MHA_ACT_RELU || activation == MHA_ACT_SIGMOID || activation == MHA_ACT_SOFTPLUS)
            assert_true(y[1] == 0);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_backward),
                                              cmocka_unit_test(test_infinities)};
    return cmocka_run_group_tests(tests, load, unload);
}
