/* cmocka.h - the subset of cmocka that the property tests use, in one header, for programs that are built
 * for another CPU and run in an emulator, where cmocka is not installed. A program exits with 1 at its first failure.
 */
#ifndef EMULATED_CMOCKA_H
#define EMULATED_CMOCKA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
typedef int (*CMFixtureFunction)(void **state);

static inline void cmocka_require(bool holds, const char *what, const char *file, int line)
{
    if (holds) return;
    printf("\n%s:%d: %s\nFAILED\n", file, line, what);
    fflush(stdout);
    _Exit(1);
}

static inline int cmocka_run(const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                             CMFixtureFunction teardown)
{
    void *state = NULL;
    if (setup && setup(&state) != 0) return 1;
    for (size_t n = 0; n < count; n++) {
        printf("%s\n", tests[n].name);
        fflush(stdout);
        tests[n].run(&state);
    }
    return teardown ? teardown(&state) : 0;
}

#define cmocka_unit_test(function) \
    {                              \
        #function, function        \
    }
#define cmocka_run_group_tests(tests, setup, teardown) \
    cmocka_run(tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define print_message printf
#define print_error printf
#define fail_msg(...) (printf(__VA_ARGS__), cmocka_require(false, "failed", __FILE__, __LINE__))
#define assert_true(x) cmocka_require(x, #x, __FILE__, __LINE__)
#define assert_false(x) assert_true(!(x))
#define assert_null(x) cmocka_require((x) == NULL, #x " is not NULL", __FILE__, __LINE__)
#define assert_non_null(x) cmocka_require((x) != NULL, #x " is NULL", __FILE__, __LINE__)
#define assert_int_equal(a, b) cmocka_require((a) == (b), #a " is not " #b, __FILE__, __LINE__)
#define assert_string_equal(a, b) cmocka_require(strcmp(a, b) == 0, #a " is not " #b, __FILE__, __LINE__)
#define assert_memory_equal(a, b, n) cmocka_require(memcmp(a, b, n) == 0, #a " is not " #b, __FILE__, __LINE__)
#define assert_in_range(x, low, high) cmocka_require((x) >= (low) && (x) <= (high), #x, __FILE__, __LINE__)

#endif
