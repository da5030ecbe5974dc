/* stats.h - attention probabilities without storing them: statistics per row and key (mha_attn_args.stats in attn.h),
 * and streamed rows (mha_attn_args.on_rows). */
#ifndef MHA_STATS_H
#define MHA_STATS_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Statistics per row and key of the probabilities p[i][j] that MHA_ATTN_PROBS would return. They are computed before
 * dropout. A sink receives part of the weight, so the probabilities of a row with a sink sum to less than 1.
 *
 * A statistic whose data is NULL is not computed and costs nothing; all strides 0 = contiguous. Values are f32, or f64
 * in an f64 call; key positions are int64. A row without unmasked keys, or whose sink takes all weight, has value 0 and
 * key -1. A NaN row has value NaN and key -1, and makes `received` of its unmasked keys NaN. Rows are bitwise invariant
 * like out; `received` is bitwise identical for any thread count and batch.
 *
 * Distances are measured from position i + offset, where `align` defines the offset; it is 0 if align is unset.
 *
 * With packed sequences, rows and keys are also concatenated ([1, H, Lq or Lk]); with packed queries and keys in pages,
 * received is [B, H, Lk].
 *
 * The scores of a completed row are computed a second time, without v. Cost relative to a plain forward call (f32, one
 * thread, AVX-512 and AVX2, H L D from 12 128 32 to 2 4096 64): 1.5 to 1.8 times, including `received`; with 8 top
 * keys, which are updated element by element, 2 to 4 times, or 9 times for 128 keys. Workspace: 8 bytes per key and
 * thread (per key of all sequences, with packed queries and keys in pages). `received` is summed over the rows of a
 * head in a fixed order, so each head is then computed by one thread. */
typedef struct mha_attn_stats {
    size_t size;           /* sizeof(mha_attn_stats) */
    mha_view row_entropy;  /* [B, H, Lq] -(sum of p log2 p), in bits */
    mha_view row_max;      /* [B, H, Lq] largest p */
    mha_view row_argmax;   /* [B, H, Lq] int64: the key with the largest p; on ties, the lowest */
    mha_view row_distance; /* [B, H, Lq] sum of p |i + offset - j| */
    mha_view received;     /* [B, H, Lk] sum of p over the rows i; not written if Lq is 0 */
    mha_view top_prob;     /* [B, H, Lq, top_keys] largest p, descending; 0 after the last key */
    mha_view top_key;      /* [B, H, Lq, top_keys] int64: keys of top_prob, ascending if equal; -1 after the last key */
} mha_attn_stats;

/* Adjacent complete rows of one head: p[r][j] = p[r * stride + j] is bitwise identical to the MHA_ATTN_PROBS element of
 * row first + r and key j, including zeros of masked keys. Only rows and keys within the lengths of the sequence are
 * included. The last four fields are the statistics of each row, as above: a row without unmasked keys has value 0 and
 * key -1, a NaN row has value NaN and key -1. Only the library creates this struct; later versions may add fields at
 * the end. */
typedef struct mha_attn_rows {
    int64_t sequence, head; /* index b of the sequence and h of the head, as in out */
    int64_t first, count;   /* rows first .. first + count - 1; count is at most 64 */
    int64_t keys, stride;
    const void *p; /* f32, or f64 in an f64 call; valid during the call only */
    const double *entropy, *largest, *distance;
    const int64_t *largest_key;
} mha_attn_rows;

/* Callback that receives every row, or only the rows selected by map_heads and map_rows. The calls for one head of one
 * sequence are sequential, with rows ascending; packed sequences are visited in ascending order. Different heads are
 * called concurrently from the threads of the context. A sum per head and sequence is therefore bitwise identical for
 * any number of threads and needs no lock, as long as the callback writes nothing else. `rows` must not call any
 * function that uses the same context.
 *
 * The scores of these rows are computed a second time, as for statistics: with an empty callback a call takes 1.6 to
 * 2.1 times a plain forward call (f32, one thread, AVX-512, H L D from 12 128 32 to 2 4096 64). Workspace: up to 32
 * rows of max_kv_len elements per thread. Each head is computed by one thread. */
typedef struct mha_attn_visitor {
    void (*rows)(void *user, const mha_attn_rows *rows);
    void *user;
} mha_attn_visitor;

#ifdef __cplusplus
}
#endif
#endif
