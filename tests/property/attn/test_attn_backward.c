/* test_attn_backward.c - compares the backward pass of random problems with a higher-precision reference, on every
 * ISA.
 *
 * test_attn_backward [--seed S] [--cases N] [--case K]
 *
 * A failure prints the command that reproduces only the failing case. */
#include "support/attn/grads.h"
#include "support/check.h"
#include "support/isas.h"
#include "support/random_cases.h"

static cases all = {.seed = 20261121, .end = 120};
static double worst[PROBLEM_ISAS];
static unsigned long long run_on[PROBLEM_ISAS]; /* number of cases per ISA */

/* Runs the forward pass, whose out and lse the reference reads, then the backward pass, and compares the gradients with
 * the reference. Returns false with the reason in `why` if a gradient is outside its tolerance. */
static bool check_on(mha_ctx *ctx, problem *p, gradients *g, double *max, char *why, size_t capacity)
{
    gradients_truth wide, plain;
    if (!gradients_try(ctx, p, g, why, capacity)) return false;
    gradients_ref(p, g, true, &wide);
    gradients_ref(p, g, false, &plain);
    const bool ok = gradients_near(g, &wide, &plain, max, why, capacity);
    gradients_ref_free(&wide);
    gradients_ref_free(&plain);
    return ok;
}

static void check_case(uint64_t number)
{
    problem p;
    gradients g;
    char why[1200], text[400];
    problem_random_for(&p, MHA_ATTN_LSE, all.seed, number);
    gradients_random(&g, &p, all.seed, number);
    for (int n = 0; n < isa_count_of(p.desc.dtype); n++, run_on[n - 1]++)
        if (!check_on(isa_contexts[n], &p, &g, &worst[n], why, sizeof why))
            fail_msg("%s: %s\n  %s\n  to reproduce: test_attn_backward --seed %llu --case %llu",
                     mha_ctx_isa(isa_contexts[n]), why, problem_text(&p, text, sizeof text),
                     (unsigned long long)all.seed, (unsigned long long)number);
    gradients_free(&g);
    problem_free(&p);
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t n = all.first; n < all.end; n++)
        check_case(n);
    for (int n = 0; n < isa_count; n++)
        print_message("%s: %llu cases, largest error %.2f of its tolerance\n", mha_ctx_isa(isa_contexts[n]), run_on[n],
                      worst[n]);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    all = cases_read(argc, argv, all);
    return cmocka_run_group_tests(tests, isa_setup_two, isa_teardown);
}
