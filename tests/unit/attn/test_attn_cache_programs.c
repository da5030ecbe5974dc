/* test_attn_cache_programs.c - after any sequence of operations, a KV cache must have the same contents as a simple
 * model of the cache. The sequences are random; tests/fuzz/targets/fuzz_cache.c generates further sequences by fuzzing.
 *
 * test_attn_cache_programs [--seed S] [--cases N] [--case K] */
#include "support/attn/cached_program.h"
#include "support/check.h"
#include "support/random_cases.h"
#include "support/rng.h"
#include <stdio.h>

enum { BYTES = 700 };

static cases wanted;
static cached_tally tally;

static void test_random_programs(void **state)
{
    (void)state;
    for (uint64_t number = wanted.first; number < wanted.end; number++) {
        uint8_t bytes[BYTES];
        rng r = rng_make(wanted.seed, number);
        for (int n = 0; n < BYTES; n++)
            bytes[n] = (uint8_t)rng_next(&r);
        const char *law = cached_program(bytes, BYTES, &tally);
        if (law)
            fail_msg("rule violated: %s\n  to reproduce: test_attn_cache_programs --seed %llu --case %llu", law,
                     (unsigned long long)wanted.seed, (unsigned long long)number);
    }
}

/* The random programs must cover every operation with each of its possible outcomes: success, a rejected argument and a
 * failed allocation. */
static void test_programs_reach_everything(void **state)
{
    (void)state;
    static const cached_operation refusable[] = {CACHED_TRUNCATE, CACHED_FORK, CACHED_CLEAR, CACHED_RELOAD,
                                                 CACHED_ATTEND};
    static const cached_operation starvable[] = {CACHED_APPEND_ONE, CACHED_APPEND_ALL, CACHED_RELOAD, CACHED_ATTEND};
    if (wanted.end - wanted.first < 50) skip();
    for (int n = 0; n < CACHED_OPERATIONS; n++)
        assert_true(tally.done[n] > 20);
    for (size_t n = 0; n < sizeof refusable / sizeof *refusable; n++)
        assert_true(tally.refused[refusable[n]] > 0);
    for (size_t n = 0; n < sizeof starvable / sizeof *starvable; n++)
        assert_true(tally.starved[starvable[n]] > 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_programs),
                                              cmocka_unit_test(test_programs_reach_everything)};
    wanted = cases_read(argc, argv, (cases){.seed = 1, .end = 300});
    return cmocka_run_group_tests(tests, NULL, NULL);
}
