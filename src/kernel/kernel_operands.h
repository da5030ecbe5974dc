/* kernel_operands.h - sizes, types and operands that the entries of a kernel table share. */
#ifndef MHA_KERNEL_OPERANDS_H
#define MHA_KERNEL_OPERANDS_H

#include <stdbool.h>
#include <stdint.h>

/* Keys per block, the unit in which the online softmax processes keys. Blocks begin at multiples of this size, which
 * therefore affects the rounding of results and is the same for every ISA. 128 keys of a 32-wide f32 panel take 16 KiB,
 * so S^T and a block of V fit in an L1 cache together. */
enum { MHA__KEY_BLOCK = 128 };

/* Maximum width of a panel, `nr` of the kernel tables. */
enum { MHA__NR_MAX = 64 };

/* Maximum number of elements per row of queries, keys or values. */
enum { MHA__ROW_MAX = 4096 };

/* Page sizes are multiples of 16 keys, so a block consists of at most MHA__PIECES pieces. A strip contains the scores
 * of decode queries: one row of keys per query, with rows MHA__STRIP elements apart (a chunk of 8 blocks plus one
 * vector). */
enum { MHA__PIECES = MHA__KEY_BLOCK / 16, MHA__STRIP = 8 * MHA__KEY_BLOCK + 16 };

/* The 16-bit types, and the types that kernels only read: blocks of q8_0 and q4_0 (math/types/q8_0.h,
 * math/types/q4_0.h), and 8-bit floating point (math/types/e4m3.h). All arithmetic uses reals. */
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

/* Replaces n elements x by f(x); each result depends only on its own element. */
typedef void (*mha__row_fn)(float *x, int64_t n);

/* The partial softmax of some rows over some keys: o[r] = sum of exp(s - max[r]) * v, not yet divided by sum[r]. Rows
 * of o are o_stride elements apart. A row that attends to no key has max -inf, sum 0 and o 0. */
typedef struct mha__partial {
    void *max, *sum, *o;
} mha__partial;

/* A range of memory to prefetch, which consists of rows of `bytes` bytes. */
typedef struct mha__prefetch_range {
    const void *at;
    int64_t rows, stride, bytes; /* row stride [bytes] */
} mha__prefetch_range;

/* Ranges of memory to prefetch in order, distributed over the next `products` calls of scores and values. The calls
 * spread the prefetches evenly over their arithmetic, because a core supports only about 16 outstanding requests, and a
 * burst of prefetches would delay the loads of the kernel. */
enum { MHA__PREFETCH_RANGES = 4, MHA__LINE = 64 };
typedef struct mha__prefetch_schedule {
    mha__prefetch_range range[MHA__PREFETCH_RANGES];
    int count, next;   /* number of ranges, and the index of the current range */
    int products;      /* number of remaining product calls */
    int64_t row, byte; /* next position in the current range */
    int64_t lines;     /* number of cache lines, in all ranges, that are not assigned to a product yet */
    int64_t share;     /* number of cache lines to prefetch per tile of the current product */
} mha__prefetch_schedule;

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
 * NULL = none), `lead` rows ahead (a multiple of 16) into the L1 cache, and rows of a later block (`far`) into the L2
 * cache. If `ascending`, rows of values that directly follow the current ones are not prefetched, because hardware
 * prefetches them faster. */
typedef struct mha__upcoming {
    const void *next;
    int64_t lead;
    bool ascending;
    mha__pieces far;
} mha__upcoming;

/* A panel of queries whose keys fit in one block. Element (r, c) of q, k and v is at index r * row + c * col. */
typedef struct mha__single_block {
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
    void *memory;                     /* scratch: (d + keys + dv) * nr reals */
    mha__prefetch_schedule *prefetch; /* as in `scores`, for both products together; must be NULL if keys is 0 */
} mha__single_block;

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

#endif
