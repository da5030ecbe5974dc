/* query_tile.h - a tile of queries, and the functions of the forward pass that process it.
 *
 *   query_tile.c       opens a tile: its rows, masks, packed Q
 *   tile_key_block.c   one block of keys: location of K and V, scores, P V
 *   tile_wide.c        one block of keys for wide heads
 *   tile_bf16.c        one block of keys with bf16 products
 *   tile_decode.c      blocks of keys for a few queries
 *   tile_prefetch.c    prefetching while a block is computed
 *   tile_outputs.c     probabilities, statistics and scores
 *   probability_rows.c rows of probabilities passed to a callback
 *   online_softmax.c   the forward pass: blocks, chunks, parts
 */
#ifndef MHA_ATTN_FORWARD_QUERY_TILE_H
#define MHA_ATTN_FORWARD_QUERY_TILE_H

#include "attn/mask/mask.h"
#include "attn/plan/kv_fetch.h"
#include "attn/plan/plan.h"
#include "attn/plan/scratch.h"
#include "base/size.h"
#include <string.h>

/* One panel of a tile: the rows that fill the lanes of a register tile. */
typedef struct mha__panel {
    mha__rows rows;
    mha__span span;
    int64_t row; /* first row within the tile */
    const void *q;
} mha__panel;

/* Maximum number of panels per tile: the narrowest panel has 8 lanes. */
enum { MHA__PANELS = MHA__TILE_Q / 8 };

typedef struct mha__tile {
    const mha__call *call; /* the caller's call, or `own` */
    mha__call own;         /* if sequences are packed: the call restricted to one sequence */
    const mha_attn_plan *plan;
    const mha__kernels *k;
    const mha__pairs *pairs; /* plan->pairs; in the backward pass the result of mha__bwd_pairs */
    mha__scratch scratch;
    mha__rows rows; /* all rows of the tile */
    mha__span span;
    mha__panel panels[MHA__PANELS];
    int64_t kv_head, task;
    int64_t end; /* end of the range of keys that this work item reads */
    bool careful;
    bool merged; /* the parts of the keys have been computed and only need to be merged */
    bool raw;    /* scores are not scaled until they are converted to weights, which saves one pass over them */
} mha__tile;

/* V in kernel layout: panel p of key j begins at data + p * panel + j * row. A panel of 0 means bf16 in place: key j
 * begins at element j * row. */
typedef struct mha__value_run {
    const void *data;
    int64_t row, panel;
} mha__value_run;

/* A block of keys from `start` on. K is stored as reals, or for few rows as 16-bit values in place. k.data is NULL if
 * all keys are in dropped pages. */
typedef struct mha__block {
    int64_t start;
    mha__run k;
    mha__value_run v;
} mha__block;

static inline void *mha__tile_at(const mha__tile *t, void *base, int64_t element)
{
    return (char *)base + element * (int64_t)t->k->real_size;
}

/* Returns true if mha__decode_attend processes the blocks of the tile. It is used for few rows, where reading K and V
 * dominates the time. */
bool mha__tile_is_decode(const mha__tile *t);

/* Returns true if the keys of a chunk are read before its values. This is slower if loads of 32 bytes of a key cross
 * cache lines; only the rows of K are checked. */
static inline bool mha__tile_streams(const mha__tile *t)
{
    const mha_cview *k = &t->call->args.k;
    const size_t skew = (uintptr_t)k->data | (size_t)k->stride[2] * t->plan->kv.size;
    return t->rows.count <= t->plan->streams && skew % 32 == 0;
}

/* Returns the memory that keeps the scores of a panel from key `first` on; NULL if they are not kept. */
static inline void *mha__tile_kept(const mha__tile *t, const mha__panel *p, int64_t first)
{
    const int64_t keys = mha__kept_keys(t->plan);
    return keys && !mha__tile_is_decode(t) ? mha__tile_at(t, t->scratch.kept, p->row * keys + first * t->k->nr) : NULL;
}

/* Keeps the final scores `s` of a panel and keys [first, end) for the statistics. */
static inline void mha__tile_keep(const mha__tile *t, const mha__panel *p, int64_t first, int64_t end, const void *s)
{
    void *kept = mha__tile_kept(t, p, first);
    if (kept) memcpy(kept, s, (size_t)((end - first) * t->k->nr) * t->k->real_size);
}

/* Returns the number of reals per packed query. bf16 pairs take half the memory, and their head_dim is padded to whole
 * steps. */
static inline int64_t mha__tile_depth(const mha__tile *t)
{
    const int64_t d = t->plan->desc.head_dim;
    return t->pairs ? mha__round_up(d, t->pairs->step) / 2 : d;
}

/* Returns the queries of a tile of few rows as decode_scores reads them. They are stored after the panel, which is
 * packed only for pairs and by mha__tile_be_careful. */
static inline void *mha__tile_decode_q(const mha__tile *t)
{
    return mha__tile_at(t, t->scratch.q, t->k->nr * mha__tile_depth(t));
}

/* Returns the panel that begins at `row` of the tile. */
static inline const mha__panel *mha__tile_panel(const mha__tile *t, int64_t row)
{
    return &t->panels[row / t->k->nr];
}

/* Returns the slope, sink or gate of the tile's head. */
static inline double mha__tile_per_head(const mha__tile *t, const mha_cview *view)
{
    return mha__per_head(t->call, view, t->rows.b, t->rows.h);
}

/* ---- query_tile.c ---- */

char *mha__tile_scratch(const mha__call *call, int worker);
/* Opens a tile. Packs Q before any output is written, so out may be the same view as q. Returns false if nothing needs
 * to be computed.
 */
bool mha__tile_open(mha__tile *t, const mha__call *call, int64_t task, int worker);
/* Sets `careful`. For few queries, first packs their panel from mha__tile_decode_q, because writing out, which may be
 * q, has overwritten the queries. */
void mha__tile_be_careful(mha__tile *t);
/* Closes a tile. Must be called once for every opened tile. */
void mha__tile_close(const mha__tile *t);
/* Computes the panels of a tile from its rows and its span. */
void mha__tile_set_panels(mha__tile *t);

/* ---- tile_key_block.c ---- */

/* Returns K in place; 16-bit values are converted to reals in scratch memory. */
mha__run mha__block_keys(const mha__tile *t, int64_t start, int64_t keys);
mha__value_run mha__block_values(const mha__tile *t, int64_t start, int64_t keys);
/* Computes the products of keys [first, end) of a block in `s`: scaled unless `raw`, softcapped if `cap` is set.
 * Returns true if scratch.top contains the maxima of `s`. */
bool mha__block_products(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                         bool cap, void *s, mha__prefetch_schedule *prefetch);
/* Computes the final scores of keys [first, end) of a block in `s`, and their maxima in scratch.top. */
void mha__block_scores(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                       void *s, mha__prefetch_schedule *prefetch);
/* Computes O = O * alpha + P V for keys [first, end). If the tile is careful, scratch.mask must contain their mask. */
void mha__block_add_values(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                           void *o, mha__prefetch_schedule *prefetch);

/* ---- tile_wide.c: used for heads wider than MHA__WIDE ---- */

/* Accumulates the attention of all rows of the tile over one block of `keys` keys in `into`. */
void mha__wide_attend(const mha__tile *t, int64_t start, int64_t keys, const mha__partial *into);

/* ---- tile_bf16.c: used if the plan has pairs ---- */

/* Returns true if the scores of a plan may be `raw`: the masks only set scores to -infinity before they become
 * weights. */
bool mha__pairs_raw(const mha_attn_plan *plan);
mha__run mha__pairs_keys(const mha__tile *t, int64_t start, int64_t keys);
mha__value_run mha__pairs_values(const mha__tile *t, int64_t start, int64_t keys);
/* Computes softmax and P V for keys [first, end) of a block. The scores are in scratch.s at the position of the keys in
 * the block; if the tile is careful, scratch.mask contains their mask at the same position. */
void mha__pairs_attend(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                       const mha__partial *into);

/* ---- tile_decode.c ---- */

/* Adds blocks of keys from `start` on, of a chunk that ends at `end`, to `into`. Returns the first key after these
 * blocks; `start` if the plan has pairs and another input changes scores or a page of the block is dropped: the
 * functions for any number of queries then process the block. */
int64_t mha__decode_attend(const mha__tile *t, int64_t start, int64_t end, const mha__partial *into);
/* Computes the products of keys [first, end) as a panel, scaled unless `raw` is set. */
void mha__decode_products(const mha__tile *t, const mha__panel *p, int64_t first, int64_t end, void *s);

/* ---- tile_prefetch.c ---- */

/* Returns the memory to prefetch while the block at `start` is computed. */
mha__prefetch_schedule mha__tile_prefetch(const mha__tile *t, int64_t start);
/* Returns true if the keys and values of a head are too few for prefetching to pay off. */
bool mha__too_few_to_prefetch(const mha_attn_plan *plan);
/* Adds the memory to prefetch during the last products of a task: its output rows, and the first data of the next
 * task. */
void mha__task_prefetch(const mha__call *call, const mha__rows *rows, int64_t task, mha__prefetch_schedule *prefetch);
/* Returns the memory to prefetch while a few queries read the keys (or the values, if `values` is set) up to those of
 * the block at `start`. The blocks whose keys are read before their values begin at key `from`. */
mha__upcoming mha__decode_prefetch(const mha__tile *t, bool values, int64_t from, int64_t start);

/* ---- tile_outputs.c: recomputes scores once the maximum and sum of every row are known ---- */

/* Adds the probabilities of the tile to the statistics and writes them to probs, including masked entries. */
void mha__tile_probabilities(const mha__tile *t, const mha__partial *result);
/* Writes scores at the requested stage. */
void mha__tile_write_scores(const mha__tile *t, const mha__partial *result);

/* ---- probability_rows.c ---- */

/* Passes the requested rows of the tile to the callback of the call. */
void mha__tile_pass_rows(const mha__tile *t, const mha__partial *result);

#endif
