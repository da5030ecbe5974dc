/* attention_stats.h - statistics of rows and keys from the tiles of the forward pass, in memory that grows with L.
 *
 * When maximum and sum of a tile's rows are final, its scores are computed once more, block by block, and each panel of
 * them is summed here as it becomes probabilities. A row's sums run over its keys in ascending order, blocks of them
 * first, so its bits do not depend on the tile. What a key receives is summed over all rows of a head, so with it a
 * task is a whole head, whose tiles follow each other in one order.
 */
#ifndef MHA_ATTN_STATS_ATTENTION_STATS_H
#define MHA_ATTN_STATS_ATTENTION_STATS_H

#include "attn/mask/mask.h"

/* Moves the views of rows to row `row`, in a call of one of the packed sequences. */
void mha__stats_move(mha_attn_stats *stats, size_t real_size, int64_t row);

/* True if what keys receive is wanted: a task is a whole head then. */
bool mha__stats_receives(const mha__call *call);

/* One head of the call: its keys have received nothing yet, or all that they will. */
void mha__stats_open_head(const mha__call *call, const mha__scratch *scratch);
void mha__stats_close_head(const mha__call *call, const mha__scratch *scratch, int64_t head);

/* One tile: its rows have seen nothing yet, or everything. `result` is that of `rows`, inverse in the scratch memory.
 * */
void mha__stats_open_tile(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows);
void mha__stats_close_tile(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows,
                           const mha__partial *result);

/* One panel of the tile, its rows `row` and on: keys [first, first + keys) of the block that begins at `start`. Makes
 * probabilities of the scores in s, as kernels->probs does, and adds them to the sums of their rows. */
void mha__stats_panel(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t row,
                      int64_t start, int64_t first, int64_t keys, const void *max, void *s);

/* What keys receive from a panel of probabilities. */
void mha__stats_receive(const mha__call *call, const mha__scratch *scratch, int64_t first, int64_t keys, int64_t lanes,
                        const void *probs);

/* The entropy of a row with these sums, in bits; `sum` is that of its weights before they were divided by it. */
double mha__stats_entropy(const mha__row_sums *sums, double sum);

#endif
