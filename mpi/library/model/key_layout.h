/* key_layout.h - defines which keys of a growing sequence each rank of a cp group caches, and lists the keys for the
 * exchange of partial results. */
#ifndef MHA_MPI_KEY_LAYOUT_H
#define MHA_MPI_KEY_LAYOUT_H

#include "library/shard_call.h"

/* A prompt is divided by mha_cluster_part_of. The last chunk of MHA_ATTN_CHUNK keys, if incomplete, grows on its rank;
 * later chunks belong to the ranks in turn. Ranges 0 and 1 of a rank are its parts of the prompt; each later chunk is
 * one more range. */
typedef struct mha__key_layout {
    int cp;
    int64_t prompt, length; /* tokens of the prompt, and of the whole sequence */
} mha__key_layout;

/* Returns the number of ranges of a rank. Some ranges may be empty. */
int64_t mha__layout_ranges(const mha__key_layout *layout, int cp_rank);
/* Returns a range; `local` is not set. */
mha__range mha__layout_range(const mha__key_layout *layout, int cp_rank, int64_t n);

/* Returns the largest power of two that is at most the number of ranks. */
int mha__layout_power(const mha__key_layout *layout);

/* Lists the largest subtrees (mha_attn_subtree) of the keys of the ranks [first, first + count) in `parts`, unless it
 * is NULL, and returns their number. With `adds`, the list includes the keys of rank r + mha__layout_power for each of
 * these ranks r. The rows are not set. `ranges` is scratch memory for the ranges of all ranks. */
int64_t mha__list_keys(const mha__key_layout *layout, int first, int count, bool adds, mha__range *ranges,
                       mha_attn_partial *parts);

#endif
