/* grads_ref.c - computes the expected gradients (see grads.h) in three types by including grads_ref.inc, and compares
 * gradients with them. */
#include "support/attn/functions.h"
#include "support/attn/grads.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The indices of a row: batch entry, query head, key/value head, row, and head in the results. */
typedef struct place {
    int64_t b, h, g, i, n;
} place;

static int64_t stored_dim(const tensor *t, int axis)
{
    return t->stride[axis] == 0 && t->dim[axis] > 1 ? 1 : t->dim[axis];
}

static size_t r_size(const tensor *t)
{
    return t->memory ? (size_t)(stored_dim(t, 0) * stored_dim(t, 1) * stored_dim(t, 2) * stored_dim(t, 3)) + 1 : 1;
}

size_t gradients_index(const tensor *t, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t at[4] = {b, h, i, j};
    size_t n = 0;
    for (int axis = 0; axis < 4; axis++)
        n = n * (size_t)stored_dim(t, axis) + (size_t)(stored_dim(t, axis) == t->dim[axis] ? at[axis] : 0);
    return n;
}

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define FN(name) JOIN(name, SUFFIX)

#define SUFFIX f32
#define REAL float
#define EXP expf
#define TANH tanhf
#define UNIT 0x1p-24
#include "support/reference/grads_ref.inc"
#undef SUFFIX
#undef REAL
#undef EXP
#undef TANH

/* double: the reference of f32 problems, and the plain computation of f64 problems (without floors) */
#define SUFFIX f64
#define REAL double
#define EXP exp
#define TANH tanh
#include "support/reference/grads_ref.inc"
#undef SUFFIX
#undef REAL
#undef EXP
#undef TANH
#undef UNIT

#define SUFFIX wide
#define REAL long double
#define EXP expl
#define TANH tanhl
#define UNIT 0x1p-53
#include "support/reference/grads_ref.inc"

void gradients_ref(const problem *p, const gradients *g, bool wide, gradients_truth *truth)
{
    *truth = (gradients_truth){{0}, {0}};
    for (int n = 0; n < RESULTS; n++) {
        truth->sum[n] = calloc(r_size(&g->result[n]), sizeof(double));
        truth->floor[n] = wide ? calloc(r_size(&g->result[n]), sizeof(double)) : NULL;
    }
    if (p->desc.dtype == MHA_F64)
        (wide ? back_wide : back_f64)(p, g, truth);
    else
        (wide ? back_f64 : back_f32)(p, g, truth);
}

void gradients_ref_free(gradients_truth *truth)
{
    for (int n = 0; n < RESULTS; n++) {
        free(truth->sum[n]);
        free(truth->floor[n]);
    }
}

static double error_of(double got, double want)
{
    if (got == want || (isnan(got) && isnan(want))) return 0;
    const double error = fabs(got - want);
    return isnan(error) ? INFINITY : error;
}

static bool near(const tensor *t, const char *name, const double *wide, const double *floor, const double *plain,
                 double *worst, char *why, size_t capacity)
{
    double plain_error = 0;
    const int64_t *dim = t->dim;
    for (size_t n = 0; n + 1 < r_size(t); n++)
        plain_error = fmax(plain_error, error_of(plain[n], wide[n]));
    for (int64_t at = 0; at < dim[0] * dim[1] * dim[2] * dim[3]; at++) {
        const int64_t j = at % dim[3], i = at / dim[3] % dim[2], h = at / dim[3] / dim[2] % dim[1];
        const int64_t b = at / dim[3] / dim[2] / dim[1];
        const size_t n = gradients_index(t, b, h, i, j);
        const double got = tensor_get(t, b, h, i, j), error = error_of(got, wide[n]);
        const double limit = 2 * plain_error + 2 * floor[n] + ref_rounding(t->dtype, wide[n]) + (double)FLT_MIN;
        if (error > 0) *worst = fmax(*worst, error / limit);
        if (error <= limit) continue;
        snprintf(why, capacity, "%s[%lld,%lld,%lld,%lld] must be %.9g (got %.9g: error %.3g, limit %.3g)", name,
                 (long long)b, (long long)h, (long long)i, (long long)j, wide[n], got, error, limit);
        return false;
    }
    return true;
}

bool gradients_near(const gradients *g, const gradients_truth *wide, const gradients_truth *plain, double *worst,
                    char *why, size_t capacity)
{
    static const char *const names[RESULTS] = {"dq", "dk", "dv", "dbias", "dslopes", "dsinks", "dgates", "row_taylor"};
    double ignored = 0;
    for (int n = 0; n < RESULTS; n++)
        if (g->result[n].memory && !near(&g->result[n], names[n], wide->sum[n], wide->floor[n], plain->sum[n],
                                         worst ? worst : &ignored, why, capacity))
            return false;
    return true;
}
