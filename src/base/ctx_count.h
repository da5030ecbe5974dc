/* ctx_count.h - a context that counts the memory which is allocated through it. */
#ifndef MHA_BASE_CTX_COUNT_H
#define MHA_BASE_CTX_COUNT_H

#include "base/ctx.h"
#include <stdatomic.h>

/* Bytes that are allocated now, and the maximum since the last mha__memory_restart. */
typedef struct mha__memory_count {
    mha_ctx *parent;
    atomic_size_t now, peak;
} mha__memory_count;

/* Creates a context that allocates from `parent`, which must not be NULL, and uses its workers, ISA and callbacks.
 * `count` must outlive the context. Free with mha_ctx_free. */
mha_status mha__ctx_counting(mha_ctx *parent, mha__memory_count *count, mha_ctx **out, mha_error *err);

/* Sets the maximum to the bytes that are allocated now. */
void mha__memory_restart(mha__memory_count *count);

#endif
