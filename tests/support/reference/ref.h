/* ref.h - the attention operator straight from the formula, one row and one key at a time: the truth of the tests.
 *
 * Nothing here is tiled, online, vectorised or shared with src/. Results are contiguous doubles:
 * out [B, H, Lq, Dv], lse [B, H, Lq], probs [B, H, Lq, Lk]; H is listed_heads if the description has a list of heads.
 *
 * How close must a result be? Error is measured against ref_truth (one type wider than the problem's). Allowed is twice
 * the worst error of ref_plain, the same formula written plainly in the problem's own type, plus twice the rounding of
 * the terms that one number is made of (`out_floor` ..., with the rounding to the type of
 * out), since plain code may be exact by luck when a result is
 * small. */
#ifndef TEST_REF_H
#define TEST_REF_H

#include "mha/attn.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct ref_result {
    size_t rows;  /* B * H * Lq */
    size_t width; /* Dv */
    size_t keys;  /* Lk */
    double *out, *lse, *probs;
    double *scores;        /* at the stage desc.scores */
    double *weights_floor; /* what rounding the weights to bf16 adds to out_floor, for kernels that do so */
    double *out_floor, *lse_floor, *probs_floor, *scores_floor; /* rounding of each number; filled by ref_truth only */
} ref_result;

/* Evaluates in double for f32 problems, in long double for f64. The description must be valid. */
void ref_truth(const mha_attn_desc *desc, const mha_attn_args *args, ref_result *result);
/* Evaluates in the type of the problem, without care for rounding. */
void ref_plain(const mha_attn_desc *desc, const mha_attn_args *args, ref_result *result);
void ref_free(ref_result *result);

/* |i + offset - j|, the offset as align says. */
double ref_distance(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t i, int64_t j);

/* What dropout multiplies the probability of (b, h, i, j) by. */
double ref_dropout(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i, int64_t j);

/* What rounding `x` to this type may cost, beyond arithmetic in reals. */
double ref_rounding(mha_dtype dtype, double x);

/* True if row (b, h, i) may see key j: lengths, causal, window, prefix, keep, block_keep, a bias above -infinity. */
bool ref_visible(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i, int64_t j);

#endif
