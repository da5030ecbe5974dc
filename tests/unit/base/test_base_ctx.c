/* test_base_ctx.c - tests contexts: options, environment variables, ISA limits, allocators, log messages and failures
 * of mha_ctx_create. */
#include "base/ctx.h"
#include "base/struct_size.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { ISAS_MAX = 16 };

static mha_ctx_options options(void)
{
    return (mha_ctx_options){.size = sizeof(mha_ctx_options)};
}

static mha_ctx *create(const mha_ctx_options *given)
{
    mha_error err = {0};
    mha_ctx *ctx = NULL;
    if (mha_ctx_create(given, &ctx, &err) != MHA_OK) fail_msg("%s", err.message);
    return ctx;
}

/* Fails unless mha_ctx_create with the options `given` returns `want`, sets *ctx to NULL and writes a message that
 * contains `words`. */
static void refuse(const mha_ctx_options *given, mha_status want, const char *words)
{
    mha_error err = {0};
    mha_ctx *ctx = (mha_ctx *)&err;
    assert_int_equal(mha_ctx_create(given, &ctx, &err), want);
    assert_int_equal(err.status, want);
    assert_null(ctx);
    if (!strstr(err.message, words)) fail_msg("\"%s\" must contain \"%s\"", err.message, words);
    assert_int_equal(mha_ctx_create(given, &ctx, NULL), want);
}

static int clear_environment(void **state)
{
    (void)state;
    return unsetenv("MHA_THREADS") || unsetenv("MHA_ISA");
}

/* ---- options structs ---- */

typedef struct example {
    size_t size;
    int64_t first, second;
} example;

static void options_of_every_version(void **state)
{
    struct {
        example known;
        int64_t later;
    } newer = {.known = {.first = 1, .second = 2}};
    example own;
    mha_error err = {0};
    (void)state;
    assert_int_equal(mha__options_read(&own, sizeof own, NULL, "example", &err), MHA_OK);
    assert_true(own.size == sizeof own && own.first == 0 && own.second == 0);

    newer.known.size = sizeof newer;
    assert_int_equal(mha__options_read(&own, sizeof own, &newer, "example", &err), MHA_OK);
    assert_true(own.size == sizeof own && own.first == 1 && own.second == 2);
    newer.later = 1;
    assert_int_equal(mha__options_read(&own, sizeof own, &newer, "example", &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "example.size must be at most 24 "));

    /* a caller may use an older, shorter struct: fields after its end must be set to 0, not read */
    newer.known.size = offsetof(example, second);
    assert_int_equal(mha__options_read(&own, sizeof own, &newer, "example", &err), MHA_OK);
    assert_true(own.size == sizeof own && own.first == 1 && own.second == 0);

    for (size_t bad = 0; bad < sizeof(size_t); bad++) {
        newer.known.size = bad;
        assert_int_equal(mha__options_read(&own, sizeof own, &newer, "example", &err), MHA_ERR_ARG);
        assert_non_null(strstr(err.message, "must be sizeof(example) = 24"));
    }
}

/* Libraries that are built on libmha must be able to read their own structs by the same rules. */
static void structs_of_every_version(void **state)
{
    example own = {0};
    mha_error err = {0};
    example given = {.size = offsetof(example, second), .first = 1, .second = 2};
    (void)state;
    assert_int_equal(mha_struct_read(&own, sizeof own, &given, "example", &err), MHA_OK);
    assert_true(own.size == sizeof own && own.first == 1 && own.second == 0);
    given.size = sizeof given;
    assert_int_equal(mha_struct_read(&own, offsetof(example, second), &given, "example", &err), MHA_ERR_UNSUPPORTED);
    given.second = 0;
    assert_int_equal(mha_struct_read(&own, offsetof(example, second), &given, "example", &err), MHA_OK);
    assert_true(own.size == offsetof(example, second) && own.first == 1);
    assert_int_equal(mha_struct_read(&own, sizeof own, NULL, "example", &err), MHA_OK);
    assert_true(own.size == sizeof own && own.first == 0);

    assert_int_equal(mha_struct_read(NULL, sizeof own, &given, "example", &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "own must not be NULL");
    assert_int_equal(mha_struct_read(&own, sizeof own, &given, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "name must not be NULL");
    assert_int_equal(mha_struct_read(&own, 4, &given, "example", &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "own_size must be at least 8 (got 4)");
}

static void bad_options_are_refused(void **state)
{
    mha_ctx_options bad = {0};
    (void)state;
    refuse(&bad, MHA_ERR_ARG, "mha_ctx_options.size must be");
    bad = options();
    bad.threads = -1;
    refuse(&bad, MHA_ERR_ARG, "threads must be from 0 (all CPUs) to 1024 (got -1)");
    bad.threads = 1025;
    refuse(&bad, MHA_ERR_ARG, "threads must be from 0 (all CPUs) to 1024 (got 1025)");
    bad = options();
    bad.allocator.free = (void (*)(void *, void *))abort;
    refuse(&bad, MHA_ERR_ARG, "allocator.alloc must not be NULL if allocator.free is set");
    assert_int_equal(mha_ctx_create(NULL, NULL, NULL), MHA_ERR_ARG);
    mha_ctx_free(NULL);
}

/* ---- threads and instruction sets ---- */

static void threads_come_from_option_then_environment(void **state)
{
    static const char *const bad[] = {"0",  "-2", "two", "2x",  "1025",    "99999999999999999999",
                                      " 3", "3 ", "+3",  "0x3", "\x1B[31m"};
    mha_ctx_options given = options();
    (void)state;
    setenv("MHA_THREADS", "3", 1);
    mha_ctx *ctx = create(&given);
    assert_int_equal(mha_ctx_threads(ctx), 3);
    mha_ctx_free(ctx);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("MHA_THREADS", bad[i], 1);
        refuse(&given, MHA_ERR_ARG, "MHA_THREADS must be a whole number from 1 to 1024 (got \"");
    }
    given.threads = 2; /* an environment variable must be ignored if its option is set */
    ctx = create(&given);
    assert_int_equal(mha_ctx_threads(ctx), 2);
    mha_ctx_free(ctx);
    setenv("MHA_THREADS", "", 1);
    ctx = create(NULL);
    assert_in_range(mha_ctx_threads(ctx), 1, 1024);
    mha_ctx_free(ctx);
}

static void isa_list_begins_with_scalar(void **state)
{
    const char *names[ISAS_MAX] = {NULL};
    int count = mha_isa_list(names, ISAS_MAX);
    (void)state;
    assert_in_range(count, 1, ISAS_MAX);
    assert_string_equal(names[0], "scalar");
    for (int i = 1; i < count; i++)
        assert_string_not_equal(names[i], names[i - 1]);
    assert_int_equal(mha_isa_list(NULL, 0), count);
    const char *one[2] = {NULL, "untouched"};
    assert_int_equal(mha_isa_list(one, 1), count);
    assert_string_equal(one[1], "untouched");
}

static void every_isa_of_the_cpu_can_be_the_limit(void **state)
{
    const char *names[ISAS_MAX];
    int count = mha_isa_list(names, ISAS_MAX);
    (void)state;
    mha_ctx *best = create(NULL);
    assert_string_equal(mha_ctx_isa(best), mha__isa_name(mha__cpu_best()));
    mha_ctx_free(best);
    for (int i = 0; i < count; i++) {
        mha_ctx_options given = options();
        given.isa = names[i];
        mha_ctx *ctx = create(&given);
        assert_string_equal(mha_ctx_isa(ctx), names[i]);
        mha_ctx_free(ctx);
        setenv("MHA_ISA", names[i], 1);
        ctx = create(NULL);
        assert_string_equal(mha_ctx_isa(ctx), names[i]);
        mha_ctx_free(ctx);
        unsetenv("MHA_ISA");
    }
}

static void unknown_and_missing_isas_are_rejected(void **state)
{
    mha_ctx_options given = options();
    (void)state;
    given.isa = "sse9";
    refuse(&given, MHA_ERR_ARG, "isa must be one of scalar");
    given.isa = "";
    refuse(&given, MHA_ERR_ARG, "(got \"\", which is unknown)");
    given.isa = NULL;
    setenv("MHA_ISA", "AVX2\n", 1);
    refuse(&given, MHA_ERR_ARG, "(got \"AVX2\\x0A\", which is unknown)");
    int absent = 0;
    for (int isa = 0; isa < MHA__ISAS; isa++) {
        if (mha__cpu_has((mha__isa)isa)) continue;
        given.isa = mha__isa_name((mha__isa)isa);
        refuse(&given, MHA_ERR_ARG, "which this CPU does not support)");
        absent++;
    }
    assert_true(absent > 0); /* at least one ISA must be absent, since no CPU has both neon and avx2 */
}

static void isa_levels_form_chains(void **state)
{
    (void)state;
    assert_true(mha__cpu_has(MHA__SCALAR));
    assert_true(mha__cpu_has(mha__cpu_best()));
    for (int isa = MHA__AVX512; isa < MHA__ISAS; isa++)
        assert_true(!mha__cpu_has((mha__isa)isa) || mha__cpu_has((mha__isa)(isa - 1)));
    assert_false(mha__cpu_has(MHA__ISAS));
    assert_string_equal(mha__isa_name(MHA__ISAS), "unknown");
#if defined(__x86_64__)
    assert_false(mha__cpu_has(MHA__NEON));
    if (mha__cpu_has(MHA__AVX2)) assert_true(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    if (mha__cpu_has(MHA__AVX512))
        assert_true(__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
#elif defined(__aarch64__)
    assert_int_equal(mha__cpu_best(), MHA__NEON);
#endif
}

/* By default, avx512bf16 must be selected only on AMD CPUs, but every other ISA on any CPU that supports it. */
static void slow_isas_are_not_the_default(void **state)
{
    (void)state;
    assert_true(mha__cpu_pairs_pay("AuthenticAMD"));
    assert_false(mha__cpu_pairs_pay("GenuineIntel"));
    assert_false(mha__cpu_pairs_pay("CentaurHauls"));
    for (int isa = 0; isa < MHA__ISAS; isa++)
        assert_true(mha__cpu_favors((mha__isa)isa) || isa == MHA__AVX512BF16);
    assert_true(mha__cpu_favors(mha__cpu_best()));
    for (int isa = mha__cpu_best() + 1; isa < MHA__ISAS; isa++)
        assert_false(mha__cpu_has((mha__isa)isa) && mha__cpu_favors((mha__isa)isa));
#if defined(__x86_64__)
    __builtin_cpu_init();
    assert_int_equal(mha__cpu_favors(MHA__AVX512BF16), __builtin_cpu_is("amd") != 0);
#else
    assert_false(mha__cpu_favors(MHA__AVX512BF16));
#endif
}

/* ---- memory ---- */

typedef struct counter {
    int made, live;
    int fail_at; /* number of the allocation that fails, counted from 1; 0 = none */
} counter;

static void *counting_alloc(void *user, size_t bytes, size_t align)
{
    counter *c = user;
    void *memory = NULL;
    if (++c->made == c->fail_at || posix_memalign(&memory, align, bytes) != 0) return NULL;
    c->live++;
    return memory;
}

static void counting_free(void *user, void *memory)
{
    ((counter *)user)->live--;
    free(memory);
}

static mha_ctx_options counted(counter *c)
{
    mha_ctx_options given = options();
    given.allocator = (mha_allocator){counting_alloc, counting_free, c};
    given.threads = 3;
    return given;
}

static void memory_is_aligned_counted_and_returned(void **state)
{
    counter c = {0};
    mha_ctx_options given = counted(&c);
    mha_ctx *ctx = create(&given);
    (void)state;
    int before = c.live;
    assert_true(before >= 1);
    for (size_t bytes = 1; bytes < 300; bytes += 37) {
        unsigned char *memory = mha_alloc(ctx, bytes);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        memset(memory, 0xAA, bytes);
        mha_free(ctx, memory);
    }
    unsigned char *zeros = mha__calloc(ctx, 7, 11);
    for (int i = 0; i < 77; i++)
        assert_int_equal(zeros[i], 0);
    mha__free(ctx, zeros);
    int made = c.made;
    assert_null(mha_alloc(ctx, 0));
    assert_null(mha__calloc(ctx, SIZE_MAX / 2, 3));
    assert_null(mha__calloc(ctx, 0, 8));
    mha_free(ctx, NULL);
    assert_int_equal(c.made, made); /* the calls above must not allocate memory */
    assert_int_equal(c.live, before);
    mha_ctx_free(ctx);
    assert_int_equal(c.live, 0);
}

static void each_allocation_failing_in_turn(void **state)
{
    counter c = {0};
    mha_ctx_options given = counted(&c);
    (void)state;
    mha_ctx_free(create(&given));
    int all = c.made;
    assert_true(all >= 2);
    for (int n = 1; n <= all; n++) {
        mha_error err = {0};
        mha_ctx *ctx = (mha_ctx *)&err;
        c = (counter){.fail_at = n};
        assert_int_equal(mha_ctx_create(&given, &ctx, &err), MHA_ERR_MEMORY);
        assert_null(ctx);
        assert_int_equal(c.live, 0);
        assert_non_null(strstr(err.message, "out of memory"));
    }
    mha_error err = {0};
    assert_int_equal(mha__no_memory(&err, 123, "a thing"), MHA_ERR_MEMORY);
    assert_string_equal(err.message, "out of memory: 123 bytes for a thing");
}

static void impossible_sizes_fail_in_the_default_allocator(void **state)
{
    (void)state;
    assert_null(mha_alloc(NULL, SIZE_MAX));
    void *memory = mha_alloc(NULL, 100);
    assert_non_null(memory);
    mha_free(NULL, memory);
}

/* ---- log messages ---- */

typedef struct listener {
    int level, calls;
    char line[2048];
} listener;

static void hear(void *user, int level, const char *message)
{
    listener *l = user;
    l->level = level;
    l->calls++;
    snprintf(l->line, sizeof l->line, "%s", message);
}

static void log_lines_reach_the_callback(void **state)
{
    listener l = {0};
    mha_ctx_options given = options();
    (void)state;
    given.log = hear;
    given.log_user = &l;
    given.threads = 1;
    mha_ctx *ctx = create(&given);
    mha__log(ctx, 1, "%s has %d heads", "layer 3", 12);
    assert_int_equal(l.level, 1);
    assert_string_equal(l.line, "layer 3 has 12 heads");
    mha__log(ctx, 0, "%02000d", 7);
    assert_in_range(strlen(l.line), 500, 1999); /* a message longer than the buffer must be truncated, not dropped */
    mha_ctx_free(ctx);
    mha__log(NULL, 0, "nobody listens");
}

static int stop_at_two(void *user, const char *what, int64_t done, int64_t total)
{
    ++*(int *)user;
    return strcmp(what, "layers") == 0 && done == 2 && total == 6;
}

static void progress_can_cancel(void **state)
{
    int calls = 0;
    mha_error err = {0};
    mha_ctx_options given = options();
    (void)state;
    given.progress = stop_at_two;
    given.progress_user = &calls;
    mha_ctx *ctx = create(&given);
    assert_int_equal(mha__progress(ctx, "layers", 1, 6, &err), MHA_OK);
    assert_int_equal(mha__progress(ctx, "layers", 2, 6, &err), MHA_ERR_CANCELED);
    assert_int_equal(calls, 2);
    assert_non_null(strstr(err.message, "layers, 2 of 6"));
    mha_ctx_free(ctx);
    assert_int_equal(mha__progress(NULL, "layers", 2, 6, &err), MHA_OK);
}

/* ---- default context (each test runs in a child process, since a process has only one default context) ---- */

static bool default_works(void)
{
    mha_error err = {0};
    mha_ctx *ctx = NULL;
    return mha__ctx_find(&ctx, &err) == MHA_OK && ctx && ctx == mha__ctx(NULL) && mha__ctx(ctx) == ctx &&
           mha_ctx_threads(NULL) == 2 && mha__threads(ctx) == 2 && strcmp(mha_ctx_isa(NULL), "scalar") == 0;
}

static void nothing(void *arg, int64_t i, int worker)
{
    (void)i;
    (void)worker;
    ++*(int *)arg;
}

static bool default_fails_with_a_sentence(void)
{
    mha_error err = {0};
    mha_ctx *ctx = NULL;
    int calls = 0;
    /* mha__parallel returns no status, so it must work without a default context */
    mha__parallel(NULL, 5, nothing, &calls);
    mha_free(NULL, NULL);
    return mha__ctx_find(&ctx, &err) == MHA_ERR_ARG && !ctx && strstr(err.message, "(got \"nonsense\",") &&
           !mha__ctx(NULL) && !mha_alloc(NULL, 8) && calls == 5 && mha_ctx_threads(NULL) == 1;
}

static bool in_child(bool (*check)(void), const char *threads, const char *isa)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("MHA_THREADS", threads, 1);
        setenv("MHA_ISA", isa, 1);
        _exit(check() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void default_context_reads_the_environment_once(void **state)
{
    (void)state;
    assert_true(in_child(default_works, "2", "scalar"));
    assert_true(in_child(default_fails_with_a_sentence, "2", "nonsense"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(default_context_reads_the_environment_once,
                               clear_environment), /* must be the first test, so that no default context exists yet */
        cmocka_unit_test(options_of_every_version),
        cmocka_unit_test(structs_of_every_version),
        cmocka_unit_test_setup(bad_options_are_refused, clear_environment),
        cmocka_unit_test_setup_teardown(threads_come_from_option_then_environment, clear_environment,
                                        clear_environment),
        cmocka_unit_test(isa_list_begins_with_scalar),
        cmocka_unit_test_setup(every_isa_of_the_cpu_can_be_the_limit, clear_environment),
        cmocka_unit_test_setup_teardown(unknown_and_missing_isas_are_rejected, clear_environment, clear_environment),
        cmocka_unit_test(isa_levels_form_chains),
        cmocka_unit_test(slow_isas_are_not_the_default),
        cmocka_unit_test_setup(memory_is_aligned_counted_and_returned, clear_environment),
        cmocka_unit_test_setup(each_allocation_failing_in_turn, clear_environment),
        cmocka_unit_test(impossible_sizes_fail_in_the_default_allocator),
        cmocka_unit_test(log_lines_reach_the_callback),
        cmocka_unit_test(progress_can_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
