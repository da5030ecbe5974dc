/* test_attn_differences.c - compares f64 gradients of random problems with finite differences of the forward pass.
 *
 * test_attn_differences [--seed S] [--cases N] [--case K]
 *
 * The loss is sum(dout * out) + sum(dlse * lse). Each input is moved along a random direction u. The derivative of the
 * loss along u, from central differences of two step sizes whose second-order errors cancel, must match the dot product
 * of the gradient and u. */
#include "support/attn/grads.h"
#include "support/check.h"
#include "support/random_cases.h"
#include <math.h>
#include <stdlib.h>

static cases all = {.seed = 20261121, .end = 300};

/* Makes a random problem with scores of moderate size, so that the loss is smooth enough for finite differences. */
static void make_case(problem *p, gradients *g, uint64_t number)
{
    rng r = rng_make(all.seed, number);
    problem drawn;
    problem_random_for(&drawn, MHA_ATTN_LSE, all.seed, number);
    mha_attn_desc d = drawn.desc;
    problem_free(&drawn);
    d.dtype = MHA_F64;
    d.kv_dtype = d.bias_dtype = MHA_DTYPE_DEFAULT;
    d.scale = rng_chance(&r, 0.3) ? 0.5 * rng_normal(&r) : 0;
    d.q_len = d.q_len > 140 ? 140 : d.q_len;
    d.kv_len = d.kv_len > 140 ? 140 : d.kv_len;
    d.keep_keys = d.keep_keys > d.kv_len ? d.kv_len : d.keep_keys;
    problem_make(p, &d, NULL, rng_next(&r));
    const gradients_layouts layouts = {.with_dlse = rng_chance(&r, 0.5)};
    gradients_make(g, p, &layouts, rng_next(&r));
}

static double loss(mha_ctx *ctx, problem *p, const gradients *g)
{
    double sum = 0;
    const int64_t *dim = p->out.dim;
    problem_run(ctx, p);
    for (int64_t row = 0; row < dim[0] * dim[1] * dim[2]; row++) {
        const int64_t i = row % dim[2], h = row / dim[2] % dim[1], b = row / dim[2] / dim[1];
        const double lse = tensor_get(&p->lse, b, h, i, 0);
        const bool exists = !(p->desc.inputs & MHA_ATTN_Q_LENS) || i < p->q_lens[b];
        for (int64_t e = 0; e < dim[3]; e++)
            sum += tensor_get(&g->dout, b, h, i, e) * tensor_get(&p->out, b, h, i, e);
        if (g->dlse.memory && exists && isfinite(lse)) sum += tensor_get(&g->dlse, b, h, i, 0) * lse;
    }
    return sum;
}

/* Sets every finite element n of a tensor to from[n] + step * direction[n]. */
static void move(tensor *t, const double *from, const double *direction, double step)
{
    size_t n = 0;
    for (int64_t b = 0; b < t->dim[0]; b++)
        for (int64_t h = 0; h < t->dim[1]; h++)
            for (int64_t i = 0; i < t->dim[2]; i++)
                for (int64_t d = 0; d < t->dim[3]; d++, n++)
                    tensor_set(t, b, h, i, d, isfinite(from[n]) ? from[n] + step * direction[n] : from[n]);
}

static size_t count_of(const tensor *t)
{
    return (size_t)(t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]);
}

static double *numbers_of(const tensor *t)
{
    double *all = calloc(count_of(t) + 1, sizeof *all);
    size_t n = 0;
    for (int64_t b = 0; b < t->dim[0]; b++)
        for (int64_t h = 0; h < t->dim[1]; h++)
            for (int64_t i = 0; i < t->dim[2]; i++)
                for (int64_t d = 0; d < t->dim[3]; d++)
                    all[n++] = tensor_get(t, b, h, i, d);
    return all;
}

static double *direction_of(const double *numbers, size_t count, rng *r)
{
    double *u = calloc(count + 1, sizeof *u);
    for (size_t n = 0; n < count; n++)
        u[n] = isfinite(numbers[n]) ? (double)rng_range(r, -4, 4) / 4 : 0;
    return u;
}

/* Returns the derivative of the loss f along `u`: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h. *size becomes max
 * |f|. */
static double slope_along(mha_ctx *ctx, problem *p, const gradients *g, tensor *t, const double *from, const double *u,
                          double h, double *size)
{
    static const double weights[] = {1, -8, 8, -1};
    static const int steps[] = {-2, -1, 1, 2};
    double sum = 0;
    for (int n = 0; n < 4; n++) {
        move(t, from, u, h * steps[n]);
        const double f = loss(ctx, p, g);
        sum += weights[n] * f;
        *size = fmax(*size, fabs(f));
    }
    move(t, from, u, 0);
    return sum / (12 * h);
}

static void check_tensor(mha_ctx *ctx, problem *p, const gradients *g, tensor *t, int which, uint64_t number)
{
    static const char *const names[GRADS] = {"dq", "dk", "dv", "dbias", "dslopes", "dsinks", "dgates"};
    rng r = rng_make(all.seed + (uint64_t)which, number);
    char text[400];
    double size = 0, want = 0, terms = 0;
    double *from = numbers_of(t), *given = numbers_of(&g->result[which]), *u = direction_of(from, count_of(t), &r);
    for (size_t n = 0; n < count_of(t); n++) {
        want += given[n] * u[n];
        terms += fabs(given[n] * u[n]);
    }
    /* a step h of an ALiBi slope changes a score by h times the key distance, which can be several hundred */
    const double h = t == &p->slopes ? 0x1p-17 : 1e-3;
    const double got = slope_along(ctx, p, g, t, from, u, h, &size);
    const double limit = 2e-7 * (1 + terms) + 1e-13 * size / h;
    if (!(fabs(got - want) <= limit))
        fail_msg(
            "%s: derivative %.12g from the gradient, %.12g from differences, tolerance %.3g\n  %s\n  to reproduce: "
            "test_attn_differences --seed %llu --case %llu",
            names[which], want, got, limit, problem_text(p, text, sizeof text), (unsigned long long)all.seed,
            (unsigned long long)number);
    free(from);
    free(given);
    free(u);
}

static void test_differences(void **state)
{
    (void)state;
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    for (uint64_t number = all.first; number < all.end; number++) {
        problem p;
        gradients g;
        make_case(&p, &g, number);
        gradients_run(ctx, &p, &g);
        tensor *inputs[GRADS] = {&p.q, &p.k, &p.v, &p.bias, &p.slopes, &p.sinks, &p.gates};
        for (int n = 0; n < GRADS; n++)
            if (inputs[n]->memory) check_tensor(ctx, &p, &g, inputs[n], n, number);
        gradients_free(&g);
        problem_free(&p);
    }
    mha_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences)};
    all = cases_read(argc, argv, all);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
