/* norm.h - what the attention layer and the block need of norms beside mha_norm_forward. */
#ifndef MHA_LAYER_NORM_H
#define MHA_LAYER_NORM_H

#include "mha/layer.h"
#include <stdbool.h>

/* Refuses a norm that is incomplete, as `name`: "block: attn_norm". */
mha_status mha__norm_check(const char *name, const mha_norm *norm, mha_error *err);

/* mha_norm_forward of a norm that has been checked. Unless `rounded` is NULL, y goes there as bf16, too. */
void mha__norm_rows(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t width, const float *x,
                    const float *residual, float *y, uint16_t *rounded);

/* Each of `heads` heads of each row in place: head h of row r is x[r * row_stride + h * head_dim ...]. */
void mha__norm_heads(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t row_stride, int64_t heads,
                     int64_t head_dim, float *x);

/* Gradients of a norm over groups of each row: x of group g of row r is x[r * x_stride + g * width ...], dy and dx lie
 * alike at y_stride. Allocates partial sums for dweight and dbias. */
typedef struct mha__norm_back {
    int64_t rows, groups, width;
    const float *x;
    int64_t x_stride;
    const float *dy;
    int64_t y_stride;
    float *dx;              /* may be exactly dy; NULL = not wanted */
    bool add;               /* dx += */
    float *dweight, *dbias; /* [width] += ; NULL = not wanted */
} mha__norm_back;
mha_status mha__norm_backward(mha_ctx *ctx, const mha_norm *norm, const mha__norm_back *back, mha_error *err);

#endif
