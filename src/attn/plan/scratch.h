/* scratch.h - the scratch memory of a worker. The workspace of a call contains one scratch area per worker
 * (plan->workers).
 *
 *   q         Q^T of the tile: tile / nr panels [D][nr]
 *   folded    a copy of Q: rotated, or stacked if the heads of a group have more than one query; else NULL
 *   s         S^T of one block: a panel [MHA__KEY_BLOCK][nr], or all panels of the tile for wide heads
 *   extra     bias or keep of the block, in the shape of s
 *   wide      the block of K, rows of Q or rows of the result as reals (16-bit types and wide rows only)
 *   bias      rows of the bias as reals (16-bit bias only)
 *   strip     scores of the decode path: one row of MHA__STRIP elements per query
 *   mask      the masked entries of the block, in the shape of s (only for values that are not finite)
 *   gathered  the block of K, and of V, if it spans several pages: [MHA__KEY_BLOCK][D or Dv]
 *   v         the block of V: panels [MHA__KEY_BLOCK][nr]
 *   top, alpha            one element per lane; alpha has one element per row of the tile for wide heads
 *   inverse, gated        one element per row of the tile: 1 / sum, and 1 / sum times the gate
 *   bytes     block_keep for the block of keys, a byte per query and key
 *   lo, hi, prefix        keys that each row may attend to (mask.h)
 *   moments, row_sums, top_keys, received   for statistics and on_rows only: 5 elements per lane; sums per row of the
 *             tile; the list [TILE_Q][top_keys] of each row; one element per key
 *   kept      the scores of all keys for the statistics: tile / nr panels [kept_keys][nr] (see mha__kept_keys)
 *   shown     a panel of rows of probabilities, contiguous: nr rows of max_kv_len (on_rows only)
 *   partial   the current chunk and the chunks not merged yet: max, sum and o, levels + 1 times
 *
 * Every array begins on a cache line. */
#ifndef MHA_ATTN_PLAN_SCRATCH_H
#define MHA_ATTN_PLAN_SCRATCH_H

#include "attn/plan/plan.h"
#include "base/arena.h"

/* The statistics of one row over the keys processed so far; see mha__row_stat_sums. */
typedef struct mha__row_sums {
    double total, depth, reach, peak;
    int64_t where;
} mha__row_sums;

typedef struct mha__top_key {
    double prob;
    int64_t key;
} mha__top_key;

typedef struct mha__scratch {
    void *q, *folded, *s, *extra, *wide, *bias, *strip, *mask, *v;
    void *gathered_k, *gathered_v;
    void *top, *alpha, *inverse, *gated;
    uint8_t *bytes;
    int64_t *lo, *hi, *prefix;
    mha__row_stat_sums moments;
    mha__row_sums *row_sums;
    mha__top_key *top_keys;
    double *received;
    void *kept, *shown;
    mha__partial partial[MHA__LEVELS + 1];
} mha__scratch;

/* Returns the number of keys per panel of `kept`; 0 if scores are not kept but computed a second time. Computing them
 * takes most of the time of the statistics, but for more keys they would not fit in the L2 cache. bf16 pairs compute
 * scores in another form for the statistics, and a part has only some of the keys. */
static inline int64_t mha__kept_keys(const mha_attn_plan *plan)
{
    enum { KEYS_MAX = 4096 };
    const bool stats = plan->desc.outputs & MHA_ATTN_STATS;
    const bool keeps = stats && !plan->pairs && plan->parts == 1 && plan->desc.max_kv_len <= KEYS_MAX;
    return keeps ? plan->desc.max_kv_len : 0;
}

/* Lays out all areas from `base` on and returns their size in bytes; if base is NULL, only counts the bytes. Uses
 * kernels, levels, o_stride, parts and desc of the plan. */
size_t mha__scratch_lay_out(const mha_attn_plan *plan, char *base, mha__scratch *scratch);

/* Same as mha__scratch_lay_out for the partial result of one part of the keys. The workspace contains one per task and
 * part, after the scratch memory of the workers. */
size_t mha__part_lay_out(const mha_attn_plan *plan, char *base, mha__partial *part);

#endif
