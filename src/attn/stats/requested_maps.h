/* requested_maps.h - determines which heads and rows of probs and scores are requested, and writes their elements. */
#ifndef MHA_ATTN_STATS_REQUESTED_MAPS_H
#define MHA_ATTN_STATS_REQUESTED_MAPS_H

#include "attn/mask/mask.h"

/* Returns true if a map of any of these rows is requested. */
bool mha__maps_want(const mha__call *call, const mha__rows *rows);

/* Returns true if a map of row `lane` of `rows` is requested. */
bool mha__maps_want_row(const mha__call *call, const mha__rows *rows, int64_t lane);

/* Writes a panel `s` of `rows` and keys [start, start + keys) to its positions in `map`. */
void mha__maps_write(const mha__call *call, const mha_view *map, const mha__rows *rows, int64_t start, int64_t keys,
                     const void *s);

#endif
