/* ctx.c - operations on a context: memory, parallel work, logging. ctx_create.c creates contexts. */
#include "base/ctx_struct.h"
#include "base/error.h"
#include "base/redzone.h"
#include "base/size.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if !defined(__wasi__)
#include <pthread.h>
#endif

/* ---- default context (never freed) ---- */

static mha_ctx *default_ctx;
static mha_error default_error; /* the error if default_ctx could not be created */

static void make_default(void)
{
    mha_ctx_create(NULL, &default_ctx, &default_error);
}

mha_ctx *mha__ctx(mha_ctx *ctx)
{
    if (ctx) return ctx;
#if defined(__wasi__) /* no threads */
    if (!default_ctx) make_default();
#else
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_default);
#endif
    return default_ctx;
}

mha_status mha__ctx_find(mha_ctx **ctx, mha_error *err)
{
    *ctx = mha__ctx(*ctx);
    if (*ctx) return MHA_OK;
    return mha__fail(err, default_error.status, "the default context could not be created: %s", default_error.message);
}

/* ---- memory ---- */

/* True if the last allocation of this thread failed because the default context could not be created. mha__no_memory
 * then reports that failure instead of missing memory. */
static _Thread_local bool lacks_context;

void *mha__alloc(mha_ctx *ctx, size_t bytes)
{
    ctx = mha__ctx(ctx);
    lacks_context = !ctx;
    void *memory = ctx ? mha__ctx_alloc(ctx, bytes) : NULL;
    mha__redzone_clear(memory, bytes); /* the allocator of a caller may return memory with old red zones */
    return memory;
}

void *mha__calloc(mha_ctx *ctx, size_t count, size_t size)
{
    size_t bytes;
    lacks_context = false;
    if (!mha__mul(count, size, &bytes)) return NULL;
    void *memory = mha__alloc(ctx, bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void mha__free(mha_ctx *ctx, void *memory)
{
    ctx = mha__ctx(ctx);
    if (ctx) mha__ctx_release(ctx, memory);
}

mha_status mha__no_memory(mha_error *err, size_t bytes, const char *what)
{
    mha_ctx *ctx = NULL;
    if (lacks_context) return mha__ctx_find(&ctx, err);
    return mha__fail(err, MHA_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

void *mha_alloc(mha_ctx *ctx, size_t bytes)
{
    return mha__alloc(ctx, bytes);
}

void mha_free(mha_ctx *ctx, void *memory)
{
    mha__free(ctx, memory);
}

/* ---- parallel work ---- */

/* Claims the workers for this call; fails while another call of this process uses them. If another thread forks
 * during a call, the child inherits `busy` with the process ID of its parent, and ignores it. */
static bool claim(mha_ctx *ctx, long pid)
{
    long holder = atomic_load_explicit(&ctx->busy, memory_order_relaxed);
    return holder != pid && atomic_compare_exchange_strong(&ctx->busy, &holder, pid);
}

void mha__parallel(mha_ctx *ctx, int64_t count, mha__task_fn task, void *arg)
{
    ctx = mha__ctx(ctx);
    bool alone = count <= 1 || !ctx || (!ctx->pool && !ctx->parallel_for);
    long pid = alone ? 0 : (long)getpid();
    if (alone || !claim(ctx, pid)) {
        for (int64_t i = 0; i < count; i++)
            task(arg, i, 0);
        return;
    }
    if (ctx->parallel_for)
        ctx->parallel_for(ctx->parallel_for_user, count, task, arg);
    else
        mha__pool_run(ctx->pool, pid, count, task, arg);
    atomic_store(&ctx->busy, 0);
}

int mha__threads(mha_ctx *ctx)
{
    ctx = mha__ctx(ctx);
    return ctx ? ctx->threads : 1;
}

int mha_ctx_threads(mha_ctx *ctx)
{
    return mha__threads(ctx);
}

mha__isa mha__ctx_isa(mha_ctx *ctx)
{
    ctx = mha__ctx(ctx);
    return ctx ? ctx->isa : MHA__SCALAR;
}

const char *mha_ctx_isa(mha_ctx *ctx)
{
    return mha__isa_name(mha__ctx_isa(ctx));
}

/* ---- logging and callbacks ---- */

void mha__log(mha_ctx *ctx, int level, const char *format, ...)
{
    ctx = mha__ctx(ctx);
    if (!ctx || !ctx->log) return;
    char line[sizeof((mha_error *)0)->message];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, line);
}

mha_status mha__progress(mha_ctx *ctx, const char *what, int64_t done, int64_t total, mha_error *err)
{
    ctx = mha__ctx(ctx);
    if (!ctx || !ctx->progress || ctx->progress(ctx->progress_user, what, done, total) == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_CANCELED, "canceled by the progress callback: %s, %lld of %lld done", what,
                     (long long)done, (long long)total);
}

mha_status mha__between_tiles(mha_ctx *ctx, int64_t begun, int64_t total, mha_error *err)
{
    ctx = mha__ctx(ctx);
    if (!ctx || !ctx->between_tiles || ctx->between_tiles(ctx->between_tiles_user, begun, total) == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_CANCELED, "canceled by between_tiles: %lld of %lld tiles started", (long long)begun,
                     (long long)total);
}
