/* unique_output.c - computes the part of each head's output that the other heads of its layer do not predict.
 *
 * The columns of head h are regressed on the columns of all other heads, o, with a ridge l. Let P = (fit + l I)^-1 over
 * all heads. By block inversion, the coefficients are -P_oh P_hh^-1, so the residual is the combination P_:h P_hh^-1 of
 * all columns, and one inverse serves all heads. The squared residual on the products `test` is trace(P_hh^-1 S
 * P_hh^-1) with S = (P test P)_hh. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "heads/diversity/diversity.h"
#include "layer/linear/linear.h"
#include "math/linalg.h"
#include <string.h>

typedef struct regression {
    mha_ctx *ctx;
    int64_t D, n;
    double tokens;          /* number of tokens in fit */
    double *factor, *p, *y; /* [n, n] each: fit + l I, later its Cholesky factor; the inverse P; test P */
    double *own, *s;        /* [D, D] */
} regression;

static void lay_out(mha__arena *arena, regression *r)
{
    const size_t all = (size_t)r->n * (size_t)r->n, own = (size_t)r->D * (size_t)r->D;
    r->factor = mha__take(arena, all, sizeof(double));
    r->p = mha__take(arena, all, sizeof(double));
    r->y = mha__take(arena, all, sizeof(double));
    r->own = mha__take(arena, own, sizeof(double));
    r->s = mha__take(arena, own, sizeof(double));
}

static mha_status invert(regression *r, const double *fit, double penalty, mha_error *err)
{
    memcpy(r->factor, fit, (size_t)(r->n * r->n) * sizeof *fit);
    memset(r->p, 0, (size_t)(r->n * r->n) * sizeof *r->p);
    for (int64_t i = 0; i < r->n; i++) {
        r->factor[i * r->n + i] += penalty;
        r->p[i * r->n + i] = 1;
    }
    MHA__TRY(mha__cholesky(r->ctx, r->n, r->factor, err));
    mha__cholesky_solve(r->ctx, r->n, r->factor, r->n, r->p);
    return MHA_OK;
}

/* Computes c [m, columns] = a [m, n] b [n, columns]. The rows of c have stride c_row. */
static mha_status multiply(const regression *r, int64_t m, int64_t columns, const double *a, const double *b, double *c,
                           int64_t c_row, mha_error *err)
{
    const mha__matmul product = {.dtype = MHA_F64,
                                 .m = m,
                                 .n = columns,
                                 .k = r->n,
                                 .a = a,
                                 .a_row = r->n,
                                 .a_col = 1,
                                 .b = b,
                                 .b_row = r->n,
                                 .b_col = 1,
                                 .c = c,
                                 .c_row = c_row};
    return mha__matmul_run(r->ctx, &product, err);
}

static mha_status leftover(regression *r, int64_t h, double *left, mha_error *err)
{
    const int64_t D = r->D, n = r->n, first = h * D;
    MHA__TRY(multiply(r, D, D, r->p + first * n, r->y + first, r->s, D, err));
    for (int64_t i = 0; i < D; i++)
        memcpy(r->own + i * D, r->p + (first + i) * n + first, (size_t)D * sizeof *r->own);
    MHA__TRY(mha__cholesky(r->ctx, D, r->own, err));
    mha__cholesky_solve(r->ctx, D, r->own, D, r->s);
    mha__cholesky_solve(r->ctx, D, r->own, D, r->s); /* trace(a s a) = trace(a a s) */
    for (int64_t i = 0; i < D; i++)
        left[h] += r->s[i * D + i];
    return MHA_OK;
}

static mha_status regress(regression *r, int64_t heads, const double *fit, const double *test, double *left,
                          mha_error *err)
{
    double penalty = 0;
    for (int64_t i = 0; i < r->n; i++)
        penalty += fit[i * r->n + i] / r->tokens;
    if (!(penalty > 0)) return MHA_OK;
    MHA__TRY(invert(r, fit, penalty, err));
    MHA__TRY(multiply(r, r->n, r->n, test, r->p, r->y, r->n, err));
    for (int64_t h = 0; h < heads; h++)
        MHA__TRY(leftover(r, h, left, err));
    return MHA_OK;
}

mha_status mha__unique_outputs(mha_ctx *ctx, int64_t heads, int64_t D, const double *fit, double tokens,
                               const double *test, double *left, mha_error *err)
{
    regression r = {.ctx = ctx, .D = D, .n = heads * D, .tokens = tokens};
    mha__arena arena = {0};
    lay_out(&arena, &r);
    arena.base = arena.overflow ? NULL : mha__alloc(ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the regression of outputs");
    arena.used = 0;
    lay_out(&arena, &r);
    const mha_status status = regress(&r, heads, fit, test, left, err);
    mha__free(ctx, arena.base);
    return status;
}
