/* rope.h - rotary position embedding, with the scaling methods of published checkpoints.
 *
 * The elements of a head form pairs (x, y), and pair i of a token at position p is rotated by the angle p * f_i:
 *
 *     x' = x cos - y sin        y' = y cos + x sin        f_i = theta^(-2 i / R)        i = 0 .. R/2 - 1
 *
 * R is the rotary width, at most the head width D; elements beyond it are unchanged. Pairs are (i, i + R/2), the
 * half-split form of Hugging Face weights, or (2 i, 2 i + 1) when `interleaved`. Scaling methods change f, and some
 * also multiply cos and sin by a factor, the gain.
 *
 *     mha_rope_options rope = { .size = sizeof rope, .head_dim = 64, .theta = 500000 };
 *     mha_rope_angles(&rope, positions, rows, cos, sin, &err);                     // float [rows, 32] each
 *     mha_rope_turn(ctx, &rope, cos, sin, rows, heads, q, row_stride, 64, 0, &err);
 *
 * Angles are computed in double from the position and rounded once, so the rotation of a token depends only on its
 * position. Errors: MHA_ERR_ARG naming the field and its value.
 *
 * After: Su et al. 2021 (RoPE); Chen et al. 2023 (linear); bloc97 2023 (dynamic); Peng et al. 2023 (YaRN); Grattafiori
 * et al. 2024 (llama3); Ding et al. 2024 (LongRoPE).
 */
#ifndef MHA_ROPE_H
#define MHA_ROPE_H

#include "mha/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mha_rope_kind {
    MHA_ROPE_DEFAULT = 0,
    MHA_ROPE_LINEAR,  /* f / factor */
    MHA_ROPE_DYNAMIC, /* theta increases with the longest position beyond max_positions */
    MHA_ROPE_LLAMA3,  /* f / factor for long wavelengths, f for short ones, interpolated in between */
    MHA_ROPE_YARN,    /* interpolated between f / factor and f, depending on the number of rotations; has a gain */
    MHA_ROPE_LONGROPE /* f / short_by[i] or f / long_by[i], depending on the length; has a gain */
} mha_rope_kind;

/* Options of a rotation. 0 or NULL selects the stated default. */
typedef struct mha_rope_options {
    size_t size;                      /* sizeof(mha_rope_options) */
    int64_t head_dim;                 /* D  2..MHA_HEAD_DIM_MAX */
    int64_t rotary_dim;               /* R  0 = D; otherwise even, 2..D */
    int interleaved;                  /* 1 = pairs of adjacent elements */
    double theta;                     /* 0 = 10000; > 0 */
    mha_rope_kind kind;               /* each field below is read only for the kinds that its comment names */
    double factor;                    /* linear, dynamic, llama3: required, >= 1; yarn, longrope: 0 = max_positions /
                                       * original_positions */
    int64_t max_positions;            /* dynamic: required; yarn, longrope: required if factor is 0 */
    int64_t original_positions;       /* llama3, yarn, longrope: required */
    double low_freq, high_freq;       /* llama3: 0 = 1 and 4; low < high */
    double beta_fast, beta_slow;      /* yarn: 0 = 32 and 1 */
    int no_truncate;                  /* yarn: 1 = do not round the interpolation range to integers */
    double gain;                      /* yarn, longrope: 0 = as in the papers */
    double mscale, mscale_all;        /* yarn: if both are set, the gain is the quotient of their gains */
    const double *short_by, *long_by; /* longrope: [R/2] each, > 0 */
} mha_rope_options;

/* Computes f [R/2] and the gain for a call whose longest position is length - 1. Only dynamic and longrope depend on
 * the length. */
MHA_API mha_status mha_rope_frequencies(const mha_rope_options *options, int64_t length, double *frequencies,
                                        double *gain, mha_error *err);

/* Computes cos and sin, [rows, R/2] each, multiplied by the gain, for rows at `positions` [rows], each from 0 to
 * 2^31-1; NULL = 0 .. rows-1. The length is the longest position + 1. */
MHA_API mha_status mha_rope_angles(const mha_rope_options *options, const int64_t *positions, int64_t rows, float *cos,
                                   float *sin, mha_error *err);

/* Rotates x in place: element d of head h in row r is x[r * row_stride + h * head_stride + d]. `back` 1 = rotate by the
 * negative angle: this computes the gradient of x from the gradient of x', and undoes a rotation up to gain^2.
 * Cost: one pass over x. Many rows are divided among the threads of the context; results are bitwise identical for any
 * number of threads. */
MHA_API mha_status mha_rope_turn(mha_ctx *ctx, const mha_rope_options *options, const float *cos, const float *sin,
                                 int64_t rows, int64_t heads, float *x, int64_t row_stride, int64_t head_stride,
                                 int back, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif
