/* kernel.h - the table of kernels: arithmetic on a single thread. Kernels do not handle heads or files, and neither
 * allocate memory nor log.
 *
 * A table is const and selected once per plan (kernel_select.c). An entry may be NULL only if its comment says so.
 * Pointers point to elements of type `real`: float, or double in the f64 table. Both tables are compiled from the same
 * bodies (*.inc), so the signatures use `void`. No alignment is required, but scratch memory should be padded and
 * aligned to 64 bytes.
 *
 * All products compute C[r][n] = sum over k ascending of A[r][k] * B[k][n]. Each element is one chain of fused
 * multiply-adds (of separate multiplies and adds on the scalar ISA) that begins at +0 or at a given value. An element
 * is therefore bitwise identical for any register tile, row count and division into blocks. Only product_split and the
 * products of smaller types (kernel_dense.h, kernel_pairs.h) use other sums.
 *
 * A panel contains nr columns of a right operand, stored [k][nr] and padded with zeros. In attention, a panel has one
 * query per column ("lane"). The maximum, sum and mask of a row of scores are then plain vertical vector operations:
 *
 *     scores   S^T [key][lane] = K [key][d]  x  Q^T [d][lane]     A is K in place; B is packed once per tile
 *     softmax  down the columns of S^T, in place
 *     values   O [lane][dv]    = P [lane][key] x V [key][dv]       A is S^T, read transposed; B is a block of V
 *
 * `lanes` (1..nr) is the number of columns in use. Kernels compute whole vectors, so scratch panels are nr wide, and
 * every lane of the last vector in use must be initialized.
 */
#ifndef MHA_KERNEL_KERNEL_H
#define MHA_KERNEL_KERNEL_H

#include "base/cpu.h"
#include "base/size.h"
#include "kernel/kernel_dense.h"
#include "kernel/kernel_operands.h"
#include "kernel/kernel_pairs.h"
#include "mha/ctx.h"
#include <stddef.h>

/* Factors of one AdamW step (layer/adamw.h), computed in double and rounded once. */
typedef struct mha__adamw_factors {
    float scale;        /* of the gradient */
    float toward;       /* 1 - beta1 */
    float keep, add;    /* beta2, 1 - beta2 */
    float shrink, size; /* 1 - rate decay, rate / (1 - beta1^step) */
    float root, eps;    /* sqrt(1 - beta2^step) */
} mha__adamw_factors;

/* Terms of a normalized row: (x - mean) * scale. */
typedef struct mha__norm_terms {
    float mean, scale;
} mha__norm_terms;

/* A dense product; see mha__kernels.product. */
typedef void mha__product_fn(int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                             int64_t panel_stride, const void *from, int64_t from_row, void *c, int64_t ldc);

/* Rounds to nearest, ties to even: element (r, c) is read from src[r * src_stride + c] and written to dst[r *
 * row_stride + c * col_stride]. */
typedef void mha__narrow_fn(int64_t rows, int64_t n, const void *src, int64_t src_stride, void *dst, int64_t row_stride,
                            int64_t col_stride);

typedef struct mha__kernels {
    const char *isa;  /* name of the ISA, for example "avx2" */
    size_t real_size; /* size of a real in bytes, 4 or 8 */
    int mr;           /* rows of C per register tile; a call accepts any number of rows */
    int nr;           /* columns of C per register tile = width of a panel; at most MHA__NR_MAX */
    int vl;           /* number of elements per vector */
    int decode_lanes; /* maximum number of lanes of the decode_* functions; 0 if they are NULL */

    /* ---- the dense product ---- */

    /* Computes C = A B, or C = `from` + A B if `from` is not NULL. C is [m, n] with row stride ldc, A is [m, k] with
     * row stride lda, and B is in panels: element [kk, c] is at b + (c / nr) * panel_stride + kk * nr + c % nr. Rows of
     * `from` are from_row apart: 0 adds a bias, and from = c accumulates. Reads only m x k elements of A and whole
     * panels of B; writes only m x n elements of C.
     * The function blocks over k itself, so that a panel of B stays in the L2 cache. Callers split only m and n, and
     * only to distribute work. */
    mha__product_fn *product;

    /* Same, in tile registers, with a smaller error for many terms: faster for 64 rows and more, slower for few rows.
     * An element is not a chain: it adds sums of 32 terms, counted from k = 0, to the initial value
     * (matmul_f32_amx.inc), but is also bitwise identical for any division of m and n. NULL if the ISA does not have
     * it. */
    mha__product_fn *product_split;

    /* ---- packing ---- */

    /* Packs a right operand given as n rows of k elements (queries, or rows of a weight matrix); element (j, kk) is at
     * src[j * row_stride + kk * col_stride]. Writes ceil(n / nr) panels of k * nr. */
    void (*pack_rows)(int64_t n, int64_t k, const void *src, int64_t row_stride, int64_t col_stride, void *panels);
    /* Packs a right operand given as k rows of n elements (values); element (kk, c) is at src[kk * row_stride + c *
     * col_stride]. Writes ceil(n / nr) panels of k * nr. */
    void (*pack_cols)(int64_t k, int64_t n, const void *src, int64_t row_stride, int64_t col_stride, void *panels);
    /* Packs a boolean mask as a bias: panel[key][lane] = -inf if keep[lane * row_stride + key * col_stride] is 0,
     * otherwise 0. */
    void (*pack_keep)(int64_t lanes, int64_t keys, const uint8_t *keep, int64_t row_stride, int64_t col_stride,
                      void *panel);
    /* The inverse of packing: dst[lane * row_stride + key * col_stride] = panel[key][lane]. With one lane, `panel` may
     * point to any lane of a panel. */
    void (*unpack)(int64_t lanes, int64_t keys, const void *panel, void *dst, int64_t row_stride, int64_t col_stride);

    /* ---- operations on one panel of scores s [keys][nr] ---- */

    /* s = scale * K Q^T, and top[lane] = maximum of each column; the maximum may ignore a NaN. Element d of key j is at
     * k[j * k_row + d * k_col]. If `prefetch` is not NULL, part of its memory is prefetched during the computation. */
    void (*scores)(int64_t keys, int64_t d, const void *k, int64_t k_row, int64_t k_col, const void *q, int64_t lanes,
                   double scale, void *s, void *top, mha__prefetch_schedule *prefetch);
    /* Same as `scores`, but the sums continue from s, where `scores` with a scale of 1 has stored the sums over the
     * first part of d. */
    void (*scores_last)(int64_t keys, int64_t d, const void *k, int64_t k_row, int64_t k_col, const void *q,
                        int64_t lanes, double scale, void *s, void *top, mha__prefetch_schedule *prefetch);
    /* The following functions modify scores and are called in this order; call `top` after the last one. */
    void (*softcap)(int64_t keys, int64_t lanes, double cap, void *s); /* s = cap * tanh(s / cap) */
    /* s -= slope * |position + lane - (first + key)|. Callers count position and first from the start of a block of
     * keys, so that both are small and exact as reals. */
    void (*alibi)(int64_t keys, int64_t lanes, double slope, int64_t position, int64_t first, void *s);
    void (*bias)(int64_t keys, int64_t lanes, const void *bias,
                 void *s); /* s += bias; -inf if bias is -inf, for any s */
    /* s = -inf unless lo[lane] <= first + key < hi[lane]. */
    void (*interval)(int64_t keys, int64_t lanes, int64_t first, const int64_t *lo, const int64_t *hi, void *s);
    void (*top)(int64_t keys, int64_t lanes, const void *s, void *top);

    /* Online softmax: with m = max(max, top), s = exp(s - m), alpha = exp(max - m), sum = sum * alpha + column sums of
     * s, max = m. A score of -inf becomes an exact 0. A column that contains only -inf changes nothing: alpha is
     * exactly 1, or 0 if the row has not attended to any key yet (o is then 0). A NaN makes sum NaN; a score of +inf
     * becomes NaN. */
    void (*softmax)(int64_t keys, int64_t lanes, const void *top, void *s, void *max, void *sum, void *alpha);
    /* mask[key][lane] = -inf if (b, h, i + lane, j + key) is dropped, otherwise 0. */
    void (*draw)(int64_t keys, int64_t lanes, const mha__draw *draw, void *mask);
    /* s = 0 if mask is -inf, otherwise s * scale. */
    void (*drop)(int64_t keys, int64_t lanes, const void *mask, double scale, void *s);
    /* s = exp(s - max) * inverse; 0 if s is -inf, for any max and inverse. */
    void (*probs)(int64_t keys, int64_t lanes, const void *max, const void *inverse, void *s);

    /* Same as `probs`, and also computes `moments`. position and first have the same meaning as in `alibi`. */
    void (*moments)(int64_t keys, int64_t lanes, const void *max, const void *inverse, int64_t position, int64_t first,
                    void *s, const mha__row_stat_sums *moments);
    /* Returns the first key in [key, keys) with s[key][lane] > bound, or `keys`. `bound` is rounded to the table's
     * type. */
    int64_t (*next_above)(int64_t key, int64_t keys, const void *s, int64_t lane, double bound);
    /* mass[key] += sum of s[key][lane] over the lanes in use. */
    void (*mass)(int64_t keys, int64_t lanes, const void *s, double *mass);

    /* o [rows, dv; row stride o_stride] = o * alpha[row] + P V. P is s, read transposed, or in whole vectors for
     * columns that do not fill a vector of V. V is in panels: element (key, c) is at v + (c / nr) * v_panel + key *
     * v_row + c % nr, and whole vectors must be readable. o_stride >= round_up(dv, nr). `prefetch` is as in scores. */
    void (*values)(int64_t rows, int64_t dv, int64_t keys, const void *s, const void *v, int64_t v_row, int64_t v_panel,
                   const void *alpha, void *o, int64_t o_stride, mha__prefetch_schedule *prefetch);

    /* Bitwise identical to `values` if V is finite, but skips keys whose mask[key][lane] is -inf, because 0 * NaN would
     * be NaN. */
    void (*values_masked)(int64_t rows, int64_t dv, int64_t keys, const void *s, const void *mask, const void *v,
                          int64_t v_row, int64_t v_panel, const void *alpha, void *o, int64_t o_stride);

    /* ---- decode: the same functions for up to `decode_lanes` queries, limited by memory bandwidth ----
     * K and V are read in place, in any stored type (an mha__half, or -1 for reals), with contiguous elements. If
     * `upcoming` is not NULL, the functions also prefetch this memory. Results are bitwise identical to the functions
     * above. */

    /* strip = scale * K Q^T. Element i of query r is q[i * lanes + r]. Scores of dropped pages are arbitrary finite
     * values. Scores after the last key are -inf, up to a whole vector. */
    void (*decode_scores)(int type, const mha__pieces *k, int64_t d, const void *q, int64_t lanes, double scale,
                          void *strip, const mha__upcoming *upcoming);
    /* Converts a strip to a panel s, for the functions that accept only panels. */
    void (*decode_panel)(int64_t keys, int64_t lanes, const void *strip, void *s);
    /* Same as `softmax`, except that decode_values computes `sum`. */
    void (*decode_softmax)(int64_t keys, int64_t lanes, void *strip, void *max, void *alpha);
    /* Same as `values`; the weight of row r and key j is p[r * p_row + j * p_key]. If sum is not NULL, also sets sum =
     * sum * alpha + the sum of the weights of each row. */
    void (*decode_values)(int type, const mha__pieces *v, int64_t dv, int64_t rows, const void *p, int64_t p_row,
                          int64_t p_key, const void *alpha, void *sum, void *o, int64_t o_stride,
                          const mha__upcoming *upcoming);

    /* ---- attention in one call, if only out and lse are requested; bitwise identical to the functions above ---- */

    void (*single_block)(const mha__single_block *x);

    /* ---- partial results and outputs ---- */

    /* Initializes `partial` to the results of rows that attend to no key. max and sum are written for whole vectors of
     * rows. */
    void (*clear)(int64_t rows, int64_t o_stride, const mha__partial *partial);
    /* Merges `from` into `into`. If one partial result has no attended key, the result equals the other partial
     * result exactly. */
    void (*merge)(int64_t rows, int64_t dv, int64_t o_stride, const mha__partial *from, const mha__partial *into);
    /* Adds an attention sink to every row: a logit without a value, which is included in max and sum. */
    void (*sink)(int64_t rows, int64_t dv, int64_t o_stride, double sink, const mha__partial *partial);
    /* inverse[r] = 1 / sum[r], or 0 if sum is 0; lse[r * lse_stride] = max + log(sum), or -inf. lse may be NULL. */
    void (*totals)(int64_t rows, const void *max, const void *sum, void *inverse, void *lse, int64_t lse_stride);
    /* scale[r] = inverse[r] * gate. */
    void (*gate)(int64_t rows, double gate, const void *inverse, void *scale);
    /* out[r * row_stride + c * col_stride] = o * inverse[r], never -0. Reads only the dv elements of each row of o.
     * Returns false if any of these elements is NaN or Inf. */
    bool (*output)(int64_t rows, int64_t dv, const void *o, int64_t o_stride, const void *inverse, void *out,
                   int64_t row_stride, int64_t col_stride);

    /* ---- the backward pass ---- */

    /* fill sets n elements to `value`; add adds n elements of `from` to `to`. */
    void (*fill)(int64_t n, double value, void *to);
    void (*add)(int64_t n, const void *from, void *to);
    /* Copies element (r, c) from src[r * row_stride + c * col_stride] to dst[r * dst_stride + c]; columns from n up to
     * `width` become 0. */
    void (*gather)(int64_t rows, int64_t n, const void *src, int64_t row_stride, int64_t col_stride, void *dst,
                   int64_t dst_stride, int64_t width);
    /* Returns true if all elements are finite. */
    bool (*finite)(int64_t rows, int64_t n, const void *src, int64_t stride);
    /* dots[r] = sum of a * b; a term with b = 0 counts as 0, for any a. */
    void (*row_dots)(int64_t rows, int64_t n, const void *a, int64_t a_stride, const void *b, int64_t b_stride,
                     void *dots);
    /* inverse = 1, or 0 in rows where lse is -inf. In all other rows, delta -= dlse (a NULL dlse means zeros). Returns
     * true if |lse| > limit in any of these other rows. */
    bool (*anchor)(int64_t rows, const void *lse, const void *dlse, double limit, void *inverse, void *delta);
    /* In rows where |lse| > limit and lse is not -inf: inverse = exact, lse = max. */
    void (*anchor_again)(int64_t rows, double limit, const void *max, const void *exact, void *lse, void *inverse);
    /* With p = exp(s - lse) * inverse (s is limited to lse) and f = factor, or 0 if dropped: w = p f, ds = p (dp f gate
     * - delta). Both are exactly 0 if s is -inf, for any other operands. */
    void (*softmax_back)(int64_t keys, int64_t lanes, const mha__softmax_back *x);
    /* sums[lane] += sum over ascending keys of |p f gate dp|, for the panels of softmax_back. Masked and dropped
     * elements are skipped; w, ds, dots and delta are ignored. */
    void (*taylor_back)(int64_t keys, int64_t lanes, const mha__softmax_back *x, void *sums);
    /* ds *= 1 - (capped / cap)^2; an exact 0 stays 0. `capped` is a panel [key][nr]; ds has rows of `stride`
     * elements. */
    void (*softcap_back)(int64_t keys, int64_t lanes, double cap, const void *capped, void *ds, int64_t stride);
    /* sums[lane] -= sum of |position + lane - (first + key)| * ds. position and first have the same meaning as in
     * `alibi`. */
    void (*alibi_back)(int64_t keys, int64_t lanes, int64_t position, int64_t first, const void *ds, int64_t stride,
                       void *sums);
    /* to[key][lane] += ds[key][lane]. */
    void (*add_wide)(int64_t keys, int64_t lanes, const void *ds, int64_t stride, double *to, int64_t to_stride);
    /* C [m, n; row stride c_row] += A B, where the product is first summed from +0. Element (r, i) of A is at a[r *
     * a_row + i * a_col]; element (i, c) of B is at b + (c / nr) * b_panel + i * b_row + c % nr. B and C are read, and
     * C is written, in whole vectors. */
    void (*add_product)(int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b,
                        int64_t b_row, int64_t b_panel, void *c, int64_t c_row);
    /* Same as add_product, but skips elements of A if `mask`, of A's shape, is -inf. Bitwise identical to add_product
     * if all operands are finite and the skipped elements are 0. */
    void (*add_product_masked)(int64_t m, int64_t n, int64_t k, const void *a, const void *mask, int64_t a_row,
                               int64_t a_col, const void *b, int64_t b_row, int64_t b_panel, void *c, int64_t c_row);

    /* ---- peak rates of a core, for mha/machine_peak.h (NULL in WebAssembly) ---- */

    /* Performs steps * mr * nr multiply-adds in registers. `factor` must be near 1, so that the values stay finite. */
    double (*fma_steps)(int64_t steps, double factor);
    /* Reads n elements (a multiple of 8 vectors) and returns their sum. */
    double (*read)(int64_t n, const void *memory);

    /* ---- types below 32 bits, indexed by mha__half (f32; NULL in the f64 table) ---- */

    /* Convert exactly: element (r, c) is read from src[r * row_stride + c * col_stride] and written to dst[r *
     * dst_stride + c]. Strides of q8_0 and q4_0 count blocks; n is a multiple of 32 for q4_0. */
    void (*widen[MHA__STORED])(int64_t rows, int64_t n, const void *src, int64_t row_stride, int64_t col_stride,
                               void *dst, int64_t dst_stride);
    mha__narrow_fn *narrow[MHA__HALVES];

    /* ---- norms and activations of rows (f32; NULL in the f64 table) ---- */

    /* y = (x - mean) / sqrt(var + eps) * weight + bias over n elements, with the biased variance; y may be x. */
    void (*layer_norm)(const float *x, int64_t n, const float *weight, const float *bias, float eps, float *y);
    /* y = x / sqrt(mean(x^2) + eps) * weight; y may be x. */
    void (*rms_norm)(const float *x, int64_t n, const float *weight, float eps, float *y);
    /* Gradients of both norms. With z = (x - mean) scale and g = weight dy,
     *     dx = (g - mean(g) - z mean(g z)) scale        (rms_norm: mean and mean(g) are 0)
     * norm_terms computes mean and scale of a row; `centred` selects layer_norm. */
    mha__norm_terms (*norm_terms)(const float *x, int64_t n, float eps, bool centred);
    /* dx = the gradient, or dx += the gradient if `add` is set; dx may be dy. */
    void (*norm_back)(const float *x, const float *dy, int64_t n, const float *weight, mha__norm_terms terms,
                      bool centred, bool add, float *dx);
    mha__row_fn map[MHA__MAPS]; /* x = f(x), where f is the activation. */
    /* dx = dy f'(x); dx may be x or dy. */
    void (*map_back[MHA__MAPS])(const float *x, const float *dy, int64_t n, float *dx);

    /* Returns the sum of (p + q) log2(p + q) over n elements of two distributions, with 0 log 0 = 0; NaN if any element
     * is NaN. The Jensen-Shannon divergence of two heads is computed from this sum. Terms have a relative error of 2e-7
     * and are summed in double. */
    double (*mixture)(int64_t n, const float *p, const float *q);

    /* ---- optimizer (f32; NULL in the f64 table and in WebAssembly) ---- */

    /* One AdamW step of n parameters, which sets `gradient` to 0. Bitwise identical on every ISA. */
    void (*adamw)(const mha__adamw_factors *factors, int64_t n, float *weight, float *gradient, float *mean,
                  float *square);
    /* Same with moments in bf16, n <= 2^32. Moments are computed in f32 and then rounded stochastically:
     * to one of the two nearest bf16 numbers, so that the expected value is the f32 number; finite moments stay finite.
     * The random bits are a hash of key and i. */
    void (*adamw_bf16)(const mha__adamw_factors *factors, uint64_t key, int64_t n, float *weight, float *gradient,
                       uint16_t *mean, uint16_t *square);

    const mha__dense *dense[MHA__HALVES + 1]; /* indexed by mha__half (f32; NULL in the f64 table) */

    const mha__pairs *pairs;           /* products of bf16 pairs; NULL if the ISA does not have them */
    const mha__pairs_back *pairs_back; /* backward pass on bf16 pairs; NULL if the ISA does not have it */
} mha__kernels;

/* Returns the f32 table of the newest compiled-in ISA that the CPU supports and that is not newer than the cap. Never
 * NULL. */
const mha__kernels *mha__kernels_f32(mha__isa cap);
/* Returns the f64 table, which is scalar on every ISA; NULL on WASI, where no f64 kernels are compiled. */
const mha__kernels *mha__kernels_f64(void);
/* Returns the table for `dtype` and the ISA of `ctx`: mha__kernels_f64 for f64, otherwise an f32 table. */
const mha__kernels *mha__kernels_of(mha_ctx *ctx, mha_dtype dtype);

#endif
