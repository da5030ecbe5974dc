/* kernel_dense.h - the dense product on weights of fewer than 32 bits. */
#ifndef MHA_KERNEL_DENSE_H
#define MHA_KERNEL_DENSE_H

#include "kernel/kernel_operands.h"

#include "base/size.h"

/* The dense product on weights that are rounded to a smaller type when they are packed, so that only a half or a
 * quarter of the bytes is read. k is padded with zeros to whole blocks; a panel consists of consecutive blocks.
 *
 * bf16, f16: if `left` is NULL, the left operand is reals. Each element is then bitwise identical to
 * mha__kernels.product on the rounded weights. Otherwise, `left` also rounds the left operand to bf16, and elements are
 * computed as in mha__pairs, in steps of one block or in pairs. In both cases, sums begin with the initial value of C.
 *
 * q8_0: weights and the left operand are quantized to int8 in groups of `group` elements along k, with one scale per
 * group of a row. The products of a group are summed exactly, and the sums of the groups are added to the initial value
 * of C in ascending order, each multiplied by the scale of the weights, then by that of the row. The integers are the
 * same on every ISA. The scale of a group is NaN if the group contains NaN or Inf or, for weights, a magnitude above
 * 127 times the largest f16. */
typedef struct mha__dense {
    int64_t block, block_bytes; /* elements of k per block (4 or 32), and bytes per block in a panel of nr columns */
    int64_t group, group_bytes; /* elements of k per group (0: no groups), and additional bytes per group of a panel */

    /* Rounds n rows of k weights to nearest, ties to even (for q8_0 see mha__int8_round), and packs them. Strides are
     * as in pack_rows. */
    void (*pack)(int64_t n, int64_t k, const float *w, int64_t row_stride, int64_t col_stride, void *panels);

    /* Converts rows of k reals to a left operand, whose rows have mha__dense_left units of left_size bytes: elements,
     * and left_head units per group. `left`, open and close are NULL if they are not needed. open and close bracket any
     * number of product calls on one thread, as in mha__pairs. */
    void (*left)(int64_t rows, int64_t k, const float *x, int64_t stride, void *to);
    int64_t left_size, left_head;
    void (*open)(void);
    void (*close)(void);
    int rows;   /* `product` reads rows of A up to a multiple of this number; rows from m on may have any content */
    int height; /* rows per call of `product` for which it is fastest if there are many */

    /* Same as mha__kernels.product, with C initialized from `from`, whose rows are from_row apart. A from_row of 0 adds
     * a bias, from = c accumulates, and a NULL `from` means zeros. lda counts units of the left operand. */
    void (*product)(int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *panels, const float *from,
                    int64_t from_row, float *c, int64_t ldc);

    /* Same as mha__kernels.map, for results that are rounded to the type of the weights: faster, with a relative error
     * of at most 2^-15 (x >= -5.5; below, an absolute error of 1e-8). NULL for functions without such a version. */
    mha__row_fn map[MHA__MAPS];
    /* Same as `product` with from_row 0, but stores map(sum), rounded to bf16. A NULL `map` means the sum. NULL if it
     * is not faster than `product`, `map` and `narrow`. */
    void (*product_bf16)(int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *panels,
                         const float *bias, mha__row_fn map, uint16_t *y, int64_t ldy);
} mha__dense;

/* Returns the number of groups of k elements. */
static inline int64_t mha__dense_groups(const mha__dense *dense, int64_t k)
{
    return dense->group ? mha__ceil_div(k, dense->group) : 0;
}
/* Returns the size of a panel of k rows [bytes]. */
static inline int64_t mha__dense_panel(const mha__dense *dense, int64_t k)
{
    return mha__ceil_div(k, dense->block) * dense->block_bytes + mha__dense_groups(dense, k) * dense->group_bytes;
}
/* Returns the number of units in a row of the left operand. */
static inline int64_t mha__dense_left(const mha__dense *dense, int64_t k)
{
    return mha__round_up(k, dense->block) + mha__dense_groups(dense, k) * dense->left_head;
}

#endif
