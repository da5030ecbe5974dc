/* kernel.h - the table of kernels: numbers on one thread. No heads, no files, no allocation, no logging.
 *
 * A table is const and chosen once per plan (select.c). Every entry is set. Pointers are to elements of `real`: float, or
 * double in the f64 table; both share one body (tile.inc, softmax.inc), so signatures say `void`.
 *
 * Two products are all there is, and both add in an order that the inner length alone fixes:
 *   C[r][n] = sum over k ascending, one fused multiply-add chain per number.
 * A number's bits therefore do not depend on the tile, the row count, or where a block of k was cut.
 *
 * "Panel": nr columns of a right operand, stored [k][nr] contiguous; columns beyond the end hold zeros.
 */
#ifndef MHA_KERNEL_KERNEL_H
#define MHA_KERNEL_KERNEL_H

#include "base/cpu.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mha__kernels {
    const char *isa;  /* "avx2" */
    size_t real_size; /* 4 or 8 */
    int mr;           /* rows of C in one register tile; a call may give any number of rows */
    int nr;           /* columns of C in one register tile = width of a panel */

    /* ---- products ---- */

    /* C [m rows, n columns, row stride ldc] = or += A [m, k; row stride lda, unit column stride] times B in panels:
     * column c lies in panel c / nr, at b + (c / nr) * panel_stride + kk * nr + c % nr. `accumulate` continues the chain
     * from what C holds. Reads only m x k of A and whole panels of B; writes only m x n of C. */
    void (*product)(int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t panel_stride,
                    void *c, int64_t ldc, bool accumulate);

    /* ---- packing ---- */

    /* Right operand given as n rows of k numbers (keys, or the rows of a weight matrix): number (j, kk) is at
     * src[j * row_stride + kk * col_stride]. Writes ceil(n / nr) panels of k * nr. */
    void (*pack_rows)(int64_t n, int64_t k, const void *src, int64_t row_stride, int64_t col_stride, void *panels);
    /* Right operand given as k rows of n numbers (values): number (kk, c) at src[kk * row_stride + c * col_stride]. Writes
     * ceil(n / nr) panels of k * nr, panel p at panels + p * panel_stride. Returns true if all numbers are finite. */
    bool (*pack_cols)(int64_t k, int64_t n, const void *src, int64_t row_stride, int64_t col_stride, void *panels,
                      int64_t panel_stride);

    /* ---- one row of scores ---- */

    /* s[j] = cap * tanh(s[j] / cap). */
    void (*softcap)(void *s, int64_t n, double cap);
    /* s[j] *= scale. */
    void (*scale)(void *s, int64_t n, double scale);
    /* s[j] += bias[j * stride]. */
    void (*add)(void *s, int64_t n, const void *bias, int64_t stride);
    /* s[j] = -inf where keep[j * stride] is 0. */
    void (*mask)(void *s, int64_t n, const uint8_t *keep, int64_t stride);

    /* The online softmax of one row over one block of keys: with m' = max(*max, max of s),
     *   s[j] <- exp(s[j] - m'), returns exp(*max - m') (1 if nothing changed), *sum <- *sum * that + sum of s, *max <- m'.
     * A score of -inf becomes an exact 0. Nothing seen yet is *max = -inf, *sum = 0, and stays so if all are -inf. NaN, and
     * +inf minus itself, make NaN. n <= MHA__KEY_BLOCK. The sum is taken in one order fixed by n... see softmax.inc. */
    double (*softmax)(void *s, int64_t n, void *max, void *sum);
    /* p[j] = exp(s[j] - max) * inverse_sum; 0 where s[j] is -inf or max is -inf. */
    void (*probs)(void *s, int64_t n, double max, double inverse_sum);

    /* y[i] *= a;  y[i] += a * x[i]. */
    void (*vec_scale)(void *y, int64_t n, double a);
    void (*axpy)(void *y, int64_t n, double a, const void *x);

    /* ---- rows of a layer (f32 tables; NULL in the f64 table) ---- */

    /* y = (x - mean) / sqrt(var + eps) * weight + bias over n numbers; biased variance; y may be x. */
    void (*layer_norm)(const float *x, int64_t n, const float *weight, const float *bias, float eps, float *y);
    void (*gelu_erf)(float *x, int64_t n);  /* x <- x/2 (1 + erf(x / sqrt 2)) */
    void (*gelu_tanh)(float *x, int64_t n); /* x <- x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
} mha__kernels;

/* Tables for a cap: the newest built one that the CPU has and the cap admits. Never NULL. */
const mha__kernels *mha__kernels_f32(mha__isa cap);
const mha__kernels *mha__kernels_f64(mha__isa cap); /* scalar whatever the cap */

#endif
