/* pool.h - the worker threads of one context. */
#ifndef MHA_BASE_POOL_H
#define MHA_BASE_POOL_H

#include "base/ctx.h"

typedef struct mha__pool mha__pool;

/* Starts threads - 1 workers (the caller of mha__pool_run is the remaining one); memory comes from ctx. Fewer when the
 * system refuses more: see mha__pool_threads. NULL when there is no memory. */
mha__pool *mha__pool_create(mha_ctx *ctx, int threads);
/* Stops and joins the workers. `ctx` as at creation. Accepts NULL. */
void mha__pool_free(mha_ctx *ctx, mha__pool *pool);
/* The calling thread included; fixed at creation. */
int mha__pool_threads(const mha__pool *pool);

/* As mha__parallel. One call at a time, never from inside a task: the context sees to it. `pid` is getpid(); in a child
 * of fork() it differs from that of the last call, and the workers, which fork() does not copy, are started anew. */
void mha__pool_run(mha__pool *pool, long pid, int64_t count, mha__task_fn task, void *arg);

#endif
