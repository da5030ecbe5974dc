/* mean_interval.h - the mean of a few independent measurements, its 95 % confidence interval, and the median.
 *
 *     double mean, half;
 *     mha_mean_interval(losses, 5, &mean, &half);       printf("%.4f +- %.4f\n", mean, half);
 */
#ifndef MHA_MEAN_INTERVAL_H
#define MHA_MEAN_INTERVAL_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the 97.5 % quantile of Student's t distribution with `freedom` degrees of freedom: 12.706 for 1, 2.776 for 4,
 * 1.960 in the limit. Relative error at most 1e-9. NAN if `freedom` is less than 1. */
MHA_API double mha_student_quantile(int64_t freedom);

/* Computes the mean of values [count], and half the width of its 95 % confidence interval: mha_student_quantile(count -
 * 1) times the standard error of the mean (Student 1908). The interval assumes independent, normally distributed
 * values. *half is NAN for fewer than 2 values, and both are NAN without values. Sums are computed in the order of the
 * values. For paired measurements, pass the differences. `mean` and `half` may be NULL; if `values` is NULL, there are
 * no values. */
MHA_API void mha_mean_interval(const double *values, int64_t count, double *mean, double *half);

/* Sorts values [count] in ascending order and returns their median: for an even count, the mean of the two middle
 * values. Returns NAN without values. The values must not be NAN. */
MHA_API double mha_median(double *values, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
