/* pool.c - workers that execute the tasks of one call at a time.
 *
 * One word, `state`, describes a call: its serial number, whether it is open, and the number of workers inside. The
 * caller stores the task, then opens the call. A worker that sees a new open call enters by adding 1 to `state`, takes
 * task indices from `next` until none remain, and leaves by subtracting 1. The caller also runs tasks, then closes the
 * call and waits for the workers inside. A worker that wakes up too late finds the call closed, so the caller never
 * waits for a sleeping worker.
 *
 * Invariant: task, arg and count change only while the call is closed and no worker is inside.
 *
 * Threads wait by spinning briefly, then sleeping. A worker increments `sleepers` before it reads `state` for the last
 * time before sleeping, and the caller opens the call before it reads `sleepers`. These operations are sequentially
 * consistent. Therefore, either the worker sees the open call, or the caller sees the sleeper, and no wakeup is lost.
 */
#include "base/pool.h"

#if !defined(__wasi__) /* pool_one_thread.c replaces this file there */
#include "base/ctx_struct.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Number of pause instructions before a thread sleeps. Each instruction takes 40 to 140 cycles, so a thread spins for a
 * few microseconds, which is longer than the time between two parallel calls of a forward pass. */
enum { SPINS = 128 };
/* Stack of a worker. Tasks keep their scratch memory in workspaces. The largest stack frame, that of a split
 * product, takes 150 KiB. */
enum { STACK_BYTES = 1 << 20 };
enum { CACHE_LINE = 64 };

#define INSIDE UINT64_C(0xFFFF) /* mask of the number of workers inside the call */
#define OPEN UINT64_C(0x10000)
#define SERIAL UINT64_C(0x20000) /* one increment of the serial number, which occupies the bits above INSIDE and OPEN */

typedef struct worker {
    mha__pool *pool;
    pthread_t thread;
    int index; /* 1 or more; the caller has index 0 */
} worker;

struct mha__pool {
    _Alignas(CACHE_LINE) _Atomic uint64_t state;
    _Alignas(CACHE_LINE) _Atomic int64_t next;
    _Alignas(CACHE_LINE) mha__task_fn task;
    void *arg;
    int64_t count;
    long pid;    /* the process that started the workers */
    int threads; /* maximum number of concurrent threads, including the caller */
    int running; /* workers started in this process */
    atomic_bool stop;
    atomic_int sleepers;
    pthread_mutex_t lock; /* locked only to sleep or to wake other threads */
    pthread_cond_t wake;  /* the workers wait for this condition */
    pthread_cond_t done;  /* the caller waits for this condition */
    worker workers[];     /* threads - 1 entries */
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t serial_of(uint64_t state)
{
    return state / SERIAL;
}

/* Returns true if a call later than `seen` exists, or if the pool is stopping. */
static bool has_new_call(mha__pool *pool, uint64_t seen)
{
    return serial_of(atomic_load(&pool->state)) != seen || atomic_load(&pool->stop);
}

static void wait_for_news(mha__pool *pool, uint64_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (has_new_call(pool, seen)) return;
        pause_cpu();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!has_new_call(pool, seen))
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void wake_workers(mha__pool *pool, int64_t wanted)
{
    int sleepers = atomic_load(&pool->sleepers);
    if (sleepers == 0) return;
    pthread_mutex_lock(&pool->lock);
    if (wanted >= sleepers)
        pthread_cond_broadcast(&pool->wake);
    else
        for (int64_t i = 0; i < wanted; i++)
            pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

/* Enters the call if it is open. In either case, *seen becomes the serial number of the call. */
static bool enter(mha__pool *pool, uint64_t *seen)
{
    uint64_t state = atomic_load(&pool->state);
    do {
        *seen = serial_of(state);
        if (!(state & OPEN)) return false;
    } while (!atomic_compare_exchange_weak(&pool->state, &state, state + 1));
    return true;
}

static void leave(mha__pool *pool)
{
    uint64_t before = atomic_fetch_sub(&pool->state, 1);
    if ((before & OPEN) || (before & INSIDE) != 1) return;
    pthread_mutex_lock(&pool->lock); /* the last worker has left a closed call: the caller may be asleep */
    pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->lock);
}

static void take_tasks(mha__pool *pool, int index)
{
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= pool->count) return;
        pool->task(pool->arg, i, index);
    }
}

static void *work(void *arg)
{
    worker *self = arg;
    mha__pool *pool = self->pool;
    uint64_t seen = 0;
    while (!atomic_load(&pool->stop)) {
        if (enter(pool, &seen)) {
            take_tasks(pool, self->index);
            leave(pool);
        }
        wait_for_news(pool, seen);
    }
    return NULL;
}

/* Closes the call and waits until no worker is inside. */
static void finish(mha__pool *pool)
{
    atomic_fetch_and(&pool->state, ~OPEN);
    for (int i = 0; i < SPINS; i++) {
        if ((atomic_load(&pool->state) & INSIDE) == 0) return;
        pause_cpu();
    }
    pthread_mutex_lock(&pool->lock);
    while ((atomic_load(&pool->state) & INSIDE) != 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

/* Workers block signals sent to the process, because signal handlers should run on the application's threads only.
 * Signals raised by an instruction of the worker itself are not blocked: the kernel kills a process whose thread blocks
 * such a signal without calling the handler (for example SIGBUS for a page of a truncated mapped file). */
static void block_sent_signals(sigset_t *before)
{
    static const int raised[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof raised / sizeof *raised; i++)
        sigdelset(&blocked, raised[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}

static void start_workers(mha__pool *pool)
{
    sigset_t before;
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0) return;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    block_sent_signals(&before);
    while (pool->running < pool->threads - 1) {
        worker *w = &pool->workers[pool->running];
        *w = (worker){.pool = pool, .index = pool->running + 1};
        if (pthread_create(&w->thread, &attr, work, w) != 0) break;
        pool->running++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

/* Resets a pool to its state without workers. This is also required in a child of fork(), because its locks may have
 * been copied while a thread of the parent held them. */
static bool reset(mha__pool *pool, long pid)
{
    atomic_init(&pool->state, 0);
    atomic_init(&pool->stop, false);
    atomic_init(&pool->sleepers, 0);
    pool->running = 0;
    pool->pid = pid;
    return pthread_mutex_init(&pool->lock, NULL) == 0 && pthread_cond_init(&pool->wake, NULL) == 0 &&
           pthread_cond_init(&pool->done, NULL) == 0;
}

mha__pool *mha__pool_create(mha_ctx *ctx, int threads)
{
    /* The size cannot overflow, because threads <= 1024. */
    size_t bytes = sizeof(mha__pool) + (size_t)(threads - 1) * sizeof(worker);
    mha__pool *pool = mha__ctx_alloc(ctx, bytes);
    if (!pool) return NULL;
    memset(pool, 0, bytes);
    pool->threads = threads;
    if (!reset(pool, (long)getpid())) {
        mha__ctx_release(ctx, pool);
        return NULL;
    }
    start_workers(pool);
    pool->threads = pool->running + 1;
    return pool;
}

void mha__pool_free(mha_ctx *ctx, mha__pool *pool)
{
    if (!pool) return;
    if (pool->pid == (long)getpid()) {
        atomic_store(&pool->stop, true);
        wake_workers(pool, pool->threads);
        for (int i = 0; i < pool->running; i++)
            pthread_join(pool->workers[i].thread, NULL);
        pthread_cond_destroy(&pool->done);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->lock);
    }
    mha__ctx_release(ctx, pool);
}

int mha__pool_threads(const mha__pool *pool)
{
    return pool->threads;
}

void mha__pool_run(mha__pool *pool, long pid, int64_t count, mha__task_fn task, void *arg)
{
    if (pool->pid != pid && reset(pool, pid)) start_workers(pool);
    pool->task = task;
    pool->arg = arg;
    pool->count = count;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store(&pool->state, (serial_of(atomic_load(&pool->state)) + 1) * SERIAL | OPEN);
    wake_workers(pool, count - 1);
    take_tasks(pool, 0);
    finish(pool);
}
#endif
