/* backward.h - declarations shared by the files of the backward pass. The formulas are in mha/attn_grads.h.
 *
 *   backward_plan.c          division of the work, and scratch memory
 *   backward_query_tile.c    opens a tile of queries: Q, dO, lse, D
 *   backward_panel.c         one panel of a tile and one block of keys: scores, P and dS
 *   backward_key_block.c     one tile and one block of keys: all panels, and their terms of dq, dk and dv
 *   backward_bf16.c          the bf16 version of backward_key_block.c
 *   backward_tasks.c         runs the tasks, each a part of the rows of a head group; writes dq
 *   backward_dk_dv.c         writes dk and dv; adds the parts
 *   backward_pages.c         adds the sequences that share pages; writes dk and dv of pages
 *   backward_bias.c          dbias
 *   backward_head_params.c   dslopes, dsinks, dgates
 *
 * A task is (batch, key/value head, part of the rows of its query heads). It accumulates dk and dv of all keys in its
 * own memory. It processes its tiles in order, and for each tile the blocks of keys in order, with five products per
 * tile and block. The shape determines the order of every sum. */
#ifndef MHA_ATTN_BACKWARD_BACKWARD_H
#define MHA_ATTN_BACKWARD_BACKWARD_H

#include "attn/forward/query_tile.h"

/* Terms of dslopes, dsinks and dgates of one head, summed over the rows of one tile. */
typedef struct mha__bwd_sums {
    double slope, sink, gate;
} mha__bwd_sums;

/* The memory of one worker. Rows of `q_stride` or `v_stride` elements contain D or Dv elements, padded with zeros.
 * "Spread" means [KEY_BLOCK] rows of MHA__SPREAD elements, one element per query of a tile. */
enum {
    MHA__SPREAD = MHA__TILE_Q + 16
}; /* not a power of two, so that the elements of a column use many sets of the L1 cache */
typedef struct mha__bwd_scratch {
    mha__scratch base;       /* forward scratch memory: masks, and Q^T in panels */
    void *q, *dout;          /* Q and dO of the tile as right operands: panels [TILE_Q][nr] of reals, or panels of bf16
                              * pairs */
    void *dout_panels;       /* dO^T, in the layout of base.q */
    void *k, *v;             /* K and V of the block as right operands; also scratch memory for rows of a block or of
                                a new tile */
    uint8_t *finite;         /* per block of keys: whether K and V are finite: UNKNOWN, FINITE or NOT_FINITE
                              * (backward_key_block.c) */
    void *dp, *capped;       /* panels: dO V^T; with softcap or functions, the scores after softcap */
    void *w, *ds, *mask;     /* spread: weights, dS and mask */
    mha__pair_weights pairs; /* bf16 weights and dS in rows of TILE_Q or KEY_BLOCK elements; only with bf16 pairs */
    void *lse, *inverse, *delta; /* per row of the tile: inputs of softmax_back */
    void *dots, *slopes;         /* per row: the terms of dgates and dslopes */
    void *taylor;                /* per row: sums of row_taylor */
    void *dq;                    /* gradients of the tile's queries: rows of q_stride elements */
    double *dbias;               /* a block of dbias: [KEY_BLOCK][TILE_Q]; only with a bias */
    double *distances;           /* sums of dbias per distance, max_q_len + max_kv_len - 1; only with a bias */
} mha__bwd_scratch;

/* A block of keys. K and V are read in place, with any strides, if they are left operands of a product. */
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
    bool finite;              /* Q and dO contain finite elements only */
    int64_t known_b, known_g; /* the batch and key/value head that x.finite describes; initially -1 */
    void *dk, *dv;            /* sums for all keys of the head, rows of q_stride and v_stride; NULL if not requested */
} mha__bwd_tile;

/* ---- backward_plan.c ---- */

/* Computes plan->bwd from the other fields of the plan. Returns MHA_ERR_ARG if the workspace size overflows size_t. */
mha_status mha__bwd_lay_out(mha_attn_plan *plan, mha_error *err);
/* Sets *x to the scratch memory of a worker. */
void mha__bwd_worker_scratch(const mha__bwd_call *call, int worker, mha__bwd_scratch *x);
/* Prepares the memory of a worker for consecutive tiles of t->call. mha__tile_close releases the resources of a
 * tile. */
void mha__bwd_begin(mha__bwd_tile *t, int worker);
/* Returns the number of parts into which the rows of sequence b are divided. Stores the number of tiles per part in
 * *tiles. */
int64_t mha__bwd_parts(const mha__call *call, int64_t b, int64_t *tiles);
/* Stores in *dk and *dv the addresses of the gradient sums of a part, at key 0 of (b, g) in the workspace. `slot` is
 * the index of the task among the concurrent tasks. */
void mha__bwd_sums_of(const mha__bwd_call *call, int64_t b, int64_t g, int64_t part, int64_t slot, void **dk,
                      void **dv);
mha__bwd_sums *mha__bwd_head_sums(const mha__bwd_call *call, int64_t b, int64_t result, int64_t tile);
/* Returns the call restricted to sequence b: `call` itself, or `own` if sequences are packed. */
const mha__bwd_call *mha__bwd_sequence_call(const mha__bwd_call *call, int64_t b, mha__bwd_call *own);

/* Returns true if the sums of dk and dv of all keys are kept until all tasks are complete. */
static inline bool mha__bwd_keeps_sums(const mha_attn_plan *plan)
{
    return plan->bwd.parts > 1 || (plan->desc.inputs & MHA_ATTN_BLOCK_TABLE);
}

static inline int64_t mha__bwd_tiles(const mha__call *call, int64_t b)
{
    return mha__ceil_div(mha__rows_of(call, b), MHA__TILE_Q);
}

/* ---- backward_query_tile.c ---- */

/* Opens the tile of head h that begins at row `first`; `result` is the index of the head in the outputs. Returns
 * false if the sequence does not have this row. */
bool mha__bwd_open(mha__bwd_tile *t, int64_t b, int64_t h, int64_t result, int64_t first);

/* ---- backward_panel.c ---- */

/* Returns true if the derivative of softcap or of functions.score needs the softcapped scores. */
static inline bool mha__bwd_keeps_capped(const mha_attn_plan *plan)
{
    return plan->desc.softcap > 0 || (plan->desc.inputs & MHA_ATTN_FUNCTIONS);
}

/* Computes the final scores of one panel and keys [first, end) of the block. Stores them in base.s at the position of
 * the keys in the block, and softcapped scores in `capped`. With functions.score, also copies the final scores to
 * base.mask, because they define the mask. Returns the address of the first score. */
void *mha__bwd_scores(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                      int64_t end);
/* Computes dO V^T in `dp`, with the same arguments and layout as mha__bwd_scores. */
void *mha__bwd_dp(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first, int64_t end);
/* Returns the inputs of the kernel softmax_back for the rows of a panel. */
mha__softmax_back mha__bwd_rows_of(const mha__bwd_tile *t, const mha__panel *p);
/* Adds the terms of `keys` keys to the panel's row_taylor, if requested. Call it before softmax_back, which may
 * overwrite the scores. */
void mha__bwd_taylor(const mha__bwd_tile *t, const mha__panel *p, int64_t keys, const mha__softmax_back *back);
/* Computes the weights of one panel and keys [first, end) of the block in w and ds, the inputs of dbias. */
void mha__bwd_panel(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                    int64_t end);
/* Completes a panel after dbias has read it: adds its terms of dslopes, and multiplies dS by the derivatives of
 * functions.score and softcap. */
void mha__bwd_finish_panel(const mha__bwd_tile *t, const mha__panel *p, int64_t start, int64_t first, int64_t end);

/* ---- backward_key_block.c ---- */

/* Rows of contiguous reals (elements of the kernels' type). */
typedef struct mha__reals {
    const void *data;
    int64_t stride;
} mha__reals;
/* Returns rows of a view, starting at `from`: in place if they are contiguous reals, otherwise copied to rows of
 * `stride` elements. */
mha__reals mha__bwd_read(const mha__kernels *k, const mha__stored *as, const void *from, const mha_cview *view,
                         int64_t rows, int64_t width, void *to, int64_t stride);
/* Loads the block of keys at `start`, restricted to the keys that the tile attends to. */
mha__bwd_block mha__bwd_load(const mha__bwd_tile *t, int64_t start);
/* Processes all panels of a tile and a block, and adds their products to dq, dk and dv. */
void mha__bwd_pair(const mha__bwd_tile *t, int64_t start);

/* ---- backward_bf16.c: used if t.pairs is set ---- */

/* Returns the bf16 pair kernels if the plan's backward pass uses them, otherwise NULL. */
static inline const mha__pairs *mha__bwd_pairs(const mha_attn_plan *plan)
{
    return plan->kernels->pairs_back ? plan->pairs : NULL;
}
/* Stores rows of Q or dO as two right operands of a tile: [d][query] in `panels` and [query][d] in `columns`. */
void mha__bwd_pairs_rows(const mha__bwd_tile *t, const mha_cview *view, int64_t h, int64_t width, void *panels,
                         void *columns);
/* Loads K and V of `keys` keys of the block. */
void mha__bwd_pairs_load(const mha__bwd_tile *t, int64_t keys, mha__bwd_block *block);
/* Computes the weights of one panel and keys [first, end) of the block in x.pairs. */
void mha__bwd_pairs_panel(const mha__bwd_tile *t, const mha__panel *p, const mha__bwd_block *block, int64_t first,
                          int64_t end);
/* Adds the products of a run to dq, dk and dv. */
void mha__bwd_pairs_products(const mha__bwd_tile *t, const mha__bwd_block *block, const mha__bwd_run *r, bool careful);

/* ---- backward_dk_dv.c ---- */

/* The rows or keys of a gradient with respect to rotated rows, which must be rotated back: row r is row or key first +
 * r of sequence b. Rows from `exist` on are zeros. */
typedef struct mha__bwd_turn {
    const mha__call *call;
    int64_t (*position)(const mha__call *call, int64_t b, int64_t i);
    int64_t b, first, exist;
} mha__bwd_turn;

/* Writes `rows` rows of `width` reals times scale to a view, starting at row `to`, with storage type `as`, rotated back
 * unless `turn` is NULL. Overwrites `inverse` and `wide`. */
void mha__bwd_write(const mha__kernels *k, const mha__stored *as, int64_t rows, int64_t width, const void *from,
                    int64_t stride, double scale, const mha__bwd_turn *turn, void *to, const mha_view *view,
                    const mha__scratch *x);
/* Writes contiguous rows of reals to a view of reals, starting at row `to`. */
void mha__bwd_scatter(const mha__kernels *k, int64_t rows, int64_t width, const void *from, void *to,
                      const mha_view *view);
/* Rotates contiguous rows of reals back in place. */
void mha__bwd_turn_back(const mha__bwd_turn *turn, int64_t rows, int64_t width, void *x);
/* Writes dk and dv of keys [first, end) of (b, g) from the sums of part 0, or of the only part. */
void mha__bwd_write_keys(const mha__bwd_call *call, int64_t b, int64_t g, int64_t first, int64_t end, int64_t slot,
                         const mha__scratch *x);
int64_t mha__bwd_merges(const mha__bwd_call *call);
/* Lists the entries of the block table by page, for mha__bwd_page. */
void mha__bwd_list_uses(const mha__bwd_call *call);
/* Returns the number of items of mha__bwd_page. */
int64_t mha__bwd_pages(const mha__bwd_call *call);

/* ---- backward_bias.c, backward_head_params.c ---- */

int64_t mha__bwd_bias_tasks(const mha__bwd_call *call);
void mha__bwd_write_heads(const mha__bwd_call *call);

/* ---- tasks ---- */

/* Runs the backward pass of a call. */
mha_status mha__bwd_run_all(mha__bwd_call *call, mha_error *err);

void mha__bwd_task(void *call, int64_t item, int worker);  /* item: index below plan->bwd.tasks */
void mha__bwd_merge(void *call, int64_t item, int worker); /* item: index of a block of keys whose parts are summed */
void mha__bwd_page(void *call, int64_t item, int worker);  /* item: index of a block of rows of a page */
void mha__bwd_bias(void *call, int64_t item, int worker);  /* item: index below mha__bwd_bias_tasks */

#endif
