/* kv_fetch.h - locates keys and values in the caller's dense view or in one page, or gathers them from several pages.
 *
 * A run is a range of keys within one block of MHA__KEY_BLOCK keys. Blocks start at the same positions for any page
 * size, so paged and dense calls give bitwise identical results. Page sizes are powers of two, so a block is either
 * within one page or consists of whole pages. */
#ifndef MHA_ATTN_PLAN_KV_FETCH_H
#define MHA_ATTN_PLAN_KV_FETCH_H

#include "attn/plan/scratch.h"
#include <string.h>

/* Element d of key j of the run is data[j * row + d * col]. */
typedef struct mha__run {
    const void *data; /* NULL if all keys of the run are in dropped pages */
    int64_t row, col;
} mha__run;

/* Returns keys [start, start + keys) of `view` (k or v of the call) for batch b and key/value head g. `width` is the
 * number of elements per key, or of blocks in a block type. Keys in several pages are gathered into `gathered`
 * (MHA__KEY_BLOCK * width elements); keys of dropped pages become zeros. */
mha__run mha__keys_run(const mha__call *call, const mha_cview *view, int64_t width, int64_t b, int64_t g, int64_t start,
                       int64_t keys, void *gathered);

/* Returns the keys of mha__keys_run in place, as one piece per page. The elements of a key must be contiguous. */
mha__pieces mha__keys_pieces(const mha__call *call, const mha_cview *view, int64_t width, int64_t b, int64_t g,
                             int64_t start, int64_t end);

/* Sets s to -infinity for keys [first, end) of a panel that are in dropped pages. Returns false if no key is in a
 * dropped page. */
bool mha__pages_mask(const mha__call *call, int64_t b, int64_t first, int64_t end, int64_t lanes, void *s);

/* Copies `count` elements, `col` apart, to contiguous elements. */
static inline void mha__copy_row(int64_t count, size_t size, const char *from, int64_t col, char *to)
{
    const int64_t run = col == 1 ? count : 1; /* number of contiguous elements */
    for (int64_t i = 0; i < count; i += run)
        memcpy(to + i * (int64_t)size, from + i * col * (int64_t)size, (size_t)run * size);
}

/* Returns true if pages are smaller than a block, so that keys must be gathered into scratch memory. `resolved` is
 * the result of mha__attn_resolve. */
static inline bool mha__pages_gathered(const mha_attn_desc *resolved)
{
    return resolved->page_size > 0 && resolved->page_size < MHA__KEY_BLOCK;
}

#endif
