/* pool.h - the worker threads of one context. */
#ifndef MHA_BASE_POOL_H
#define MHA_BASE_POOL_H

#include "base/ctx.h"

typedef struct mha__pool mha__pool;

/* Starts threads - 1 workers; the caller of mha__pool_run is the remaining thread. Allocates memory from ctx. If the
 * system refuses some threads, the pool has fewer: see mha__pool_threads. Returns NULL if out of memory. */
mha__pool *mha__pool_create(mha_ctx *ctx, int threads);
/* Stops and joins the workers. `ctx` must be the context that created the pool. Accepts NULL. */
void mha__pool_free(mha_ctx *ctx, mha__pool *pool);
/* Returns the number of threads, including the calling thread; fixed at creation. */
int mha__pool_threads(const mha__pool *pool);

/* Same as mha__parallel. The context ensures that only one call runs at a time, and that no call is made from inside a
 * task. `pid` is getpid(). In a child of fork() it differs from the pid of the last call; the workers, which fork()
 * does not copy, are then started again. */
void mha__pool_run(mha__pool *pool, long pid, int64_t count, mha__task_fn task, void *arg);

#endif
