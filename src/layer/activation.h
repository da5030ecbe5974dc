/* activation.h - the kernel function of each activation; shared by linear and activation. */
#ifndef MHA_LAYER_ACTIVATION_H
#define MHA_LAYER_ACTIVATION_H

#include "kernel/kernel.h"
#include "mha/layer.h"

/* Changes n elements in place; each result depends on its element only. */
typedef void (*mha__row_fn)(float *x, int64_t n);

/* *out = NULL for MHA_ACT_NONE. `ctx` must not be NULL. */
mha_status mha__activation_find(mha_ctx *ctx, mha_activation activation, mha__row_fn *out, mha_error *err);

/* x <- cap tanh(x / cap). */
void mha__softcap(mha_ctx *ctx, double cap, int64_t count, float *x);
/* dy <- dy (1 - (y / cap)^2), where y is the output of mha__softcap. */
void mha__softcap_backward(mha_ctx *ctx, double cap, int64_t count, const float *y, float *dy);

#endif
