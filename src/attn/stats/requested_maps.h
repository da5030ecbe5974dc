/* requested_maps.h - which heads and rows of the maps, probs and scores, were asked for, and where their numbers go. */
#ifndef MHA_ATTN_STATS_REQUESTED_MAPS_H
#define MHA_ATTN_STATS_REQUESTED_MAPS_H

#include "attn/mask/mask.h"

/* True if anything of these rows was asked for. */
bool mha__maps_want(const mha__call *call, const mha__rows *rows);

/* True if row `lane` of them was. */
bool mha__maps_want_row(const mha__call *call, const mha__rows *rows, int64_t lane);

/* A panel `s` of the rows, keys [start, start + keys), to its places in `map`. */
void mha__maps_write(const mha__call *call, const mha_view *map, const mha__rows *rows, int64_t start, int64_t keys,
                     const void *s);

#endif
