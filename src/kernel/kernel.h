/* kernel.h - the table of kernels: arithmetic on a single thread. Kernels do not handle heads or files, and neither
 * allocate memory nor log.
 *
 * A table is const and selected once per plan (kernel_select.c). An entry may be NULL only if its comment says so.
 * Pointers point to elements of type `real`: float, or double in the f64 table. Both tables are compiled from the same
 * bodies (*.inc), so the signatures use `void`. No alignment is required, but scratch memory should be padded and
 * aligned to 64 bytes.
 *
 * All products compute C[r][n] = sum over k ascending of A[r][k] * B[k][n]. Each element is one chain of fused
 * multiply-adds (of separate multiplies and adds on the scalar ISA) that begins at +0. An element is therefore bitwise
 * identical for any register tile, row count and division into blocks.
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
#include "mha/ctx.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keys per block, the unit in which the online softmax processes keys. Blocks begin at multiples of this size, which
 * therefore affects the rounding of results and is the same for every ISA. 128 keys of a 32-wide f32 panel take 16 KiB,
 * so S^T and a block of V fit in an L1 cache together. */
enum { MHA__KEY_BLOCK = 128 };

/* Maximum number of elements per row of queries, keys or values. */
enum { MHA__ROW_MAX = 4096 };

/* Page sizes are multiples of 16 keys, so a block consists of at most MHA__PIECES pieces. A strip contains the scores
 * of decode queries: one row of keys per query, with rows MHA__STRIP elements apart (a block plus one vector). */
enum { MHA__PIECES = MHA__KEY_BLOCK / 16, MHA__STRIP = MHA__KEY_BLOCK + 16 };

/* The 16-bit types, and the types that kernels only read: blocks of q8_0 and q4_0 (math/q8_0.h, math/types/q4_0.h), and
 * 8-bit floating point (math/types/e4m3.h). All arithmetic uses reals. */
typedef enum mha__half {
    MHA__BF16,
    MHA__F16,
    MHA__HALVES,
    MHA__Q8 = MHA__HALVES,
    MHA__Q4,
    MHA__E4M3,
    MHA__STORED
} mha__half;

/* Activation functions f, which are applied to each element. */
typedef enum mha__map {
    MHA__RELU, /* max(x, 0); the gradient is exactly 0 for x <= 0, for any dy */
    MHA__TANH,
    MHA__SIGMOID,      /* 1 / (1 + e^-x) */
    MHA__SOFTPLUS,     /* log(1 + e^x) */
    MHA__SILU,         /* x / (1 + e^-x) */
    MHA__GELU_ERF,     /* x/2 (1 + erf(x / sqrt 2)) */
    MHA__GELU_TANH,    /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    MHA__GELU_SIGMOID, /* x / (1 + e^-1.702 x) */
    MHA__MAPS
} mha__map;

/* The partial softmax of some rows over some keys: o[r] = sum of exp(s - max[r]) * v, not yet divided by sum[r]. Rows
 * of o are o_stride elements apart. A row that attends to no key has max -inf, sum 0 and o 0. */
typedef struct mha__partial {
    void *max, *sum, *o;
} mha__partial;

/* A range of memory to prefetch, which consists of rows of `bytes` bytes. */
typedef struct mha__ahead {
    const void *at;
    int64_t rows, stride, bytes; /* row stride [bytes] */
} mha__ahead;

/* Ranges of memory to prefetch in order, distributed over the next `products` calls of scores and values. The calls
 * spread the prefetches evenly over their arithmetic, because a core supports only about 16 outstanding requests, and a
 * burst of prefetches would delay the loads of the kernel. */
enum { MHA__STRETCHES = 4, MHA__LINE = 64 };
typedef struct mha__feed {
    mha__ahead stretch[MHA__STRETCHES];
    int count, next;   /* number of ranges, and the index of the current range */
    int products;      /* number of remaining product calls */
    int64_t row, byte; /* next position in the current range */
    int64_t lines;     /* number of cache lines, in all ranges, that are not assigned to a product yet */
    int64_t share;     /* number of cache lines to prefetch per tile of the current product */
} mha__feed;

/* Rows of K or V of one block, in place: a single piece for a dense view, or one piece per page. */
typedef struct mha__pieces {
    int count;
    int64_t stride, bytes; /* row stride and row size [bytes] */
    struct {
        const void *at; /* NULL if the page was dropped */
        int64_t rows;
    } piece[MHA__PIECES];
} mha__pieces;

/* Memory that decode kernels prefetch in addition to their own rows: the memory that the next call reads first (`next`,
 * NULL = none), MHA__NEAR bytes ahead into the L1 cache, and rows of a later block (`far`) into the L2 cache. */
enum { MHA__NEAR = 12 << 10 };
typedef struct mha__upcoming {
    const void *next;
    mha__pieces far;
} mha__upcoming;

/* A panel of queries whose keys fit in one block. Element (r, c) of q, k and v is at index r * row + c * col. */
typedef struct mha__one_block {
    int64_t rows, keys, d, dv; /* number of rows, 1..nr, and of keys, 0..MHA__KEY_BLOCK */
    const void *q, *k, *v;
    int64_t q_row, q_col, k_row, k_col, v_row, v_col;
    double scale;
    int64_t first;          /* index of the first key in the sequence, used with lo and hi */
    const int64_t *lo, *hi; /* row r attends to keys [lo[r], hi[r]), or to all keys if NULL */
    void *out;              /* the output; may be the same memory as q */
    int64_t out_row, out_col;
    void *lse; /* log-sum-exp of each row; NULL if not requested */
    int64_t lse_row;
    void *memory;    /* scratch: (d + keys + dv) * nr reals */
    mha__feed *feed; /* as in `scores`, for both products together; must be NULL if keys is 0 */
} mha__one_block;

/* Random numbers for dropout: Philox4x32-10 with key `seed` (low half first) and counter (b, h, i, j). Only the first
 * of the four output words is used. An element is dropped if this word is below `dropped`. */
typedef struct mha__draw {
    uint64_t seed;
    uint32_t b, h, i, j;
    uint64_t dropped; /* dropout probability * 2^32, rounded up: 1 to 2^32; 2^32 drops all elements */
} mha__draw;

/* Sums for the row statistics: one element per lane, over the keys of a panel. */
typedef struct mha__row_stat_sums {
    void *total, *depth, *reach; /* sums of p, of p * (max - s), and of p * |position + lane - (first + key)| */
    void *peak, *where;          /* largest p, and first + the lowest key that has it; 0 and -1 if no p is above 0 */
} mha__row_stat_sums;

/* Inputs and outputs of softmax_back and taylor_back for one panel of scores. */
typedef struct mha__softmax_back {
    void *s;                           /* panel [key][nr]: final scores */
    const void *dp;                    /* panel [key][nr]: dO V^T */
    const void *dropped;               /* panel [key][nr]: -inf if dropped; NULL without dropout */
    const void *lse, *inverse, *delta; /* one element per lane; see softmax_back */
    void *dots;                        /* one element per lane, += sum of w * dp; NULL if not requested */
    double factor, gate;               /* dropout scale of kept elements, and gate of the head */
    void *w, *ds;                      /* results: rows of `stride` elements */
    int64_t stride;
} mha__softmax_back;

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
                   double scale, void *s, void *top, mha__feed *feed);
    /* T. Softmax and values for rows [first, end) of a panel, counted from the start of a block of keys. Equivalent to
     * mha__kernels.softmax and .values with scores s * scale and maxima top * scale. exp has a relative error of 2e-7
     * in addition to the rounding of the scores. Sums are computed before the weights are rounded. */
    void (*attend)(int64_t first, int64_t end, int64_t lanes, int64_t dv, double scale, const void *top, void *s,
                   const void *v, int64_t v_panel, const mha__partial *into, int64_t o_stride);
    /* T. Same as mha__kernels.values for rows [first, end) of a panel of weights. */
    void (*values)(int64_t first, int64_t end, int64_t lanes, int64_t dv, void *s, const void *v, int64_t v_panel,
                   const void *alpha, void *o, int64_t o_stride);

    /* For at most mha__kernels.few lanes, with K and V in place as rows of contiguous elements. NULL if `scores` and
     * `attend` are fast enough. few_scores is mha__kernels.few_scores with an even d. few_attend is `attend` on a strip
     * that begins with an even key of its block and has no dropped keys. The results are bitwise identical to those of
     * `scores` and `attend`. */
    void (*few_scores)(const mha__pieces *k, int64_t d, const void *q, int64_t lanes, double scale, void *strip,
                       const mha__upcoming *ahead);
    void (*few_attend)(const mha__pieces *v, int64_t keys, int64_t dv, int64_t lanes, double scale, void *strip,
                       const mha__partial *into, int64_t o_stride, const mha__upcoming *ahead);
} mha__pairs;

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
    int rows; /* `product` reads rows of A up to a multiple of this number; rows from m on may have any content */

    /* Same as mha__kernels.product, with C initialized from `from`, whose rows are from_row apart. A from_row of 0 adds
     * a bias, from = c accumulates, and a NULL `from` means zeros. lda counts units of the left operand. */
    void (*product)(int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *panels, const float *from,
                    int64_t from_row, float *c, int64_t ldc);
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

/* Terms of a normalized row: (x - mean) * scale. */
typedef struct mha__norm_terms {
    float mean, scale;
} mha__norm_terms;

typedef struct mha__kernels {
    const char *isa;  /* name of the ISA, for example "avx2" */
    size_t real_size; /* size of a real in bytes, 4 or 8 */
    int mr;           /* rows of C per register tile; a call accepts any number of rows */
    int nr;           /* columns of C per register tile = width of a panel; at most 64 */
    int vl;           /* number of elements per vector */
    int few;          /* maximum number of lanes of the few_* functions; 0 if they are NULL */

    /* ---- the dense product ---- */

    /* Computes C = A B, or C += A B with `accumulate`. C is [m, n] with row stride ldc, A is [m, k] with row stride
     * lda, and B is in panels: element [kk, c] is at b + (c / nr) * panel_stride + kk * nr + c % nr. Reads only m x k
     * elements of A and whole panels of B; writes only m x n elements of C.
     * The function blocks over k itself, so that a panel of B stays in the L2 cache. Callers split only m and n, and
     * only to distribute work. */
    void (*product)(int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t panel_stride,
                    void *c, int64_t ldc, bool accumulate);

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
    /* The inverse of packing: dst[lane * row_stride + key * col_stride] = panel[key][lane]. */
    void (*unpack)(int64_t lanes, int64_t keys, const void *panel, void *dst, int64_t row_stride, int64_t col_stride);

    /* ---- operations on one panel of scores s [keys][nr] ---- */

    /* s = scale * K Q^T, and top[lane] = maximum of each column; the maximum may ignore a NaN. Element d of key j is at
     * k[j * k_row + d * k_col]. If `feed` is not NULL, part of its memory is prefetched during the computation. */
    void (*scores)(int64_t keys, int64_t d, const void *k, int64_t k_row, int64_t k_col, const void *q, int64_t lanes,
                   double scale, void *s, void *top, mha__feed *feed);
    /* Same as `scores`, but the sums continue from s, where `scores` with a scale of 1 has stored the sums over the
     * first part of d. */
    void (*scores_last)(int64_t keys, int64_t d, const void *k, int64_t k_row, int64_t k_col, const void *q,
                        int64_t lanes, double scale, void *s, void *top, mha__feed *feed);
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
     * v_row + c % nr, and whole vectors must be readable. o_stride >= round_up(dv, nr). `feed` is as in scores. */
    void (*values)(int64_t rows, int64_t dv, int64_t keys, const void *s, const void *v, int64_t v_row, int64_t v_panel,
                   const void *alpha, void *o, int64_t o_stride, mha__feed *feed);

    /* Bitwise identical to `values` if V is finite, but skips keys whose mask[key][lane] is -inf, because 0 * NaN would
     * be NaN. */
    void (*values_masked)(int64_t rows, int64_t dv, int64_t keys, const void *s, const void *mask, const void *v,
                          int64_t v_row, int64_t v_panel, const void *alpha, void *o, int64_t o_stride);

    /* ---- decode: the same functions for up to `few` queries, limited by memory bandwidth ----
     * K and V are read in place, in any stored type (an mha__half, or -1 for reals), with contiguous elements. If
     * `ahead` is not NULL, the functions also prefetch this memory. Results are bitwise identical to the functions
     * above. */

    /* strip = scale * K Q^T. Element i of query r is q[i * lanes + r]. Scores of dropped pages are arbitrary finite
     * values. Scores after the last key are -inf, up to a whole vector. */
    void (*few_scores)(int type, const mha__pieces *k, int64_t d, const void *q, int64_t lanes, double scale,
                       void *strip, const mha__upcoming *ahead);
    /* Converts a strip to a panel s, for the functions that accept only panels. */
    void (*few_panel)(int64_t keys, int64_t lanes, const void *strip, void *s);
    /* Same as `softmax`, except that few_values computes `sum`. */
    void (*few_softmax)(int64_t keys, int64_t lanes, void *strip, void *max, void *alpha);
    /* Same as `values`; the weight of row r and key j is p[r * p_row + j * p_key]. If sum is not NULL, also sets sum =
     * sum * alpha + the sum of the weights of each row. */
    void (*few_values)(int type, const mha__pieces *v, int64_t dv, int64_t rows, const void *p, int64_t p_row,
                       int64_t p_key, const void *alpha, void *sum, void *o, int64_t o_stride,
                       const mha__upcoming *ahead);

    /* ---- attention in one call, if only out and lse are requested; bitwise identical to the functions above ---- */

    void (*one_block)(const mha__one_block *x);

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

    /* ---- peak rates of a core, for mha/machine_peak.h ---- */

    /* Performs steps * mr * nr multiply-adds in registers. `factor` must be near 1, so that the values stay finite. */
    double (*fma_steps)(int64_t steps, double factor);
    /* Reads n elements (a multiple of 8 vectors) and returns their sum. */
    double (*read)(int64_t n, const void *memory);

    /* ---- types below 32 bits, indexed by mha__half (f32; NULL in the f64 table) ---- */

    /* Convert exactly: element (r, c) is read from src[r * row_stride + c * col_stride] and written to dst[r *
     * dst_stride + c]. Strides of q8_0 and q4_0 count blocks; n is a multiple of 32 for q4_0. */
    void (*widen[MHA__STORED])(int64_t rows, int64_t n, const void *src, int64_t row_stride, int64_t col_stride,
                               void *dst, int64_t dst_stride);
    /* Round to nearest, ties to even: element (r, c) is read from src[r * src_stride + c] and written to dst[r *
     * row_stride + c * col_stride]. */
    void (*narrow[MHA__HALVES])(int64_t rows, int64_t n, const void *src, int64_t src_stride, void *dst,
                                int64_t row_stride, int64_t col_stride);

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
    void (*map[MHA__MAPS])(float *x, int64_t n); /* x = f(x), where f is the activation. */
    /* dx = dy f'(x); dx may be x or dy. */
    void (*map_back[MHA__MAPS])(const float *x, const float *dy, int64_t n, float *dx);

    /* Returns the sum of (p + q) log2(p + q) over n elements of two distributions, with 0 log 0 = 0; NaN if any element
     * is NaN. The Jensen-Shannon divergence of two heads is computed from this sum. Terms have a relative error of 2e-7
     * and are summed in double. */
    double (*mixture)(int64_t n, const float *p, const float *q);

    const mha__dense *dense[MHA__HALVES + 1]; /* indexed by mha__half (f32; NULL in the f64 table) */

    const mha__pairs *pairs;           /* products of bf16 pairs; NULL if the ISA does not have them */
    const mha__pairs_back *pairs_back; /* backward pass on bf16 pairs; NULL if the ISA does not have it */
} mha__kernels;

/* Returns the f32 table of the newest compiled-in ISA that the CPU supports and that is not newer than the cap. Never
 * NULL. */
const mha__kernels *mha__kernels_f32(mha__isa cap);
const mha__kernels *mha__kernels_f64(mha__isa cap); /* Returns the f64 table, which is the scalar one for every cap. */
/* Returns the table for `dtype` and the ISA of `ctx`: the f64 table for f64, otherwise an f32 table. */
const mha__kernels *mha__kernels_of(mha_ctx *ctx, mha_dtype dtype);

#endif
