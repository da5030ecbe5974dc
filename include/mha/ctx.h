/* ctx.h - the context: threads, memory, talk, progress and the newest instruction set.
 *
 * A context carries what a library must not decide on its own. Pass NULL wherever an `mha_ctx *` is wanted to use the
 * default context: all CPUs of the process, malloc, no talk.
 *
 * Any number of threads may use one context at the same time. Its worker pool serves one call at a time; a call
 * that finds the pool busy does its work on the calling thread. Results have the same bits either way.
 * After fork() a child may go on using the context; its workers are started anew.
 */
#ifndef MHA_CTX_H
#define MHA_CTX_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_ctx mha_ctx;

/* Memory for everything the library keeps. `alloc` returns `bytes` bytes aligned to `align` (a power of two), or NULL;
 * `free` gets what `alloc` returned, never NULL. Both must be safe to call from any thread. */
typedef struct mha_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*free)(void *user, void *memory);
    void *user;
} mha_allocator;

/* One line of talk without a newline. `level`: 0 warning, 1 information, 2 detail. Called without locks held. */
typedef void (*mha_log_fn)(void *user, int level, const char *message);

/* Called now and then during long work, from the calling thread: `done` of `total` steps of `what`.
 * Return 0 to go on; anything else stops the work with MHA_ERR_CANCELLED. */
typedef int (*mha_progress_fn)(void *user, const char *what, int64_t done, int64_t total);

/* A caller's own thread pool. Must call task(arg, i, worker) once for each i in [0, count), with `worker` in
 * [0, threads) never used by two calls at the same time, and return when all are done. */
typedef void (*mha_parallel_for_fn)(void *user, int64_t count, void (*task)(void *arg, int64_t i, int worker),
                                    void *arg);

typedef struct mha_ctx_options {
    size_t size;             /* sizeof(mha_ctx_options) */
    int threads;             /* 0 = MHA_THREADS if set, else the CPUs this process may run on; at most 1024 */
    const char *isa;         /* newest ISA to use; NULL = MHA_ISA if set, else the best of this CPU: see mha_isa_list */
    mha_allocator allocator; /* zero = malloc; else both functions */
    mha_log_fn log;          /* NULL = silence */
    void *log_user;
    mha_progress_fn progress; /* NULL = none */
    void *progress_user;
    mha_parallel_for_fn parallel_for; /* NULL = own pool of `threads` (the caller counts as one) */
    void *parallel_for_user;
} mha_ctx_options;

/* Makes a context and starts its workers. `options` may be NULL for the defaults. The environment (MHA_THREADS,
 * MHA_ISA) is read here and nowhere else; an empty variable counts as not set, and one that an option overrides is not
 * looked at. An unknown ISA name, or one that this CPU lacks, is MHA_ERR_ARG; the sentence lists the names. The default
 * context is made by the first call that needs it; if that fails, say for a bad MHA_ISA, every call with a NULL context
 * fails with that sentence. */
MHA_API mha_status mha_ctx_create(const mha_ctx_options *options, mha_ctx **out, mha_error *err);
/* Stops the workers and frees the context. Everything made with it must have been freed before. */
MHA_API void mha_ctx_free(mha_ctx *ctx);

/* The newest ISA that this context may use: one of the names that mha_isa_list gives. A plan says which set of kernels
 * it took ("isa") and what they multiply ("products"): f32 is AVX-512 code also where the context has amx. */
MHA_API const char *mha_ctx_isa(mha_ctx *ctx);
/* Number of threads, the calling one included. */
MHA_API int mha_ctx_threads(mha_ctx *ctx);
/* The ISAs that this CPU and operating system can run, oldest first, in `names` (room for `capacity`); returns how
 * many there are. "scalar" is always the first; then "neon", or "avx2", "avx512", "avx512bf16", "amx". The best is the
 * last, but for avx512bf16: its products of bf16 are faster than f32 on AMD's CPUs alone, and slower on Intel's, where
 * it is used only if named. */
MHA_API int mha_isa_list(const char **names, int capacity);

/* Memory from the context's allocator, 64-byte aligned; NULL when there is none or bytes is 0. For workspaces. */
MHA_API void *mha_alloc(mha_ctx *ctx, size_t bytes);
MHA_API void mha_free(mha_ctx *ctx, void *memory);

#ifdef __cplusplus
}
#endif
#endif
