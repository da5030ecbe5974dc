/* attention_stats.h - statistics of rows and keys from the tiles of the forward pass, in memory that grows with L.
 *
 * Once the maximum and sum of a tile's rows are final, its scores are recomputed block by block. Each panel of scores
 * is converted to probabilities, which are then added to the sums. The sums of a row add its keys in ascending order,
 * block by block, so they do not depend on the tile. The mass that a key receives is summed over all rows of a head. If
 * it is requested, a task is therefore a whole head, with its tiles in order. */
#ifndef MHA_ATTN_STATS_ATTENTION_STATS_H
#define MHA_ATTN_STATS_ATTENTION_STATS_H

#include "attn/mask/mask.h"

/* Moves the per-row views to row `row`, for a call restricted to one packed sequence. */
void mha__stats_move(mha_attn_stats *stats, size_t real_size, int64_t row);

/* Returns true if the mass received by keys is requested, which makes a task a whole head. */
bool mha__stats_receives(const mha__call *call);

/* Begin and end the sums over one head of the call. */
void mha__stats_open_head(const mha__call *call, const mha__scratch *scratch);
void mha__stats_close_head(const mha__call *call, const mha__scratch *scratch, int64_t head);

/* Begin and end the sums over one tile. `result` is the partial result of `rows`; 1 / sum is in `inverse` of the
 * scratch memory. */
void mha__stats_open_tile(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows);
void mha__stats_close_tile(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows,
                           const mha__partial *result);

/* Processes one panel of the tile, starting at row `row`, for keys [first, first + keys) of the block at `start`.
 * Converts the scores in s to probabilities, as kernels->probs does, and adds them to the sums of their rows. */
void mha__stats_panel(const mha__call *call, const mha__scratch *scratch, const mha__rows *rows, int64_t row,
                      int64_t start, int64_t first, int64_t keys, const void *max, void *s);

/* Adds a panel of probabilities to the received mass of its keys. */
void mha__stats_receive(const mha__call *call, const mha__scratch *scratch, int64_t first, int64_t keys, int64_t lanes,
                        const void *probs);

/* Returns the entropy in bits of a row with these sums. `sum` is the sum of its weights before normalization. */
double mha__stats_entropy(const mha__row_sums *sums, double sum);

#endif
