/* ctx.h - the context: threads, memory, logging, progress and the instruction set.
 *
 * A context stores the caller's settings. Pass NULL for an `mha_ctx *` to use the default context: all CPUs available
 * to the process, malloc, no logging.
 *
 * Any number of threads may use one context concurrently. Its worker pool serves one call at a time; a call that finds
 * the pool busy runs on the calling thread. Results are bitwise identical either way. After fork() a child may continue
 * to use the context; its workers are restarted.
 */
#ifndef MHA_CTX_H
#define MHA_CTX_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mha_ctx mha_ctx;

/* Allocator for all memory of the library. `alloc` returns `bytes` bytes aligned to `align` (a power of two), or NULL;
 * `free` is called with a result of `alloc`, never NULL. Both must be thread-safe. The default is malloc and free; on
 * Linux, memory of 4 MiB and more is aligned to huge pages of 2 MiB and requests them (madvise), because CPUs read
 * weights and caches faster from huge pages. */
typedef struct mha_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*free)(void *user, void *memory);
    void *user;
} mha_allocator;

/* Receives one log line without a newline. `level`: 0 warning, 1 information, 2 detail. No locks are held during the
 * call. */
typedef void (*mha_log_fn)(void *user, int level, const char *message);

/* Called periodically during long calls, on the calling thread, after `done` of `total` steps of `what`. Return 0 to
 * continue; any other value ends the call with MHA_ERR_CANCELED. */
typedef int (*mha_progress_fn)(void *user, const char *what, int64_t done, int64_t total);

/* Called by the operator (attn.h) on the thread that made the call, after each tile that this thread has computed, and
 * in backward passes after each gradient of a dense layer (with begun = total = 1): for progress reports, cancellation,
 * or the progress of transfers. `begun` of `total` tiles have been started. Return 0 to continue; any other value ends
 * the call with MHA_ERR_CANCELED, and its outputs are unspecified. */
typedef int (*mha_between_tiles_fn)(void *user, int64_t begun, int64_t total);

/* The caller's thread pool. It must call task(arg, i, worker) once for each i in [0, count), and return when all calls
 * have returned. `worker` must be in [0, threads), and two concurrent calls must not have the same `worker`. */
typedef void (*mha_parallel_for_fn)(void *user, int64_t count, void (*task)(void *arg, int64_t i, int worker),
                                    void *arg);

typedef struct mha_ctx_options {
    size_t size;             /* sizeof(mha_ctx_options) */
    int threads;             /* 0 = MHA_THREADS if set, otherwise all CPUs available to the process; at most 1024 */
    const char *isa;         /* newest ISA to use; NULL = MHA_ISA if set, else the best on this CPU (mha_isa_list) */
    mha_allocator allocator; /* both functions NULL = the default; otherwise both must be set */
    mha_log_fn log;          /* NULL = no logging */
    void *log_user;
    mha_progress_fn progress; /* NULL = none */
    void *progress_user;
    mha_parallel_for_fn parallel_for; /* NULL = internal pool of `threads`, including the calling thread */
    void *parallel_for_user;
    mha_between_tiles_fn between_tiles; /* NULL = none */
    void *between_tiles_user;
} mha_ctx_options;

/* Creates a context and starts its workers. `options` may be NULL. Only this function reads MHA_THREADS and MHA_ISA
 * from the environment; an empty variable counts as unset, and a variable that an option overrides is ignored. An ISA
 * that is unknown, or that this CPU does not support, is MHA_ERR_ARG; the message lists the supported names. The
 * default context is created by the first call that needs it. If that fails, for example because of an invalid MHA_ISA,
 * every call with a NULL context fails with the same message. */
MHA_API mha_status mha_ctx_create(const mha_ctx_options *options, mha_ctx **out, mha_error *err);
/* Stops the workers and frees the context. Free all objects created with the context first. */
MHA_API void mha_ctx_free(mha_ctx *ctx);

/* Returns the newest ISA that this context may use, as named by mha_isa_list. A plan may use an older one: f32 uses
 * AVX-512 even if the context's ISA is amx. mha_attn_plan_describe reports the ISA of a plan's kernels ("isa") and how
 * they multiply bf16 ("products"). */
MHA_API const char *mha_ctx_isa(mha_ctx *ctx);
/* Returns the number of threads, including the calling thread. */
MHA_API int mha_ctx_threads(mha_ctx *ctx);
/* Writes the ISAs that this CPU and operating system support to `names` (at most `capacity`), oldest first, and returns
 * their number. "scalar" is always the first; then "neon", or "wasm128", or "avx2", "avx512", "avx512vnni",
 * "avx512bf16", "amx". The last one is the default, except that avx512bf16 is used on Intel CPUs only if named: its
 * bf16 products are faster than f32 on AMD CPUs and slower on Intel CPUs. */
MHA_API int mha_isa_list(const char **names, int capacity);

/* Allocates 64-byte-aligned memory for workspaces. Returns NULL if out of memory or if `bytes` is 0. */
MHA_API void *mha_alloc(mha_ctx *ctx, size_t bytes);
MHA_API void mha_free(mha_ctx *ctx, void *memory);

#ifdef __cplusplus
}
#endif
#endif
