/* query_tile.h - one tile of queries at work: what the files of the forward pass share.
 *
 *   query_tile.c         opens a tile: which rows, their masks, Q packed
 *   tile_key_block.c   one block of keys: where K and V lie, scores, P V
 *   tile_bf16.c   the same where bf16 is multiplied as it is
 *   tile_decode.c     the same for a few queries
 *   tile_prefetch.c   what to fetch while a block is computed
 *   tile_outputs.c     probabilities, statistics and scores written out
 *   probability_rows.c    rows of probabilities shown to a visitor
 *   forward_tiled.c    the pass itself: blocks, chunks, parts
 */
#ifndef MHA_ATTN_FORWARD_QUERY_TILE_H
#define MHA_ATTN_FORWARD_QUERY_TILE_H

#include "attn/mask/mask.h"
#include "attn/plan/kv_fetch.h"
#include "attn/plan/plan.h"
#include "attn/plan/scratch.h"
#include "base/size.h"

typedef struct mha__tile {
    const mha__call *call; /* the caller's, or `own` */
    mha__call own;         /* with packed sequences: that of one sequence */
    const mha_attn_plan *plan;
    const mha__kernels *k;
    const mha__pairs *pairs; /* as the plan's; in the backward pass mha__bwd_pairs */
    mha__scratch scratch;
    mha__rows rows; /* all of them */
    mha__span span;
    int64_t kv_head, task;
    int64_t end; /* of the keys that this item of work reads */
    bool careful;
    bool merged; /* the parts of the keys are done */
    bool raw;    /* scores are scaled only when they become weights: one pass over them less */
} mha__tile;

/* V as the kernels want it: panel p of key j is at data + p * panel + j * row. */
typedef struct mha__value_run {
    const void *data;
    int64_t row, panel;
} mha__value_run;

/* A block of keys, from `start` on. K as reals, or for few rows as 16 bits where they lie; k.data is NULL if there are
 * no keys, all being in dropped pages. */
typedef struct mha__block {
    int64_t start;
    mha__run k;
    mha__value_run v;
} mha__block;

/* One panel of a tile. */
typedef struct mha__panel {
    mha__rows rows;
    mha__span span;
    int64_t row; /* first row within the tile */
    const void *q;
} mha__panel;

static inline void *mha__tile_at(const mha__tile *t, void *base, int64_t element)
{
    return (char *)base + element * (int64_t)t->k->real_size;
}

/* Reals that a packed query takes. Pairs are half as large, and fill head_dim up to whole steps. */
static inline int64_t mha__tile_depth(const mha__tile *t)
{
    const int64_t d = t->plan->desc.head_dim;
    return t->pairs ? mha__round_up(d, t->pairs->step) / 2 : d;
}

/* Slope, sink or gate of the tile's head. */
static inline double mha__tile_per_head(const mha__tile *t, const mha_cview *view)
{
    return mha__per_head(t->call, view, t->rows.b, t->rows.h);
}

/* ---- query_tile.c ---- */

char *mha__tile_scratch(const mha__call *call, int worker);
/* Q is packed before anything is written, so out may lie on it. False if there is nothing to do. */
bool mha__tile_open(mha__tile *t, const mha__call *call, int64_t task, int worker);
/* To be called once for every tile that was opened. */
void mha__tile_close(const mha__tile *t);
/* The panel that begins at `row` of the tile. */
mha__panel mha__tile_panel(const mha__tile *t, int64_t row);

/* ---- tile_key_block.c ---- */

/* K is used where it lies; 16-bit numbers as reals in the scratch memory. */
mha__run mha__block_keys(const mha__tile *t, int64_t start, int64_t keys);
mha__value_run mha__block_values(const mha__tile *t, int64_t start, int64_t keys);
/* Products of keys [first, end) of a block into `s`, scaled unless `raw`, softcapped if `cap`. Returns whether
 * scratch.top, their maxima, still holds. */
bool mha__block_products(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                         bool cap, void *s, mha__feed *feed);
/* Final scores of keys [first, end) of a block into `s`, and their maxima into scratch.top. */
void mha__block_scores(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                       void *s, mha__feed *feed);
/* O = O * alpha + P V for keys [first, end). */
void mha__block_add_values(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                           void *o, mha__feed *feed);

/* ---- tile_bf16.c: where the plan has pairs ---- */

/* Whether the scores of a plan may be `raw`: nothing but -inf is put into them before they become weights. */
bool mha__pairs_raw(const mha_attn_plan *plan);
mha__run mha__pairs_keys(const mha__tile *t, int64_t start, int64_t keys);
mha__value_run mha__pairs_values(const mha__tile *t, int64_t start, int64_t keys);
/* Softmax and P V of keys [first, end) of a block, whose scores lie in scratch.s at their place in the block. */
void mha__pairs_attend(const mha__tile *t, const mha__panel *p, const mha__block *b, int64_t first, int64_t end,
                       const mha__partial *into);

/* ---- tile_decode.c ---- */

/* True if a block of keys goes to the functions below: so few rows that reading K and V is what takes the time. */
bool mha__tile_is_few(const mha__tile *t);
/* One block of keys, added to `into`. False if nothing was done: where bf16 is multiplied as it is, a block with masked
 * keys is left to the functions for any number of queries. */
bool mha__few_attend(const mha__tile *t, int64_t start, const mha__partial *into);
/* Products of keys [first, end), scaled unless `raw`, as a panel. */
void mha__few_products(const mha__tile *t, const mha__panel *p, int64_t first, int64_t end, void *s);

/* ---- tile_prefetch.c ---- */

/* What to ask for while the block at `start` is computed. */
mha__feed mha__tile_ahead(const mha__tile *t, int64_t start);
/* Whether the keys and values of a head are so few that asking for them is not worth the time. */
bool mha__is_scant(const mha_attn_plan *plan);
/* What to ask for during the last products of a task: where its rows go, and what the next one begins with. */
void mha__task_ahead(const mha__call *call, const mha__rows *rows, int64_t task, mha__feed *feed);
/* What to ask for while a few queries read block `start` of k or v of the call, `width` numbers each. */
mha__pieces mha__few_ahead(const mha__tile *t, const mha_cview *view, int64_t width, int64_t start);

/* ---- tile_outputs.c: scores computed once more, now that maximum and sum of every row are known ---- */

/* Into the statistics and into probs, where every entry is written, also those behind masks. */
void mha__tile_probabilities(const mha__tile *t, const mha__partial *result);
/* At the stage that was asked for. */
void mha__tile_write_scores(const mha__tile *t, const mha__partial *result);

/* ---- probability_rows.c ---- */

/* Shows the rows of the tile that were asked for to the visitor of the call. */
void mha__tile_show_rows(const mha__tile *t, const mha__partial *result);

#endif
