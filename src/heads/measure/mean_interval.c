/* mean_interval.c - the mean of measurements, its confidence interval, and the median. */
#include "mha/mean_interval.h"

#include "math/pi.h"
#include <math.h>
#include <stdlib.h>

/* Returns the probability that a t-distributed variable is between -t and t: a finite sum, because the number of
 * degrees of freedom n is an integer (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4). */
static double central_probability(double t, int64_t n)
{
    const double angle = atan(t / sqrt((double)n)), square = cos(angle) * cos(angle);
    const int odd = n % 2 != 0;
    double term = odd ? cos(angle) : 1, sum = n > 1 ? term : 0;
    for (int64_t k = 2 + odd; k <= n - 2; k += 2) {
        term *= (double)(k - 1) / (double)k * square;
        sum += term;
    }
    return odd ? 2 / MHA__PI * (angle + sin(angle) * sum) : sin(angle) * sum;
}

/* Returns the first terms of the expansion of the quantile in 1 / n (Abramowitz and Stegun 1964, 26.7.5). */
static double expanded_quantile(double n)
{
    const double z = 1.959963984540054, z2 = z * z; /* the 97.5 % quantile of the normal distribution */
    return z * (1 + (z2 + 1) / (4 * n) + (5 * z2 * z2 + 16 * z2 + 3) / (96 * n * n) +
                (3 * z2 * z2 * z2 + 19 * z2 * z2 + 17 * z2 - 15) / (384 * n * n * n));
}

double mha_student_quantile(int64_t freedom)
{
    enum { SUMMED = 1000, HALVINGS = 60 };
    double low = 1, high = 13; /* the quantile is 12.7 with one degree of freedom, and decreases to 1.96 */
    if (freedom < 1) return NAN;
    if (freedom > SUMMED) return expanded_quantile((double)freedom);
    for (int n = 0; n < HALVINGS; n++) {
        const double middle = (low + high) / 2;
        if (central_probability(middle, freedom) < 0.95)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* Returns half the width of the interval. */
static double half_width(const double *values, int64_t count, double mean)
{
    double squares = 0;
    if (count < 2) return NAN;
    for (int64_t n = 0; n < count; n++)
        squares += (values[n] - mean) * (values[n] - mean);
    return mha_student_quantile(count - 1) * sqrt(squares / (double)(count - 1) / (double)count);
}

void mha_mean_interval(const double *values, int64_t count, double *mean, double *half)
{
    const int64_t used = values && count > 0 ? count : 0;
    double sum = 0;
    for (int64_t n = 0; n < used; n++)
        sum += values[n];
    const double found = used ? sum / (double)used : NAN;
    if (mean) *mean = found;
    if (half) *half = half_width(values, used, found);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double mha_median(double *values, int64_t count)
{
    if (!values || count < 1) return NAN;
    qsort(values, (size_t)count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}
