/* run_tasks.c - distributes the tasks of a call over threads. */
#include "attn/plan/run_tasks.h"

#include "base/error.h"
#include "base/size.h"
#include <stdatomic.h>

static _Thread_local char this_thread; /* its address identifies the thread */

typedef struct shared_tasks {
    mha_ctx *ctx;
    mha__task_fn task;
    void *arg;
    int64_t count;
    _Atomic int64_t next;
    const char *caller;
    mha_status status; /* like *err, written only by the calling thread */
    mha_error *err;
} shared_tasks;

static void take_tasks(void *arg, int64_t scratch, int worker)
{
    shared_tasks *all = arg;
    const bool calls = all->caller == &this_thread;
    (void)worker;
    for (;;) {
        const int64_t i = atomic_fetch_add_explicit(&all->next, 1, memory_order_relaxed);
        if (i >= all->count) return;
        all->task(all->arg, i, (int)scratch);
        if (!calls || all->status != MHA_OK) continue;
        const int64_t begun = mha__min64(atomic_load_explicit(&all->next, memory_order_relaxed), all->count);
        all->status = mha__between_tiles(all->ctx, begun, all->count, all->err);
        if (all->status != MHA_OK) atomic_store_explicit(&all->next, all->count, memory_order_relaxed);
    }
}

/* Without other threads, counting tasks atomically would take a tenth of the time of a short call. */
static mha_status run_alone(mha_ctx *ctx, int64_t count, mha__task_fn task, void *arg, mha_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        task(arg, i, 0);
        MHA__TRY(mha__between_tiles(ctx, i + 1, count, err));
    }
    return MHA_OK;
}

mha_status mha__attn_run(mha_ctx *ctx, int workers, int64_t count, mha__task_fn task, void *arg, mha_error *err)
{
    if (workers <= 1) return run_alone(ctx, count, task, arg, err);
    shared_tasks all = {.ctx = ctx, .task = task, .arg = arg, .count = count, .caller = &this_thread, .err = err};
    mha__parallel(ctx, workers, take_tasks, &all);
    return all.status;
}
