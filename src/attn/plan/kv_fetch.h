/* kv_fetch.h - where a run of keys or values lies: in the caller's dense view, in a page of it, or gathered from pages.
 *
 * A run lies within one block of MHA__KEY_BLOCK keys. Blocks stand at absolute positions whatever the pages are, so a
 * paged call has the bits of a dense one. Page sizes are powers of two: a block lies in one page, or holds whole pages.
 */
#ifndef MHA_ATTN_PLAN_KV_FETCH_H
#define MHA_ATTN_PLAN_KV_FETCH_H

#include "attn/plan/scratch.h"

/* Number d of key j of a run is at data[j * row + d * col]. */
typedef struct mha__run {
    const void *data; /* NULL: all keys of the run are in dropped pages */
    int64_t row, col;
} mha__run;

/* Keys [start, start + keys) of `view`, k or v of the call, `width` numbers each (of q8_0: in blocks), for batch b and
 * key/value head g. Gathers into `gathered` (MHA__KEY_BLOCK * width numbers) where they lie in several pages; keys of
 * dropped pages are zeros there. */
mha__run mha__keys_run(const mha__call *call, const mha_cview *view, int64_t width, int64_t b, int64_t g, int64_t start,
                       int64_t keys, void *gathered);

/* The same keys where they lie; k and v with adjacent numbers. */
mha__pieces mha__keys_pieces(const mha__call *call, const mha_cview *view, int64_t width, int64_t b, int64_t g,
                             int64_t start, int64_t end);

/* s = -inf in the rows of a panel, keys [first, end), that belong to dropped pages. False if there are none. */
bool mha__pages_mask(const mha__call *call, int64_t b, int64_t first, int64_t end, int64_t lanes, void *s);

/* True if keys are gathered, so that scratch memory for them is needed. `resolved` as in params.h. */
static inline bool mha__pages_gathered(const mha_attn_desc *resolved)
{
    return resolved->page_size > 0 && resolved->page_size < MHA__KEY_BLOCK;
}

#endif
