/* test_base_pool.c - tests the thread pool: each task must run exactly once, for any calling thread and any number of
 * threads, before and after fork(). */
#define _GNU_SOURCE /* for sched_setaffinity */
#include "base/ctx.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#elif __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif

enum { MAX = 1000, ROUNDS = 50 };

static mha_ctx *create(int threads)
{
    mha_error err = {0};
    mha_ctx *ctx = NULL;
    if (mha_ctx_create(&(mha_ctx_options){.size = sizeof(mha_ctx_options), .threads = threads}, &ctx, &err) != MHA_OK)
        fail_msg("%s", err.message);
    return ctx;
}

/* One parallel call. `hits` is not atomic, because each task writes its own element and the end of the call
 * synchronizes. `inside` counts the running tasks per worker number; each count must be at most 1. `faults` counts
 * errors, since cmocka's assertions work only on the thread of the test. */
typedef struct job {
    mha_ctx *ctx;
    int64_t count;
    int hits[MAX];
    atomic_int inside[1024];
    atomic_int faults;
    void (*extra)(struct job *, int64_t i);
} job;

static void run_task(void *arg, int64_t i, int worker)
{
    job *j = arg;
    bool in_range = i >= 0 && i < j->count && worker >= 0 && worker < mha__threads(j->ctx);
    if (!in_range || atomic_fetch_add(&j->inside[worker], 1) != 0) atomic_fetch_add(&j->faults, 1);
    if (!in_range) return;
    j->hits[i]++;
    if (j->extra) j->extra(j, i);
    atomic_fetch_sub(&j->inside[worker], 1);
}

/* Makes `rounds` parallel calls with `count` tasks each. Returns true if each task ran exactly once per call and no
 * fault was counted. */
static bool run_job(mha_ctx *ctx, int64_t count, int rounds, void (*extra)(job *, int64_t))
{
    job *j = calloc(1, sizeof *j);
    if (!j) return false;
    j->ctx = ctx;
    j->count = count;
    j->extra = extra;
    for (int r = 0; r < rounds; r++)
        mha__parallel(ctx, count, run_task, j);
    bool ok = atomic_load(&j->faults) == 0;
    for (int64_t i = 0; i < MAX; i++)
        ok = ok && j->hits[i] == (i < count ? rounds : 0);
    free(j);
    return ok;
}

static void each_task_runs_once(void **state)
{
    static const int threads[] = {1, 2, 3, 7, 16};
    static const int64_t counts[] = {0, 1, 2, 1000};
    (void)state;
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        mha_ctx *ctx = create(threads[t]);
        assert_int_equal(mha_ctx_threads(ctx), threads[t]);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            assert_true(run_job(ctx, counts[c], ROUNDS, NULL));
        mha_ctx_free(ctx);
    }
    assert_true(run_job(NULL, MAX, 1, NULL)); /* NULL selects the default context */
}

static void creating_and_freeing_leaks_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        mha_ctx *ctx = create(1 + i % 5);
        if (i % 2) assert_true(run_job(ctx, 7, 1, NULL));
        mha_ctx_free(ctx);
    }
}

/* ---- wake-up of sleeping workers ---- */

static pthread_barrier_t meeting;

/* Waits until every thread runs a task. If a worker does not wake up, the test hangs. */
static void meet(job *j, int64_t i)
{
    (void)j;
    (void)i;
    pthread_barrier_wait(&meeting);
}

static bool all_meet(mha_ctx *ctx)
{
    int threads = mha_ctx_threads(ctx);
    if (pthread_barrier_init(&meeting, NULL, (unsigned)threads) != 0) return false;
    /* one call while the workers sleep, then three calls before they fall asleep */
    bool ok = run_job(ctx, threads, 1, meet) && run_job(ctx, threads, 3, meet);
    pthread_barrier_destroy(&meeting);
    return ok;
}

static void every_worker_wakes_up(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 16; threads += 7) {
        mha_ctx *ctx = create(threads);
        for (int i = 0; i < ROUNDS; i++) {
            assert_true(all_meet(ctx));
            usleep(300); /* long enough for the workers to fall asleep */
        }
        mha_ctx_free(ctx);
    }
}

/* ---- nested and concurrent calls ---- */

static void nested(job *j, int64_t i)
{
    (void)i;
    if (!run_job(j->ctx, 10, 1, NULL)) atomic_fetch_add(&j->faults, 1);
}

static void nested_calls_run_on_the_calling_thread(void **state)
{
    mha_ctx *ctx = create(3);
    (void)state;
    assert_true(run_job(ctx, 40, 3, nested));
    mha_ctx_free(ctx);
}

typedef struct caller {
    mha_ctx *ctx;
    pthread_t thread;
    bool ok;
} caller;

static void *call_often(void *arg)
{
    caller *c = arg;
    c->ok = run_job(c->ctx, 100, ROUNDS, NULL);
    return NULL;
}

/* Makes parallel calls from `n` threads at the same time; thread i uses contexts[i % kinds]. */
static void call_from_threads(int n, mha_ctx *const *contexts, int kinds)
{
    caller callers[8] = {0};
    for (int i = 0; i < n; i++) {
        callers[i].ctx = contexts[i % kinds];
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_true(callers[i].ok);
    }
}

static void concurrent_contexts_and_callers(void **state)
{
    mha_ctx *contexts[2] = {create(3), create(2)};
    (void)state;
    call_from_threads(2, contexts, 2); /* two threads with one context each */
    call_from_threads(8, contexts, 1); /* eight threads with the same context */
    call_from_threads(8, contexts, 2);
    mha_ctx_free(contexts[0]);
    mha_ctx_free(contexts[1]);
}

/* ---- thread pools supplied by the caller ---- */

typedef struct own_pool {
    mha_ctx *ctx;
    int calls;
} own_pool;

static void own_parallel_for(void *user, int64_t count, void (*task)(void *, int64_t, int), void *arg)
{
    own_pool *own = user;
    own->calls++;
    for (int64_t i = count - 1; i >= 0; i--)
        task(arg, i, (int)(i % mha_ctx_threads(own->ctx)));
}

static void own_parallel_for_is_used(void **state)
{
    own_pool own = {0};
    mha_ctx_options options = {
        .size = sizeof options, .threads = 4, .parallel_for = own_parallel_for, .parallel_for_user = &own};
    (void)state;
    assert_int_equal(mha_ctx_create(&options, &own.ctx, NULL), MHA_OK);
    assert_int_equal(mha_ctx_threads(own.ctx), 4);
    assert_true(run_job(own.ctx, 100, 2, NULL));
    assert_int_equal(own.calls, 2);
    assert_true(run_job(own.ctx, 1, 1, NULL)); /* a call with a single task must not use the caller's pool */
    assert_int_equal(own.calls, 2);
    assert_true(run_job(own.ctx, 5, 1, nested)); /* a nested call must not use the caller's pool */
    assert_int_equal(own.calls, 3);
    mha_ctx_free(own.ctx);
}

/* ---- calls before and after fork() ---- */

static void skip_under_thread_sanitizer(void)
{
#ifdef THREAD_SANITIZER
    puts("skipped: the thread sanitizer does not support new threads in a child of fork()");
    skip();
#endif
}

static bool exits_with_0(pid_t child)
{
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Runs `what` with ctx in a child process. The child process then frees ctx and exits. Returns true if `what` returned
 * true. */
static bool in_child(mha_ctx *ctx, bool (*what)(mha_ctx *))
{
    pid_t child = fork();
    if (child == 0) {
        bool ok = what(ctx);
        mha_ctx_free(ctx);
        _exit(ok ? 0 : 1);
    }
    return child > 0 && exits_with_0(child);
}

static bool nothing(mha_ctx *ctx)
{
    (void)ctx;
    return true;
}

static bool grandchild_meets(mha_ctx *ctx)
{
    return all_meet(ctx) && in_child(ctx, all_meet) && all_meet(ctx);
}

static void child_processes_have_their_own_workers(void **state)
{
    (void)state;
    skip_under_thread_sanitizer();
    mha_ctx *ctx = create(3);
    assert_true(in_child(ctx, all_meet)); /* forks before the first parallel call */
    assert_true(all_meet(ctx));
    assert_true(in_child(ctx, all_meet)); /* forks after a parallel call */
    assert_true(in_child(ctx, nothing));
    assert_true(in_child(ctx, grandchild_meets));
    assert_true(all_meet(ctx));
    mha_ctx_free(ctx);
}

static pthread_barrier_t forked;

static void wait_for_fork(job *j, int64_t i)
{
    (void)j;
    if (i != 0) return;
    pthread_barrier_wait(&forked); /* the parallel call has begun, so the test may fork */
    pthread_barrier_wait(&forked); /* the fork is done, so the parallel call may continue */
}

static void *call_across_fork(void *arg)
{
    caller *c = arg;
    c->ok = run_job(c->ctx, 100, 1, wait_for_fork);
    return NULL;
}

/* Forks while another thread makes a parallel call. The child inherits a pool with a call that never ends, since the
 * child has no workers, and must still be able to make its own calls. */
static void fork_in_the_middle_of_a_call(void **state)
{
    (void)state;
    skip_under_thread_sanitizer();
    caller other = {.ctx = create(3)};
    pthread_barrier_init(&forked, NULL, 2);
    assert_int_equal(pthread_create(&other.thread, NULL, call_across_fork, &other), 0);
    pthread_barrier_wait(&forked);
    bool child_ok = in_child(other.ctx, all_meet);
    pthread_barrier_wait(&forked);
    pthread_join(other.thread, NULL);
    pthread_barrier_destroy(&forked);
    assert_true(child_ok && other.ok);
    assert_true(all_meet(other.ctx));
    mha_ctx_free(other.ctx);
}

/* ---- limited resources ---- */

static void count_warning(void *user, int level, const char *message)
{
    if (level == 0 && strstr(message, "of 1024 threads could be started")) ++*(int *)user;
}

/* If only 200 MiB of address space are available, too little for the stacks of 1024 threads, parallel calls must
 * succeed with fewer threads and one warning. */
static bool fewer_threads_will_do(mha_ctx *unused)
{
    mha_ctx *ctx = NULL;
    int warnings = 0;
    mha_ctx_options options = {.size = sizeof options, .threads = 1024, .log = count_warning, .log_user = &warnings};
    (void)unused;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){200 << 20, 200 << 20}) != 0) return false;
    bool ok = mha_ctx_create(&options, &ctx, NULL) == MHA_OK && warnings == 1 && mha_ctx_threads(ctx) < 1024 &&
              run_job(ctx, 100, 3, NULL);
    mha_ctx_free(ctx);
    return ok;
}

static void threads_that_cannot_be_started(void **state)
{
    (void)state;
#if defined(THREAD_SANITIZER) || defined(ADDRESS_SANITIZER)
    puts("skipped: with a sanitizer, the process needs more address space than this test permits");
    skip();
#endif
    assert_true(in_child(NULL, fewer_threads_will_do));
}

static void threads_follow_the_affinity(void **state)
{
#ifdef __linux__
    cpu_set_t before, one;
    (void)state;
    unsetenv("MHA_THREADS");
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    mha_ctx *ctx = create(0);
    int threads = mha_ctx_threads(ctx);
    mha_ctx_free(ctx);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(threads, 1);
    ctx = create(0);
    assert_int_equal(mha_ctx_threads(ctx), CPU_COUNT(&before));
    mha_ctx_free(ctx);
#else
    (void)state;
    puts("skipped: CPU affinity is only supported on Linux");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_task_runs_once),
        cmocka_unit_test(creating_and_freeing_leaks_nothing),
        cmocka_unit_test(every_worker_wakes_up),
        cmocka_unit_test(nested_calls_run_on_the_calling_thread),
        cmocka_unit_test(concurrent_contexts_and_callers),
        cmocka_unit_test(own_parallel_for_is_used),
        cmocka_unit_test(child_processes_have_their_own_workers),
        cmocka_unit_test(fork_in_the_middle_of_a_call),
        cmocka_unit_test(threads_that_cannot_be_started),
        cmocka_unit_test(threads_follow_the_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
