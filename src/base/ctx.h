/* ctx.h - inside of a context: memory, work, talk. Public side: mha/ctx.h. */
#ifndef MHA_BASE_CTX_H
#define MHA_BASE_CTX_H

#include "base/cpu.h"
#include "mha/ctx.h"

/* The context itself, or the default one for NULL. NULL only when the default context could not be made. */
mha_ctx *mha__ctx(mha_ctx *ctx);
/* Replaces *ctx == NULL by the default context. Fails, with the sentence that its creation gave (a bad MHA_ISA, say),
 * when there is none. Every public function that takes a context and can fail begins with
 *     MHA__TRY(mha__ctx_find(&ctx, err)); */
mha_status mha__ctx_find(mha_ctx **ctx, mha_error *err);

/* Memory of the context, 64-byte aligned, not cleared. NULL on failure or when bytes is 0; free accepts NULL. */
void *mha__alloc(mha_ctx *ctx, size_t bytes);
/* count * size bytes, cleared; NULL on overflow too. */
void *mha__calloc(mha_ctx *ctx, size_t count, size_t size);
void mha__free(mha_ctx *ctx, void *memory);
/* Fills err with "out of memory: N bytes for WHAT" and returns MHA_ERR_MEMORY. */
mha_status mha__no_memory(mha_error *err, size_t bytes, const char *what);

/* Runs task(arg, i, worker) for each i in [0, count), worker in [0, mha__threads(ctx)), and returns when all are done.
 * Which worker gets which i is not fixed, so a task's result must not depend on `worker`. Runs everything on the
 * calling thread when count is 1, when the pool is busy, or when called from inside a task. It neither
 * allocates nor logs. */
typedef void (*mha__task_fn)(void *arg, int64_t i, int worker);
void mha__parallel(mha_ctx *ctx, int64_t count, mha__task_fn task, void *arg);
int mha__threads(mha_ctx *ctx);

/* The newest ISA this context may use. */
mha__isa mha__ctx_isa(mha_ctx *ctx);

void mha__log(mha_ctx *ctx, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* MHA_OK, or MHA_ERR_CANCELLED (with a sentence) when the callback wants to stop. */
mha_status mha__progress(mha_ctx *ctx, const char *what, int64_t done, int64_t total, mha_error *err);
/* Likewise for the callback between tiles of the operator. */
mha_status mha__between_tiles(mha_ctx *ctx, int64_t begun, int64_t total, mha_error *err);

#endif
