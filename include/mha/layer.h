/* layer.h - the parts of a transformer: linear, normalisation, activation, embedding, attention layer, block.
 *
 * Thin functions on float32 rows. x and y are row-major and contiguous: [rows, width]. A row's result does not depend on
 * how many rows are computed with it, to the bit. Shapes: E model width, I width of the feed-forward part.
 */
#ifndef MHA_LAYER_H
#define MHA_LAYER_H

#include "mha/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x W^T + b, W [out, in] as PyTorch and Hugging Face store it. The weights are packed at creation. */
typedef struct mha_linear mha_linear;
MHA_API mha_status mha_linear_create(mha_ctx *ctx, int64_t in, int64_t out, const float *weight, const float *bias,
                                     mha_linear **linear, mha_error *err);
MHA_API void mha_linear_free(mha_linear *linear);
/* x [rows, in] -> y [rows, out]; they must not overlap. */
MHA_API mha_status mha_linear_forward(const mha_linear *linear, const float *x, int64_t rows, float *y, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
