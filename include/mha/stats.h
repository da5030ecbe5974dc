/* stats.h - what the attention operator shows of its probabilities without storing them: statistics of rows and keys,
 * mha_attn_args.stats of attn.h, and the rows themselves, mha_attn_args.on_rows. */
#ifndef MHA_STATS_H
#define MHA_STATS_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Statistics of the probabilities p[i][j] of each row and key, without storing the probabilities: the numbers that
 * MHA_ATTN_PROBS would give, summed. Before dropout; a sink takes its share, so that a row sums to less than 1.
 *
 * A view whose data is NULL is not wanted and costs nothing; strides as everywhere, all zero = contiguous. Reals are
 * f32, f64 for f64; positions of keys are int64. A row that sees no key gives 0 and key -1 (also where its sink has
 * left nothing). A row that is NaN gives NaN and key -1, and NaN to the keys it sees. The bits of rows are as
 * invariant as those of out; `received` has the same bits for any thread count and batch.
 *
 * Distance counts from position i + offset, the offset as `align` says and 0 if that is unset.
 *
 * Packed sequences have their rows and keys one after another here too ([1, H, Lq or Lk]); with packed queries and keys
 * in pages, received is [B, H, Lk].
 *
 * When a row is complete its scores are computed once more, without v. Measured against plain forward (f32, one thread,
 * AVX-512 and AVX2, H L D from 12 128 32 to 2 4096 64): 1.5 to 1.8 times its time, `received` included; a list of 8 top
 * keys, which is kept number by number, 2 to 4 times, 9 for 128 keys. Workspace: 8 bytes per key for each thread
 * (per key of all sequences, with packed queries and keys in pages).
 * `received` is summed over the rows of a head in one order, so with it a head is the least that one thread does. */
typedef struct mha_attn_stats {
    size_t size;           /* sizeof(mha_attn_stats) */
    mha_view row_entropy;  /* [B, H, Lq] - sum of p log2 p, in bits */
    mha_view row_max;      /* [B, H, Lq] the greatest p */
    mha_view row_argmax;   /* [B, H, Lq] of int64: its key, the lowest one of equals */
    mha_view row_distance; /* [B, H, Lq] sum of p |i + offset - j|; offset 0 where align may be and is unset */
    mha_view received;     /* [B, H, Lk] sum of p over the rows i; not written where Lq is 0 */
    mha_view top_prob;     /* [B, H, Lq, top_keys] the greatest p, in descending order; 0 where there are no more */
    mha_view top_key;      /* [B, H, Lq, top_keys] of int64: their keys, the lower one of equals first; -1 likewise */
} mha_attn_stats;

/* Some adjacent rows of one head, complete: p[r][j] = p[r * stride + j] is what MHA_ATTN_PROBS would give for row
 * first + r and key j, to the bit, also where it is 0 behind a mask. Rows and keys are those of the sequence, as far as
 * its lengths reach. The last four are the row's own statistics, as above (entropy and the like need not be computed
 * again): a row that sees no key has 0 and key -1, one that is NaN has NaN and key -1. */
typedef struct mha_attn_rows {
    int64_t sequence, head; /* b, and h as out counts heads */
    int64_t first, count;   /* rows first .. first + count - 1; count is at most 64 */
    int64_t keys, stride;
    const void *p; /* f32, f64 for f64; to be read during the call alone */
    const double *entropy, *largest, *distance;
    const int64_t *largest_key;
} mha_attn_rows;

/* Is shown every row, or those of map_heads and map_rows. The calls for one head of one sequence come one after
 * another, rows ascending; of packed sequences also these ascend. Heads go on at the same time on the threads of the
 * context. So what is summed for a head of a sequence has the same bits for any number of threads, and needs no lock if
 * nothing else is written. `rows` must call neither the context nor anything that runs on it.
 *
 * The scores of rows that are shown are computed once more, as for statistics: with a visitor that does nothing a call
 * takes 1.6 to 2.1 times a plain forward (f32, one thread, AVX-512, H L D from 12 128 32 to 2 4096 64). Workspace:
 * for each thread up to 32 rows of max_kv_len numbers. A head is the least that one thread does. */
typedef struct mha_attn_visitor {
    void (*rows)(void *user, const mha_attn_rows *rows);
    void *user;
} mha_attn_visitor;

#ifdef __cplusplus
}
#endif
#endif
