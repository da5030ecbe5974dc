/* shard_layout.c - the rows and keys of a sequence that each rank stores. */
#include "library/cluster_struct.h"

/* Every rank stores whole chunks of the operator's merge tree, so merged shards are bitwise identical to one call. */
mha_cluster_part mha_cluster_part_of(int64_t length, int cp, int cp_rank)
{
    mha_cluster_part part = {{0}, {0}};
    if (length < 0 || cp < 1 || cp_rank < 0 || cp_rank >= cp) return part;
    const int64_t each = 2 * (int64_t)cp * MHA_ATTN_CHUNK;
    const int64_t size = (length / each + (length % each != 0)) * MHA_ATTN_CHUNK;
    const int64_t number[2] = {cp_rank, 2 * (int64_t)cp - 1 - cp_rank};
    for (int n = 0; n < 2; n++) {
        part.start[n] = mha__least(number[n] * size, length);
        part.length[n] = mha__least(size, length - part.start[n]);
    }
    return part;
}
