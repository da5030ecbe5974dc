/* clamped_swiglu.h - the gated activation of gpt-oss: SwiGLU of clamped inputs. */
#ifndef MHA_LAYER_BLOCK_CLAMPED_SWIGLU_H
#define MHA_LAYER_BLOCK_CLAMPED_SWIGLU_H

#include "mha/layer.h"

/* y = (clamp(up, -limit, limit) + 1) g sigmoid(alpha g) with g = min(gate, limit). */
typedef struct mha__clamped_swiglu {
    float alpha, limit; /* limit 0 = the feed-forward has another activation */
} mha__clamped_swiglu;

/* Computes y [count]; y may be the array `gate` or the array `up`. */
void mha__clamped_swiglu_forward(mha_ctx *ctx, const mha__clamped_swiglu *options, int64_t count, const float *gate,
                                 const float *up, float *y);
/* Computes dgate and dup from dy; dgate or dup may be the array dy. The gradient of a clamped input is 0. */
void mha__clamped_swiglu_backward(mha_ctx *ctx, const mha__clamped_swiglu *options, int64_t count, const float *gate,
                                  const float *up, const float *dy, float *dgate, float *dup);

#endif
