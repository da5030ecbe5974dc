/* kernel.h - the table of kernels: numbers on one thread. No heads, no files, no allocation, no logging.
 *
 * A table is const and chosen once per plan (kernel_select.c). Every entry is set, but those marked f32 in the f64
 * table. Pointers are to elements of `real`: float, or double in the f64 table; both are compiled from the same bodies
 * (*.inc), so signatures say `void`. Nothing needs to be aligned; padded scratch memory is best aligned to 64 bytes.
 *
 * All products are  C[r][n] = sum over k ascending of A[r][k] * B[k][n],  one chain of fused multiply-adds per number
 * (of multiplies and adds on the scalar ISA) that begins at +0. A number's bits therefore do not depend on the register
 * tile, on the row count, or on where a block was cut.
 *
 * "Panel": nr columns of a right operand, stored [k][nr]; columns beyond the end hold zeros. In attention a panel has
 * one query per column ("lane"), so that maximum, sum and mask of a row of scores are plain vertical vector operations:
 *
 *     scores   S^T [key][lane] = K [key][d]  x  Q^T [d][lane]     A is K itself, where it lies; B packed once per tile
 *     softmax  down the columns of S^T, in place
 *     values   O [lane][dv]    = P [lane][key] x V [key][dv]       A is S^T read across; B is a block of V
 *
 * `lanes` (1..nr) says how many columns are in use; whole vectors are computed, so scratch panels are nr wide and hold
 * numbers in every lane that belongs to the last vector.
 */
#ifndef MHA_KERNEL_KERNEL_H
#define MHA_KERNEL_KERNEL_H

#include "base/cpu.h"
#include "mha/ctx.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keys in a block, the unit of the online softmax. Blocks begin at multiples of it, so it is part of what fixes the
 * bits; it is the same for every ISA. 128 keys of a 32-wide f32 panel are 16 KiB: S^T and a block of V share an L1
 * cache. */
enum { MHA__KEY_BLOCK = 128 };

/* Elements in a row of queries, keys or values, at most: kernels that copy rows have room for them on the stack. */
enum { MHA__ROW_MAX = 1024 };

/* Pages have a multiple of 16 keys. A strip, scores of few queries, is a row of keys for each of them, MHA__STRIP
 * numbers apart: the block and a vector more. */
enum { MHA__PIECES = MHA__KEY_BLOCK / 16, MHA__STRIP = MHA__KEY_BLOCK + 16 };

/* The 16-bit types, and blocks of q8_0 (math/q8_0.h), which are only read. Arithmetic is always done in reals. */
typedef enum mha__half { MHA__BF16, MHA__F16, MHA__HALVES, MHA__Q8 = MHA__HALVES } mha__half;

/* Functions f of one number, between linear layers. */
typedef enum mha__map {
    MHA__RELU, /* max(x, 0); its gradient is exactly 0 for x <= 0, whatever dy */
    MHA__TANH,
    MHA__SIGMOID,      /* 1 / (1 + e^-x) */
    MHA__SOFTPLUS,     /* log(1 + e^x) */
    MHA__SILU,         /* x / (1 + e^-x) */
    MHA__GELU_ERF,     /* x/2 (1 + erf(x / sqrt 2)) */
    MHA__GELU_TANH,    /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    MHA__GELU_SIGMOID, /* x / (1 + e^-1.702 x) */
    MHA__MAPS
} mha__map;

/* Some rows' softmax over some keys: o[r] = sum of exp(s - max[r]) * v, stride o_stride, not yet divided by sum[r].
 * Nothing seen: max -inf, sum 0, o 0. */
typedef struct mha__partial {
    void *max, *sum, *o;
} mha__partial;

/* Memory that will be read soon: rows of `bytes` bytes. */
typedef struct mha__ahead {
    const void *at;
    int64_t rows, stride, bytes; /* stride in bytes */
} mha__ahead;

/* Several such stretches, one after another, shared by the next `products` calls of scores and values. They ask for
 * them evenly while they multiply: a core has room for some 16 requests, and a burst would hold up its own. */
enum { MHA__STRETCHES = 4, MHA__LINE = 64 };
typedef struct mha__feed {
    mha__ahead stretch[MHA__STRETCHES];
    int count, next;   /* stretches, and the one at work */
    int products;      /* to come */
    int64_t row, byte; /* of the stretch at work: where to go on */
    int64_t lines;     /* of all stretches, not yet handed to a product */
    int64_t share;     /* lines for each tile of the product at work */
} mha__feed;

/* Rows of K or V of one block where they lie: one piece of a dense view, or one for each page. */
typedef struct mha__pieces {
    int count;
    int64_t stride, bytes; /* from row to row, and of a row */
    struct {
        const void *at; /* NULL: a dropped page */
        int64_t rows;
    } piece[MHA__PIECES];
} mha__pieces;

/* A panel of queries whose keys are one block. Number (r, c) of q, k and v is at [r * row + c * col]. */
typedef struct mha__one_block {
    int64_t rows, keys, d, dv; /* rows: 1..nr; keys: 0..MHA__KEY_BLOCK */
    const void *q, *k, *v;
    int64_t q_row, q_col, k_row, k_col, v_row, v_col;
    double scale;
    int64_t first;          /* which key of the sequence the first one is, for: */
    const int64_t *lo, *hi; /* row r sees keys [lo[r], hi[r]); NULL: every row sees all */
    void *out;              /* may be q */
    int64_t out_row, out_col;
    void *lse; /* NULL: not wanted */
    int64_t lse_row;
    void *memory;    /* scratch: (d + keys + dv) * nr reals */
    mha__feed *feed; /* as in `scores`; two products take their share; NULL without keys */
} mha__one_block;

/* Numbers for dropout: Philox4x32-10 with the key `seed` (low half first) and the counter (b, h, i, j), of which the
 * first word of four is used; what is below `dropped` is dropped. */
typedef struct mha__draw {
    uint64_t seed;
    uint32_t b, h, i, j;
    uint64_t dropped; /* probability * 2^32, rounded up: from 1 to 2^32, which drops everything */
} mha__draw;

/* What the statistics of rows are made of: a number per lane, over the keys of a panel. */
typedef struct mha__moments {
    void *total, *depth, *reach; /* sums of p, of p * (max - s), of p * |position + lane - (first + key)| */
    void *peak, *where;          /* greatest p, and first + its key (the lowest); 0 and -1 if no p is above 0 */
} mha__moments;

/* What one panel of scores needs to become weights and their gradients. */
typedef struct mha__softmax_back {
    void *s;                           /* panel [key][nr]: final scores */
    const void *dp;                    /* likewise: dO V^T */
    const void *dropped;               /* panel: -inf where dropped; NULL without dropout */
    const void *lse, *inverse, *delta; /* a number per lane; see softmax_back */
    void *dots;                        /* a number per lane, NULL if not wanted: += sum of w * dp */
    double factor, gate;               /* of what is not dropped; of the head */
    void *w, *ds;                      /* results: rows of `stride` numbers */
    int64_t stride;
} mha__softmax_back;

/* Attention on bf16 as it is, where the CPU multiplies pairs of bf16 and adds in f32. P is rounded to bf16 as well.
 *
 * A left operand is rows of adjacent bf16 that begin on 4 bytes, a right operand panels of pairs: numbers (2i, c) and
 * (2i + 1, c) are the 4 bytes at row i, column c of a panel [k / 2][nr]. k is filled up with zeros to whole steps. A
 * number is, by steps (tile registers),
 *
 *     total = total + (even + odd),  even and odd: chains of fused multiply-adds from +0 over the numbers of a step
 *
 * with steps at multiples of `step` along d, and along the keys from the start of their block; or by pairs (vector
 * registers), which lie likewise,
 *
 *     total = (total + the product of the odd numbers) + that of the even ones,  two fused multiply-adds
 *
 * as Intel's CPUs do; another maker's may add or round in another order, the same one in every call. Denormal numbers
 * may count as 0.
 *
 * Panels of scores are those of mha__kernels. v_panel: from one panel of values to the next, in units of 4 bytes. */
typedef struct mha__pairs {
    int step; /* 32 */

    /* Around any number of the calls marked T, on the same thread: tile registers are set up and given back, if any. */
    void (*open)(void);
    void (*close)(void);

    /* Right operand from rows; ceil(rows / nr) panels of round_up(d, step) / 2 rows. */
    void (*pack_queries)(int64_t rows, int64_t d, const uint16_t *q, int64_t row_stride, int64_t col_stride,
                         void *panels);
    /* Left operand [keys][round_up(d, step)]: for keys that are not adjacent numbers, or not in whole steps. */
    void (*pack_keys)(int64_t keys, int64_t d, const uint16_t *k, int64_t row_stride, int64_t col_stride,
                      uint16_t *rows);
    /* Right operand from a block of values; NaN and Inf become 0 if `clean`. */
    void (*pack_values)(int64_t keys, int64_t dv, const uint16_t *v, int64_t row_stride, int64_t col_stride, bool clean,
                        int64_t v_panel, void *panels);

    /* T. As mha__kernels.scores; k is a left operand. */
    void (*scores)(int64_t keys, int64_t d, const uint16_t *k, int64_t k_row, const void *q, int64_t lanes,
                   double scale, void *s, void *top, mha__feed *feed);
    /* T. Softmax and values of rows [first, end) of a panel, both counted from the start of a block of keys: as
     * mha__kernels.softmax and .values with scores s * scale, of maximum top * scale. exp has a relative error of 2e-7
     * beside the rounding of scores, sums are those of the weights before rounding. */
    void (*attend)(int64_t first, int64_t end, int64_t lanes, int64_t dv, double scale, const void *top, void *s,
                   const void *v, int64_t v_panel, const mha__partial *into, int64_t o_stride);
    /* T. As mha__kernels.values of rows [first, end) of a panel of weights. */
    void (*values)(int64_t first, int64_t end, int64_t lanes, int64_t dv, void *s, const void *v, int64_t v_panel,
                   const void *alpha, void *o, int64_t o_stride);

    /* For at most mha__kernels.few lanes, K and V where they lie, in rows of adjacent numbers; NULL where `scores` and
     * `attend` are fast enough. As mha__kernels.few_scores, d being even; and as `attend` of a strip that begins with
     * an even key of its block, none of whose keys was dropped. To the bit. */
    void (*few_scores)(const mha__pieces *k, int64_t d, const void *q, int64_t lanes, double scale, void *strip,
                       const mha__pieces *ahead);
    void (*few_attend)(const mha__pieces *v, int64_t keys, int64_t dv, int64_t lanes, double scale, void *strip,
                       const mha__partial *into, int64_t o_stride, const mha__pieces *ahead);
} mha__pairs;

/* The dense product on weights that are rounded to a type of fewer bytes when they are packed: half or a quarter to
 * read. k is filled up with zeros to whole blocks; a panel is its blocks, one after another.
 *
 * Without `left` the left operand is reals, and a number is the chain of mha__kernels.product on the rounded weights,
 * to the bit. With `left` it is rounded to bf16 as well, and a number is that of mha__pairs, by steps of a block or by
 * pairs. Either begins with what C begins with. */
typedef struct mha__dense {
    int64_t block, block_bytes; /* 32 numbers of k; their bytes in a panel of nr columns */

    /* Rounds to nearest, ties to even (q8_0: math/q8_0.h), n rows of k weights; strides as in pack_rows. */
    void (*pack)(int64_t n, int64_t k, const float *w, int64_t row_stride, int64_t col_stride, void *panels);

    /* Left operand from rows of k reals: rows of round_up(k, block) bf16. NULL: none is needed, as are these two: tile
     * registers are set up and given back, around any number of calls of product on one thread. */
    void (*left)(int64_t rows, int64_t k, const float *x, int64_t stride, uint16_t *to);
    void (*open)(void);
    void (*close)(void);
    int rows; /* what lies behind m rows of a left operand is read up to a multiple of this: it may be anything */
    bool by_steps;

    /* As mha__kernels.product. C begins as `from`, whose rows are from_row apart: 0 for a bias, C itself to accumulate;
     * as 0 if that is NULL. lda counts numbers of the left operand. */
    void (*product)(int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *panels, const float *from,
                    int64_t from_row, float *c, int64_t ldc);
} mha__dense;

/* W^T and dS^T of a tile of queries and a block of keys, as bf16: w and ds have rows of keys, [key][query]; across is
 * dS once more in rows of queries, [query][key]. All are left operands of pairs with rows of `stride`; the pointers are
 * at the panel's first query. */
typedef struct mha__pair_weights {
    uint16_t *w, *ds, *across;
    int64_t stride;
} mha__pair_weights;

/* The backward pass on bf16 as it is: mha__pairs, with P and dS rounded to bf16. A panel is a step wide (nr = step).
 * Keys count from the start of their block; what a step has beyond [first, end) or beyond the lanes in use gets weights
 * of 0 (and is overwritten in panels, which have room for whole steps). */
typedef struct mha__pairs_back {
    /* As mha__kernels.softmax_back without dropout, gate and dots, s and dp beginning with the block. exp as in
     * mha__pairs.attend. */
    void (*softmax_back)(int64_t first, int64_t end, int64_t lanes, const mha__softmax_back *x,
                         const mha__pair_weights *to);
    /* w gate and ds of reals: x->w and x->ds beginning with the block, in rows of x->stride. */
    void (*round)(int64_t first, int64_t end, int64_t lanes, const mha__softmax_back *x, const mha__pair_weights *to);
    /* T. C [m, n; row stride c_row] += A B over whole steps: A a left operand with rows of a_row, B panels of pairs,
     * b_panel apart in units of 4 bytes. C is read and written by whole panels of columns; A has whole tiles of 16
     * rows. */
    void (*add_product)(int64_t m, int64_t n, int64_t steps, const uint16_t *a, int64_t a_row, const void *b,
                        int64_t b_panel, void *c, int64_t c_row);
} mha__pairs_back;

/* What a norm makes of a row: (x - mean) scale. */
typedef struct mha__norm_terms {
    float mean, scale;
} mha__norm_terms;

typedef struct mha__kernels {
    const char *isa;  /* "avx2" */
    size_t real_size; /* 4 or 8 */
    int mr;           /* rows of C in one register tile; a call may give any number of rows */
    int nr;           /* columns of C in one register tile = width of a panel; at most 64 */
    int vl;           /* numbers in a vector */
    int few;          /* most lanes of the functions for few queries, which are NULL where it is 0 */

    /* ---- the dense product ---- */

    /* C [m rows, n columns, row stride ldc] = or += A [m, k; row stride lda, unit column stride] times B in panels:
     * column c lies in panel c / nr, at b + (c / nr) * panel_stride + kk * nr + c % nr. `accumulate` continues the
     * chain from what C holds. Reads only m x k of A and whole panels of B; writes only m x n of C. Cuts k into
     * blocks that fit L1 itself, so callers cut m and n only, and only to share work. */
    void (*product)(int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t panel_stride,
                    void *c, int64_t ldc, bool accumulate);

    /* ---- packing ---- */

    /* Right operand given as n rows of k numbers (queries, or the rows of a weight matrix): number (j, kk) is at
     * src[j * row_stride + kk * col_stride]. Writes ceil(n / nr) panels of k * nr. */
    void (*pack_rows)(int64_t n, int64_t k, const void *src, int64_t row_stride, int64_t col_stride, void *panels);
    /* Right operand given as k rows of n numbers (values): number (kk, c) at src[kk * row_stride + c * col_stride].
     * Writes ceil(n / nr) panels of k * nr. */
    void (*pack_cols)(int64_t k, int64_t n, const void *src, int64_t row_stride, int64_t col_stride, void *panels);
    /* A boolean mask as a bias: panel[key][lane] = 0, or -inf where keep[lane * row_stride + key * col_stride] is 0. */
    void (*pack_keep)(int64_t lanes, int64_t keys, const uint8_t *keep, int64_t row_stride, int64_t col_stride,
                      void *panel);
    /* The other way: dst[lane * row_stride + key * col_stride] = panel[key][lane]. */
    void (*unpack)(int64_t lanes, int64_t keys, const void *panel, void *dst, int64_t row_stride, int64_t col_stride);

    /* ---- one panel of scores: s is [keys][nr] ---- */

    /* s = scale * K Q^T, and top[lane] = maximum down each column (a NaN may or may not be passed over). Key j's
     * number d is at k[j * k_row + d * k_col]. A share of `feed`, if not NULL, is prefetched meanwhile. */
    void (*scores)(int64_t keys, int64_t d, const void *k, int64_t k_row, int64_t k_col, const void *q, int64_t lanes,
                   double scale, void *s, void *top, mha__feed *feed);
    /* These change scores afterwards; call `top` when done. In the order of their use: */
    void (*softcap)(int64_t keys, int64_t lanes, double cap, void *s); /* s = cap * tanh(s / cap) */
    /* s -= slope * |position + lane - (first + key)|. Small numbers: count both from the start of a block of keys. */
    void (*alibi)(int64_t keys, int64_t lanes, double slope, int64_t position, int64_t first, void *s);
    void (*bias)(int64_t keys, int64_t lanes, const void *bias,
                 void *s); /* s += bias; -inf, whatever s was, where bias is -inf */
    /* s = -inf unless lo[lane] <= first + key < hi[lane]. */
    void (*interval)(int64_t keys, int64_t lanes, int64_t first, const int64_t *lo, const int64_t *hi, void *s);
    void (*top)(int64_t keys, int64_t lanes, const void *s, void *top);

    /* Online softmax: with m = max(max, top), s <- exp(s - m), alpha = exp(max - m), sum <- sum * alpha + column
     * sums of s, max <- m. A score of -inf becomes an exact 0, and a column of only such scores changes nothing:
     * alpha is exactly 1, or 0 where nothing has been seen (and then o is 0). NaN makes sum NaN; +inf makes NaN of
     * itself. */
    void (*softmax)(int64_t keys, int64_t lanes, const void *top, void *s, void *max, void *sum, void *alpha);
    /* mask[key][lane] = -inf where (b, h, i + lane, j + key) is dropped, else 0. */
    void (*draw)(int64_t keys, int64_t lanes, const mha__draw *draw, void *mask);
    /* s = 0 where mask is -inf, else s * scale. */
    void (*drop)(int64_t keys, int64_t lanes, const void *mask, double scale, void *s);
    /* s = exp(s - max) * inverse; 0 where s is -inf, whatever the others are. */
    void (*probs)(int64_t keys, int64_t lanes, const void *max, const void *inverse, void *s);

    /* The same, and fills `moments`. Small numbers: count position and first from the start of a block of keys. */
    void (*moments)(int64_t keys, int64_t lanes, const void *max, const void *inverse, int64_t position, int64_t first,
                    void *s, const mha__moments *moments);
    /* The first of keys [key, keys) with s[key][lane] > bound, a number of the table's type; else `keys`. */
    int64_t (*next_above)(int64_t key, int64_t keys, const void *s, int64_t lane, double bound);
    /* mass[key] += sum of s[key][lane] over the lanes in use. */
    void (*mass)(int64_t keys, int64_t lanes, const void *s, double *mass);

    /* o [rows, dv; row stride o_stride] = o * alpha[row] + P V. P is s read across; V is in panels: number (key, c) at
     * v + (c / nr) * v_panel + key * v_row + c % nr, whole vectors readable. o_stride >= dv rounded up to nr. `feed` as
     * in scores. */
    void (*values)(int64_t rows, int64_t dv, int64_t keys, const void *s, const void *v, int64_t v_row, int64_t v_panel,
                   const void *alpha, void *o, int64_t o_stride, mha__feed *feed);

    /* The same to the bit where V is finite, but passes over keys whose mask[key][lane] is -inf: 0 * NaN would be
     * NaN. */
    void (*values_masked)(int64_t rows, int64_t dv, int64_t keys, const void *s, const void *mask, const void *v,
                          int64_t v_row, int64_t v_panel, const void *alpha, void *o, int64_t o_stride);

    /* ---- the same for up to `few` queries, at the speed of memory ----
     * K and V are read where they lie, of any stored type (an mha__half, or -1: reals) with adjacent numbers. `ahead`,
     * if not NULL, is prefetched meanwhile: what will be read some 32 KiB later. Bits as above. */

    /* strip = scale * K Q^T; any finite numbers for dropped keys, -inf up to a whole vector of keys. */
    void (*few_scores)(int type, const mha__pieces *k, int64_t d, const void *q, int64_t lanes, double scale,
                       void *strip, const mha__pieces *ahead);
    /* Into a panel s, for what only panels can have. */
    void (*few_panel)(int64_t keys, int64_t lanes, const void *strip, void *s);
    /* As `softmax`, but for `sum`, which few_values does. */
    void (*few_softmax)(int64_t keys, int64_t lanes, void *strip, void *max, void *alpha);
    /* As `values`; the weight of row r and key j is p[r * p_row + j * p_key]. If sum is not NULL, also
     * sum <- sum * alpha + the weights of each row. */
    void (*few_values)(int type, const mha__pieces *v, int64_t dv, int64_t rows, const void *p, int64_t p_row,
                       int64_t p_key, const void *alpha, void *sum, void *o, int64_t o_stride,
                       const mha__pieces *ahead);

    /* ---- all of the above in one call, where nothing else is asked for: out and lse, to the bit ---- */

    void (*one_block)(const mha__one_block *x);

    /* ---- rows of results ---- */

    /* Nothing seen yet. max and sum are written for whole vectors of rows. */
    void (*clear)(int64_t rows, int64_t o_stride, const mha__partial *partial);
    /* into <- from and into together. Exact identity where one of them has seen nothing. */
    void (*merge)(int64_t rows, int64_t dv, int64_t o_stride, const mha__partial *from, const mha__partial *into);
    /* One more logit for every row, without a value: it takes part in max and sum. */
    void (*sink)(int64_t rows, int64_t dv, int64_t o_stride, double sink, const mha__partial *partial);
    /* inverse[r] = 1 / sum[r], or 0 for a sum of 0; lse[r * lse_stride] = max + log(sum), or -inf. lse may be NULL. */
    void (*totals)(int64_t rows, const void *max, const void *sum, void *inverse, void *lse, int64_t lse_stride);
    /* scale[r] = inverse[r] * gate. */
    void (*gate)(int64_t rows, double gate, const void *inverse, void *scale);
    /* out[r * row_stride + c * col_stride] = o * inverse[r], never -0; reads the dv numbers of a row of o and none
     * beyond. False if a NaN or Inf was among them. */
    bool (*output)(int64_t rows, int64_t dv, const void *o, int64_t o_stride, const void *inverse, void *out,
                   int64_t row_stride, int64_t col_stride);

    /* ---- the backward pass ---- */

    /* n numbers of one value; n numbers added to others. */
    void (*fill)(int64_t n, double value, void *to);
    void (*add)(int64_t n, const void *from, void *to);
    /* Number (r, c), at src[r * row_stride + c * col_stride], goes to dst[r * dst_stride + c]; zeros from n up to
     * `width`. */
    void (*gather)(int64_t rows, int64_t n, const void *src, int64_t row_stride, int64_t col_stride, void *dst,
                   int64_t dst_stride, int64_t width);
    /* True if no NaN or Inf is among them. */
    bool (*finite)(int64_t rows, int64_t n, const void *src, int64_t stride);
    /* dots[r] = sum of a * b; where b is 0, a is passed over. */
    void (*row_dots)(int64_t rows, int64_t n, const void *a, int64_t a_stride, const void *b, int64_t b_stride,
                     void *dots);
    /* inverse = 1, or 0 where lse is -inf; delta -= dlse elsewhere (dlse NULL: zeros). True if an lse is beyond
     * +-limit, but not -inf. */
    bool (*anchor)(int64_t rows, const void *lse, const void *dlse, double limit, void *inverse, void *delta);
    /* In those rows: inverse = exact, lse = max. */
    void (*anchor_again)(int64_t rows, double limit, const void *max, const void *exact, void *lse, void *inverse);
    /* With p = exp(s - lse) * inverse (s never counts as above lse), f = factor, or 0 where dropped:
     * w = p f, ds = p (dp f gate - delta); exact zeros where s is -inf, whatever the others are. */
    void (*softmax_back)(int64_t keys, int64_t lanes, const mha__softmax_back *x);
    /* sums[lane] += sum over ascending keys of |p f gate dp|, of the same panels; what is masked or dropped is passed
     * over. w, ds, dots and delta are not looked at. */
    void (*taylor_back)(int64_t keys, int64_t lanes, const mha__softmax_back *x, void *sums);
    /* ds *= 1 - (capped / cap)^2; an exact 0 stays 0. `capped` is a panel [key][nr], ds has rows of `stride`. */
    void (*softcap_back)(int64_t keys, int64_t lanes, double cap, const void *capped, void *ds, int64_t stride);
    /* sums[lane] -= sum of |position + lane - (first + key)| ds. Count both from the start of a block of keys. */
    void (*alibi_back)(int64_t keys, int64_t lanes, int64_t position, int64_t first, const void *ds, int64_t stride,
                       void *sums);
    /* to[key][lane] += ds[key][lane]. */
    void (*add_wide)(int64_t keys, int64_t lanes, const void *ds, int64_t stride, double *to, int64_t to_stride);
    /* C [m, n; row stride c_row] += A B, the product summed from +0 first: number (r, i) of A is at
     * a[r * a_row + i * a_col], number (i, c) of B at b + (c / nr) * b_panel + i * b_row + c % nr. B and C are read,
     * and C written, by whole vectors. */
    void (*add_product)(int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b,
                        int64_t b_row, int64_t b_panel, void *c, int64_t c_row);
    /* The same to the bit where all is finite and A is 0 wherever `mask`, of A's shape, is -inf: passes over these. */
    void (*add_product_masked)(int64_t m, int64_t n, int64_t k, const void *a, const void *mask, int64_t a_row,
                               int64_t a_col, const void *b, int64_t b_row, int64_t b_panel, void *c, int64_t c_row);

    /* ---- what the core can do at best, for mha/machine_peak.h ---- */

    /* steps * mr * nr multiply-adds in registers; `factor` near 1. */
    double (*fma_steps)(int64_t steps, double factor);
    /* Reads n numbers (whole multiples of 8 vectors) and returns their sum. */
    double (*read)(int64_t n, const void *memory);

    /* ---- 16-bit numbers, by mha__half (f32; NULL in the f64 table) ---- */

    /* Exact: number (r, c), at src[r * row_stride + c * col_stride], goes to dst[r * dst_stride + c]. Strides of q8_0
     * count blocks. */
    void (*widen[MHA__HALVES + 1])(int64_t rows, int64_t n, const void *src, int64_t row_stride, int64_t col_stride,
                                   void *dst, int64_t dst_stride);
    /* To the nearest, ties to even: src[r * src_stride + c] goes to dst[r * row_stride + c * col_stride]. */
    void (*narrow[MHA__HALVES])(int64_t rows, int64_t n, const void *src, int64_t src_stride, void *dst,
                                int64_t row_stride, int64_t col_stride);

    /* ---- rows of a layer (f32; NULL in the f64 table) ---- */

    /* y = (x - mean) / sqrt(var + eps) * weight + bias over n numbers; biased variance; y may be x. */
    void (*layer_norm)(const float *x, int64_t n, const float *weight, const float *bias, float eps, float *y);
    /* y = x / sqrt(mean(x^2) + eps) * weight; y may be x. */
    void (*rms_norm)(const float *x, int64_t n, const float *weight, float eps, float *y);
    /* Gradients of either: with z = (x - mean) scale and g = weight dy,
     *     dx = (g - mean(g) - z mean(g z)) scale        (rms_norm: mean and mean(g) are 0)
     * The first finds mean and scale of a row; `centred`: of layer_norm. */
    mha__norm_terms (*norm_terms)(const float *x, int64_t n, float eps, bool centred);
    /* dx = or, with `add`, += the gradient; dx may be dy. */
    void (*norm_back)(const float *x, const float *dy, int64_t n, const float *weight, mha__norm_terms terms,
                      bool centred, bool add, float *dx);
    void (*map[MHA__MAPS])(float *x, int64_t n); /* x <- f(x) */
    /* dx = dy f'(x); dx may be x or dy. */
    void (*map_back[MHA__MAPS])(const float *x, const float *dy, int64_t n, float *dx);

    /* Sum of (p + q) log2(p + q) over n numbers of two distributions, 0 log 0 = 0; NaN where one is NaN. What the
     * entropies of two heads and of their mixture are made of; relative error of a term 2e-7, summed in double. */
    double (*mixture)(int64_t n, const float *p, const float *q);

    const mha__dense *dense[MHA__HALVES + 1]; /* by mha__half (f32; NULL in the f64 table) */

    const mha__pairs *pairs;           /* NULL where the ISA has no products of pairs */
    const mha__pairs_back *pairs_back; /* likewise; NULL also where only the forward pass has them */
} mha__kernels;

/* Tables for a cap: the newest built one that the CPU has and the cap admits. Never NULL. */
const mha__kernels *mha__kernels_f32(mha__isa cap);
const mha__kernels *mha__kernels_f64(mha__isa cap); /* scalar whatever the cap */
/* The table for problems of `dtype` with the ISA of `ctx`: f64 kernels for f64, otherwise f32 kernels. */
const mha__kernels *mha__kernels_of(mha_ctx *ctx, mha_dtype dtype);

#endif
