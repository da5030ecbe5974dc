/* kernel_pairs.h - kernels that multiply pairs of bf16 elements: attention, and its backward pass. */
#ifndef MHA_KERNEL_PAIRS_H
#define MHA_KERNEL_PAIRS_H

#include "kernel/kernel_operands.h"

/* Attention on bf16 operands without conversion, for CPUs that multiply pairs of bf16 and accumulate in f32. P is also
 * rounded to bf16.
 *
 * A left operand has rows of contiguous bf16 elements, aligned to 4 bytes. A right operand consists of panels of pairs:
 * elements (2i, c) and (2i + 1, c) are the 4 bytes at row i, column c of a panel [k / 2][nr]. k is padded with zeros to
 * whole steps.
 *
 * With tile registers, an element is computed in steps,
 *
 *     total = total + (even + odd),  even and odd: chains of fused multiply-adds from +0 over the elements of a step
 *
 * which begin at multiples of `step` along d, and along the keys from the start of their block. With vector registers,
 * an element is computed in pairs, which begin at multiples of 2 in the same way,
 *
 *     total = (total + the product of the odd elements) + the product of the even elements,  two fused multiply-adds
 *
 * as on Intel CPUs. CPUs of other vendors may add or round in a different order, which is the same in every call.
 * Denormals may be flushed to 0.
 *
 * Panels of scores have the layout of mha__kernels. v_panel is the distance from one panel of values to the next, in
 * units of 4 bytes. */
typedef struct mha__pairs {
    int step;  /* number of elements per step: 32 */
    int whole; /* `scores` reads keys in place if d is a multiple of this number of elements: 2, or step with tiles */

    /* Bracket any number of calls of the functions marked T on the same thread. open and close configure and release
     * the tile registers, if the ISA has any. */
    void (*open)(void);
    void (*close)(void);

    /* Packs rows into a right operand of ceil(rows / nr) panels, each of round_up(d, step) / 2 rows. */
    void (*pack_queries)(int64_t rows, int64_t d, const uint16_t *q, int64_t row_stride, int64_t col_stride,
                         void *panels);
    /* Packs a left operand [keys][round_up(d, step)]. Required if the elements of a key are not contiguous, or d is not
     * a multiple of `whole`. */
    void (*pack_keys)(int64_t keys, int64_t d, const uint16_t *k, int64_t row_stride, int64_t col_stride,
                      uint16_t *rows);
    /* Packs a block of values into a right operand. If `clean`, NaN and Inf become 0. */
    void (*pack_values)(int64_t keys, int64_t dv, const uint16_t *v, int64_t row_stride, int64_t col_stride, bool clean,
                        int64_t v_panel, void *panels);

    /* T. Same as mha__kernels.scores; k is a left operand. */
    void (*scores)(int64_t keys, int64_t d, const uint16_t *k, int64_t k_row, const void *q, int64_t lanes,
                   double scale, void *s, void *top, mha__prefetch_schedule *prefetch);
    /* T. Softmax and values for rows [first, end) of a panel, counted from the start of a block of keys. Equivalent to
     * mha__kernels.softmax and .values with scores s * scale and maxima top * scale. exp has a relative error of 2e-7
     * in addition to the rounding of the scores. Sums are computed before the weights are rounded. */
    void (*attend)(int64_t first, int64_t end, int64_t lanes, int64_t dv, double scale, const void *top, void *s,
                   const void *v, int64_t v_panel, const mha__partial *into, int64_t o_stride);
    /* `attend` for at most `in_place_lanes` lanes, with V in place as rows of dv contiguous elements; dv is a multiple
     * of `step`, and v is the first row of the block. Only rows [first, end) are read. If these rows are finite,
     * bitwise identical to `attend` except for the sign of zeros. NULL, with `in_place_lanes` 0, if the ISA does not
     * have it. */
    int in_place_lanes;
    void (*attend_rows)(int64_t first, int64_t end, int64_t lanes, int64_t dv, double scale, const void *top, void *s,
                        const uint16_t *v, int64_t v_row, const mha__partial *into, int64_t o_stride);
    /* T. Same as mha__kernels.values for rows [first, end) of a panel of weights. */
    void (*values)(int64_t first, int64_t end, int64_t lanes, int64_t dv, void *s, const void *v, int64_t v_panel,
                   const void *alpha, void *o, int64_t o_stride);

    /* For at most mha__kernels.decode_lanes lanes, with K and V in place as rows of contiguous elements. NULL if
     * `scores` and `attend` are fast enough. decode_scores is mha__kernels.decode_scores with an even d. decode_attend
     * is `attend` on a strip that begins with an even key of its block and has no dropped keys. The results are bitwise
     * identical to those of `scores` and `attend`. */
    void (*decode_scores)(const mha__pieces *k, int64_t d, const void *q, int64_t lanes, double scale, void *strip,
                          const mha__upcoming *upcoming);
    void (*decode_attend)(const mha__pieces *v, int64_t keys, int64_t dv, int64_t lanes, double scale, void *strip,
                          const mha__partial *into, int64_t o_stride, const mha__upcoming *upcoming);
} mha__pairs;

/* W^T and dS^T of a tile of queries and a block of keys, as bf16. w and ds have rows of keys, [key][query]. `across`
 * contains a second copy of dS in rows of queries, [query][key]. All three are left operands of pairs with rows of
 * `stride` elements, and point to the first query of the panel. */
typedef struct mha__pair_weights {
    uint16_t *w, *ds, *across;
    int64_t stride;
} mha__pair_weights;

/* The backward pass on bf16 operands without conversion: mha__pairs, with P and dS rounded to bf16. A panel is one step
 * wide (nr = step). Keys are counted from the start of their block. Elements of a step outside [first, end) and unused
 * lanes get weights of 0. Panels must have space for whole steps, because such elements are overwritten. */
typedef struct mha__pairs_back {
    /* Same as mha__kernels.softmax_back without dropout, gate and dots. s and dp begin at the start of the block. exp
     * has the error of mha__pairs.attend. */
    void (*softmax_back)(int64_t first, int64_t end, int64_t lanes, const mha__softmax_back *x,
                         const mha__pair_weights *to);
    /* Rounds w * gate and ds from reals. x->w and x->ds begin at the start of the block and have rows of x->stride
     * elements. */
    void (*round)(int64_t first, int64_t end, int64_t lanes, const mha__softmax_back *x, const mha__pair_weights *to);
    /* T. C [m, n; row stride c_row] += A B over whole steps. A is a left operand with row stride a_row; B consists of
     * panels of pairs, b_panel apart in units of 4 bytes. C is read and written in whole panels of columns, and A is
     * read in whole tiles of 16 rows. */
    void (*add_product)(int64_t m, int64_t n, int64_t steps, const uint16_t *a, int64_t a_row, const void *b,
                        int64_t b_panel, void *c, int64_t c_row);
} mha__pairs_back;

#endif
