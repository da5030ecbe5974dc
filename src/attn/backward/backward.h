/* backward.h - the backward pass: what its files share. The formulas are in mha/attn_grads.h.
 *
 *   backward_plan.c    how the work is cut, and the scratch memory
 *   backward_query_tile.c    opens a tile of queries: Q, dO, lse, D
 *   backward_key_block.c   one tile and one block of keys: P and dS, and what dq, dk and dv gain by them
 *   backward_bf16.c   the same where bf16 is multiplied as it is
 *   backward_tasks.c   the pass: tiles of a part of a head group, blocks of keys; dq
 *   backward_dk_dv.c    dk and dv written out, parts summed
 *   backward_bias.c    dbias
 *   backward_head_params.c   dslopes, dsinks, dgates
 *
 * A task is (batch, key/value head, part of the rows of its query heads). It keeps dk and dv of all keys in memory of
 * its own, takes its tiles in order, and for each one the blocks of keys in order: five products for each pair of tile
 * and block, every sum in an order that the shape fixes.
 */
#ifndef MHA_ATTN_BACKWARD_BACKWARD_H
#define MHA_ATTN_BACKWARD_BACKWARD_H

#include "attn/forward/query_tile.h"

/* Sums over one tile for one head. */
typedef struct mha__bwd_sums {
    double slope, sink, gate;
} mha__bwd_sums;

/* One worker's memory. Rows of `q_stride` or `v_stride` numbers are D or Dv numbers and zeros. "Spread" is [KEY_BLOCK]
 * rows of MHA__SPREAD numbers, one for each query of a tile. */
enum { MHA__SPREAD = MHA__TILE_Q + 16 }; /* not a power of two: a column of it must not fall into few sets of L1 */
typedef struct mha__bwd_scratch {
    mha__scratch base;           /* masks; Q^T in panels */
    void *q, *dout;              /* Q and dO of the tile as right operands: panels [TILE_Q][nr], or pairs of them */
    void *dout_panels;           /* dO^T, like base.q */
    void *k, *v;                 /* K of the block, likewise; rows of the block, or of a tile being opened */
    uint8_t *finite;             /* for each block of keys: 0 if it was not looked at, else FINITE or not */
    void *dp, *capped;           /* panels: dO V^T; scores before bias and masks, with softcap only */
    void *w, *ds, *mask;         /* spread */
    mha__pair_weights pairs;     /* rows of TILE_Q or KEY_BLOCK; only with pairs */
    void *lse, *inverse, *delta; /* per row of the tile; see softmax_back */
    void *dots, *slopes;         /* likewise: what dgates and dslopes gain */
    void *taylor;                /* likewise: row_taylor */
    void *dq;                    /* rows of the tile */
    double *dbias;               /* [KEY_BLOCK][TILE_Q], with a bias only */
} mha__bwd_scratch;

/* A block of keys. As left operands K and V are used where they lie, with any strides. */
typedef struct mha__bwd_block {
    int64_t start;
    mha__run k, v;
    mha__value_run k_rows; /* K as a right operand */
    bool finite;
} mha__bwd_block;

/* Rows [row, row + count) of a tile, which see keys [first, end) of a block. */
typedef struct mha__bwd_run {
    int64_t row, count, first, end;
} mha__bwd_run;

typedef struct mha__bwd_tile {
    mha__tile t; /* t.scratch and x.base are the same */
    const mha__bwd_call *call;
    mha__bwd_scratch x;
    double gate;
    bool finite;              /* Q and dO */
    int64_t known_b, known_g; /* whose blocks x.finite is about; -1 at first */
    void *dk, *dv;            /* sums for all keys of the head, rows of q_stride and v_stride; NULL if not wanted */
} mha__bwd_tile;

/* ---- backward_plan.c ---- */

/* Fills plan->bwd; needs all else of the plan. MHA_ERR_ARG if the workspace cannot be counted. */
mha_status mha__bwd_lay_out(mha_attn_plan *plan, mha_error *err);
void mha__bwd_carve(const mha__bwd_call *call, int worker, mha__bwd_scratch *x);
/* The memory of a worker for tiles of t->call, one after another; mha__tile_close gives back what it takes. */
void mha__bwd_begin(mha__bwd_tile *t, int worker);
/* Parts of the rows of sequence b, and the tiles of one part. */
int64_t mha__bwd_parts(const mha__call *call, int64_t b, int64_t *tiles);
/* Sums of a part: which row of dk and dv in the workspace is key 0 of (b, g). `slot` numbers those at work. */
void mha__bwd_sums_of(const mha__bwd_call *call, int64_t b, int64_t g, int64_t part, int64_t slot, void **dk,
                      void **dv);
mha__bwd_sums *mha__bwd_head_sums(const mha__bwd_call *call, int64_t b, int64_t result, int64_t tile);
/* The call of sequence b alone: `call`, or with packed sequences `own`. */
const mha__bwd_call *mha__bwd_place(const mha__bwd_call *call, int64_t b, mha__bwd_call *own);

static inline int64_t mha__bwd_tiles(const mha__call *call, int64_t b)
{
    return mha__ceil_div(mha__rows_of(call, b), MHA__TILE_Q);
}

/* ---- backward_query_tile.c ---- */

/* Rows of adjacent reals. */
typedef struct mha__reals {
    const void *data;
    int64_t stride;
} mha__reals;
/* Rows of a view, the first at `from`: where they lie if they are adjacent reals, else copied to rows of `stride`. */
mha__reals mha__bwd_read(const mha__kernels *k, const mha__stored *as, const void *from, const mha_cview *view,
                         int64_t rows, int64_t width, void *to, int64_t stride);
/* Opens the tile of rows from `first` on of head h, which is number `result` of the results. False if no such row
 * exists. */
bool mha__bwd_open(mha__bwd_tile *t, int64_t b, int64_t h, int64_t result, int64_t first);

/* ---- backward_key_block.c ---- */

/* The block of keys at `start`, as far as the tile sees it. */
mha__bwd_block mha__bwd_load(const mha__bwd_tile *t, int64_t start);
/* Final scores of one panel and keys [first, end) of the block, into base.s at their place in the block; softcapped
 * ones into capped, likewise. Returns where the first of them lie. */
void *mha__bwd_scores(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                      int64_t end);
/* dO V^T, likewise into dp. */
void *mha__bwd_dp(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first, int64_t end);
/* What softmax_back wants to know of the rows of a panel. */
mha__softmax_back mha__bwd_rows_of(const mha__bwd_tile *t, const mha__panel *p);
/* Adds what `keys` keys give to the panel's row_taylor, where it is wanted; before softmax_back, which may take the
 * place of the scores. */
void mha__bwd_taylor(const mha__bwd_tile *t, const mha__panel *p, int64_t keys, const mha__softmax_back *back);
/* Weights of one panel and keys [first, end) of the block, into w and ds, as dbias wants them. */
void mha__bwd_panel(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                    int64_t end);
/* What comes after dbias has been taken: dslopes, and softcap undone. */
void mha__bwd_finish_panel(const mha__bwd_tile *t, const mha__panel *p, int64_t start, int64_t first, int64_t end);
/* All panels, and the products. */
void mha__bwd_pair(const mha__bwd_tile *t, int64_t start);

/* ---- backward_bf16.c: where t.pairs is set ---- */

/* Products of pairs, if the backward pass of a plan uses them; else NULL. */
static inline const mha__pairs *mha__bwd_pairs(const mha_attn_plan *plan)
{
    return plan->kernels->pairs_back ? plan->pairs : NULL;
}
/* Rows of Q or dO as both right operands of a tile: [d][query] into `panels`, [query][d] into `columns`. */
void mha__bwd_pairs_rows(const mha__bwd_tile *t, const mha_cview *view, int64_t h, int64_t width, void *panels,
                         void *columns);
/* K and V of `keys` keys of the block. */
void mha__bwd_pairs_load(const mha__bwd_tile *t, int64_t keys, mha__bwd_block *block);
/* Weights of one panel and keys [first, end) of the block, into x.pairs. */
void mha__bwd_pairs_panel(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                          int64_t end);
/* What they add to dq, dk and dv. */
void mha__bwd_pairs_products(const mha__bwd_tile *t, const mha__bwd_block *block, const mha__bwd_run *r, bool careful);

/* ---- backward_tasks.c ---- */

/* Rows of `width` reals, times scale, to the view's rows from `to` on, stored as `as`; uses inverse and wide. */
void mha__bwd_write(const mha__kernels *k, const mha__stored *as, int64_t rows, int64_t width, const void *from,
                    int64_t stride, double scale, void *to, const mha_view *view, const mha__scratch *x);

/* ---- backward_dk_dv.c ---- */

/* Keys [first, end) of (b, g) from the sums of its one part, or of part 0. */
void mha__bwd_write_keys(const mha__bwd_call *call, int64_t b, int64_t g, int64_t first, int64_t end, int64_t slot,
                         const mha__scratch *x);
int64_t mha__bwd_merges(const mha__bwd_call *call);

/* ---- backward_bias.c, backward_head_params.c ---- */

int64_t mha__bwd_bias_tasks(const mha__bwd_call *call);
void mha__bwd_write_heads(const mha__bwd_call *call);

/* ---- tasks ---- */

/* The whole pass. */
mha_status mha__bwd_run_all(mha__bwd_call *call, mha_error *err);

void mha__bwd_task(void *call, int64_t item, int worker);  /* of plan->bwd.tasks */
void mha__bwd_merge(void *call, int64_t item, int worker); /* of mha__bwd_merges: one block of keys, all parts */
void mha__bwd_bias(void *call, int64_t item, int worker);  /* of mha__bwd_bias_tasks */

#endif
