/* ctx_struct.h - the fields of a context. Included only by ctx.c and ctx_create.c; other files use base/ctx.h. */
#ifndef MHA_BASE_CTX_STRUCT_H
#define MHA_BASE_CTX_STRUCT_H

#include "base/ctx.h"
#include "base/pool.h"
#include <stdatomic.h>

/* Only `busy` changes after creation, so any number of threads may read a context. */
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
    _Atomic long busy; /* the process whose parallel call is running, 0 if none; see mha__parallel */
};

#endif
