/* ref.h - the attention operator computed directly from the formula, one row and one key at a time: the reference of
 * the tests.
 *
 * It uses no tiles, online softmax or vectors, and shares no code with src/. Results are contiguous doubles: out [B, H,
 * Lq, Dv], lse [B, H, Lq], probs [B, H, Lq, Lk]; H is listed_heads if the description has a list of heads.
 *
 * Tolerances: the error is measured against ref_truth, which computes in the next wider type. A tolerance has two
 * terms. The first is twice the largest error of ref_plain, the same formula in the problem's own type. The second is
 * twice the rounding error of the terms of the element (`out_floor` ..., including the rounding to the type of out); it
 * is required because plain code may happen to be exact for small results. */
#ifndef TEST_REF_H
#define TEST_REF_H

#include "mha/attn.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct ref_result {
    size_t rows;  /* number of rows, B * H * Lq */
    size_t width; /* columns of out, Dv */
    size_t keys;  /* keys per row, Lk */
    double *out, *lse, *probs;
    double *scores;        /* at the stage desc.scores */
    double *weights_floor; /* error to add to out_floor for kernels that round the weights to bf16 */
    /* rounding error of each element; set by ref_truth only */
    double *out_floor, *lse_floor, *probs_floor, *scores_floor;
} ref_result;

/* Evaluates f32 problems in double and f64 problems in long double. The description must be valid. */
void ref_truth(const mha_attn_desc *desc, const mha_attn_args *args, ref_result *result);
/* Evaluates the formula in the type of the problem, without reducing rounding errors. */
void ref_plain(const mha_attn_desc *desc, const mha_attn_args *args, ref_result *result);
void ref_free(ref_result *result);

/* Returns |i + offset - j|, with the offset according to `align`. */
double ref_distance(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t i, int64_t j);

/* Returns the factor by which dropout multiplies the probability of (b, h, i, j). */
double ref_dropout(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i, int64_t j);

/* Returns the largest error of rounding `x` to this type, in addition to the rounding errors of `real` arithmetic. */
double ref_rounding(mha_dtype dtype, double x);

/* Returns true if row (b, h, i) may attend to key j: lengths, causal, window, prefix, keep, block_keep, a bias above
 * -infinity. */
bool ref_visible(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i, int64_t j);

#endif
