/* run_tasks.h - runs the tasks of a call on the threads that have scratch memory. */
#ifndef MHA_ATTN_PLAN_RUN_TASKS_H
#define MHA_ATTN_PLAN_RUN_TASKS_H

#include "base/ctx.h"

/* Runs task(arg, i, worker) for each i in [0, count), worker < workers. Scratch memory is large, so a plan has it for
 * `workers` threads only; these take tasks one after another. The calling thread calls the context's between_tiles
 * after each of its tasks: MHA_ERR_CANCELLED if that stops the call, and the remaining tasks are not run. */
mha_status mha__attn_run(mha_ctx *ctx, int workers, int64_t count, mha__task_fn task, void *arg, mha_error *err);

#endif
