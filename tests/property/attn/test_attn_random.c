/* test_attn_random.c - compares the operator on random problems with a higher-precision reference, on every ISA.
 * Some problems are repeated with packed sequences; the results must be bitwise identical.
 *
 * test_attn_random [--seed S] [--cases N] [--case K]
 *
 * A failure prints the command that reproduces only the failing case. */
#include "support/attn/packed.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include "support/random_cases.h"

static cases all = {.seed = 20261121, .end = 300};
static double worst[PROBLEM_ISAS];
static unsigned long long run_on[PROBLEM_ISAS]; /* number of cases per ISA */

static bool packed_agrees(mha_ctx *ctx, const problem *padded, uint64_t number, char *why, size_t capacity)
{
    problem p;
    problem_random(&p, all.seed, number);
    packed_make(&p, all.seed ^ number);
    const bool ok = problem_try(ctx, &p, why, capacity) && packed_same(&p, padded, why, capacity);
    problem_free(&p);
    return ok;
}

static void check_case(uint64_t number)
{
    problem p;
    ref_result truth, plain;
    char why[1200], text[400];
    problem_random(&p, all.seed, number);
    ref_truth(&p.desc, &p.args, &truth);
    ref_plain(&p.desc, &p.args, &plain);
    for (int n = 0; n < isa_count_of(p.desc.dtype); n++) {
        run_on[n]++;
        if (!problem_try(isa_contexts[n], &p, why, sizeof why) ||
            !problem_near(&p, &truth, &plain, &worst[n], why, sizeof why) ||
            (number % 3 == 0 && !packed_agrees(isa_contexts[n], &p, number, why, sizeof why)))
            fail_msg("%s: %s\n  %s\n  to reproduce: test_attn_random --seed %llu --case %llu",
                     mha_ctx_isa(isa_contexts[n]), why, problem_text(&p, text, sizeof text),
                     (unsigned long long)all.seed, (unsigned long long)number);
    }
    ref_free(&truth);
    ref_free(&plain);
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
