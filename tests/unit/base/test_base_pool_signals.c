/* test_base_pool_signals.c - a worker must receive only the signals that its own instructions raise. */
#include "base/ctx.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { THREADS = 4, TASKS = 1000 };

static mha_ctx *create(void)
{
    mha_error err = {0};
    mha_ctx *ctx = NULL;
    if (mha_ctx_create(&(mha_ctx_options){.size = sizeof(mha_ctx_options), .threads = THREADS}, &ctx, &err) != MHA_OK)
        fail_msg("%s", err.message);
    return ctx;
}

/* ---- signals sent to the process ---- */

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
    (void)number;
    signals++;
}

static void count_task(void *arg, int64_t i, int worker)
{
    (void)i, (void)worker;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void workers_receive_no_process_signals(void **state)
{
    sigset_t usr1, before, pending;
    atomic_int tasks = 0;
    (void)state;
    mha_ctx *ctx = create();
    assert_int_equal(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = count_signal}, NULL), 0);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, &before);
    kill(getpid(), SIGUSR1);
    mha__parallel(ctx, TASKS, count_task, &tasks);
    assert_int_equal(atomic_load(&tasks), TASKS);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1)); /* SIGUSR1 must still be pending, since no worker may handle it */
    assert_int_equal(signals, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(signals, 1);
    assert_false(sigismember(&before, SIGUSR1)); /* mha_ctx_create must have restored the signal mask of this thread */
    mha_ctx_free(ctx);
}

/* ---- signals raised by a worker ---- */

static size_t page;
static atomic_int lost;
static pthread_barrier_t meeting;

/* Signal handler: maps a page of zeros at the address of the fault, which is after the end of the truncated file. The
 * faulting instruction then succeeds. */
static void replace_page(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    void *start = (void *)((uintptr_t)info->si_addr / page * page);
    if (mmap(start, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != start) _exit(1);
    atomic_fetch_add(&lost, 1);
}

static void read_page(void *arg, int64_t i, int worker)
{
    (void)worker;
    pthread_barrier_wait(&meeting); /* waits until every thread has a task */
    if (((volatile const char *)arg)[(size_t)i * page] != 0) atomic_fetch_add(&lost, TASKS);
}

static void workers_receive_the_signals_that_they_raise(void **state)
{
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    mha_ctx *ctx = create();
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)(THREADS * page)), 0);
    char *map = mmap(NULL, THREADS * page, PROT_READ, MAP_SHARED, fileno(file), 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    const struct sigaction replace = {.sa_sigaction = replace_page, .sa_flags = SA_SIGINFO};
    struct sigaction before;
    assert_int_equal(sigaction(SIGBUS, &replace, &before), 0);
    assert_int_equal(pthread_barrier_init(&meeting, NULL, THREADS), 0);
    mha__parallel(ctx, THREADS, read_page, map);
    assert_int_equal(atomic_load(&lost), THREADS);
    sigaction(SIGBUS, &before, NULL);
    pthread_barrier_destroy(&meeting);
    munmap(map, THREADS * page);
    fclose(file);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_receive_no_process_signals),
        cmocka_unit_test(workers_receive_the_signals_that_they_raise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
