/* layer_ref.h - computes layers directly from their formulas in double, as the reference of layer tests. Shares no code
 * with src/. */
#ifndef TEST_LAYER_REF_H
#define TEST_LAYER_REF_H

#include "mha/layer.h"
#include "support/rng.h"

/* Returns `count` values scale * x + shift with normal random x, allocated by malloc. */
float *random_floats(uint64_t seed, uint64_t stream, int64_t count, double scale, double shift);

/* Computes y [rows, out] = x [rows, in] W^T + b, with W, b and `out` from `m` (layer.h). y must not be x. */
void ref_linear(const double *x, int64_t rows, int64_t in, const mha_matrix *m, double *y);
/* Applies LayerNorm to x [rows, width] in place. */
void ref_layer_norm(double *x, int64_t rows, int64_t width, const float *weight, const float *bias, double eps);
void ref_activation(mha_activation activation, double *x, int64_t count);
/* Computes the result of mha_attn_layer_forward; probs [B, H, L, L] or NULL. */
void ref_attention(const mha_attn_layer_options *o, const mha_layer_input *input, const double *x, double *y,
                   double *probs);
/* Computes the result of mha_block_forward. */
void ref_block(const mha_block_options *o, const mha_layer_input *input, double *x, double *probs);

/* Returns a block with random weights of about the magnitude of trained weights; free with random_block_free. */
mha_block_options random_block(uint64_t seed, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t head_dim,
                               int64_t intermediate);
void random_block_free(mha_block_options *o);

/* Returns the largest |a[i] - b[i]|. */
double worst_error(const float *a, const double *b, int64_t count);
double *to_doubles(const float *a, int64_t count);

#endif
