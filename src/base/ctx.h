/* ctx.h - the internal interface of a context: memory, parallel work, logging. The public interface is mha/ctx.h. */
#ifndef MHA_BASE_CTX_H
#define MHA_BASE_CTX_H

#include "base/cpu.h"
#include "mha/ctx.h"

/* Returns `ctx`, or the default context if `ctx` is NULL. Returns NULL only if the default context could not be
 * created. */
mha_ctx *mha__ctx(mha_ctx *ctx);
/* Replaces a NULL *ctx with the default context. If the default context could not be created, fails with the message of
 * that failure (for example, an invalid MHA_ISA). Every public function that takes a context and can fail begins with
 *     MHA__TRY(mha__ctx_find(&ctx, err)); */
mha_status mha__ctx_find(mha_ctx **ctx, mha_error *err);

/* Allocates memory from the context, 64-byte aligned and not cleared. Returns NULL on failure or if bytes is 0.
 * mha__free accepts NULL. */
void *mha__alloc(mha_ctx *ctx, size_t bytes);
/* Allocates count * size bytes, cleared. Returns NULL also if the product overflows. */
void *mha__calloc(mha_ctx *ctx, size_t count, size_t size);
void mha__free(mha_ctx *ctx, void *memory);
/* Stores "out of memory: N bytes for WHAT" in err and returns MHA_ERR_MEMORY. If the last allocation of this thread
 * failed because the default context could not be created, reports that failure instead. */
mha_status mha__no_memory(mha_error *err, size_t bytes, const char *what);

/* Runs task(arg, i, worker) for each i in [0, count), worker in [0, mha__threads(ctx)), and returns when all tasks have
 * finished. Which worker runs task i is not fixed, so results must not depend on `worker`. All tasks run on the calling
 * thread if count is 1, if the pool is busy, or if the caller is itself a task. mha__parallel neither allocates nor
 * logs. */
typedef void (*mha__task_fn)(void *arg, int64_t i, int worker);
void mha__parallel(mha_ctx *ctx, int64_t count, mha__task_fn task, void *arg);
int mha__threads(mha_ctx *ctx);

/* Returns the newest ISA that this context may use. */
mha__isa mha__ctx_isa(mha_ctx *ctx);

void mha__log(mha_ctx *ctx, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Calls the progress callback. Returns MHA_ERR_CANCELED, with a message, if the callback requests a stop, otherwise
 * MHA_OK. */
mha_status mha__progress(mha_ctx *ctx, const char *what, int64_t done, int64_t total, mha_error *err);
/* Like mha__progress, for the between_tiles callback of the attention operator. */
mha_status mha__between_tiles(mha_ctx *ctx, int64_t begun, int64_t total, mha_error *err);

#endif
