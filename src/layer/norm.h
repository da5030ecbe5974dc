/* norm.h - what the attention layer and the block need of norms beside mha_norm_forward. */
#ifndef MHA_LAYER_NORM_H
#define MHA_LAYER_NORM_H

#include "mha/layer.h"

/* Refuses a norm that is incomplete, as `name`: "block: attn_norm". */
mha_status mha__norm_check(const char *name, const mha_norm *norm, mha_error *err);

/* Each of `heads` heads of each row in place: head h of row r is x[r * row_stride + h * head_dim ...]. */
void mha__norm_heads(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t row_stride, int64_t heads,
                     int64_t head_dim, float *x);

#endif
