/* activation.h - the kernel function of each activation, used by activation.c and by linear layers. */
#ifndef MHA_LAYER_ACTIVATION_H
#define MHA_LAYER_ACTIVATION_H

#include "kernel/kernel.h"
#include "mha/layer.h"

/* Sets *out to the kernel function, or to NULL for MHA_ACT_NONE. `ctx` must not be NULL. With `dense`, the function is
 * applied to products of these weights (mha__dense.map); `dense` may be NULL. */
mha_status mha__activation_find(mha_ctx *ctx, const mha__dense *dense, mha_activation activation, mha__row_fn *out,
                                mha_error *err);
/* Applies `run` to `count` elements. NULL does nothing. */
void mha__activate(mha_ctx *ctx, mha__row_fn run, int64_t count, float *x);

/* Sets x to cap tanh(x / cap). */
void mha__softcap(mha_ctx *ctx, double cap, int64_t count, float *x);
/* Sets dy to dy (1 - (y / cap)^2), where y is the output of mha__softcap. */
void mha__softcap_backward(mha_ctx *ctx, double cap, int64_t count, const float *y, float *dy);

#endif
