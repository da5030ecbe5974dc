/* ref.h - computes attention directly from its formula, one row and one key at a time, as the reference of the tests.
 *
 * It uses no tiles, online softmax or vectors, and shares no code with src/. Results are contiguous doubles: out [B, H,
 * Lq, Dv], lse [B, H, Lq], probs [B, H, Lq, Lk]; H is listed_heads if the description has a list of heads.
 * Tolerances: the error of a result is its difference from ref_truth, which computes in the next wider type. The limit
 * is the sum of two terms. The first is twice the largest error of ref_plain, which computes in the type of the
 * problem. The second is twice the floor, a bound on the rounding error of the element, including the rounding to the
 * type of out; it is required because ref_plain may happen to be exact for small results. */
#ifndef TEST_REF_H
#define TEST_REF_H

#include "mha/attn.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct ref_result {
    size_t rows;  /* B * H * Lq, the number of rows */
    size_t width; /* Dv, the number of elements per row of out */
    size_t keys;  /* Lk, the number of keys per row */
    double *out, *lse, *probs;
    double *scores;        /* the scores at the stage desc.scores */
    double *weights_floor; /* added to out_floor for kernels that round the weights to bf16 */
    /* bounds on the rounding error of each element; set only by ref_truth */
    double *out_floor, *lse_floor, *probs_floor, *scores_floor;
} ref_result;

/* Computes f32 problems in double and f64 problems in long double. The description must be valid. */
void ref_truth(const mha_attn_desc *desc, const mha_attn_args *args, ref_result *result);
/* Computes the formula in the type of the problem, without measures against rounding errors. */
void ref_plain(const mha_attn_desc *desc, const mha_attn_args *args, ref_result *result);
void ref_free(ref_result *result);

/* Returns |i + offset - j|, where `align` defines the offset. */
double ref_distance(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t i, int64_t j);

/* Returns functions_term() for a row of a problem with user functions. */
double ref_function_term(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i,
                         int64_t j);

/* Returns the factor by which dropout multiplies the probability of (b, h, i, j). */
double ref_dropout(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i, int64_t j);

/* Returns the largest error of rounding `x` to a 16-bit type; 0 for other types. */
double ref_rounding(mha_dtype dtype, double x);

/* Returns true if row (b, h, i) may attend to key j, according to lengths, causal, window, prefix, keep, block_keep,
 * user functions, and a bias above -infinity. */
bool ref_visible(const mha_attn_desc *desc, const mha_attn_args *args, int64_t b, int64_t h, int64_t i, int64_t j);

#endif
