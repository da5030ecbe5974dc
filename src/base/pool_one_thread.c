/* pool_one_thread.c - the pool of platforms without threads (WASI): the calling thread runs all tasks. */
#include "base/pool.h"

#if defined(__wasi__)
#include "base/ctx_struct.h"

/* A pool without workers has no fields. */
mha__pool *mha__pool_create(mha_ctx *ctx, int threads)
{
    (void)threads;
    return mha__ctx_alloc(ctx, 1);
}

void mha__pool_free(mha_ctx *ctx, mha__pool *pool)
{
    mha__ctx_release(ctx, pool);
}

int mha__pool_threads(const mha__pool *pool)
{
    (void)pool;
    return 1;
}

void mha__pool_run(mha__pool *pool, long pid, int64_t count, mha__task_fn task, void *arg)
{
    (void)pool, (void)pid;
    for (int64_t i = 0; i < count; i++)
        task(arg, i, 0);
}
#endif
