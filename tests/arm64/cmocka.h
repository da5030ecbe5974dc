/* cmocka.h - a stand-in for what our tests use of cmocka, where the library is not to be had: the emulated ARM run,
 * which links nothing but libc. A failure prints its place and ends the program with 1.
 */
#ifndef TEST_ARM64_CMOCKA_H
#define TEST_ARM64_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*test)(void **state);
    int (*setup)(void **state);
    int (*teardown)(void **state);
};
#define cmocka_unit_test(f) \
    {                       \
        #f, f, NULL, NULL   \
    }
#define cmocka_unit_test_setup(f, setup) \
    {                                    \
        #f, f, setup, NULL               \
    }
#define cmocka_unit_test_setup_teardown(f, setup, teardown) \
    {                                                       \
        #f, f, setup, teardown                              \
    }

#define fail_msg(...)                                           \
    do {                                                        \
        fprintf(stderr, "%s:%d: failed: ", __FILE__, __LINE__); \
        fprintf(stderr, __VA_ARGS__);                           \
        fputc('\n', stderr);                                    \
        exit(1);                                                \
    } while (0)
#define assert_true(x)                \
    do {                              \
        if (!(x)) fail_msg("%s", #x); \
    } while (0)
#define assert_false(x) assert_true(!(x))
#define assert_null(p) assert_true((p) == NULL)
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define assert_in_range(x, low, high) assert_true((x) >= (low) && (x) <= (high))
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_string_not_equal(a, b) assert_true(strcmp(a, b) != 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define print_message printf
#define print_error printf

#define cmocka_run_group_tests(tests, setup, teardown) \
    cmocka_stand_in_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

static inline int cmocka_stand_in_run(const struct CMUnitTest *tests, size_t count, int (*setup)(void **),
                                      int (*teardown)(void **))
{
    void *group = NULL;
    if (setup && setup(&group) != 0) fail_msg("setup of all tests");
    for (size_t i = 0; i < count; i++) {
        void *state = group;
        if (tests[i].setup && tests[i].setup(&state) != 0) fail_msg("setup of %s", tests[i].name);
        tests[i].test(&state);
        if (tests[i].teardown && tests[i].teardown(&state) != 0) fail_msg("teardown of %s", tests[i].name);
        printf("%s: passed\n", tests[i].name);
    }
    if (teardown && teardown(&group) != 0) fail_msg("teardown of all tests");
    return 0;
}

#endif
