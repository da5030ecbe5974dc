/* run_tasks.h - distributes the tasks of a call over the threads that have scratch memory. */
#ifndef MHA_ATTN_PLAN_RUN_TASKS_H
#define MHA_ATTN_PLAN_RUN_TASKS_H

#include "base/ctx.h"

/* Runs task(arg, i, worker) for each i in [0, count), worker < workers. Scratch memory is large, so a plan has it for
 * `workers` threads only, which process the tasks one after another. The calling thread calls the context's
 * between_tiles after each of its tasks. If this callback stops the call, the remaining tasks are skipped and the
 * result is MHA_ERR_CANCELED.
 */
mha_status mha__attn_run(mha_ctx *ctx, int workers, int64_t count, mha__task_fn task, void *arg, mha_error *err);

#endif
