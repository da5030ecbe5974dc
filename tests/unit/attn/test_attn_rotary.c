/* test_attn_rotary.c - a call that rotates q and k must give bitwise the results of mha_rope_turn followed by the call
 * without rotation: random descriptions, types, pages and packed sequences, on every ISA, with other threads; its
 * gradients must be those of the rotated call, rotated back. Gradients of pages must be those of dense keys.
 *
 * test_attn_rotary [--seed S] [--cases N] [--case K] */
#include "support/attn/grads.h"
#include "support/attn/packed.h"
#include "support/attn/paged.h"
#include "support/attn/rotated.h"
#include "support/check.h"
#include "support/isas.h"
#include "support/random_cases.h"
#include <stdlib.h>
#include <string.h>

static cases all = {.seed = 20261126, .end = 90};
static mha_ctx *contexts[PROBLEM_ISAS], *more_threads[PROBLEM_ISAS];
static int context_count;

static void fail_case(mha_ctx *ctx, const problem *p, uint64_t number, const char *why)
{
    char text[400];
    fail_msg("%s: %s\n  %s\n  to reproduce: test_attn_rotary --seed %llu --case %llu", mha_ctx_isa(ctx), why,
             problem_text(p, text, sizeof text), (unsigned long long)all.seed, (unsigned long long)number);
}

/* ---- forward pass ---- */

static bool packed_agrees(mha_ctx *ctx, const problem *padded, const rotated *r, uint64_t number, char *why,
                          size_t capacity)
{
    problem p;
    problem_random(&p, all.seed, number);
    p.desc.inputs = padded->desc.inputs;
    packed_make(&p, all.seed ^ number);
    p.args.rope = &r->rope;
    const bool ok = problem_try(ctx, &p, why, capacity) && packed_same(&p, padded, why, capacity);
    problem_free(&p);
    return ok;
}

static void check_forward(uint64_t number)
{
    problem p, twin;
    rotated r;
    char why[1200];
    problem_random(&p, all.seed, number);
    problem_random(&twin, all.seed, number);
    rotated_make(&r, &p, all.seed, number);
    p.args.rope = r.rope.cos ? &r.rope : NULL;
    rotated_twin(&r, &p, &twin);
    for (int n = 0; n < context_count; n++) {
        if (!problem_try(contexts[n], &twin, why, sizeof why) || !problem_try(more_threads[n], &p, why, sizeof why))
            fail_case(contexts[n], &p, number, why);
        if (!problem_same_bits(&p, &twin))
            fail_case(contexts[n], &p, number, "results must be those of rotated operands");
        if (number % 3 == 0 && r.rope.cos && !packed_agrees(contexts[n], &p, &r, number, why, sizeof why))
            fail_case(contexts[n], &p, number, why);
    }
    rotated_free(&r);
    problem_free(&twin);
    problem_free(&p);
}

static void test_forward(void **state)
{
    (void)state;
    for (uint64_t n = all.first; n < all.end; n++)
        check_forward(n);
}

/* ---- backward pass ---- */

/* Returns true if a gradient equals `want`: bitwise, or within three roundings if it is 16 bits wide and rotated, since
 * the twin rounds its gradient before it is rotated back. */
static bool equal(const tensor *t, bool turned, double got, double want, double size)
{
    const bool narrow = t->dtype == MHA_BF16 || t->dtype == MHA_F16;
    if (narrow && turned) return fabs(got - want) <= (t->dtype == MHA_BF16 ? 0x3p-8 : 0x3p-11) * size + 1e-6;
    return got == want || (isnan(got) && isnan(want));
}

/* Compares row (b, h, l) of a gradient with row (tb, h, tl) of the twin's gradient, rotated back if `position` >= 0. */
static bool same_row(const rotated *r, const problem *p, const tensor *t, int64_t b, int64_t h, int64_t l,
                     const tensor *twin, int64_t tb, int64_t tl, int64_t position)
{
    double row[MHA_HEAD_DIM_MAX], size = 0;
    for (int64_t d = 0; d < t->dim[3]; d++) {
        row[d] = tensor_get(twin, tb, h, tl, d);
        size = fmax(size, fabs(row[d]));
    }
    if (position >= 0) rotated_turn(r, p, t->dim[3], position, true, row);
    for (int64_t d = 0; d < t->dim[3]; d++)
        if (!equal(t, position >= 0, tensor_get(t, b, h, l, d), row[d], size)) return false;
    return true;
}

static bool same_queries(const rotated *r, const problem *p, const tensor *dq, const tensor *twin)
{
    const bool turns = p->desc.inputs & MHA_ATTN_ROPE_Q;
    for (int64_t b = 0; dq->memory && b < dq->dim[0]; b++)
        for (int64_t h = 0; h < dq->dim[1]; h++)
            for (int64_t i = 0; i < dq->dim[2]; i++) {
                const bool exists = !(p->desc.inputs & MHA_ATTN_Q_LENS) || i < p->q_lens[b];
                const int64_t position = turns && exists ? rotated_row(r, p, b, i) : -1;
                if (!same_row(r, p, dq, b, h, i, twin, b, i, position)) return false;
            }
    return true;
}

/* Compares dk or dv, which may have pages, with the dense gradients of the twin. */
static bool same_keys(const rotated *r, const problem *p, const tensor *t, const tensor *twin, bool turns)
{
    const int64_t size = p->desc.page_size;
    for (int64_t b = 0; t->memory && b < twin->dim[0]; b++)
        for (int64_t g = 0; g < twin->dim[1]; g++)
            for (int64_t j = 0; j < (p->desc.inputs & MHA_ATTN_KV_LENS ? p->kv_lens[b] : twin->dim[2]); j++) {
                const int64_t position = turns ? rotated_key(r, b, j) : -1;
                const int64_t page = size ? p->table[b * p->table_width + j / size] : b;
                if (!same_row(r, p, t, page, g, size ? j % size : j, twin, b, j, position)) return false;
            }
    return true;
}

static bool same_gradients(const rotated *r, const problem *p, const gradients *g, const gradients *twin)
{
    for (int n = DBIAS; n < RESULTS; n++)
        if (g->result[n].memory && !tensor_same_bits(&g->result[n], &twin->result[n])) return false;
    return same_queries(r, p, &g->result[DQ], &twin->result[DQ]) &&
           same_keys(r, p, &g->result[DK], &twin->result[DK], p->desc.inputs & MHA_ATTN_ROPE_K) &&
           same_keys(r, p, &g->result[DV], &twin->result[DV], false);
}

/* Compares a problem, whose keys are paged in every second case, with its dense and rotated twin. */
static void check_backward(uint64_t number)
{
    problem p, twin;
    rotated r;
    gradients g, want;
    char why[1200];
    problem_random_for(&p, MHA_ATTN_LSE, all.seed, number);
    problem_random_for(&twin, MHA_ATTN_LSE, all.seed, number);
    rotated_make(&r, &p, all.seed, number);
    rotated_twin(&r, &p, &twin);
    if (number % 2) paged_make(&p, INT64_C(16) << number % 5, number);
    p.args.rope = r.rope.cos ? &r.rope : NULL;
    gradients_random(&g, &p, all.seed, number);
    gradients_random(&want, &twin, all.seed, number);
    for (int n = 0; n < context_count; n++) {
        if (!gradients_try(contexts[n], &twin, &want, why, sizeof why) ||
            !gradients_try(more_threads[n], &p, &g, why, sizeof why))
            fail_case(contexts[n], &p, number, why);
        if (!same_gradients(&r, &p, &g, &want))
            fail_case(contexts[n], &p, number, "gradients must be those of rotated, dense operands, rotated back");
    }
    gradients_free(&g);
    gradients_free(&want);
    rotated_free(&r);
    problem_free(&twin);
    problem_free(&p);
}

static void test_backward(void **state)
{
    (void)state;
    for (uint64_t n = all.first; n < all.first + (all.end - all.first + 1) / 2; n++)
        check_backward(n);
}

/* The gradient of a page of two sequences must be the sum of their gradients, and zero for unused pages and for rows
 * beyond the lengths. */
static void test_shared_pages(void **state)
{
    (void)state;
    enum { PAGE = 16, D = 8 };
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 2,
                             .heads = 2,
                             .kv_heads = 1,
                             .q_len = 3,
                             .kv_len = 24,
                             .head_dim = D,
                             .inputs = MHA_ATTN_KV_LENS,
                             .outputs = MHA_ATTN_LSE};
    problem p, twin;
    gradients g, want;
    problem_make(&p, &d, NULL, 5);
    problem_make(&twin, &d, NULL, 5);
    for (int n = 0; n < 2; n++)
        p.kv_lens[n] = twin.kv_lens[n] = 20 + n;
    paged_make(&p, PAGE, 6);
    p.table[p.table_width] = p.table[0]; /* both sequences begin with the same page */
    for (int64_t n = 0; n < PAGE * D; n++) {
        tensor_set(&twin.k, 1, 0, n / D, n % D, tensor_get(&twin.k, 0, 0, n / D, n % D));
        tensor_set(&twin.v, 1, 0, n / D, n % D, tensor_get(&twin.v, 0, 0, n / D, n % D));
    }
    gradients_make(&g, &p, NULL, 7);
    gradients_make(&want, &twin, NULL, 7);
    for (int n = 0; n < context_count; n++) {
        gradients_run(contexts[n], &p, &g);
        gradients_run(contexts[n], &twin, &want);
        double rest = 0;
        for (int which = DK; which <= DV; which++)
            for (int64_t page = 0; page < p.desc.pages; page++)
                for (int64_t j = 0; j < PAGE; j++)
                    for (int64_t e = 0; e < D; e++) {
                        double sum = 0;
                        for (int64_t at = 0; at < 4; at++) {
                            const int64_t b = at / 2, key = at % 2 * PAGE + j;
                            if (p.table[b * p.table_width + at % 2] == page && key < p.kv_lens[b])
                                sum = (float)(sum + tensor_get(&want.result[which], b, 0, key, e));
                        }
                        rest = fmax(rest, fabs(sum - tensor_get(&g.result[which], page, 0, j, e)));
                    }
        assert_true(rest == 0);
    }
    gradients_free(&g);
    gradients_free(&want);
    problem_free(&p);
    problem_free(&twin);
}

/* ---- finite differences ---- */

static double loss_of(problem *p, const gradients *g)
{
    double loss = 0;
    problem_run(contexts[0], p);
    for (int64_t n = 0; n < p->out.dim[1] * p->out.dim[2] * p->out.dim[3]; n++) {
        const int64_t h = n / (p->out.dim[2] * p->out.dim[3]), i = n / p->out.dim[3] % p->out.dim[2];
        loss += tensor_get(&p->out, 0, h, i, n % p->out.dim[3]) * tensor_get(&g->dout, 0, h, i, n % p->out.dim[3]);
    }
    return loss;
}

static void check_differences(problem *p, const gradients *g, tensor *x, const tensor *dx)
{
    static const double step = 1e-5;
    for (int64_t n = 0; n < x->dim[1] * x->dim[2] * x->dim[3]; n++) {
        const int64_t h = n / (x->dim[2] * x->dim[3]), i = n / x->dim[3] % x->dim[2], d = n % x->dim[3];
        const double old = tensor_get(x, 0, h, i, d);
        tensor_set(x, 0, h, i, d, old + step);
        const double above = loss_of(p, g);
        tensor_set(x, 0, h, i, d, old - step);
        const double slope = (above - loss_of(p, g)) / (2 * step);
        tensor_set(x, 0, h, i, d, old);
        if (fabs(slope - tensor_get(dx, 0, h, i, d)) > 1e-7 * (1 + fabs(slope)))
            fail_msg("the gradient must be %.12g (got %.12g)", slope, tensor_get(dx, 0, h, i, d));
    }
}

/* Gradients with respect to q and k before the rotation, in f64. */
static void test_differences(void **state)
{
    (void)state;
    for (uint64_t number = 0; number < 4; number++) {
        const mha_attn_desc d = {.size = sizeof d,
                                 .batch = 1,
                                 .heads = 2,
                                 .q_len = 3,
                                 .kv_len = 5,
                                 .head_dim = 7,
                                 .dtype = MHA_F64,
                                 .causal = 1,
                                 .align = MHA_ALIGN_BOTTOM_RIGHT,
                                 .outputs = MHA_ATTN_LSE};
        problem p;
        gradients g;
        rotated r;
        problem_make(&p, &d, NULL, number);
        rotated_make(&r, &p, 11, number);
        p.desc.inputs = MHA_ATTN_ROPE_Q | MHA_ATTN_ROPE_K;
        p.args.rope = &r.rope;
        gradients_make(&g, &p, NULL, number);
        gradients_run(contexts[0], &p, &g);
        check_differences(&p, &g, &p.q, &g.result[DQ]);
        check_differences(&p, &g, &p.k, &g.result[DK]);
        rotated_free(&r);
        gradients_free(&g);
        problem_free(&p);
    }
}

/* ---- refusals ---- */

static void refuse(problem *p, const mha_attn_rope *rope, const char *word)
{
    char why[1200];
    p->args.rope = rope;
    if (problem_try(contexts[0], p, why, sizeof why) || !strstr(why, word))
        fail_msg("the message must contain \"%s\" (got \"%s\")", word, why);
}

#define REFUSE(word, ...)           \
    do {                            \
        mha_attn_rope bad = r.rope; \
        bad.__VA_ARGS__;            \
        refuse(&p, &bad, word);     \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = 1,
                             .heads = 1,
                             .q_len = 4,
                             .kv_len = 6,
                             .head_dim = 8,
                             .align = MHA_ALIGN_BOTTOM_RIGHT};
    int64_t far[6] = {0, 1, 2, 15, -1, 0};
    problem p;
    rotated r;
    problem_make(&p, &d, NULL, 1);
    rotated_make(&r, &p, 1, 1);
    p.desc.inputs = MHA_ATTN_ROPE_Q | MHA_ATTN_ROPE_K;
    r.rope.q_positions.data = r.rope.k_positions.data = NULL;
    r.rope.first = 0;
    refuse(&p, NULL, "MHA_ATTN_ROPE_Q or MHA_ATTN_ROPE_K");
    REFUSE("rope.first", first = -1);
    REFUSE("rope.first", first = 7);
    REFUSE("rope.rotary_dim", rotary_dim = 3);
    REFUSE("rope.rotary_dim", rotary_dim = 10);
    REFUSE("rope.interleaved", interleaved = 2);
    REFUSE("rope.positions", positions = -1);
    REFUSE("rope.cos", cos = NULL);
    REFUSE("rope.sin", sin = (const char *)r.rope.sin + 1);
    REFUSE("rope.positions must be above the position 5 of row 3 of sequence 0 (got 5)", positions = 5);
    REFUSE("rope.q_positions: row 3 of sequence 0 must have a position", q_positions = (mha_cview){far, {0, 1, 0, 0}});
    REFUSE("rope.k_positions: key 1 of sequence 0 must have a position",
           k_positions = (mha_cview){far + 2, {0, 1, 0, 0}});
    REFUSE("out must not overlap rope.cos", cos = p.out.data);
    p.desc.kv_len = 2;
    REFUSE("row 0 of sequence 0 must have a position of at least 0 unless rope.q_positions is given (got -2)",
           first = 0);
    p.desc.kv_len = 6;
    p.desc.align = MHA_ALIGN_UNSET;
    refuse(&p, &r.rope, "align");
    p.desc.inputs = 0;
    refuse(&p, &r.rope, "MHA_ATTN_ROPE_Q");
    rotated_free(&r);
    problem_free(&p);
}

static int setup(void **state)
{
    (void)state;
    context_count = isas_create(contexts, 1);
    return isas_create(more_threads, 3) - context_count;
}

static int teardown(void **state)
{
    (void)state;
    isas_free(contexts, context_count);
    isas_free(more_threads, context_count);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_backward),
                                              cmocka_unit_test(test_shared_pages), cmocka_unit_test(test_differences),
                                              cmocka_unit_test(test_refusals)};
    all = cases_read(argc, argv, all);
    return cmocka_run_group_tests(tests, setup, teardown);
}
