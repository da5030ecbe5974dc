/* regroup_fit.c - computes the shared head of a group in closed form: the leading eigenvectors of Z^T Z. Z contains the
 * group's heads X_h, each multiplied by S_h, the square root of the head's weighting matrix (see mha/regroup.h). */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/edit/regroup_model.h"
#include "math/linalg.h"
#include <math.h>
#include <string.h>

/* Computes out [m, n] += a [m, k] b [k, n]; the rows of out have stride `stride`. */
static void multiply(int64_t m, int64_t k, int64_t n, const double *a, const double *b, double *out, int64_t stride)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++)
                out[i * stride + j] += a[i * k + l] * b[l * n + j];
}

/* ---- matrix roots ---- */

/* Computes root = sum of sqrt(value) v v^T and back = sum of v v^T / sqrt(value) over the eigenpairs (value, v).
 * Because of damping, all eigenvalues are above 0. */
static void compose(int64_t D, const double *values, const double *vectors, double *root, double *back)
{
    for (int64_t n = 0; n < D; n++) {
        const double *v = vectors + n * D, r = sqrt(values[n]);
        for (int64_t i = 0; i < D; i++)
            for (int64_t j = 0; j < D; j++) {
                root[i * D + j] += r * v[i] * v[j];
                back[i * D + j] += v[i] * v[j] / r;
            }
    }
}

mha_status mha__shared_roots(mha__shared *s, double *squares, double divisor, double damping, mha_error *err)
{
    const int64_t D = s->head_dim, cells = D * D;
    const size_t numbers = (size_t)(2 * s->heads * cells + cells + D);
    s->root = mha__calloc(s->ctx, numbers, sizeof *s->root);
    if (!s->root) return mha__no_memory(err, numbers * sizeof *s->root, "the matrix roots of a layer");
    s->back = s->root + s->heads * cells;
    double *vectors = s->back + s->heads * cells, *values = vectors + cells;
    for (int64_t h = 0; h < s->heads; h++) {
        double *square = squares + h * cells;
        for (int64_t i = 0; i < cells; i++)
            square[i] = square[i] / divisor + (i % (D + 1) == 0 ? damping : 0);
        MHA__TRY(mha__symmetric_eigen(s->ctx, D, square, values, vectors, err));
        for (int64_t i = 0; i < D; i++)
            values[i] = fmax(values[i], damping);
        compose(D, values, vectors, s->root + h * cells, s->back + h * cells);
    }
    return MHA_OK;
}

void mha__shared_free(mha__shared *s)
{
    mha__free(s->ctx, s->root);
    mha__free(s->ctx, s->gram);
    s->root = s->gram = NULL;
}

/* ---- products of the heads of a group ---- */

/* Returns the first row in gram of the key or value head that a query head reads. */
static int64_t place_of(const mha__shared *s, int64_t head)
{
    return head * s->stored / s->heads * s->head_dim;
}

/* Computes Z^T Z [count D, count D], whose blocks are S_h X_h^T X_g S_g. `half` [D, D] is scratch. */
static void join(const mha__shared *s, const int32_t *heads, int64_t count, double *half, double *out)
{
    const int64_t D = s->head_dim, wide = s->stored * D, n = count * D;
    memset(out, 0, (size_t)(n * n) * sizeof *out);
    for (int64_t a = 0; a < count; a++)
        for (int64_t b = 0; b <= a; b++) {
            const double *block = s->gram + place_of(s, heads[a]) * wide + place_of(s, heads[b]);
            const double *left = s->root + heads[a] * D * D, *right = s->root + heads[b] * D * D;
            memset(half, 0, (size_t)(D * D) * sizeof *half);
            for (int64_t i = 0; i < D; i++)
                for (int64_t l = 0; l < D; l++)
                    for (int64_t j = 0; j < D; j++)
                        half[i * D + j] += left[i * D + l] * block[l * wide + j];
            multiply(D, D, D, half, right, out + a * D * n + b * D, n);
        }
}

/* Matrix, eigenvalues and eigenvectors of Z^T Z, and scratch. */
typedef struct eigen {
    double *half, *matrix, *values, *vectors;
} eigen;

static mha_status find(const mha__shared *s, const int32_t *heads, int64_t count, eigen *e, mha_error *err)
{
    const int64_t D = s->head_dim, n = count * D;
    const size_t numbers = (size_t)(D * D + 2 * n * n + n);
    e->half = mha__alloc(s->ctx, numbers * sizeof *e->half);
    if (!e->half) return mha__no_memory(err, numbers * sizeof *e->half, "the eigenvectors of a group of heads");
    e->matrix = e->half + D * D;
    e->vectors = e->matrix + n * n;
    e->values = e->vectors + n * n;
    join(s, heads, count, e->half, e->matrix);
    return mha__symmetric_eigen(s->ctx, n, e->matrix, e->values, e->vectors, err);
}

mha_status mha__shared_fit(const mha__shared *s, const int32_t *heads, int64_t count, double *maps, double *backs,
                           mha_error *err)
{
    const int64_t D = s->head_dim, n = count * D;
    eigen e = {0};
    const mha_status status = find(s, heads, count, &e, err);
    memset(maps, 0, (size_t)(n * D) * sizeof *maps);
    memset(backs, 0, (size_t)(n * D) * sizeof *backs);
    for (int64_t i = 0; i < count && status == MHA_OK; i++) {
        for (int64_t j = 0; j < D; j++) /* P_h^T: the part of this head in the last D vectors */
            memcpy(e.half + j * D, e.vectors + (n - D + j) * n + i * D, (size_t)D * sizeof *e.half);
        multiply(D, D, D, e.half, s->root + heads[i] * D * D, maps + i * D * D, D);
        multiply(D, D, D, e.half, s->back + heads[i] * D * D, backs + i * D * D, D);
    }
    mha__free(s->ctx, e.half);
    return status;
}

/* ---- costs of pairs ---- */

static double trace(const mha__shared *s, int32_t head, double *half, double *block)
{
    double sum = 0;
    join(s, &head, 1, half, block);
    for (int64_t i = 0; i < s->head_dim; i++)
        sum += block[i * (s->head_dim + 1)];
    return sum;
}

static mha_status whole_of(const mha__shared *s, double *whole, mha_error *err)
{
    const size_t cells = (size_t)(s->head_dim * s->head_dim);
    double *room = mha__alloc(s->ctx, 2 * cells * sizeof *room);
    if (!room) return mha__no_memory(err, 2 * cells * sizeof *room, "the products of a head");

    for (int32_t h = 0; h < s->heads; h++)
        *whole += trace(s, h, room, room + cells);
    mha__free(s->ctx, room);
    return MHA_OK;
}

mha_status mha__shared_pairs(const mha__shared *s, double *cost, mha_error *err)
{
    double whole = 0;
    MHA__TRY(whole_of(s, &whole, err));
    if (!(whole > 0)) return MHA_OK; /* all weights are 0, so no loss is possible */
    for (int32_t a = 0; a < s->heads; a++)
        for (int32_t b = 0; b < a; b++) {
            eigen e = {0};
            double left = 0;
            const mha_status status = find(s, (const int32_t[]){a, b}, 2, &e, err);
            for (int64_t i = 0; i < s->head_dim && status == MHA_OK; i++)
                left += fmax(e.values[i], 0);
            mha__free(s->ctx, e.half);
            MHA__TRY(status);
            cost[a * s->heads + b] += left / whole;
            cost[b * s->heads + a] += left / whole;
        }
    return MHA_OK;
}
