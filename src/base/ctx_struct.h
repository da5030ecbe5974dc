/* ctx_struct.h - the fields of a context. Included only by ctx.c, ctx_create.c and pool.c; other files use
 * base/ctx.h. */
#ifndef MHA_BASE_CTX_STRUCT_H
#define MHA_BASE_CTX_STRUCT_H

#include "base/ctx.h"
#include "base/pool.h"
#include <stdatomic.h>

/* A context. Only `busy` changes after creation, so any number of threads may read a context. */
struct mha_ctx {
    mha_allocator allocator;
    mha_log_fn log;
    void *log_user;
    mha_progress_fn progress;
    void *progress_user;
    mha_parallel_for_fn parallel_for;
    void *parallel_for_user;
    mha_between_tiles_fn between_tiles;
    void *between_tiles_user;
    mha__pool *pool; /* NULL with one thread or if parallel_for is set */
    int threads;
    mha__isa isa;
    _Atomic long busy; /* ID of the process whose parallel call is running, 0 if none; see mha__parallel */
};

/* Allocate and free memory of an existing context. Called by mha__alloc and mha__free, which also accept NULL for the
 * default context, and by functions that create or free a context. */
static inline void *mha__ctx_alloc(const mha_ctx *ctx, size_t bytes)
{
    enum { ALIGNMENT = 64 }; /* the size of a cache line and of the widest register */
    return bytes > 0 ? ctx->allocator.alloc(ctx->allocator.user, bytes, ALIGNMENT) : NULL;
}

static inline void mha__ctx_release(const mha_ctx *ctx, void *memory)
{
    if (memory) ctx->allocator.free(ctx->allocator.user, memory);
}

#endif
