/* test_distillation_kl.c - compares the divergence between the logits of a model and of its teacher, and its gradient,
 * with references in double. */
#include "layer/loss/distillation_kl.h"
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdlib.h>

static double softmax_at(const float *x, int n, double temperature, double *p)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, (double)x[i] / temperature);
    for (int i = 0; i < n; i++)
        sum += p[i] = exp((double)x[i] / temperature - max);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
    return max + log(sum);
}

static void test_divergence_against_doubles(void **state)
{
    (void)state;
    static const int classes[] = {1, 2, 17, 1023, 1024, 1025, 5000};
    static const double temperatures[] = {1, 2, 0.7};
    enum { ROWS = 5, MAX = 5000 };
    double *p = malloc(MAX * sizeof *p), *q = malloc(MAX * sizeof *q);
    for (int n = 0; n < 7 * 3; n++) {
        const int width = classes[n / 3];
        const double T = temperatures[n % 3];
        float *x = random_floats(7, (uint64_t)n, ROWS * width, 3, 1);
        float *y = random_floats(8, (uint64_t)n, ROWS * width, 3, -2);
        float *dx = random_floats(9, (uint64_t)n, ROWS * width, 1, 0);
        float *before = random_floats(9, (uint64_t)n, ROWS * width, 1, 0);
        const mha__divergence d = {
            .rows = ROWS, .classes = width, .logits = x, .teacher = y, .temperature = T, .scale = 0.3, .dlogits = dx};
        double loss = 0, want = 0;
        assert_int_equal(mha__divergence_run(NULL, &d, &loss, NULL), MHA_OK);
        for (int r = 0; r < ROWS; r++) {
            const float *own = x + r * width, *other = y + r * width;
            const double of_own = softmax_at(own, width, T, q), of_other = softmax_at(other, width, T, p);
            for (int i = 0; i < width; i++) {
                const double got = (double)dx[r * width + i] - (double)before[r * width + i];
                want += 0.3 * T * T * p[i] * ((double)(other[i] - own[i]) / T - of_other + of_own);
                assert_true(fabs(got - 0.3 * T * (q[i] - p[i])) < 4e-7);
            }
        }
        assert_true(fabs(loss - want) < 1e-6 * (1 + want));
        free(x), free(y), free(dx), free(before);
    }
    free(p), free(q);
}

/* Compares the divergence of two rows and its gradient with references in double. The temperature T may be so high that
 * the rows nearly agree, or so low that one class has a probability of 1. */
static void expect_divergence(const float *x, const float *y, int width, double T)
{
    double *p = malloc((size_t)width * sizeof *p), *q = malloc((size_t)width * sizeof *q);
    float *dx = calloc((size_t)width, sizeof *dx);
    const mha__divergence d = {
        .rows = 1, .classes = width, .logits = x, .teacher = y, .temperature = T, .scale = 1, .dlogits = dx};
    const double tiny = 1e-15 * T * T; /* limit of the rounding error of the sum */
    double loss = 0, want = 0, max = 0, off = 0;
    assert_int_equal(mha__divergence_run(NULL, &d, &loss, NULL), MHA_OK);
    const double apart = softmax_at(x, width, T, q) - softmax_at(y, width, T, p);
    for (int i = 0; i < width; i++) {
        const double slope = T * (q[i] - p[i]);
        want += T * T * p[i] * (((double)y[i] - (double)x[i]) / T + apart);
        max = fmax(max, fabs(slope));
        off = fmax(off, fabs((double)dx[i] - slope));
    }
    if (!(loss >= 0) || fabs(loss - want) > 1e-4 * want + tiny)
        fail_msg("T = %g, %d classes: got %.9g, expected %.9g", T, width, loss, want);
    if (off > 1e-3 * max + 1e-8 * T)
        fail_msg("T = %g, %d classes: error of the gradients must be at most %g (got %g)", T, width,
                 1e-3 * max + 1e-8 * T, off);
    free(p), free(q), free(dx);
}

static void test_divergence_at_the_limits_of_temperature(void **state)
{
    (void)state;
    static const int classes[] = {2, 64, 1025, 5000};
    static const double temperatures[] = {MHA__COOLEST, 0.01, 0.1, 10, 100, MHA__HOTTEST};
    static const float ranges[] = {0.1F, 1, 20};
    for (int n = 0; n < 4 * 6 * 3; n++) {
        const int width = classes[n / 18];
        float *x = random_floats(7, (uint64_t)n, width, ranges[n % 3], 0);
        float *y = random_floats(8, (uint64_t)n, width, ranges[n % 3], 30);
        expect_divergence(x, y, width, temperatures[n / 3 % 6]);
        free(x), free(y);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divergence_against_doubles),
        cmocka_unit_test(test_divergence_at_the_limits_of_temperature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
