/* backward.h - the backward pass, shared by its files. The formulas are in mha/attn_grads.h.
 *
 * backward_plan.c    division of the work, and scratch memory
 *   backward_query_tile.c    opens a tile of queries: Q, dO, lse, D
 *   backward_panel.c   one panel of a tile and one block of keys: scores, P and dS
 *   backward_key_block.c   one tile and one block of keys: all panels, and their terms of dq, dk and dv
 *   backward_bf16.c   the same with products of bf16
 *   backward_tasks.c   the pass: tiles of a part of a head group, blocks of keys; dq
 *   backward_dk_dv.c    writes dk and dv, sums parts
 *   backward_bias.c    dbias
 *   backward_head_params.c   dslopes, dsinks, dgates
 *
 * A task is (batch, key/value head, part of the rows of its query heads). It sums dk and dv of all keys in its own
 * memory and processes its tiles in order, and for each tile the blocks of keys in order: five products per pair of
 * tile and block. The shape determines the order of every sum. */
#ifndef MHA_ATTN_BACKWARD_BACKWARD_H
#define MHA_ATTN_BACKWARD_BACKWARD_H

#include "attn/forward/query_tile.h"

/* Sums over one tile for one head. */
typedef struct mha__bwd_sums {
    double slope, sink, gate;
} mha__bwd_sums;

/* The memory of one worker. Rows of `q_stride` or `v_stride` elements are D or Dv elements, padded with zeros. "Spread"
 * is [KEY_BLOCK] rows of MHA__SPREAD elements, one per query of a tile. */
enum {
    MHA__SPREAD = MHA__TILE_Q + 16
}; /* not a power of two, so that a column does not map to few sets of the L1 cache */
typedef struct mha__bwd_scratch {
    mha__scratch base;       /* masks; Q^T in panels */
    void *q, *dout;          /* Q and dO of the tile as right operands: panels [TILE_Q][nr], or pairs of them */
    void *dout_panels;       /* dO^T, like base.q */
    void *k, *v;             /* K and V of the block as right operands; rows of the block, or of a tile being opened */
    uint8_t *finite;         /* per block of keys: 0 if not checked yet, else FINITE or not */
    void *dp, *capped;       /* panels: dO V^T; with softcap, scores before bias and masks */
    void *w, *ds, *mask;     /* spread */
    mha__pair_weights pairs; /* rows of TILE_Q or KEY_BLOCK; only with pairs */
    void *lse, *inverse, *delta; /* per row of the tile; see softmax_back */
    void *dots, *slopes;         /* per row: terms of dgates and dslopes */
    void *taylor;                /* per row: row_taylor */
    void *dq;                    /* rows of the tile */
    double *dbias;               /* [KEY_BLOCK][TILE_Q], with a bias only */
} mha__bwd_scratch;

/* A block of keys. As left operands, K and V are used in place, with any strides. */
typedef struct mha__bwd_block {
    int64_t start;
    mha__run k, v;
    mha__value_run k_rows; /* K as a right operand */
    bool finite;
} mha__bwd_block;

/* Rows [row, row + count) of a tile, which attend to keys [first, end) of a block. */
typedef struct mha__bwd_run {
    int64_t row, count, first, end;
} mha__bwd_run;

typedef struct mha__bwd_tile {
    mha__tile t; /* t.scratch equals x.base */
    const mha__bwd_call *call;
    mha__bwd_scratch x;
    double gate;
    bool finite;              /* Q and dO */
    int64_t known_b, known_g; /* the batch and head that x.finite describes; -1 at first */
    void *dk, *dv;            /* sums over all keys of the head, rows of q_stride and v_stride; NULL if not requested */
} mha__bwd_tile;

/* ---- backward_plan.c ---- */

/* Fills plan->bwd from the rest of the plan. Returns MHA_ERR_ARG if the workspace does not fit in a byte count. */
mha_status mha__bwd_lay_out(mha_attn_plan *plan, mha_error *err);
void mha__bwd_carve(const mha__bwd_call *call, int worker, mha__bwd_scratch *x);
/* Prepares a worker's memory for consecutive tiles of t->call; mha__tile_close releases their resources. */
void mha__bwd_begin(mha__bwd_tile *t, int worker);
/* Returns the number of parts of the rows of sequence b, and the tiles per part. */
int64_t mha__bwd_parts(const mha__call *call, int64_t b, int64_t *tiles);
/* Returns where the sums of a part begin: the rows of dk and dv in the workspace for key 0 of (b, g). `slot` is the
 * index of the task among those that run at the same time. */
void mha__bwd_sums_of(const mha__bwd_call *call, int64_t b, int64_t g, int64_t part, int64_t slot, void **dk,
                      void **dv);
mha__bwd_sums *mha__bwd_head_sums(const mha__bwd_call *call, int64_t b, int64_t result, int64_t tile);
/* Returns the call restricted to sequence b: `call`, or with packed sequences `own`. */
const mha__bwd_call *mha__bwd_place(const mha__bwd_call *call, int64_t b, mha__bwd_call *own);

static inline int64_t mha__bwd_tiles(const mha__call *call, int64_t b)
{
    return mha__ceil_div(mha__rows_of(call, b), MHA__TILE_Q);
}

/* ---- backward_query_tile.c ---- */

/* Opens the tile of head h that begins at row `first`; `result` is the head's index in the outputs. Returns false if no
 * such row exists. */
bool mha__bwd_open(mha__bwd_tile *t, int64_t b, int64_t h, int64_t result, int64_t first);

/* ---- backward_panel.c ---- */

/* Computes the final scores of one panel and keys [first, end) of the block into base.s at their place in the block,
 * and softcapped ones into capped. Returns the address of the first. */
void *mha__bwd_scores(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                      int64_t end);
/* Computes dO V^T into dp in the same way. */
void *mha__bwd_dp(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first, int64_t end);
/* Returns the row data of a panel that softmax_back needs. */
mha__softmax_back mha__bwd_rows_of(const mha__bwd_tile *t, const mha__panel *p);
/* Adds the terms of `keys` keys to the panel's row_taylor, if requested. Must precede softmax_back, which may overwrite
 * the scores. */
void mha__bwd_taylor(const mha__bwd_tile *t, const mha__panel *p, int64_t keys, const mha__softmax_back *back);
/* Computes the weights of one panel and keys [first, end) of the block into w and ds, as dbias needs them. */
void mha__bwd_panel(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                    int64_t end);
/* Completes a panel after dbias has read it: dslopes, and the derivative of softcap. */
void mha__bwd_finish_panel(const mha__bwd_tile *t, const mha__panel *p, int64_t start, int64_t first, int64_t end);

/* ---- backward_key_block.c ---- */

/* Rows of adjacent reals. */
typedef struct mha__reals {
    const void *data;
    int64_t stride;
} mha__reals;
/* Returns rows of a view, the first at `from`: in place if they are adjacent reals, otherwise copied to rows of
 * `stride`. */
mha__reals mha__bwd_read(const mha__kernels *k, const mha__stored *as, const void *from, const mha_cview *view,
                         int64_t rows, int64_t width, void *to, int64_t stride);
/* Loads the block of keys at `start`, limited to the keys that the tile attends to. */
mha__bwd_block mha__bwd_load(const mha__bwd_tile *t, int64_t start);
/* Processes all panels of a tile and a block, and their products. */
void mha__bwd_pair(const mha__bwd_tile *t, int64_t start);

/* ---- backward_bf16.c: where t.pairs is set ---- */

/* The bf16 pair kernels if the plan's backward pass uses them; else NULL. */
static inline const mha__pairs *mha__bwd_pairs(const mha_attn_plan *plan)
{
    return plan->kernels->pairs_back ? plan->pairs : NULL;
}
/* Stores rows of Q or dO as both right operands of a tile: [d][query] in `panels`, [query][d] in `columns`. */
void mha__bwd_pairs_rows(const mha__bwd_tile *t, const mha_cview *view, int64_t h, int64_t width, void *panels,
                         void *columns);
/* Loads K and V of `keys` keys of the block. */
void mha__bwd_pairs_load(const mha__bwd_tile *t, int64_t keys, mha__bwd_block *block);
/* Computes the weights of one panel and keys [first, end) of the block into x.pairs. */
void mha__bwd_pairs_panel(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                          int64_t end);
/* Adds their terms to dq, dk and dv. */
void mha__bwd_pairs_products(const mha__bwd_tile *t, const mha__bwd_block *block, const mha__bwd_run *r, bool careful);

/* ---- backward_dk_dv.c ---- */

/* Writes rows of `width` reals times scale to the view's rows from `to` on, stored as `as`. Uses inverse and wide. */
void mha__bwd_write(const mha__kernels *k, const mha__stored *as, int64_t rows, int64_t width, const void *from,
                    int64_t stride, double scale, void *to, const mha_view *view, const mha__scratch *x);
/* Writes keys [first, end) of (b, g) from the sums of part 0, or of the only part. */
void mha__bwd_write_keys(const mha__bwd_call *call, int64_t b, int64_t g, int64_t first, int64_t end, int64_t slot,
                         const mha__scratch *x);
int64_t mha__bwd_merges(const mha__bwd_call *call);

/* ---- backward_bias.c, backward_head_params.c ---- */

int64_t mha__bwd_bias_tasks(const mha__bwd_call *call);
void mha__bwd_write_heads(const mha__bwd_call *call);

/* ---- tasks ---- */

/* Runs the whole backward pass. */
mha_status mha__bwd_run_all(mha__bwd_call *call, mha_error *err);

void mha__bwd_task(void *call, int64_t item, int worker);  /* items: plan->bwd.tasks */
void mha__bwd_merge(void *call, int64_t item, int worker); /* items: mha__bwd_merges; one block of keys, all parts */
void mha__bwd_bias(void *call, int64_t item, int worker);  /* items: mha__bwd_bias_tasks */

#endif
