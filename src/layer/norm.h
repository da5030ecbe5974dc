/* norm.h - norm functions for the attention layer and the block, in addition to mha_norm_forward. */
#ifndef MHA_LAYER_NORM_H
#define MHA_LAYER_NORM_H

#include "mha/layer.h"
#include <stdbool.h>

/* Checks that a norm is complete. Error messages begin with `name`, for example "block: attn_norm". */
mha_status mha__norm_check(const char *name, const mha_norm *norm, mha_error *err);

/* Like mha_norm_forward, but without checks. Unless `rounded` is NULL, also stores y in it as bf16. */
void mha__norm_rows(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t width, const float *x,
                    const float *residual, float *y, uint16_t *rounded);

/* Normalizes each head of each row in place: head h of row r is x[r * row_stride + h * head_dim ...]. `own`: head h has
 * the weight and bias that begin at element h * head_dim; otherwise all heads have the same. */
void mha__norm_heads(mha_ctx *ctx, const mha_norm *norm, int64_t rows, int64_t row_stride, int64_t heads,
                     int64_t head_dim, bool own, float *x);

/* Computes the gradients of a norm over groups of columns in each row: group g of row r is x[r * x_stride + g * width
 * ...]; dy and dx have the row stride y_stride. Allocates partial sums for dweight and dbias. */
typedef struct mha__norm_back {
    int64_t rows, groups, width;
    const float *x;
    int64_t x_stride;
    const float *dy;
    int64_t y_stride;
    float *dx;              /* may be equal to dy; NULL = not computed */
    bool add;               /* add to dx */
    bool own;               /* each group has a weight and a bias of its own: [groups, width] */
    float *dweight, *dbias; /* [width], or [groups, width], accumulated; NULL = not computed */
} mha__norm_back;
mha_status mha__norm_backward(mha_ctx *ctx, const mha_norm *norm, const mha__norm_back *back, mha_error *err);

#endif
